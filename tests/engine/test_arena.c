/* Memory of a handle, in parts that share huge pages. */
#include "base/arena.h"
#include "check.h"
#include "base/pages.h"

#include <string.h>

enum { PARTS = 200, MIB = 1 << 20 };

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define SANITIZED
#endif
#ifdef SANITIZED
enum { GUARDED = PAGES_HUGE }; /* a line behind a part that fills its huge pages needs more */
#else
enum { GUARDED = 0 };
#endif

static void test_parts_do_not_overlap(void) {
    const size_t sizes[] = {1,           64,     1000,    ARENA_HUGE_MIN - 1, ARENA_HUGE_MIN,
                            200000,      MIB,    MIB + 1, 2 * MIB - 1,        2 * MIB,
                            2 * MIB + 1, 4 * MIB};
    unsigned char *part[PARTS];
    size_t size[PARTS], all = 0;
    arena a = {0};
    for (int i = 0; i < PARTS; i++) {
        size[i] = sizes[(i * 5 + i / 12) % (int)(sizeof sizes / sizeof *sizes)];
        part[i] = arena_part(&a, size[i]);
        CHECK(part[i] && (uintptr_t)part[i] % PAGES_LINE == 0, "part %d: %p", i, (void *)part[i]);
        memset(part[i], i, size[i]);
        all += size[i];
    }
    for (int i = 0; i < PARTS; i++)
        CHECK(part[i][0] == i && !memcmp(part[i], part[i] + 1, size[i] - 1), "part %d", i);
    CHECK(a.bytes >= all && a.bytes <= 2 * all + PAGES_HUGE, "%zu of %zu bytes", all,
          (size_t)a.bytes);
    arena_free(&a);
    CHECK(a.bytes == 0 && !a.regions && !a.rest && a.left == 0, "it is empty, and of use again");
    CHECK(arena_part(&a, 0), "nothing is a part, too");
    arena_free(&a);
}

/* The pages around a part hold parts of the arena alone. */
static void test_pages_around_parts(void) {
    const size_t sizes[] = {1, 5000, ARENA_HUGE_MIN, 3 * MIB};
    const size_t page = pages_whole(1);
    arena shared = {0}, alone = {.alone = 1};
    void *pages;
    size_t bytes;
    CHECK(!arena_pages_of(&shared, arena_part(&shared, 1000), &pages, &bytes), "it is malloc()'s");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned char *part = arena_part(&alone, sizes[i]);
        CHECK(arena_pages_of(&alone, part, &pages, &bytes), "%zu bytes", sizes[i]);
        CHECK((uintptr_t)pages % page == 0 && bytes % page == 0 && part >= (unsigned char *)pages &&
                  part + sizes[i] <= (unsigned char *)pages + bytes,
              "%zu bytes at %p: %zu at %p", sizes[i], (void *)part, bytes, pages);
    }
    CHECK(!arena_pages_of(&alone, &shared, &pages, &bytes), "it is not the arena's");
    arena_free(&shared);
    arena_free(&alone);
}

static void test_pages_of_more_than_there_is(void) {
    const size_t page = pages_whole(1);
    for (size_t less = 0; less <= 2 * page; less += page / 2)
        CHECK(pages_whole(SIZE_MAX - less) > SIZE_MAX - 3 * page, "of SIZE_MAX - %zu: %zu", less,
              pages_whole(SIZE_MAX - less));
}

/* What 32 parts of a size take, in hundredths of their bytes. */
static int taken(size_t bytes) {
    arena a = {0};
    int parts = 0;
    while (parts < 32 && arena_part(&a, bytes))
        parts++;
    const uint64_t all = a.bytes;
    arena_free(&a);
    return parts < 32 ? -1 : (int)((all * 100 + 32 * bytes - 1) / (32 * bytes));
}

/* As much as segment_array_memory() says of shared memory, or less. */
static void test_what_sizes_take(void) {
#ifndef SANITIZED
    for (size_t bytes = ARENA_HUGE_MIN; bytes <= 16 * (size_t)MIB; bytes *= 2)
        CHECK(taken(bytes) == 100, "powers of two fill huge pages: %zu takes %d %%", bytes,
              taken(bytes));
#endif
    const size_t odd[][2] = {
        {100, 165},     {ARENA_HUGE_MIN - 1, 101}, {ARENA_HUGE_MIN + 1, 200}, {MIB - 1, 101},
        {MIB + 1, 200}, {2 * MIB - 1, 201},        {2 * MIB + 1, 101},        {3 * MIB - 64, 101},
        {3 * MIB, 134}, {4 * MIB + 1, 101}};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
        CHECK(taken(odd[i][0]) >= 100 && taken(odd[i][0]) <= (int)odd[i][1] + (GUARDED ? 100 : 0),
              "%zu bytes take %d %%", odd[i][0], taken(odd[i][0]));
}

static void test_what_no_memory_holds(void) {
    arena a = {0};
    for (size_t less = 0; less <= 1 << 23; less = 2 * less + 1) {
        CHECK(!arena_part(&a, SIZE_MAX - less), "%zu bytes", SIZE_MAX - less);
        CHECK(!arena_part(&a, PTRDIFF_MAX - less), "%zu bytes", PTRDIFF_MAX - less);
    }
    CHECK(a.bytes == 0 && a.left == 0 && !a.regions, "%zu bytes", (size_t)a.bytes);
}

static void test_parts_share_huge_pages(void) {
    arena a = {0};
    CHECK(arena_part(&a, 1000) && a.bytes < 4096, "%zu bytes for a small part alone",
          (size_t)a.bytes);
    const uint64_t small = a.bytes;
    const unsigned char *first = arena_part(&a, MIB);
    CHECK((uintptr_t)first % PAGES_HUGE == 0 && a.bytes == small + PAGES_HUGE, "%p, %zu bytes",
          (const void *)first, (size_t)a.bytes);
    const unsigned char *second = arena_part(&a, 900 << 10), *third = arena_part(&a, 1000);
    CHECK(second > first && second < first + PAGES_HUGE && third > second &&
              third < first + PAGES_HUGE && a.bytes == small + PAGES_HUGE,
          "a large and a small one in what is left: %p, %p, %p", (const void *)first,
          (const void *)second, (const void *)third);
    arena_free(&a);
}

int main(void) {
    RUN(test_parts_do_not_overlap);
    RUN(test_pages_around_parts);
    RUN(test_pages_of_more_than_there_is);
    RUN(test_what_sizes_take);
    RUN(test_what_no_memory_holds);
    RUN(test_parts_share_huge_pages);
    return check_summary();
}
