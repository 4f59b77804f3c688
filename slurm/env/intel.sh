# Intel MPI: the batch scripts source this.
#
# VENV: environment with wagma, mpi4py and torch (default: .venv in the folder of the submission).

# module load intel-oneapi-mpi
source "${VENV:-.venv}/bin/activate"
export MPI4PY_LIBMPI=${MPI4PY_LIBMPI:-${I_MPI_ROOT:?load the module of Intel MPI}/lib/libmpi.so.12}

# Name the kind of srun --mpi. srun needs Slurm's own PMI library, with which mpiexec does not work.
MPI_TYPE=${MPI_TYPE:-pmi2}
export I_MPI_PMI_LIBRARY=${I_MPI_PMI_LIBRARY:-/usr/lib64/libpmi2.so}
export I_MPI_PIN_DOMAIN=${SLURM_CPUS_PER_TASK:-1} # cores of a rank under mpiexec
MPIEXEC=(env -u I_MPI_PMI_LIBRARY mpiexec -bootstrap slurm -n "${SLURM_NTASKS:-1}")
export I_MPI_JOB_SIGNAL_PROPAGATION=on
MPIEXEC_SIGNAL=TERM
