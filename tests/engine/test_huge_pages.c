/* Huge pages. Of shared memory: how they are made, and that large arrays of a segment lie in them
 * wherever they are mapped. Of other memory: that parts of an arena lie in them. */
#define _GNU_SOURCE /* memfd_create */
#include "base/arena.h"
#include "check.h"
#include "base/pages.h"
#include "shm/remap.h"
#include "support.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    DOUBLES = (5 << 20) / 8 - 1000, /* two huge pages and less than one MiB of others */
    WHOLE = 2 * PAGES_HUGE,         /* of an array: in huge pages */
};

/* How much of the mappings of [at, at + bytes) this process reaches by huge pages, of the `kind`
 * that the system calls so. */
static uint64_t huge_bytes_of(const char *kind, const void *at, size_t bytes) {
    const uintptr_t from = (uintptr_t)at, to = from + bytes;
    uint64_t sum = 0;
    uintptr_t start = 0, end = 0;
    char line[512];
    FILE *file = fopen("/proc/self/smaps", "r");
    while (file && fgets(line, sizeof line, file)) {
        uintptr_t a, b;
        uint64_t kibibytes;
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &a, &b) == 2)
            start = a, end = b;
        else if (strncmp(line, kind, strlen(kind)) == 0 && start < to && end > from &&
                 sscanf(line + strlen(kind), ": %" SCNu64, &kibibytes) == 1)
            sum += kibibytes << 10;
    }
    if (file)
        fclose(file);
    return sum;
}

static uint64_t huge_bytes(const void *at, size_t bytes) {
    return huge_bytes_of("ShmemPmdMapped", at, bytes);
}

/* Whether the system gives a huge page of memory that is not shared. */
static int has_huge_pages(void) {
    const size_t bytes = 2 * (size_t)PAGES_HUGE;
    unsigned char *area =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int given = 0;
    if (area != MAP_FAILED && madvise(area, bytes, MADV_HUGEPAGE) == 0) {
        memset(area, 1, bytes);
        given = huge_bytes_of("AnonHugePages", area, bytes) > 0;
    }
    if (area != MAP_FAILED)
        munmap(area, bytes);
    return given;
}

/* Also where the process has had much memory, which malloc() keeps for the next time. */
static void test_parts_of_an_arena(void) {
    enum { PART = 300000, MUCH = 30 << 20 };
    arena a = {0};
    unsigned char *parts[3];
    if (!has_huge_pages()) {
        printf("  this system gives no huge pages: an arena's were not tested\n");
        return;
    }
    for (int i = 0; i < 3; i++) {
        unsigned char *volatile much = malloc(MUCH); /* or a compiler leaves it out */
        CHECK(much != NULL, "no memory");
        memset(much, 1, MUCH);
        free(much);
    }
    for (int i = 0; i < 3; i++) {
        parts[i] = arena_part(&a, PART);
        CHECK(parts[i] != NULL, "part %d", i);
        memset(parts[i], 1, PART);
    }
    CHECK(huge_bytes_of("AnonHugePages", parts[0], 3 * PART) >= PAGES_HUGE, "at %p",
          (void *)parts[0]);
    CHECK(parts[2] - parts[0] < PAGES_HUGE, "they share one: %p, %p", (void *)parts[0],
          (void *)parts[2]);
    arena_free(&a);
}

/* A file in memory of 3 huge pages, mapped where huge ones can be. */
static unsigned char *three_pages(int *fd) {
    const size_t bytes = 3 * (size_t)PAGES_HUGE;
    unsigned char *area =
        mmap(NULL, bytes + PAGES_HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned char *at = area + (-(uintptr_t)area & (PAGES_HUGE - 1));
    *fd = memfd_create("wagma-test", MFD_CLOEXEC);
    if (area == MAP_FAILED || *fd < 0 || ftruncate(*fd, (off_t)bytes) != 0 ||
        mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, *fd, 0) != at)
        return NULL;
    return at;
}

static void test_pages_are_joined_with_what_they_hold(void) {
    int fd;
    struct stat file;
    unsigned char *at = three_pages(&fd);
    CHECK(at != NULL, "no memory");
    unsigned char *page = at + PAGES_HUGE;
    page[PAGES_HUGE - 1] = 7;
    CHECK(pages_join(page) == 0, "not joined");
    CHECK(huge_bytes(page, 1) == PAGES_HUGE, "%" PRIu64, huge_bytes(page, 1));
    CHECK(fstat(fd, &file) == 0 && file.st_blocks * 512 == PAGES_HUGE, "%ld blocks",
          (long)file.st_blocks);
    CHECK(page[PAGES_HUGE - 1] == 7 && page[0] == 0, "%d %d", page[PAGES_HUGE - 1], page[0]);
    CHECK(pages_join(page) == 0 && page[PAGES_HUGE - 1] == 7, "not once more");
    close(fd);
    munmap(at, 3 * (size_t)PAGES_HUGE);
}

