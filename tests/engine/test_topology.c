/* Grouping: every P <= 64 (24 under a sanitizer) with every S, and what Algorithm 1 prescribes. */
#include "check.h"
#include "slowdown.h"
#include "protocol/topology.h"
#include "include/wagma.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SMALL = SLOWDOWN > 1 ? 24 : 64 }; /* every size up to it */
/* A period of every P <= 64: the starts that matter, and a few versions far out. */
static const int64_t far_versions[] = {1000003, (INT64_C(1) << 31) - 1, INT64_C(1) << 31,
                                       (INT64_C(1) << 40) - 1, INT64_C(1) << 40};
enum { FAR = sizeof far_versions / sizeof *far_versions };

/* Members of rank's group as a set, checked to be ascending and to hold rank. */
static uint64_t group_set(int rank, int size, int group_size, int64_t version) {
    int32_t members[SMALL + 1];
    members[group_size] = -7;
    int n = topology_group(rank, size, group_size, version, members);
    if (n < 1 || n > group_size || members[group_size] != -7)
        return 0;
    uint64_t set = 0;
    for (int i = 0; i < n; i++) {
        if (members[i] < 0 || members[i] >= size || (i > 0 && members[i] <= members[i - 1]))
            return 0;
        set |= UINT64_C(1) << members[i];
    }
    return set >> rank & 1 ? set : 0;
}

static void check_partition(int size, int group_size, int64_t version) {
    int groups = (size + group_size - 1) / group_size;
    uint64_t by_index[SMALL] = {0}, all = size == 64 ? ~UINT64_C(0) : (UINT64_C(1) << size) - 1;
    CHECK(topology_group_count(size, group_size) == groups, "P=%d S=%d", size, group_size);
    for (int r = 0; r < size; r++) {
        uint64_t set = group_set(r, size, group_size, version);
        int index = topology_group_index(r, size, group_size, version);
        CHECK(set != 0, "P=%d S=%d t=%ld rank=%d", size, group_size, (long)version, r);
        CHECK(index >= 0 && index < groups, "P=%d S=%d t=%ld rank=%d: %d", size, group_size,
              (long)version, r, index);
        CHECK(by_index[index] == 0 || by_index[index] == set, "P=%d S=%d t=%ld rank=%d index=%d",
              size, group_size, (long)version, r, index);
        by_index[index] = set;
    }
    uint64_t seen = 0;
    int smallest = size, largest = 0;
    for (int g = 0; g < groups; g++) {
        int members = __builtin_popcountll(by_index[g]);
        CHECK((seen & by_index[g]) == 0, "P=%d S=%d t=%ld: groups overlap", size, group_size,
              (long)version);
        CHECK(g == 0 || __builtin_ctzll(by_index[g - 1]) < __builtin_ctzll(by_index[g]),
              "P=%d S=%d t=%ld: groups not ordered by their lowest members", size, group_size,
              (long)version);
        seen |= by_index[g];
        smallest = members < smallest ? members : smallest;
        largest = members > largest ? members : largest;
    }
    CHECK(seen == all, "P=%d S=%d t=%ld: a rank has no group", size, group_size, (long)version);
    CHECK(largest - smallest <= 1 && largest <= group_size, "P=%d S=%d t=%ld: sizes %d..%d", size,
          group_size, (long)version, smallest, largest);
}

static void test_partition_every_p_and_s(void) {
    for (int size = 1; size <= SMALL; size++)
        for (int s = 1; s <= size; s++) {
            for (int64_t t = 0; t < 3 * SMALL; t++)
                check_partition(size, s, t);
            for (int i = 0; i < FAR; i++)
                check_partition(size, s, far_versions[i]);
        }
}

/* Algorithm 1 as the paper words it: phases, partners, a transitive closure. */
static uint64_t algorithm_1(int rank, int p, int s, int64_t version) {
    uint64_t set = UINT64_C(1) << rank;
    int shift0 = (int)(version * s % p);
    for (int r = 0; r < s; r++) {
        int mask = 1 << ((shift0 + r) % p);
        for (int member = 0; member < 1 << p; member++)
            if (set >> member & 1)
                set |= UINT64_C(1) << (member ^ mask);
    }
    return set;
}

