/* Graphs: the matrix of every version, for every P <= 64 and every number of neighbours; and what
 * options go with a graph. */
#include "check.h"
#include "protocol/graph.h"
#include "support.h"

#include <math.h>
#include <string.h>

enum { SMALL = 64 };
/* A period of every P <= 64, and a few versions far out. */
static const int64_t far_versions[] = {1000003, (INT64_C(1) << 31) - 1, INT64_C(1) << 40};
enum { FAR = sizeof far_versions / sizeof *far_versions, NEAR = 30 };

static int64_t version_at(int i) {
    return i < NEAR ? i : far_versions[i - NEAR];
}

static int ceil_log2(int n) {
    return (int)ceil(log2(n) - 1e-9);
}

/* The definition, the long way: 1 if a rank sends to the one `distance` ahead. */
static int sends(int distance, int size, int graph, int each, int64_t t) {
    if (graph == WAGMA_GRAPH_RING)
        return distance > 0 && (distance == 1 || distance == size - 1);
    const int all = ceil_log2(size);
    for (int i = 0; i < each && all > 0; i++)
        if (1 << (t * each + i) % all == distance)
            return 1;
    int left = each - all; /* for distances that are no powers of two */
    for (int d = 1; d < size && left > 0; d++)
        if (exp2(floor(log2(d) + 1e-9)) != d) {
            if (d == distance)
                return 1;
            left--;
        }
    return 0;
}

/* Row r of the matrix from the public function; the number of neighbours, or 0 and a failed EXPECT.
 */
static int row_of(double *row, int r, int size, int graph, int each, int64_t t) {
    int32_t in[WAGMA_MAX_NEIGHBORS + 1] = {0};
    in[WAGMA_MAX_NEIGHBORS] = -7;
    const int n = wagma_neighbors_of(r, size, graph, each, t, in);
    EXPECT(n >= 0 && n <= WAGMA_MAX_NEIGHBORS && in[WAGMA_MAX_NEIGHBORS] == -7, "%d", n);
    memset(row, 0, SMALL * sizeof *row);
    row[r] = 1.0 / (n + 1);
    for (int i = 0; i < n; i++) {
        EXPECT(in[i] >= 0 && in[i] < size && in[i] != r && (i == 0 || in[i] > in[i - 1]),
               "P=%d t=%ld rank %d: neighbour %d", size, (long)t, r, in[i]);
        row[in[i]] = 1.0 / (n + 1);
    }
    return n;
}

static void check_matrix(int size, int graph, int each, int64_t t) {
    double a[SMALL][SMALL];
    int n = 0, sent[SMALL];
    for (int d = 0; d < size; d++)
        sent[d] = d == 0 || sends(d, size, graph, each, t);
    for (int r = 0; r < size; r++)
        n = row_of(a[r], r, size, graph, each, t);
    const int wanted =
        graph == WAGMA_GRAPH_RING ? (size < 3 ? size - 1 : 2) : (size == 1 ? 0 : each);
    CHECK(n == wanted, "P=%d: %d neighbours", size, n);
    for (int j = 0; j < size; j++) {
        double column = 0, row = 0;
        int readers = 0;
        for (int r = 0; r < size; r++) {
            column += a[r][j];
            row += a[j][r];
            readers += r != j && a[r][j] > 0;
            CHECK(sent[(r - j + size) % size] == (a[r][j] > 0),
                  "P=%d graph %d n=%d t=%ld: A[%d][%d] = %g", size, graph, each, (long)t, r, j,
                  a[r][j]);
        }
        CHECK(fabs(column - 1) < 1e-12 && fabs(row - 1) < 1e-12 && readers == n,
              "P=%d t=%ld: column %d sums to %g, row to %g", size, (long)t, j, column, row);
    }
}

static void test_every_matrix(void) {
    for (int size = 1; size <= SMALL; size++)
        for (int i = 0; i < NEAR + FAR; i++) {
            check_matrix(size, WAGMA_GRAPH_RING, 1, version_at(i));
            for (int each = 1; each <= graph_neighbors_most(size); each++)
                check_matrix(size, WAGMA_GRAPH_EXPONENTIAL, each, version_at(i));
        }
    CHECK(expectations_failed() == 0, "see above");
}

/* Who a rank sends to by its peers is who receives from it by theirs. */
static void test_ahead_is_behind(void) {
    for (int size = 1; size <= SMALL; size++)
        for (int graph = WAGMA_GRAPH_RING; graph <= WAGMA_GRAPH_EXPONENTIAL; graph++) {
            const struct graph n = {size, graph, graph_neighbors_most(size)};
            int32_t distances[GRAPH_DISTANCES_MAX];
            const int all = graph_distances(&n, distances);
            for (int r = 0; r < size; r++)
                for (int k = 0; k < all; k++) {
                    const int to = graph_ahead(r, size, distances[k]);
                    CHECK(to != r && graph_behind(to, size, distances[k]) == r,
                          "P=%d rank %d distance %d", size, r, distances[k]);
                }
        }
}

/* After ceil(log2 P) versions from any start, everybody has something of everybody. */
static void test_exponential_mixes(void) {
    for (int size = 2; size <= SMALL; size++)
        for (int each = 1; each <= graph_neighbors_most(size); each++)
            for (int64_t from = 0; from < 7; from++) {
                uint64_t has[SMALL], next[SMALL];
                const uint64_t all = size == 64 ? ~UINT64_C(0) : (UINT64_C(1) << size) - 1;
                const int versions = ceil_log2(size);
                for (int r = 0; r < size; r++)
                    has[r] = UINT64_C(1) << r;
                for (int64_t t = from; t < from + versions; t++) {
                    for (int r = 0; r < size; r++) {
                        int32_t in[WAGMA_MAX_NEIGHBORS];
                        const int n =
                            wagma_neighbors_of(r, size, WAGMA_GRAPH_EXPONENTIAL, each, t, in);
                        next[r] = has[r];
                        for (int i = 0; i < n; i++)
                            next[r] |= has[in[i]];
                    }
                    memcpy(has, next, sizeof has);
                }
                for (int r = 0; r < size; r++)
                    CHECK(has[r] == all, "P=%d n=%d from %ld: rank %d", size, each, (long)from, r);
            }
}

