/* The segment: layout, names, joining. */
/* short run: c */
#include "check.h"
#include "kernels/reduce.h"
#include "protocol/round.h"
#include "shm/segment.h"
#include "segment_files.h"
#include "support.h"

#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static wagma_options options_for(int size, int group_size, int quorum, int64_t count) {
    wagma_options o;
    wagma_options_init(&o);
    o.size = size;
    o.group_size = group_size;
    o.quorum = quorum;
    o.count = count;
    return o;
}

static void test_too_large(void) {
    static const int64_t counts[] = {INT64_MAX, INT64_MAX / 4, INT64_MAX / 64, INT64_C(1) << 46};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        wagma_segment *s = (wagma_segment *)&s;
        wagma_options o = options_for(64, 4, 1, counts[i]);
        int status = wagma_segment_create(&o, NULL, &s);
        CHECK(status < 0 && s == NULL, "count %ld: %d", (long)counts[i], status);
        CHECK(i > 2 || status == WAGMA_EINVAL, "count %ld: %d", (long)counts[i], status);
        CHECK(strlen(wagma_last_error()) > 20, "%s", wagma_last_error());
    }
}

/* ---- layout ---------------------------------------------------------------------------------- */

/* Nothing overlaps, everything is aligned, and it fits. */
static void check_layout(const wagma_options *options) {
    wagma_segment s = {.options = *options};
    CHECK(wagma_options_check(&s.options) == WAGMA_OK && segment_layout(&s) == WAGMA_OK, "%s",
          wagma_last_error());
    const wagma_options *o = &s.options;
    uint64_t n = s.bytes_n, w = 8, P = (uint64_t)s.size, element = n ? n / (uint64_t)o->count : 4;
    int all = o->quorum == o->group_size;
    CHECK(n == (uint64_t)o->count * reduce_dtype_size((wagma_dtype)o->dtype), "%lu", (long)n);
    const int remaps = !all && n >= segment_remap_min;
    const int buffers = (int)round_buffers_bound(
        &s.topology, o->activation == WAGMA_ACTIVATION_WORLD, 0, (uint64_t)o->window, remaps);
    CHECK(s.buffers == (all ? 0 : buffers), "%d", s.buffers);
    CHECK(s.rounds == (all ? 0 : 2 * s.size), "%d", s.rounds);
    const uint64_t parts[][2] = {{0, 4 * SEGMENT_LINE},
                                 {s.o_cref, w * (uint64_t)s.buffers},
                                 {s.o_slot, w * (uint64_t)s.slots},
                                 {s.o_arrival, w * (uint64_t)s.slots},
                                 {s.o_flat, 2 * s.flat_bytes},
                                 {s.o_meta, w * (uint64_t)s.buffers},
                                 {s.o_record, s.record_step * (uint64_t)s.rounds},
                                 {s.o_array, remaps ? 0 : n},
                                 {s.o_stage, all && n > SEGMENT_FLAT_MAX ? n : 0},
                                 {s.o_chunks, s.chunks_bytes},
                                 {s.o_contribution, s.item_step * (uint64_t)s.buffers},
                                 {s.o_result, s.item_step * (uint64_t)s.rounds}};
    uint64_t end = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        CHECK(parts[i][0] >= end && parts[i][0] % SEGMENT_LINE == 0, "part %zu at %lu", i,
              (long)parts[i][0]);
        end = parts[i][0] + parts[i][1];
    }
    CHECK(end <= s.region_bytes && s.region_bytes % 4096 == 0 && s.region_offset % 4096 == 0, "%lu",
          (long)s.region_bytes);
    CHECK(n < 1 << 20 || s.region_bytes % (2 << 20) == 0, "regions share a huge page");
    CHECK(s.bytes == s.region_offset + P * s.region_bytes &&
              s.region_offset >= sizeof(segment_header),
          "%lu", (long)s.bytes);
    CHECK(s.item_step >= s.item_memory && s.item_memory >= n && s.item_step % 64 == 0, "items");
    CHECK(n < 1 << 20 || (s.o_array % (2 << 20) == 0 && s.o_contribution % (2 << 20) == 0 &&
                          s.o_result % (2 << 20) == 0 && s.item_step % (2 << 20) == 0),
          "large arrays share huge pages");
    CHECK(s.record_step >= sizeof(segment_round) + 2 * w * P, "round");
    CHECK(s.slices >= 1 && s.slices <= 64, "%d slices", s.slices);
    CHECK((uint64_t)s.slices * s.slice_count >= (uint64_t)o->count &&
              ((uint64_t)s.slices - 1) * s.slice_count <= (uint64_t)o->count,
          "%d slices of %lu", s.slices, (long)s.slice_count);
    CHECK(s.slices == 1 || (s.slice_count * element >= 65536 && s.slice_count * element % 64 == 0),
          "slices of %lu", (long)s.slice_count);
}

