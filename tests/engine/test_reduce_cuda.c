/* The CUDA kernels on the host, thread by thread: the cases of the CPU kernels, and what is theirs
 * alone against the scalar kernels. To the bit. */
/* short run: c */
/* needs a C++ compiler */
#include "cuda_on_host.h"
#include "kernels/cuda/reduce_cuda.h"
#include "reduce_cases.h"

/* ---- the kernels as a level of the CPU kernels ----------------------------------------------- */

static int launches, fails; /* status of launches, which then do nothing */
static unsigned launched;   /* blocks that the last launch asked for */

static int launch(void *context, wagma_dtype dtype, const reduce_pass *pass, unsigned blocks) {
    char name[64];
    (void)context;
    launches++;
    launched = blocks;
    snprintf(name, sizeof name, "weighted_sum_%s", reduce_dtype_name(dtype));
    if (!fails)
        cuda_on_host_run(cuda_on_host_find(name), blocks, pass);
    return fails;
}

static void sum(wagma_dtype dtype, void *out, const void *const *in, const double *weights, int n,
                double divisor, size_t count) {
    const size_t bytes = reduce_cuda_scratch(dtype, n, count);
    void *scratch = bytes > 0 ? aligned_alloc(64, (bytes + 63) / 64 * 64) : NULL;
    if (reduce_cuda_sum(dtype, out, in, weights, n, divisor, count, scratch, launch, NULL) != 0)
        abort();
    free(scratch);
}

/* The device copies by itself where nothing is divided. */
static void divided_copy(wagma_dtype dtype, void *out, const void *x, double divisor,
                         size_t count) {
    static const double weight = 1;
    if (divisor == 1 || reduce_dtype_is_integer(dtype))
        memmove(out, x, count * reduce_dtype_size(dtype));
    else
        sum(dtype, out, &x, &weight, 1, divisor, count);
}

static const reduce_kernels cuda = {.name = "cuda",
                                    .sum = sum,
                                    .streamed_sum = sum,
                                    .divided_copy = divided_copy,
                                    .streamed_copy = divided_copy};

/* ---- cases of their own ---------------------------------------------------------------------- */

static const int ns[] = {1, 2, 3, 4, 5, 64, 65, 130};
enum { NS = 8 };

/* A sum into `out` apart and into each input (of many inputs into those at the ends of passes).
 * Return whether all have the scalar kernels' bits and nothing beside them is written. */
static int is_scalar_sum(wagma_dtype dtype, size_t count, int n, placement at) {
    arena a = arena_place(dtype, count, n, at);
    const void *const *in = (const void *const *)a.in;
    double weights[ARENA_N], divisor = draw_divisor(dtype);
    unsigned char *kept = malloc(a.bytes + 1);
    draw_weights(dtype, weights, n);
    reduce_by_name("scalar")->sum(dtype, a.expected, in, weights, n, divisor, count);
    sum(dtype, a.out[0], in, weights, n, divisor, count);
    int equal = memcmp(a.out[0], a.expected, a.bytes) == 0 && is_margin_intact(&a, a.out[0]);
    for (int k = 0; k < n; k++) {
        if (n > MAX_N && k != 0 && k != 63 && k != 64 && k != n - 1)
            continue;
        memcpy(kept, a.in[k], a.bytes);
        sum(dtype, a.in[k], in, weights, n, divisor, count);
        equal &= memcmp(a.in[k], a.expected, a.bytes) == 0 && is_margin_intact(&a, a.in[k]);
        memcpy(a.in[k], kept, a.bytes);
    }
    free(kept);
    free(a.memory);
    return equal;
}

static void check_sums(wagma_dtype dtype, size_t count, int n, placement at) {
    CHECK(is_scalar_sum(dtype, count, n, at), "%s count=%zu n=%d in %u + %u k, out %u",
          reduce_dtype_name(dtype), count, n, at.in, at.in_step, at.out);
}

/* Long sums with every few counts. */
static void test_every_count(void) {
    for (wagma_dtype dtype = WAGMA_F32; dtype <= WAGMA_I64; dtype++)
        for (int i = 0; i < NS; i++)
            for (size_t count = (unsigned)i; count <= 100;
                 count += ns[i] > 5 ? 7 * SLOWDOWN : SLOWDOWN)
                check_sums(dtype, count, ns[i], (placement){0, 0, 0, 0});
}

/* Fill one block, two, and as many as a grid has; beyond that blocks take turns. */
static void test_counts_around_blocks(void) {
    cuda_on_host.most_blocks = 3;
    for (wagma_dtype dtype = WAGMA_F32; dtype <= WAGMA_I64; dtype++) {
        const size_t block = 256 * 16 / reduce_dtype_size(dtype);
        for (int i = 0; i < NS; i += 2)
            for (size_t blocks = 1; blocks <= (ns[i] > 5 ? 1 : 4); blocks++)
                for (size_t count = blocks * block - 1; count <= blocks * block + 1; count++)
                    check_sums(dtype, count, ns[i], (placement){0, 0, 0, 0});
    }
    cuda_on_host.most_blocks = ~0u;
}

/* All arrays 0..15 elements beyond a boundary; only the output; each input elsewhere. */
static void test_every_alignment(void) {
    for (wagma_dtype dtype = WAGMA_F32; dtype <= WAGMA_I64; dtype++) {
        const unsigned size = (unsigned)reduce_dtype_size(dtype);
        for (int i = 0; i < NS; i++)
            for (unsigned beyond = (unsigned)i % SLOWDOWN; beyond < 16; beyond += SLOWDOWN) {
                const unsigned at = beyond * size;
                check_sums(dtype, 37 + beyond, ns[i], (placement){at, 0, at, 0});
                check_sums(dtype, 37 + beyond, ns[i], (placement){0, 0, at, 0});
                check_sums(dtype, 37 + beyond, ns[i], (placement){at, size, 0, 0});
            }
    }
}

