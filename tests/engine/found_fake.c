/* See found_fake.h. */
#include "found_fake.h"
#include "expect.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct cuda_fake *fake;
static int (*contexts)(void);

static void find(void *library, const char *name, void *function) {
    void *found = dlsym(library, name);
    memcpy(function, &found, sizeof found);
}

void find_fake(void) {
    struct cuda_fake *(*get)(void);
    void *library = dlopen("libcuda.so.1", RTLD_LOCAL | RTLD_NOW);
    if (!library)
        fprintf(stderr, "%s\n", dlerror()), exit(1);
    find(library, "cuda_fake", &get);
    find(library, "cuda_fake_contexts", &contexts);
    fake = get ? get() : NULL;
}

void expect_nothing_left(void) {
    if (fake)
        EXPECT(fake->left == 0 && contexts() == 0, "%d objects, %d contexts are left", fake->left,
               contexts());
}
