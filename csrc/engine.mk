# What libwagma is made of; read by the Makefile and by setup.py (NAME = words).
ENGINE_SOURCES = csrc/*.c
# No -march: what is installed runs on every CPU, the kernels dispatch at run time.
# No contraction into FMA: a sum has the same bits in every kernel.
ENGINE_CFLAGS = -std=gnu11 -O3 -ffp-contract=off -fvisibility=hidden -pthread
ENGINE_LIBS = -lm