static void test_largest(void) {
    int32_t in[WAGMA_MAX_NEIGHBORS];
    for (int64_t t = 0; t < 50; t++)
        CHECK(wagma_neighbors_of(17, WAGMA_MAX_RANKS, WAGMA_GRAPH_EXPONENTIAL, WAGMA_MAX_NEIGHBORS,
                                 t, in) == WAGMA_MAX_NEIGHBORS,
              "%s", wagma_last_error());
}

static void test_wrong_questions(void) {
    int32_t in[WAGMA_MAX_NEIGHBORS];
    REFUSED(wagma_neighbors_of(0, 4, WAGMA_GRAPH_NONE, 1, 0, in), WAGMA_EINVAL, "graph");
    REFUSED(wagma_neighbors_of(0, 4, 3, 1, 0, in), WAGMA_EINVAL, "graph is 3");
    REFUSED(wagma_neighbors_of(0, 0, WAGMA_GRAPH_RING, 1, 0, in), WAGMA_EINVAL, "size is 0");
    REFUSED(wagma_neighbors_of(4, 4, WAGMA_GRAPH_RING, 1, 0, in), WAGMA_EINVAL, "rank is 4");
    REFUSED(wagma_neighbors_of(-1, 4, WAGMA_GRAPH_RING, 1, 0, in), WAGMA_EINVAL, "rank is -1");
    REFUSED(wagma_neighbors_of(0, 4, WAGMA_GRAPH_RING, 1, -1, in), WAGMA_EINVAL, "version is -1");
    REFUSED(wagma_neighbors_of(0, 4, WAGMA_GRAPH_EXPONENTIAL, 4, 0, in), WAGMA_EINVAL,
            "neighbors is 4", "1 to 3");
    REFUSED(wagma_neighbors_of(0, 4, WAGMA_GRAPH_RING, 1, 0, NULL), WAGMA_EINVAL, "in is NULL");
    CHECK(expectations_failed() == 0, "see above");
}

/* ---- options --------------------------------------------------------------------------------- */

static wagma_options graph_of(int size, int graph, int neighbors) {
    wagma_options o;
    wagma_options_init(&o);
    o.size = size;
    o.graph = graph;
    o.neighbors = neighbors;
    o.count = 10;
    return o;
}

static void test_options(void) {
    for (int size = 1; size <= 9; size++) {
        wagma_options o = graph_of(size, WAGMA_GRAPH_EXPONENTIAL, 0);
        CHECK(wagma_options_check(&o) == WAGMA_OK && o.neighbors == 1, "%s", wagma_last_error());
        CHECK(wagma_options_check(&o) == WAGMA_OK, "once more: %s", wagma_last_error());
        o = graph_of(size, WAGMA_GRAPH_EXPONENTIAL, graph_neighbors_most(size));
        CHECK(wagma_options_check(&o) == WAGMA_OK, "%s", wagma_last_error());
        o.neighbors++;
        REFUSED(wagma_options_check(&o), WAGMA_EINVAL, "neighbors is");
        o = graph_of(size, WAGMA_GRAPH_RING, 2);
        REFUSED(wagma_options_check(&o), WAGMA_EINVAL, "neighbors is 2", "1 to 1");
    }
    CHECK(expectations_failed() == 0, "see above");
}

#define WITH(field, value)                                                                         \
    do {                                                                                           \
        wagma_options o = graph_of(4, WAGMA_GRAPH_RING, 1);                                        \
        o.field = value;                                                                           \
        REFUSED(wagma_options_check(&o), WAGMA_EINVAL, #field, "default");                         \
    } while (0)

static void test_what_goes_with_no_graph(void) {
    WITH(group_size, 2);
    WITH(quorum, 1);
    WITH(quorum, WAGMA_QUORUM_MAJORITY);
    WITH(late, WAGMA_LATE_SKIP);
    WITH(late, WAGMA_LATE_CARRY);
    WITH(missed, WAGMA_MISSED_FAST_FORWARD);
    WITH(activation, WAGMA_ACTIVATION_WORLD);
    WITH(grouping, WAGMA_GROUPING_FIXED);
    WITH(sync_period, 10);
    WITH(window, 3);
    WITH(grace, 0);
    WITH(seed, 1);
    wagma_options o = graph_of(4, WAGMA_GRAPH_NONE, 1);
    REFUSED(wagma_options_check(&o), WAGMA_EINVAL, "neighbors is 1");
    o = graph_of(4, 7, 1);
    REFUSED(wagma_options_check(&o), WAGMA_EINVAL, "graph is 7");
    o = graph_of(4, WAGMA_GRAPH_RING, 1);
    o.dtype = WAGMA_I32;
    o.average = 0;
    REFUSED(wagma_options_check(&o), WAGMA_ETYPE, "int32", "floating");
    CHECK(expectations_failed() == 0, "see above");
}

int main(void) {
    RUN(test_every_matrix);
    RUN(test_ahead_is_behind);
    RUN(test_exponential_mixes);
    RUN(test_largest);
    RUN(test_wrong_questions);
    RUN(test_options);
    RUN(test_what_goes_with_no_graph);
    return check_summary();
}
