# Open MPI, as pip installs it or as a module: the batch scripts source this.
#
# VENV: environment with wagma, mpi4py and torch (default: .venv in the folder of the submission).

# module load openmpi
source "${VENV:-.venv}/bin/activate"

# Name the kind of srun --mpi. Take mpiexec where srun --mpi=list does not show pmix.
MPI_TYPE=${MPI_TYPE:-pmix}
MPIEXEC=(mpiexec -n "${SLURM_NTASKS:-1}" --map-by "slot:PE=${SLURM_CPUS_PER_TASK:-1}" --bind-to core)
MPIEXEC_SIGNAL=USR2 # mpiexec ends the ranks when it gets TERM