static void test_powers_of_two_follow_algorithm_1(void) {
    for (int p = 1; 1 << p <= SMALL; p++)
        for (int s = 0; s <= p; s++)
            for (int64_t t = 0; t < 200 + FAR; t++) {
                int64_t version = t < 200 ? t : far_versions[t - 200];
                for (int r = 0; r < 1 << p; r++) {
                    uint64_t got = group_set(r, 1 << p, 1 << s, version);
                    CHECK(got == algorithm_1(r, p, s, version), "P=%d S=%d t=%ld rank=%d: %lx",
                          1 << p, 1 << s, (long)version, r, (unsigned long)got);
                }
            }
}

static void test_examples_of_the_paper(void) {
    static const struct {
        int size, group_size, version, rank;
        uint64_t set;
    } examples[] = {
        {8, 4, 0, 0, 0x0f}, {8, 4, 0, 5, 0xf0}, {8, 4, 1, 0, 0x33}, {8, 4, 1, 7, 0xcc},
        {8, 4, 2, 2, 0x55}, {8, 4, 2, 1, 0xaa}, {4, 2, 0, 1, 0x3},  {4, 2, 1, 1, 0xa},
    };
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        uint64_t got = group_set(examples[i].rank, examples[i].size, examples[i].group_size,
                                 examples[i].version);
        CHECK(got == examples[i].set, "example %d: %lx", (int)i, (unsigned long)got);
    }
}

/* topology.c's table for P=10, S=3. */
static void test_example_of_slanted_columns(void) {
    static const uint64_t groups[3][4] = {
        {1 << 0 | 1 << 4 | 1 << 8, 1 << 1 | 1 << 5 | 1 << 9, 1 << 2 | 1 << 6, 1 << 3 | 1 << 7},
        {1 << 0 | 1 << 5, 1 << 1 | 1 << 6, 1 << 2 | 1 << 7 | 1 << 8, 1 << 3 | 1 << 4 | 1 << 9},
        {1 << 0 | 1 << 7, 1 << 1 | 1 << 4, 1 << 2 | 1 << 5 | 1 << 8, 1 << 3 | 1 << 6 | 1 << 9},
    };
    for (int t = 0; t < 3; t++)
        for (int g = 0; g < 4; g++)
            CHECK(group_set(g, 10, 3, t) == groups[t][g], "t=%d group %d", t, g);
}

static void test_composition_changes_with_the_version(void) {
    for (int size = 3; size <= SMALL; size++)
        for (int s = 2; s < size; s++)
            for (int64_t t = 0; t < 3 * SMALL; t++) {
                int changed = 0;
                for (int r = 0; r < size && !changed; r++)
                    changed = group_set(r, size, s, t) != group_set(r, size, s, t + 1);
                CHECK(changed, "P=%d S=%d t=%ld", size, s, (long)t);
            }
}

/* Versions until every rank's update has reached every rank, started at `version`; limit + 1: not
 * within `limit`. holders[r] is the set of updates that r has seen; `words` 64-bit words each. */
static int mixing_time(int size, int group_size, int64_t version, int limit) {
    int words = (size + 63) / 64;
    size_t row = (size_t)words * sizeof(uint64_t);
    uint64_t *seen = calloc((size_t)size, row), *all = malloc(row);
    int32_t *members = malloc((size_t)group_size * sizeof *members);
    for (int r = 0; r < size; r++)
        seen[r * words + r / 64] |= UINT64_C(1) << r % 64;
    int versions = 0, complete = size == 1;
    while (!complete && versions++ <= limit) {
        complete = 1;
        for (int r = 0; r < size; r++) {
            int n = topology_group(r, size, group_size, version + versions - 1, members);
            if (members[0] != r) /* each group once */
                continue;
            memset(all, 0, row);
            int count = 0;
            for (int i = 0; i < n; i++)
                for (int w = 0; w < words; w++)
                    all[w] |= seen[members[i] * words + w];
            for (int i = 0; i < n; i++)
                memcpy(seen + members[i] * words, all, row);
            for (int w = 0; w < words; w++)
                count += __builtin_popcountll(all[w]);
            complete &= count == size;
        }
    }
    free(members);
    free(all);
    free(seen);
    return versions;
}

/* Ceiling of log_S P: no grouping can mix faster. */
static int least_mixing_time(int size, int group_size) {
    int versions = 0;
    for (int64_t reached = 1; reached < size; reached *= group_size)
        versions++;
    return versions;
}

static void test_mixing_bound_every_p_and_s(void) {
    for (int size = 3; size <= SMALL; size++)
        for (int s = 2; s < size; s++) {
            int bound = topology_mixing_bound(size, s);
            for (int64_t start = 0; start < 16 + FAR; start++) {
                int64_t version = start < 16 ? start : far_versions[start - 16];
                int versions = mixing_time(size, s, version, bound);
                CHECK(versions <= bound, "P=%d S=%d from t=%ld: more than %d versions", size, s,
                      (long)version, bound);
            }
        }
}

