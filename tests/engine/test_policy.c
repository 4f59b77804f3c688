/* Compares the policy of every combination of options with tables written by hand (pure). */
/* short run: c */
#include "check.h"
#include "engine/policy.h"

#include <string.h>

enum { REFUSED = '-', QUORUMS = 5 };

/* Three ranks. How they wait, for quorum majority, all (0), 1, 2, 3:
 *   '-' refused   'i' in place   'a' wait-avoiding   'w' wait-avoiding, one pin for all groups */
static const struct {
    int group_size, activation;
    const char *waits; /* [QUORUMS] */
} starts[] = {
    {1, WAGMA_ACTIVATION_GROUP, "aii--"}, {1, WAGMA_ACTIVATION_WORLD, "wiwwi"},
    {2, WAGMA_ACTIVATION_GROUP, "aiai-"}, {2, WAGMA_ACTIVATION_WORLD, "wiwwi"},
    {3, WAGMA_ACTIVATION_GROUP, "aiaai"}, {3, WAGMA_ACTIVATION_WORLD, "aiaai"},
    {0, WAGMA_ACTIVATION_GROUP, "aiaai"}, {0, WAGMA_ACTIVATION_WORLD, "aiaai"},
};

/* What becomes of late ranks: 'o' ordered, 'c' carries, 'f' forward. */
static const struct {
    int late, missed;
    const char *means;
} lates[] = {
    {WAGMA_LATE_STALE, WAGMA_MISSED_ONCE, ""},   {WAGMA_LATE_STALE, WAGMA_MISSED_FAST_FORWARD, "f"},
    {WAGMA_LATE_SKIP, WAGMA_MISSED_ONCE, "o"},   {WAGMA_LATE_SKIP, WAGMA_MISSED_FAST_FORWARD, "-"},
    {WAGMA_LATE_CARRY, WAGMA_MISSED_ONCE, "oc"}, {WAGMA_LATE_CARRY, WAGMA_MISSED_FAST_FORWARD, "-"},
};

/* Where averages are stored as such: with 16 bits always, otherwise where no rank merges. */
static const struct {
    int dtype, average;
    const char *stored; /* '-' refused, 'n' never, 'a' always, 's' where no rank merges */
} types[] = {
    {WAGMA_F32, 0, "n"}, {WAGMA_F32, 1, "s"}, {WAGMA_F64, 0, "n"},  {WAGMA_F64, 1, "s"},
    {WAGMA_F16, 0, "n"}, {WAGMA_F16, 1, "a"}, {WAGMA_BF16, 0, "n"}, {WAGMA_BF16, 1, "a"},
    {WAGMA_I32, 0, "n"}, {WAGMA_I32, 1, "-"}, {WAGMA_I64, 0, "n"},  {WAGMA_I64, 1, "-"},
};

#define LENGTH(array) (sizeof(array) / sizeof *(array))

static const int quorums[QUORUMS] = {WAGMA_QUORUM_MAJORITY, 0, 1, 2, 3};

/* The quorum varies: every result reaches every rank, one group, no draw; in host memory not all.
 */
static int varies(int waits, const char *late, size_t start, int quorum, int device) {
    return (waits == 'a' || device) && strchr(late, 'o') && (starts[start].group_size % 3) == 0 &&
           (quorum == 1 || quorum == 2 || (device && quorum != WAGMA_QUORUM_MAJORITY));
}

/* On devices quorum "all" is that of a round, too. */
static struct policy expected(int waits, const char *late, const char *stored, int average,
                              int device) {
    const int in_place = waits == 'i' && !device;
    const int ordered = strchr(late, 'o') != NULL;
    return (struct policy){
        .device = device,
        .in_place = in_place,
        .avoiding = !in_place,
        .world = waits == 'w',
        .forward = strchr(late, 'f') != NULL,
        .ordered = ordered,
        .carries = strchr(late, 'c') != NULL,
        .average = average,
        .stores_average = *stored == 'a' || (*stored == 's' && (in_place || ordered)),
    };
}

