/* Memory for arrays. */
#include "check.h"
#include "pages.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static void test_large_memory_begins_at_a_huge_page(void) {
    const size_t sizes[] = {0, 1, 63, PAGES_LARGE - 1, PAGES_LARGE, PAGES_LARGE + 1};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const size_t align = sizes[i] < PAGES_LARGE ? PAGES_LINE : PAGES_HUGE;
        unsigned char *memory = pages_new(sizes[i]);
        CHECK(memory != NULL, "%zu bytes", sizes[i]);
        CHECK((uintptr_t)memory % align == 0, "%zu bytes at %p", sizes[i], (void *)memory);
        memset(memory, 1, sizes[i]); /* all of it is there: the sanitizers look */
        free(memory);
    }
}

enum { PARTS = 200 };
#ifdef PAGES_SANITIZED
enum { GUARDED = PAGES_HUGE }; /* a line behind a part that fills its huge pages needs one more */
#else
enum { GUARDED = 0 };
#endif

static void test_parts_do_not_overlap(void) {
    const size_t sizes[] = {1, 64, 1000, PAGES_PART, 200000, 1 << 20, (1 << 20) + 1, PAGES_LARGE};
    unsigned char *part[PARTS];
    size_t size[PARTS], all = 0;
    pages_arena a = {0};
    for (int i = 0; i < PARTS; i++) {
        size[i] = sizes[(i * 5 + i / 8) % (int)(sizeof sizes / sizeof *sizes)];
        part[i] = pages_part(&a, size[i]);
        CHECK(part[i] && (uintptr_t)part[i] % PAGES_LINE == 0, "part %d: %p", i, (void *)part[i]);
        memset(part[i], i, size[i]);
        all += size[i];
    }
    for (int i = 0; i < PARTS; i++)
        CHECK(part[i][0] == i && !memcmp(part[i], part[i] + 1, size[i] - 1), "part %d", i);
    /* at most as much is lost at the ends of regions as is used, and one huge page */
    CHECK(a.bytes >= all && a.bytes <= 2 * all + PAGES_HUGE, "%zu of %zu bytes", all,
          (size_t)a.bytes);
    pages_free(&a);
    CHECK(a.bytes == 0 && !a.regions && !a.rest && a.left == 0, "it is empty, and of use again");
    CHECK(pages_part(&a, 0), "nothing is a part, too");
    pages_free(&a);
}

/* Arrays have such sizes. */
static void test_powers_of_two_fill_huge_pages(void) {
#ifndef PAGES_SANITIZED
    for (size_t bytes = PAGES_PART; bytes <= 4 * (size_t)PAGES_LARGE; bytes *= 2) {
        pages_arena a = {0};
        for (int i = 0; i < 32; i++)
            CHECK(pages_part(&a, bytes), "%zu bytes", bytes);
        CHECK(a.bytes == 32 * bytes, "32 times %zu: %zu", bytes, (size_t)a.bytes);
        pages_free(&a);
    }
#endif
}

static void test_what_no_memory_holds(void) {
    pages_arena a = {0};
    for (size_t less = 0; less <= 1 << 23; less = 2 * less + 1)
        CHECK(!pages_part(&a, SIZE_MAX - less), "%zu bytes", SIZE_MAX - less);
    CHECK(a.bytes == 0 && a.left == 0, "%zu bytes", (size_t)a.bytes);
}

static void test_parts_share_huge_pages(void) {
    pages_arena a = {0};
    CHECK(pages_part(&a, 1000) && a.bytes < PAGES_PART, "%zu bytes for a small part alone",
          (size_t)a.bytes);
    const uint64_t small = a.bytes;
    const unsigned char *first = pages_part(&a, 1 << 20);
    CHECK((uintptr_t)first % PAGES_HUGE == 0 && a.bytes == small + PAGES_HUGE, "%p, %zu bytes",
          (const void *)first, (size_t)a.bytes);
    const unsigned char *second = pages_part(&a, 900 << 10), *third = pages_part(&a, 1000);
    CHECK(second > first && second < first + PAGES_HUGE && third > second &&
              third < first + PAGES_HUGE && a.bytes == small + PAGES_HUGE,
          "a large and a small one in what is left: %p, %p, %p", (const void *)first,
          (const void *)second, (const void *)third);
    CHECK(pages_part(&a, PAGES_LARGE) && a.bytes == small + PAGES_HUGE + PAGES_LARGE + GUARDED,
          "%zu bytes", (size_t)a.bytes);
    pages_free(&a);
}

int main(void) {
    RUN(test_large_memory_begins_at_a_huge_page);
    RUN(test_parts_do_not_overlap);
    RUN(test_powers_of_two_fill_huge_pages);
    RUN(test_what_no_memory_holds);
    RUN(test_parts_share_huge_pages);
    return check_summary();
}
