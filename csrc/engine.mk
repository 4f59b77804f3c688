# What libwagma is made of; read by the Makefile, setup.py and tests/explore/build.py (NAME = words).
# protocol/round.c and protocol/quorum_all.c are included by shm/*/memory.c.
ENGINE_SOURCES = csrc/base/*.c csrc/kernels/*.c csrc/kernels/cuda/*.c csrc/protocol/activation*.c csrc/protocol/graph.c csrc/protocol/schedule.c csrc/protocol/topology.c csrc/engine/*.c csrc/device/*.c csrc/device/cuda/*.c csrc/staged/*.c csrc/shm/*.c csrc/shm/*/*.c csrc/messages/*.c csrc/messages/*/*.c csrc/trace/*.c csrc/api/*.c
# No -march: what is installed runs on every CPU, the kernels dispatch at run time.
# No contraction into FMA: a sum has the same bits in every kernel.
ENGINE_CFLAGS = -Icsrc -std=gnu11 -O3 -ffp-contract=off -fvisibility=hidden -pthread
ENGINE_LIBS = -lm -ldl
# libwagma_mpi, compiled with the compiler of an MPI; and the Python module around it.
MPI_SOURCES = csrc/mpi/*.c
MPI_MODULE = csrc/mpi/python/module.c
# The part of libwagma_mpi that calls the engine; Python has its own in its place.
MPI_LIBRARY = csrc/mpi/library/*.c
MPI_CFLAGS = -std=gnu11 -O3 -fvisibility=hidden -Icsrc
# The CUDA kernels on the host, for the tests.
HOST_CXXFLAGS = -Icsrc -std=gnu++14 -ffp-contract=off -fno-exceptions -fno-rtti
