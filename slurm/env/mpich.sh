# MPICH, as pip installs it or as a module: the batch scripts source this.
#
# VENV: environment with wagma, mpi4py and torch (default: .venv in the folder of the submission).

# module load mpich
source "${VENV:-.venv}/bin/activate"

# Name the kind of srun --mpi: pmi2, or pmix if this MPICH was built with it; see srun --mpi=list.
MPI_TYPE=${MPI_TYPE:-pmi2}
# export MPIR_CVAR_CH4_NETMOD=ofi # where pmi2 says "value not properly terminated": docs/slurm.md
MPIEXEC=(mpiexec -n "${SLURM_NTASKS:-1}" -bind-to "core:${SLURM_CPUS_PER_TASK:-1}")
MPIEXEC_SIGNAL=TERM # mpiexec dies of USR2

# Start the ranks in another step after each restart. MPICH names the shared memory of a node after
# job and step, and would attach what a killed run left there.
seq "${SLURM_RESTART_COUNT:-0}" | xargs -I{} srun --mpi=none --nodes=1 --ntasks=1 true
