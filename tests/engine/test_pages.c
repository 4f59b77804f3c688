/* Memory for arrays. */
#include "check.h"
#include "base/pages.h"

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

int main(void) {
    RUN(test_large_memory_begins_at_a_huge_page);
    return check_summary();
}