static int refused, accepted;

static void check_combination(size_t start, int q, size_t l, size_t t, int memory) {
    const int device = memory == WAGMA_MEMORY_DEVICE;
    const int waits = starts[start].waits[q];
    const char *late = lates[l].means, *stored = types[t].stored;
    wagma_options o;
    wagma_options_init(&o);
    o.size = 3;
    o.group_size = starts[start].group_size;
    o.activation = starts[start].activation;
    o.quorum = quorums[q];
    o.late = lates[l].late;
    o.missed = lates[l].missed;
    o.dtype = types[t].dtype;
    o.average = types[t].average;
    o.memory = memory;
    const int refuses = waits == REFUSED || *late == REFUSED || *stored == REFUSED ||
                        (waits == 'w' && strchr(late, 'o'));
    const int status = wagma_options_check(&o);
    CHECK((status != WAGMA_OK) == refuses,
          "group %d quorum %d activation %d late %d %d dtype %d: %d", starts[start].group_size,
          quorums[q], starts[start].activation, o.late, o.missed, o.dtype, status);
    if (refuses) {
        refused++;
        return;
    }
    accepted++;
    struct policy want = expected(waits, late, stored, o.average, device);
    want.staged = memory == WAGMA_MEMORY_STAGED;
    want.varies = varies(waits, late, start, quorums[q], device);
    const struct policy is = policy_of(&o);
#define SAME(field)                                                                                \
    CHECK(is.field == want.field,                                                                  \
          #field " is %d: group %d quorum %d activation %d late %d %d "                            \
                 "dtype %d average %d",                                                            \
          is.field, starts[start].group_size, quorums[q], starts[start].activation, o.late,        \
          o.missed, o.dtype, o.average)
    SAME(graph);
    SAME(device);
    SAME(staged);
    SAME(in_place);
    SAME(avoiding);
    SAME(world);
    SAME(forward);
    SAME(ordered);
    SAME(carries);
    SAME(varies);
    SAME(average);
    SAME(stores_average);
    CHECK((policy_fixed_quorum(&o) == NULL) == is.varies,
          "a reason is given where it does not vary");
}

static void test_every_combination(void) {
    for (size_t s = 0; s < LENGTH(starts); s++)
        for (int q = 0; q < QUORUMS; q++)
            for (size_t l = 0; l < LENGTH(lates); l++)
                for (size_t t = 0; t < LENGTH(types); t++)
                    for (int memory = 0; memory <= WAGMA_MEMORY_STAGED; memory++)
                        check_combination(s, q, l, t, memory);
    CHECK(accepted > 2000 && refused > 2000, "%d accepted, %d refused", accepted, refused);
}

/* A graph takes the defaults of all the rest. */
static void test_graphs(void) {
    const int graphs[] = {WAGMA_GRAPH_RING, WAGMA_GRAPH_EXPONENTIAL};
    for (int size = 1; size <= 3; size++)
        for (int k = 0; k < 2; k++) {
            wagma_options o;
            wagma_options_init(&o);
            o.size = size;
            o.graph = graphs[k];
            CHECK(wagma_options_check(&o) == WAGMA_OK, "%s", wagma_last_error());
            const struct policy p = policy_of(&o);
            CHECK(p.graph && !p.in_place && !p.avoiding && !p.varies && !p.world && !p.ordered,
                  "graph %d of %d ranks", graphs[k], size);
        }
}

static void test_late_rules(void) {
    const char *const names[] = {"WAGMA_LATE_STALE", "WAGMA_LATE_SKIP", "WAGMA_LATE_CARRY"};
    for (int late = 0; late < 3; late++)
        CHECK(strcmp(policy_late(late)->name, names[late]) == 0, "%s", policy_late(late)->name);
    CHECK(!policy_late(-1) && !policy_late(3), "there are three rules");
}

int main(void) {
    RUN(test_every_combination);
    RUN(test_graphs);
    RUN(test_late_rules);
    return check_summary();
}
