/* The kernels, every level and element type, against reduce_reference.h: to the bit. */
/* short run: c */
#include "reduce_cases.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* A NaN that is not the quiet one, alone among numbers, at every place. */
static void check_one_nan(const reduce_kernels *level, wagma_dtype dtype) {
    static const uint64_t nans[] = {0xffc12345, UINT64_C(0xfff8000012345678), 0xfe12, 0xffd1};
    enum { COUNT = 300, N = 3 };
    const size_t size = reduce_dtype_size(dtype);
    unsigned char numbers[N][COUNT * 8], expected[COUNT * 8], out[2][COUNT * 8];
    const void *in[N] = {numbers[0], numbers[1], numbers[2]};
    const double weights[] = {1, 1, 1};
    if (reduce_dtype_is_integer(dtype))
        return;
    for (size_t at = 0; at < COUNT; at++) {
        const int n = 1 + (int)(at / 7 % N);
        memset(numbers, 0x11, sizeof numbers);
        memcpy(numbers[n - 1] + at * size, &nans[dtype], size);
        reference_sum(dtype, expected, in, weights, n, 1.0, COUNT);
        level->sum_to_all(dtype, (void *[]){out[0], out[1]}, 2, in, weights, n, 1.0, COUNT);
        for (int k = 0; k < 2; k++)
            CHECK(memcmp(out[k], expected, COUNT * size) == 0, "%s %s %zu of %d outs[%d]",
                  level->name, reduce_dtype_name(dtype), at, n, k);
    }
}
static void test_one_nan(void) {
    each(check_one_nan);
}

/* Outputs: apart, equal to the inputs, equal to them in another order, fewer or more. */
static void check_sum_to_all(const reduce_kernels *level, wagma_dtype dtype) {
    enum { APART, EQUAL, REVERSED, FORMS };
    for (int n = 1; n <= MAX_N; n++)
        for (int turn = 0; turn < FORMS * KINDS; turn++) {
            const int form = turn / KINDS, kind = turn % KINDS;
            arena a = arena_make(dtype, MANY, MAX_N, (unsigned)(n * 4));
            double weights[MAX_N], divisor = draw_kind(kind, dtype, weights, n);
            int n_outs = form == APART ? MAX_N + 1 - n : n;
            void *outs[MAX_N];
            for (int k = 0; k < n_outs; k++)
                outs[k] = form == APART ? a.out[k] : form == EQUAL ? a.in[k] : a.in[n - 1 - k];
            const void *const *in = (const void *const *)a.in;
            arena_expect(&a, dtype, weights, n, divisor);
            level->sum_to_all(dtype, outs, n_outs, in, weights, n, divisor, MANY);
            int equal = 1;
            for (int k = 0; k < n_outs; k++)
                equal &= memcmp(outs[k], a.expected, a.bytes) == 0;
            free(a.memory);
            CHECK(equal, "%s %s n=%d form %d kind %d", level->name, reduce_dtype_name(dtype), n,
                  form, kind);
        }
}
static void test_sum_to_all(void) {
    each(check_sum_to_all);
}

static void check_without_weights_the_sum_is_zero(const reduce_kernels *level, wagma_dtype dtype) {
    static const double weights[3] = {0, 0, 0};
    for (int n = 0; n <= 3; n++) {
        const void *in[3] = {NULL, NULL, NULL};
        unsigned char a[MANY * 8], b[MANY * 8];
        void *outs[2] = {a, b};
        size_t bytes = MANY * reduce_dtype_size(dtype);
        memset(a, 0xa5, sizeof a);
        memset(b, 0xa5, sizeof b);
        level->sum_to_all(dtype, outs, 2, in, weights, n,
                          0.5 + 0.5 * reduce_dtype_is_integer(dtype), MANY);
        for (size_t i = 0; i < bytes; i++)
            CHECK(a[i] == 0 && b[i] == 0, "%s %s", level->name, reduce_dtype_name(dtype));
    }
}
static void test_without_weights_the_sum_is_zero(void) {
    each(check_without_weights_the_sum_is_zero);
}

static void test_table_of_types(void) {
    static const char *const names[DTYPES] = {"float32",  "float64", "float16",
                                              "bfloat16", "int32",   "int64"};
    static const size_t sizes[DTYPES] = {4, 8, 2, 2, 4, 8};
    for (wagma_dtype dtype = WAGMA_F32; dtype <= WAGMA_I64; dtype++) {
        CHECK(strcmp(reduce_dtype_name(dtype), names[dtype]) == 0, "%s", reduce_dtype_name(dtype));
        CHECK(reduce_dtype_size(dtype) == sizes[dtype], "%s", names[dtype]);
        CHECK(reduce_dtype_is_integer(dtype) == (dtype >= WAGMA_I32), "%s", names[dtype]);
    }
    CHECK(reduce_dtype_size((wagma_dtype)DTYPES) == 0, "unknown type");
    CHECK(reduce_dtype_is_integer((wagma_dtype)DTYPES) == 0, "unknown type");
    CHECK(reduce_dtype_name((wagma_dtype)99) != NULL, "unknown type");
}

static void test_choice_of_the_level(void) {
    CHECK(reduce_by_name("sse9") == NULL && reduce_by_name("") == NULL, "unknown level");
    CHECK(reduce_by_name("scalar") != NULL, "scalar");
    const reduce_kernels *last = levels[n_levels - 1];
    for (int l = 0; l <= n_levels; l++) { /* at last a name that does not exist */
        const char *name = l < n_levels ? levels[l]->name : "sse9";
        pid_t child = fork(); /* the choice is made once per process */
        if (child == 0) {
            setenv("WAGMA_SIMD", name, 1);
            _exit(reduce_best() == (l < n_levels ? levels[l] : last) ? 0 : 1);
        }
        int status = -1;
        CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0, "%s", name);
    }
    unsetenv("WAGMA_SIMD");
    CHECK(reduce_best() == last && reduce_best() == last, "%s", reduce_best()->name);
}

int main(void) {
    static const char *const names[] = {"scalar", "avx2", "avx512"};
    for (int l = 0; l < 3; l++)
        if (reduce_by_name(names[l]))
            levels[n_levels++] = reduce_by_name(names[l]);
        else
            printf("%s: not on this processor\n", names[l]);
    RUN(test_choice_of_the_level);
    RUN(test_table_of_types);
    run_cases();
    RUN(test_one_nan);
    RUN(test_sum_to_all);
    RUN(test_without_weights_the_sum_is_zero);
    return check_summary();
}
