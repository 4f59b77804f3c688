# MPICH, as pip installs it or as a module: the batch scripts source this.
#
# VENV: environment with wagma, mpi4py and torch (default: .venv in the folder of the submission).

# module load mpich
source "${VENV:-.venv}/bin/activate"

# Of srun --mpi: pmi2, or pmix where this MPICH was built with it; srun --mpi=list shows what there is.
MPI_TYPE=${MPI_TYPE:-pmi2}
MPIEXEC=(mpiexec -n "${SLURM_NTASKS:-1}" -bind-to "core:${SLURM_CPUS_PER_TASK:-1}")
MPIEXEC_SIGNAL=TERM # it dies of USR2