/* The case that is not proven: one rank is alone in each version. All of its starts: the slant's
 * growth has a period of at most 11 versions. */
static void test_mixing_bound_pairs_of_an_odd_size(void) {
    static const int sizes[] = {65, 127, 129, 255, 257, 511, 513, 1023, 1025, 2047, 2895};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int bound = topology_mixing_bound(sizes[i], 2);
        for (int64_t start = 0; start < (sizes[i] < 1000 ? 11 : 2); start++) {
            int versions = mixing_time(sizes[i], 2, start, bound);
            CHECK(versions <= bound, "P=%d from t=%ld: more than %d versions", sizes[i],
                  (long)start, bound);
        }
    }
}

static void test_mixing_bound_is_near_the_least(void) {
    for (int size = 3; size <= WAGMA_MAX_RANKS; size += SLOWDOWN)
        for (int s = 2; s < size; s++) {
            int bound = topology_mixing_bound(size, s), least = least_mixing_time(size, s);
            int groups = (size + s - 1) / s, full = size / groups; /* least with these groups */
            CHECK(bound >= least, "P=%d S=%d: %d", size, s, bound);
            if (size % groups == 0)
                CHECK(bound == least_mixing_time(size, full), "P=%d S=%d: %d", size, s, bound);
            else if (full >= 3)
                CHECK(bound <= least + 2, "P=%d S=%d: %d, least %d", size, s, bound, least);
            else if (s == 2)
                CHECK(bound <= least + 3, "P=%d S=2: %d, least %d", size, bound, least);
        }
}

static void test_mixing_bound_of_the_ends(void) {
    for (int size = 1; size <= SMALL; size++) {
        CHECK(topology_mixing_bound(size, size) == 1, "P=S=%d", size);
        CHECK(size == 1 || topology_mixing_bound(size, 1) == 0, "P=%d S=1", size);
    }
}

static void test_largest_size(void) {
    static int32_t members[WAGMA_MAX_RANKS];
    static const int group_sizes[] = {1, 2, 3, 7, 8, 54, 1000, 1448, 2895, 2896};
    for (size_t i = 0; i < sizeof group_sizes / sizeof *group_sizes; i++) {
        int s = group_sizes[i], size = WAGMA_MAX_RANKS, groups = (size + s - 1) / s;
        for (int v = 0; v < FAR; v++) {
            int seen = 0;
            for (int r = 0; r < size; r++) {
                int n = topology_group(r, size, s, far_versions[v], members), mine = 0;
                CHECK(n == size / groups || n == size / groups + 1, "S=%d rank=%d: %d", s, r, n);
                for (int m = 0; m < n; m++)
                    mine |= members[m] == r;
                CHECK(mine && members[n - 1] < size, "S=%d rank=%d", s, r);
                seen += members[0] == r ? n : 0;
            }
            CHECK(seen == size, "S=%d: %d", s, seen);
        }
    }
}

static int group_at(const struct topology *topology, int rank, int64_t version, int32_t *members) {
    return topology_members(topology, rank, version, members);
}

static void test_fixed_groups_are_those_of_version_0(void) {
    for (int size = 1; size <= SMALL; size++)
        for (int s = 1; s <= size; s++) {
            const struct topology fixed = {size, s, WAGMA_GROUPING_FIXED, 5};
            for (int r = 0; r < size; r++) {
                int32_t first[SMALL], now[SMALL];
                const int n = topology_group(r, size, s, 0, first);
                CHECK(group_at(&fixed, r, 7, now) == n &&
                          !memcmp(first, now, sizeof *now * (size_t)n),
                      "P=%d S=%d rank=%d", size, s, r);
            }
        }
}