static void test_layout(void) {
    static const int64_t counts[] = {0, 1, 3, 1000, 16384, 16385, 1 << 20, (1 << 20) + 1, 26214400};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        for (int dtype = WAGMA_F32; dtype <= WAGMA_I64; dtype++)
            for (int size = 1; size <= 9; size += 2)
                for (int quorum = 0; quorum <= 1; quorum++) {
                    wagma_options o = options_for(size, 0, quorum, counts[c]);
                    o.dtype = dtype;
                    o.average = 0;
                    o.window = dtype + 1;
                    check_layout(&o);
                }
    wagma_options many = options_for(WAGMA_MAX_RANKS, 2, 1, 1000);
    check_layout(&many);
}

/* 6 arrays at first: 3 contributions, 2 results and the array, which may be a contribution, too.
 * Then each of the others may keep one contribution, or two buffers. */
static void check_limit(int64_t count, int array) {
    const int all = array ? 4 + 2 * 7 : 3 + 7;
    wagma_options o = options_for(8, 4, 1, count);
    wagma_segment s = {.options = o};
    CHECK(wagma_options_check(&s.options) == 0 && segment_layout(&s) == 0, "%s",
          wagma_last_error());
    uint64_t joined = segment_joined_bytes(&s), n = segment_array_memory(s.bytes_n);
    CHECK(s.array_is_contribution == array && joined >= 6 * n && joined < 6 * n + 65536, "%lu",
          (long)joined);
    CHECK(segment_most_contributions(&s) == all && segment_most_rounds(&s) == 16, "unlimited");
    s.options.shm_limit = joined - 1;
    CHECK(segment_layout(&s) == WAGMA_ENOSPC, "below the least");
    char needed[32];
    snprintf(needed, sizeof needed, "%lu", (unsigned long)joined);
    CHECK(strstr(wagma_last_error(), needed), "%s", wagma_last_error());
    s.options.shm_limit = joined;
    CHECK(segment_layout(&s) == 0 && segment_most_contributions(&s) == 3 + array &&
              segment_most_rounds(&s) == 2,
          "%d %d", segment_most_contributions(&s), segment_most_rounds(&s));
    s.options.shm_limit = joined + 4 * n + 65536;
    CHECK(segment_most_contributions(&s) == 5 + array && segment_most_rounds(&s) == 4, "%d %d",
          segment_most_contributions(&s), segment_most_rounds(&s));
    s.options.shm_limit = joined + 40 * n;
    CHECK(segment_most_contributions(&s) == all && segment_most_rounds(&s) == 16, "%d %d",
          segment_most_contributions(&s), segment_most_rounds(&s));
}

