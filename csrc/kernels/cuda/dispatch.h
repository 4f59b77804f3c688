/* reduce_launch(): the kernel of an element type, and the number of its blocks. Included at the end
 * of a file, which defines
 *
 *     template <class E> static int launch(const reduce_pass &pass, unsigned blocks, void *stream)
 */

/* Blocks take turns on the multiprocessors. So many do that evenly on every GPU, and are still few
 * enough to begin quickly. */
const unsigned MOST_BLOCKS = 16384;

template <class E> static int launch_enough(const reduce_pass &pass, void *stream) {
    const size_t elements = BLOCK_THREADS * PACK_BYTES / sizeof(typename E::stored); /* per block */
    const size_t blocks = (pass.count - 1) / elements + 1;
    return launch<E>(pass, blocks < MOST_BLOCKS ? (unsigned)blocks : MOST_BLOCKS, stream);
}

extern "C" int reduce_launch(wagma_dtype dtype, const reduce_pass *pass, void *stream) {
    switch (dtype) {
    case WAGMA_F32: return launch_enough<element_f32>(*pass, stream);
    case WAGMA_F64: return launch_enough<element_f64>(*pass, stream);
    case WAGMA_F16: return launch_enough<element_f16>(*pass, stream);
    case WAGMA_BF16: return launch_enough<element_bf16>(*pass, stream);
    case WAGMA_I32: return launch_enough<element_i32>(*pass, stream);
    case WAGMA_I64: return launch_enough<element_i64>(*pass, stream);
    }
    return 1; /* cudaErrorInvalidValue */
}
