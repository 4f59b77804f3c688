# Cray MPICH on HPE Cray EX and XC: the batch scripts source this. There is no mpiexec: take srun.
#
# VENV: environment with wagma, mpi4py and torch (default: .venv in the folder of the submission).

# module load PrgEnv-gnu cray-mpich
source "${VENV:-.venv}/bin/activate"
export MPI4PY_LIBMPI=${MPI4PY_LIBMPI:-${CRAY_MPICH_DIR:?load the module cray-mpich}/lib/libmpi_gnu.so}

# Name the kind of srun --mpi: cray_shasta on EX; none on XC, where srun sets up the ranks by default.
MPI_TYPE=${MPI_TYPE:-cray_shasta}
export MPICH_MAX_THREAD_SAFETY=multiple # messages are sent while a rank computes: docs/progress.md