static void test_nothing_is_joined_that_cannot_be(void) {
    int fd;
    struct stat file;
    unsigned char *at = three_pages(&fd);
    CHECK(at != NULL, "no memory");
    CHECK(pages_join(at) != 0, "joined pages that are not there");
    CHECK(fstat(fd, &file) == 0 && file.st_blocks == 0, "%ld blocks", (long)file.st_blocks);
    close(fd);
    munmap(at, 3 * (size_t)PAGES_HUGE);
}

static wagma_segment *join(const wagma_options *o) {
    wagma_segment *s;
    if (!EXPECT(wagma_segment_create(o, NULL, &s) == WAGMA_OK, "%s", wagma_last_error()))
        return NULL;
    EXPECT(segment_join(s, 1) == WAGMA_OK, "%s", wagma_last_error());
    return s;
}

/* All of rank 1's region: `arrays` of the joined bytes, of each of which `whole` bytes. */
static int lies_in_huge_pages(const wagma_segment *s, int arrays, uint64_t whole) {
    const uint64_t huge = huge_bytes(s->base, s->bytes), file = file_bytes(s);
    const uint64_t joined = segment_joined_bytes(s);
    return EXPECT(huge == (uint64_t)arrays * whole, "%" PRIu64 " bytes of %d arrays", huge,
                  arrays) &
           EXPECT(file >= joined && file <= joined + 16 * 4096, "%" PRIu64 " instead of %" PRIu64,
                  file, joined);
}

static void test_contributions_and_results(void) {
    const wagma_options o = options_of(2, 2, 1, DOUBLES);
    wagma_segment *s = join(&o);
    CHECK(s && s->array_is_contribution, "no array is a contribution");
    CHECK(lies_in_huge_pages(s, 4 + 2, WHOLE), "see above");
    const uint64_t before = file_bytes(s);
    int contributions = 4, rounds = 2;
    CHECK(segment_commit_contribution(s, 1, 4, &contributions) == 0, "one more");
    CHECK(file_bytes(s) == before + s->item_memory, "%" PRIu64, file_bytes(s) - before);
    CHECK(segment_commit_round(s, 1, 3, &rounds) == 0, "two more");
    CHECK(huge_bytes(s->base, s->bytes) == 9 * (uint64_t)WHOLE, "%" PRIu64,
          huge_bytes(s->base, s->bytes));
    CHECK(file_bytes(s) == before + 3 * s->item_memory + 2 * s->record_step, "%" PRIu64,
          file_bytes(s) - before);
    wagma_segment_close(s);
}

static void test_arrays_and_chunks(void) {
    const wagma_options o = options_of(2, 2, 2, DOUBLES);
    wagma_segment *s = join(&o);
    CHECK(s && lies_in_huge_pages(s, 1, WHOLE), "see above");
    CHECK(segment_commit_chunks(s, 1) == 0 && segment_commit_stage(s, 1) == 0, "no more");
    CHECK(huge_bytes(s->base, s->bytes) == 2 * WHOLE + PAGES_HUGE, "%" PRIu64,
          huge_bytes(s->base, s->bytes));
    wagma_segment_close(s);
}

/* A rest of a MiB or more takes a huge page, which it does not fill. */
static void test_some_that_are_not_full(void) {
    static const int64_t doubles[] = {(1 << 20) / 8, (2 << 20) / 8 - 1, (3 << 20) / 8 + 5};
    for (size_t i = 0; i < sizeof doubles / sizeof *doubles; i++)
        for (int quorum = 1; quorum <= 2; quorum++) {
            const wagma_options o = options_of(2, 2, quorum, doubles[i]);
            const uint64_t whole = (uint64_t)(i < 2 ? 1 : 2) * PAGES_HUGE;
            wagma_segment *s = join(&o);
            CHECK(s && lies_in_huge_pages(s, quorum == 1 ? 4 + 2 : 1, whole), "%ld doubles",
                  (long)doubles[i]);
            struct remap *array = quorum == 1 ? remap_new(s, 1) : NULL;
            for (int b = 0; b < 2 && array; b++)
                CHECK(remap_show(array, b) == 0 &&
                          huge_bytes(remap_array(array), s->bytes_n) == whole,
                      "%ld doubles, when %d is shown", (long)doubles[i], b);
            remap_free(array);
            wagma_segment_close(s);
        }
}

