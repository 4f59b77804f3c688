/* Arrays of COUNT doubles that are all the same; the file that includes this says how many. */
#ifndef WAGMA_TESTS_UNIFORM_H
#define WAGMA_TESTS_UNIFORM_H

static void fill(double *x, double value) {
    for (int i = 0; i < COUNT; i++)
        x[i] = value;
}

static int holds(const double *x, double value) {
    for (int i = 0; i < COUNT; i++)
        if (x[i] != value)
            return 0;
    return 1;
}

#endif
