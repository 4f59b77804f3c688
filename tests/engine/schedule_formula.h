/* Terms of a group's size in the formulas of docs/schedules.md. */
#ifndef WAGMA_TESTS_SCHEDULE_FORMULA_H
#define WAGMA_TESTS_SCHEDULE_FORMULA_H

typedef struct schedule_formula {
    int log2;    /* of n, rounded down */
    int rounded; /* 1: n is no power of two */
    int factors; /* the sum of f - 1 over n's prime factors f */
} schedule_formula;

static schedule_formula schedule_formula_of(int n) {
    schedule_formula s = {0};
    while (2 << s.log2 <= n)
        s.log2++;
    s.rounded = n != 1 << s.log2;
    for (int rest = n, f = 2; rest > 1; f++)
        for (; rest % f == 0; rest /= f)
            s.factors += f - 1;
    return s;
}

#endif