/* Another process reaches them by huge pages of its own mapping, too. */
static void test_other_processes(void) {
    const wagma_options o = options_of(2, 2, 2, DOUBLES);
    char name[64];
    wagma_segment *s;
    snprintf(name, sizeof name, "/wagma-test-%d-huge", (int)getpid());
    CHECK(wagma_segment_create(&o, name, &s) == WAGMA_OK, "%s", wagma_last_error());
    CHECK(segment_join(s, 1) == WAGMA_OK, "%s", wagma_last_error());
    memset(segment_array(s, 1), 7, s->bytes_n);
    const pid_t pid = fork_child();
    if (pid == 0) {
        wagma_segment *mine;
        unsigned char sum = 0;
        if (wagma_segment_open(&o, name, &mine) != WAGMA_OK)
            _exit(1);
        const unsigned char *array = segment_array(mine, 1);
        for (uint64_t i = 0; i < mine->bytes_n; i += 4096)
            sum |= array[i];
        _exit(sum != 7 ? 2 : huge_bytes(mine->base, mine->bytes) != WHOLE ? 3 : 0);
    }
    int status;
    waitpid(pid, &status, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%d", status);
    wagma_segment_close(s);
}

/* They are moved as they are. */
static void test_an_array_that_shows_one_after_the_other(void) {
    static const int shown[] = {0, 2, 3, 1, 0};
    const wagma_options o = options_of(2, 2, 1, DOUBLES);
    wagma_segment *s = join(&o);
    CHECK(s != NULL, "see above");
    struct remap *array = remap_new(s, 1);
    CHECK(array != NULL, "%s", wagma_last_error());
    const double *x = remap_array(array);
    for (int b = 0; b < 4; b++)
        for (int i = 0; i < DOUBLES; i++)
            ((double *)segment_contribution(s, 1, b))[i] = b * DOUBLES + i;
    for (size_t k = 0; k < sizeof shown / sizeof *shown; k++) {
        CHECK(remap_show(array, shown[k]) == 0, "%s", wagma_last_error());
        CHECK(huge_bytes(x, s->bytes_n) == WHOLE, "%" PRIu64 " bytes when %d is shown",
              huge_bytes(x, s->bytes_n), shown[k]);
        for (int i = 0; i < DOUBLES; i++)
            CHECK(x[i] == shown[k] * DOUBLES + i, "%g at %d", x[i], i);
    }
    remap_free(array);
    wagma_segment_close(s);
}

/* A system that makes none: pages of the usual size do. */
/* Where there are no huge pages, 1 MiB is not rounded up to one. */
static int takes_what_it_fills(void) {
    enum { MIB = 1 << 20 };
    const wagma_options o = options_of(2, 2, 1, MIB / 8);
    wagma_segment *s = join(&o);
    struct remap *array = s ? remap_new(s, 1) : NULL;
    int holds = EXPECT(array != NULL, "%s", wagma_last_error());
    for (int b = 0; b < 4 && array; b++)
        if (EXPECT(remap_show(array, b) == 0, "%d", b))
            memset(remap_array(array), b, MIB);
    for (int b = 0; b < 4 && array; b++)
        holds &= EXPECT(*segment_contribution(s, 1, b) == b, "%d", b);
    const uint64_t file = s ? file_bytes(s) : 0;
    return holds & EXPECT(file >= 6 * MIB && file <= 6 * MIB + 16 * 4096, "%" PRIu64, file);
}

static void test_without_any(void) {
    const pid_t pid = fork_child();
    if (pid == 0) {
        const wagma_options o = options_of(2, 2, 1, DOUBLES);
        wagma_segment *s;
        if (prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) != 0 || pages_can_join())
            _exit(1);
        s = join(&o);
        if (!s || !lies_in_huge_pages(s, 0, 0))
            _exit(2);
        _exit(takes_what_it_fills() ? 0 : 3);
    }
    int status;
    waitpid(pid, &status, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%d", status);
}

int main(void) {
    RUN(test_without_any);
    RUN(test_parts_of_an_arena);
    if (!pages_can_join()) {
        printf("  this system makes no huge pages of shared memory: nothing else was tested\n");
        return check_summary();
    }
    RUN(test_pages_are_joined_with_what_they_hold);
    RUN(test_nothing_is_joined_that_cannot_be);
    RUN(test_contributions_and_results);
    RUN(test_arrays_and_chunks);
    RUN(test_some_that_are_not_full);
    RUN(test_other_processes);
    RUN(test_an_array_that_shows_one_after_the_other);
    return check_summary();
}