static void test_memory_of_an_array(void) {
    static const uint64_t sizes[][2] = {{0, 0},
                                        {1, 4096},
                                        {4096, 4096},
                                        {1048575, 1048576},
                                        {1048576, 2 << 20},
                                        {2 << 20, 2 << 20},
                                        {3145727, 3 << 20},
                                        {3145728, 4 << 20},
                                        {16 << 20, 16 << 20}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        CHECK(segment_array_memory(sizes[i][0]) == sizes[i][1], "%lu bytes: %lu", (long)sizes[i][0],
              (long)segment_array_memory(sizes[i][0]));
}

static void test_memory_of_a_rank(void) {
    const int64_t count = 1 << 18; /* 1 MiB: the array may be a contribution */
    const uint64_t n = segment_array_memory((uint64_t)count * 4);
    wagma_options o = options_for(8, 4, 1, count);
    uint64_t first = 0, most = 0;
    CHECK(wagma_segment_memory(&o, &first, &most) == WAGMA_OK, "%s", wagma_last_error());
    CHECK(first == 6 * n && most == (18 + 16) * n, "%lu %lu", (long)first, (long)most);
    CHECK(wagma_segment_memory(NULL, &first, &most) == WAGMA_EINVAL &&
              strstr(wagma_last_error(), "options is NULL"),
          "%s", wagma_last_error());
    CHECK(wagma_segment_memory(&o, NULL, &most) == WAGMA_EINVAL &&
              strstr(wagma_last_error(), "first is NULL"),
          "%s", wagma_last_error());
    CHECK(wagma_segment_memory(&o, &first, NULL) == WAGMA_EINVAL &&
              strstr(wagma_last_error(), "most is NULL"),
          "%s", wagma_last_error());
    o.group_size = 9;
    CHECK(wagma_segment_memory(&o, &first, &most) == WAGMA_EINVAL, "a group of 9 of 8");
    o = options_for(2, 2, 1, INT64_C(1) << 59); /* 5 arrays of 2^61 bytes are more than 2^63 */
    o.memory = WAGMA_MEMORY_DEVICE;
    CHECK(wagma_segment_memory(&o, &first, &most) == WAGMA_EINVAL &&
              strstr(wagma_last_error(), "count is 576460752303423488"),
          "first is %lu: %s", (long)first, wagma_last_error());
}

static void test_limit(void) {
    check_limit((1 << 18) - 1024, 0);
    check_limit(1 << 18, 1);
}

/* ---- create, open, close --------------------------------------------------------------------- */

static void test_names(void) {
    static const char *const bad[] = {"x", "", "/", "/a/b"};
    wagma_options o = options_for(2, 0, 1, 10);
    wagma_segment *s, *t;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(wagma_segment_create(&o, bad[i], &s) == WAGMA_EINVAL && !s, "\"%s\"", bad[i]);
    const char *name = unique_name();
    CHECK(wagma_segment_open(&o, name, &t) == WAGMA_ESYS && !t, "opened before it was made");
    CHECK(wagma_segment_open(&o, NULL, &t) == WAGMA_EINVAL && !t, "opened without a name");
    CHECK(wagma_segment_create(&o, name, &s) == WAGMA_OK, "%s", wagma_last_error());
    CHECK(wagma_segment_create(&o, name, &t) == WAGMA_ESYS && !t, "made twice");
    CHECK(wagma_segment_open(&o, name, &t) == WAGMA_OK, "%s", wagma_last_error());
    atomic_store(segment_pub(s, 1), 42);
    CHECK(atomic_load(segment_pub(t, 1)) == 42, "not the same memory");
    wagma_segment_close(t);
    CHECK(files_left() == 1, "closing an opened segment removed it");
    CHECK(wagma_segment_unlink(s) == WAGMA_OK && files_left() == 0, "%s", wagma_last_error());
    CHECK(wagma_segment_unlink(s) == WAGMA_OK, "repeated: %s", wagma_last_error());
    wagma_segment_close(s);
    CHECK(wagma_segment_create(&o, name, &s) == WAGMA_OK, "%s", wagma_last_error());
    wagma_segment_close(s);
    CHECK(files_left() == 0, "the owner's close left the name");
    wagma_segment_close(NULL);
}

/* A caller that needs the segment for one handle only closes it as soon as it has that. */
static void test_closed_before_its_handle(void) {
    for (int quorum = 0; quorum < 2; quorum++) {
        wagma_options o = options_for(1, 0, quorum, 10);
        wagma_segment *s;
        wagma_handle *h;
        wagma_outcome outcome;
        float x[10] = {0};
        CHECK(wagma_segment_create(&o, unique_name(), &s) == WAGMA_OK, "%s", wagma_last_error());
        CHECK(wagma_create(s, 0, NULL, 1, NULL, &h) == WAGMA_OK, "%s", wagma_last_error());
        const int fd = s->fd;
        wagma_segment_close(s);
        CHECK(files_left() == 0, "the name stayed");
        x[9] = 7;
        CHECK(wagma_allreduce(h, x, 1, &outcome) == WAGMA_OK, "%s", wagma_last_error());
        CHECK(x[9] == 7, "%g", x[9]);
        CHECK(wagma_close(h) == WAGMA_OK, "%s", wagma_last_error());
        CHECK(fcntl(fd, F_GETFD) >= 0, "the segment ended before its handle");
        wagma_free(h);
        CHECK(fcntl(fd, F_GETFD) < 0, "the segment stayed");
    }
}

#define MISMATCH(field, value)                                                                     \
    do {                                                                                           \
        wagma_options other_ = o;                                                                  \
        other_.field = (value);                                                                    \
        CHECK(wagma_segment_open(&other_, name, &t) == WAGMA_EMISMATCH && !t, #field);             \
        CHECK(strstr(wagma_last_error(), #field) && strstr(wagma_last_error(), #value), "%s",      \
              wagma_last_error());                                                                 \
    } while (0)

/* Without a name, a segment is found by its address, and nothing else is. */
static void test_address(void) {
    wagma_options o = options_for(2, 2, 1, 100);
    wagma_segment *s, *t;
    char address[256], other[300];
    CHECK(wagma_segment_create(&o, NULL, &s) == WAGMA_OK, "%s", wagma_last_error());
    CHECK(wagma_segment_address(s, address, sizeof address) == WAGMA_OK, "%s", wagma_last_error());
    CHECK(strlen(address) <= 100 && wagma_segment_address(s, other, 8) == WAGMA_EINVAL, "%s",
          address);
    const pid_t pid = fork_child(); /* it has the file by its address, too */
    if (pid == 0)
        _exit(wagma_segment_open(&o, address, &t) != WAGMA_OK || segment_join(t, 1) != WAGMA_OK);
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0, "status %x", (unsigned)status);
    CHECK(segment_is_dead(s, 1), "the child joined another segment");
    snprintf(other, sizeof other, "%s0", address); /* the number of another file */
    CHECK(wagma_segment_open(&o, other, &t) == WAGMA_ESYS && !t, "opened another file");
    CHECK(wagma_segment_open(&o, "/proc/1", &t) == WAGMA_ESYS && !t, "opened a folder");
    wagma_segment_close(s);
    CHECK(wagma_segment_open(&o, address, &t) == WAGMA_ESYS && !t, "opened what is closed");
    const char *name = unique_name();
    CHECK(wagma_segment_create(&o, name, &s) == WAGMA_OK, "%s", wagma_last_error());
    CHECK(wagma_segment_address(s, address, sizeof address) == WAGMA_OK && !strcmp(address, name),
          "%s", address);
    wagma_segment_close(s);
}

static void test_mismatch(void) {
    wagma_options o = options_for(4, 2, 1, 10);
    wagma_segment *s, *t;
    const char *name = unique_name();
    CHECK(wagma_segment_create(&o, name, &s) == WAGMA_OK, "%s", wagma_last_error());
    MISMATCH(size, 5);
    MISMATCH(group_size, 3);
    MISMATCH(quorum, 2);
    MISMATCH(dtype, 1);
    MISMATCH(average, 0);
    MISMATCH(count, 11);
    MISMATCH(sync_period, 12);
    MISMATCH(window, 63);
    MISMATCH(grace, 0.25);
    MISMATCH(timeout, 7);
    MISMATCH(stall_warning, 8);
    MISMATCH(redo_after, 0.5);
    MISMATCH(shm_limit, 1000000);
    wagma_segment_close(s);
    CHECK(files_left() == 0, "files left");
}

/* ---- joining and committing ------------------------------------------------------------------ */

static void test_commit(void) {
    wagma_options o = options_for(4, 4, 1, 100000);
    wagma_segment *s;
    CHECK(wagma_segment_create(&o, NULL, &s) == WAGMA_OK, "%s", wagma_last_error());
    CHECK(file_bytes(s) <= 5 * 4096, "%lu bytes before anybody has joined", (long)file_bytes(s));
    uint64_t before = file_bytes(s);
    CHECK(segment_join(s, 2) == WAGMA_OK, "%s", wagma_last_error());
    uint64_t joined = file_bytes(s) - before;
    CHECK(joined <= segment_joined_bytes(s) && joined + 2 * 4096 >= segment_joined_bytes(s),
          "%lu instead of %lu", (long)joined, (long)segment_joined_bytes(s));
    CHECK(segment_join(s, 2) == WAGMA_EINVAL, "joined twice");
    int contributions = segment_joined_contributions(s), rounds = segment_joined_rounds(s);
    CHECK(contributions == 3 && rounds == 2, "%d %d", contributions, rounds);
    before = file_bytes(s);
    CHECK(segment_commit_contribution(s, 2, 2, &contributions) == 0 && contributions == 3,
          "had it");
    CHECK(segment_commit_contribution(s, 2, 4, &contributions) == 0 && contributions == 5,
          "two more");
    CHECK(file_bytes(s) == before + 2 * s->item_memory, "%lu", (long)(file_bytes(s) - before));
    CHECK(segment_commit_contribution(s, 2, s->buffers, &contributions) == -1, "beyond the bound");
    CHECK(segment_commit_round(s, 2, 7, &rounds) == 0 && rounds == 8, "%d", rounds);
    CHECK(segment_commit_round(s, 2, 8, &rounds) == -1, "beyond the bound");
    wagma_segment_close(s);
}

int main(void) {
    RUN(test_too_large);
    RUN(test_layout);
    RUN(test_memory_of_an_array);
    RUN(test_memory_of_a_rank);
    RUN(test_limit);
    RUN(test_names);
    RUN(test_closed_before_its_handle);
    RUN(test_address);
    RUN(test_mismatch);
    RUN(test_commit);
    return check_summary();
}
