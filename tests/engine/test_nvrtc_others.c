/* The text of the kernels, compiled for the GPUs that test_nvrtc.c leaves out. */
#define ARCHS 80, 86, 89, 90, 100

#include "test_nvrtc.c"
