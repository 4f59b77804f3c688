/* See text.h. The assembler finds the files in csrc/, as the compiler does. */
#include "kernels/cuda/text.h"

#define EMBED(name, file)                                                                          \
    __asm__(".pushsection .rodata\n.globl " #name "\n.hidden " #name "\n" #name ":\n"              \
            ".incbin \"" file "\"\n.byte 0\n.popsection\n")

EMBED(reduce_text_sum, "kernels/cuda/sum.cuh");
EMBED(reduce_text_pass, "kernels/cuda/pass.h");