static void test_pairs_partition_and_every_partner_is_drawn_equally_often(void) {
    enum { VERSIONS = 2000 };
    for (int size = 1; size <= SMALL; size++) {
        const struct topology pairs = {size, size < 2 ? 1 : 2, WAGMA_GROUPING_PAIRS, 11};
        int met[SMALL][SMALL] = {{0}};
        for (int t = 0; t < VERSIONS; t++) {
            int alone = 0;
            for (int r = 0; r < size; r++) {
                int32_t mine[2] = {-1, -1}, theirs[2] = {-1, -1};
                const int n = group_at(&pairs, r, t, mine);
                CHECK(n == 1 || (n == 2 && mine[0] < mine[1]), "P=%d t=%d rank=%d", size, t, r);
                CHECK(mine[0] == r || (n == 2 && mine[1] == r), "P=%d t=%d rank=%d", size, t, r);
                const int other = mine[0] == r ? mine[n - 1] : mine[0];
                CHECK(other >= 0 && other < size, "P=%d t=%d rank=%d: %d", size, t, r, other);
                CHECK(group_at(&pairs, other, t, theirs) == n && theirs[0] == mine[0] &&
                          theirs[1] == mine[1],
                      "P=%d t=%d: %d and %d differ", size, t, r, other);
                alone += n == 1;
                met[r][other]++;
            }
            CHECK(alone == size % 2, "P=%d t=%d: %d alone", size, t, alone);
        }
        /* 6 standard deviations of a binomial draw around the mean */
        const double share = 1.0 / (size % 2 ? size : size - 1);
        const double mean = VERSIONS * share, most = 6 * sqrt(mean * (1 - share));
        for (int r = 0; r < size && size > 1; r++)
            for (int q = 0; q < size; q++)
                CHECK((q == r && size % 2 == 0) || fabs(met[r][q] - mean) <= most,
                      "P=%d: %d met %d %d times", size, r, q, met[r][q]);
    }
}

static void test_pairs_depend_on_seed_and_version(void) {
    int differ_in_seed = 0, differ_in_version = 0;
    for (int t = 0; t < 100; t++) {
        differ_in_seed += topology_partner(0, 16, 1, t) != topology_partner(0, 16, 2, t);
        differ_in_version += topology_partner(0, 16, 1, t) != topology_partner(0, 16, 1, t + 1);
    }
    CHECK(differ_in_seed > 70 && differ_in_version > 70, "%d, %d", differ_in_seed,
          differ_in_version);
}

static void test_public_functions_check_their_arguments(void) {
    static const struct {
        int rank, size, group_size;
        int grouping;
        int64_t version;
        const char *names;
    } wrong[] = {
        {0, 0, 1, 0, 0, "size"},
        {0, -4, 1, 0, 0, "size"},
        {0, WAGMA_MAX_RANKS + 1, 1, 0, 0, "size"},
        {0, 4, 0, 0, 0, "group_size"},
        {0, 4, 5, 0, 0, "group_size"},
        {0, 4, 4, WAGMA_GROUPING_PAIRS, 0, "group_size"},
        {0, 4, 2, -1, 0, "grouping"},
        {0, 4, 2, 3, 0, "grouping"},
        {-1, 4, 2, 0, 0, "rank"},
        {4, 4, 2, 0, 0, "rank"},
        {0, 4, 2, 0, -1, "version"},
    };
    int32_t members[4];
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        int status = wagma_group_of(wrong[i].rank, wrong[i].size, wrong[i].group_size,
                                    wrong[i].grouping, 0, wrong[i].version, members);
        CHECK(status == WAGMA_EINVAL, "case %d: %d", (int)i, status);
        CHECK(strncmp(wagma_last_error(), wrong[i].names, strlen(wrong[i].names)) == 0,
              "case %d: \"%s\"", (int)i, wagma_last_error());
    }
    CHECK(wagma_group_of(0, 4, 2, 0, 0, 0, NULL) == WAGMA_EINVAL, "members NULL");
    CHECK(wagma_group_count(4, 5) == WAGMA_EINVAL && wagma_group_count(0, 1) == WAGMA_EINVAL,
          "group_count");
    CHECK(wagma_group_count(10, 3) == 4, "group_count");
    CHECK(wagma_group_of(3, 4, 2, 0, 0, 1, members) == 2 && members[0] == 1 && members[1] == 3,
          "%d %d", members[0], members[1]);
}

int main(void) {
    RUN(test_partition_every_p_and_s);
    RUN(test_powers_of_two_follow_algorithm_1);
    RUN(test_examples_of_the_paper);
    RUN(test_fixed_groups_are_those_of_version_0);
    RUN(test_pairs_partition_and_every_partner_is_drawn_equally_often);
    RUN(test_pairs_depend_on_seed_and_version);
    RUN(test_example_of_slanted_columns);
    RUN(test_composition_changes_with_the_version);
    RUN(test_mixing_bound_every_p_and_s);
    RUN(test_mixing_bound_pairs_of_an_odd_size);
    RUN(test_mixing_bound_is_near_the_least);
    RUN(test_mixing_bound_of_the_ends);
    RUN(test_largest_size);
    RUN(test_public_functions_check_their_arguments);
    return check_summary();
}