/* The grid's size and the order of its threads do not matter. */
static void test_every_grid(void) {
    static const unsigned grids[][2] = {{1, 1}, {1, 3}, {2, 7}, {5, 32}, {3, 256}};
    const struct cuda_on_host usual = cuda_on_host;
    for (size_t g = 0; g < sizeof grids / sizeof *grids; g++)
        for (int backwards = 0; backwards < 2; backwards++) {
            cuda_on_host.most_blocks = grids[g][0];
            cuda_on_host.threads = grids[g][1];
            cuda_on_host.backwards = backwards;
            for (wagma_dtype dtype = WAGMA_F32; dtype <= WAGMA_I64; dtype++)
                for (int i = 0; i < 3; i++)
                    check_sums(dtype, 2 * 2048 + 5, ns[i], (placement){8, 0, 8, 0});
        }
    cuda_on_host = usual;
}

/* Without inputs, or with weights of 0 alone, whatever the divisor. */
static void test_without_weights_the_sum_is_zero(void) {
    static const double weights[70] = {0}, divisors[] = {1, 0.5, -3, 0};
    const void *in[70] = {NULL};
    unsigned char out[MANY * 8];
    for (wagma_dtype dtype = WAGMA_F32; dtype <= WAGMA_I64; dtype++)
        for (int n = 0; n <= 70; n += 35)
            for (int d = 0; d < 4; d++) {
                memset(out, 0xa5, sizeof out);
                sum(dtype, out, in, weights, n, divisors[d], MANY);
                for (size_t i = 0; i < MANY * reduce_dtype_size(dtype); i++)
                    CHECK(out[i] == 0, "%s n=%d divisor=%g", reduce_dtype_name(dtype), n,
                          divisors[d]);
            }
}

/* Return how many launches a sum of n inputs takes, of which those from `used` on have weight 0. */
static int launches_of(int n, int used, size_t count) {
    static float x[10], out[10], scratch[10];
    const void *in[ARENA_N + 1];
    double weights[ARENA_N + 1];
    for (int k = 0; k < n; k++)
        in[k] = x, weights[k] = k < used;
    const int before = launches;
    if (reduce_cuda_sum(WAGMA_F32, out, in, weights, n, 1, count, scratch, launch, NULL) != 0)
        return -1;
    return launches - before;
}

static void test_passes(void) {
    static const int cases[][4] = {/* n, used, count, launches */
                                   {0, 0, 10, 1},   {1, 1, 10, 1},     {64, 64, 10, 1},
                                   {65, 65, 10, 2}, {65, 64, 10, 1},   {130, 130, 10, 3},
                                   {130, 0, 10, 1}, {130, 128, 10, 2}, {130, 130, 0, 0}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const int *at = cases[c], found = launches_of(at[0], at[1], (size_t)at[2]);
        CHECK(found == at[3], "n=%d used=%d count=%d: %d", at[0], at[1], at[2], found);
    }
}

/* A grid is never empty, has a thread for each pack, and is not larger than what is useful. */
static void test_number_of_blocks(void) {
    static const struct {
        size_t count;
        unsigned blocks;
    } cases[] = {{1, 1}, {1024, 1}, {1025, 2}, {1024 * 16384, 16384}, {(size_t)1 << 50, 16384}};
    const struct cuda_on_host usual = cuda_on_host;
    cuda_on_host.most_blocks = 0; /* nothing is run */
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        sum(WAGMA_F32, NULL, NULL, NULL, 0, 1, cases[c].count);
        CHECK(launched == cases[c].blocks, "%zu: %u", cases[c].count, launched);
    }
    cuda_on_host = usual;
}

/* The status of a launch ends the call. */
static void test_errors(void) {
    float x = 1, out = 2;
    const void *in[ARENA_N];
    double weights[ARENA_N];
    for (int k = 0; k < ARENA_N; k++)
        in[k] = &x, weights[k] = 1;
    fails = 35;
    const int before = launches;
    const int status =
        reduce_cuda_sum(WAGMA_F32, &out, in, weights, ARENA_N, 1, 1, &x, launch, NULL);
    CHECK(status == 35 && launches == before + 1, "%d", status);
    fails = 0;
}

static void test_scratch(void) {
    static const size_t sizes[DTYPES] = {4, 8, 4, 4, 4, 8}; /* of the accumulation types */
    for (wagma_dtype dtype = WAGMA_F32; dtype <= WAGMA_I64; dtype++) {
        CHECK(reduce_cuda_scratch(dtype, 64, 10) == 0, "%s", reduce_dtype_name(dtype));
        CHECK(reduce_cuda_scratch(dtype, 65, 10) == 10 * sizes[dtype], "%s",
              reduce_dtype_name(dtype));
    }
}

int main(void) {
    levels[n_levels++] = &cuda;
    run_cases();
    RUN(test_every_count);
    RUN(test_counts_around_blocks);
    RUN(test_every_alignment);
    RUN(test_every_grid);
    RUN(test_without_weights_the_sum_is_zero);
    RUN(test_passes);
    RUN(test_number_of_blocks);
    RUN(test_errors);
    RUN(test_scratch);
    return check_summary();
}
