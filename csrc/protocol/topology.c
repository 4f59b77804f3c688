/* Grouping. Two rules, both a few integer operations per call and without state.
 *
 * 1. P and S powers of two: Algorithm 1. With p = log2 P and s = log2 S, the s bits
 *    (t*s mod p) ... (t*s mod p) + s-1, cyclically in 0..p-1, are the *free* bits of version t: the
 *    members of a group agree in all others. Phase r of the butterfly pairs the ranks that differ
 *    in the r-th free bit. P=8, S=4 (as in the paper's Fig. 2):
 *
 *        t   free bits   groups
 *        0   0 1         {0 1 2 3} {4 5 6 7}
 *        1   2 0         {0 1 4 5} {2 3 6 7}
 *        2   1 2         {0 2 4 6} {1 3 5 7}
 *
 *    ceil(p/s) successive versions free every bit, so that an update reaches all ranks within
 *    ceil(p/s) versions: the minimum, since a version multiplies its holders by at most S.
 *
 * 2. Any other P and S: slanted columns. There are G = ceil(P/S) groups. Rank c*G + j stands in
 *    column c at height j; q = floor(P/G) columns are full, a last one may hold fewer than G ranks.
 *    Group g of version t has from each column c the rank at height g + c*h(t) mod G, if there is
 *    one: q or q+1 members. P=10, S=3 (G=4, q=2):
 *
 *        columns   {0 1 2 3} {4 5 6 7} {8 9}
 *        t   h     groups
 *        0   0     {0 4 8} {1 5 9} {2 6}   {3 7}
 *        1   1     {0 5}   {1 6}   {2 7 8} {3 4 9}
 *        2   3     {0 7}   {1 4}   {2 5 8} {3 6 9}
 *
 *    An update that moves through the columns c(0) c(1) ... c(K) in versions t ... t+K-1 climbs by
 *    the sum over i = 1..K-1 of c(i) * (h(t+i-1) - h(t+i)), plus what c(0) and c(K) fix. The slant
 *    grows by h(u+1) - h(u) = b^(u mod L) with b = max(q, 2) and L = ceil(log_b G), so that the
 *    differences of any L successive steps are 1, b, ..., b^(L-1) in some order, and the free
 *    choice of c(1) ... c(L) in 0..q-1 spells every climb modulo G as a number in base q. Every
 *    update therefore reaches every rank within 1 + L versions, from any start; the last column may
 *    be its start and its end. Where all groups have S members this is ceil(log_S P), the minimum.
 *    The composition changes with each version, since 0 < b^(L-1) < G.
 *
 *    q = 1 occurs only for S = 2 and odd P: one rank stays alone in each version, which blocks some
 *    of these ways. The others need at most 2 versions more (found by exhaustion of all odd P up
 *    to WAGMA_MAX_RANKS; the tests repeat a part of it). */
#include "protocol/topology.h"

#include "base/mix.h"

typedef struct butterfly {
    unsigned p;     /* log2 of the size */
    unsigned s;     /* log2 of the group size */
    unsigned shift; /* first free bit */
} butterfly;

static int is_butterfly(int size, int group_size) {
    return (size & (size - 1)) == 0 && (group_size & (group_size - 1)) == 0;
}

static butterfly butterfly_at(int size, int group_size, int64_t version) {
    butterfly b = {(unsigned)__builtin_ctz((unsigned)size),
                   (unsigned)__builtin_ctz((unsigned)group_size), 0};
    if (b.p > 0)
        b.shift = (unsigned)((uint64_t)version * b.s % b.p);
    return b;
}

/* The bits that members differ in: s bits from `shift` on, cyclically. */
static uint32_t butterfly_free_bits(butterfly b) {
    uint32_t bits = ((UINT32_C(1) << b.s) - 1) << b.shift;
    return (bits | bits >> b.p) & ((UINT32_C(1) << b.p) - 1);
}

/* The bits that members share, pushed together: numbers the groups by their lowest members. */
static uint32_t butterfly_index(butterfly b, uint32_t rank) {
    unsigned end = b.shift + b.s;
    if (end > b.p) /* the free bits wrap around: the shared ones lie between them */
        return rank >> (end - b.p) & ((UINT32_C(1) << (b.p - b.s)) - 1);
    return rank >> end << b.shift | (rank & ((UINT32_C(1) << b.shift) - 1));
}

/* Smallest L with base^L >= n. */
static int log_ceil(int base, int n) {
    int digits = 0;
    for (int power = 1; power < n; power *= base)
        digits++;
    return digits;
}

/* b: the base in which the slant grows. */
static int columns_base(int size, int groups) {
    int full = size / groups;
    return full < 2 ? 2 : full;
}

/* h(version) modulo `groups`. */
static int columns_slant(int size, int groups, int64_t version) {
    int base = columns_base(size, groups);
    int digits = log_ceil(base, groups);
    if (digits == 0) /* one group */
        return 0;
    int whole = (int)(version / digits % groups); /* cycles of L versions */
    int rest = (int)(version % digits);
    int64_t per_cycle = 0, within = 0;
    for (int i = 0, step = 1; i < digits; i++, step *= base) {
        if (i < rest)
            within += step;
        per_cycle += step;
    }
    return (int)((whole * per_cycle + within) % groups);
}

/* The group that `rank` stands in; column * slant < size, no overflow. */
static int columns_index(int rank, int groups, int slant) {
    int column = rank / groups, height = rank % groups;
    int index = (height - column * slant) % groups;
    return index < 0 ? index + groups : index;
}

int topology_group_count(int size, int group_size) {
    return (size + group_size - 1) / group_size;
}

int topology_group_index(int rank, int size, int group_size, int64_t version) {
    if (is_butterfly(size, group_size))
        return (int)butterfly_index(butterfly_at(size, group_size, version), (uint32_t)rank);
    int groups = topology_group_count(size, group_size);
    return columns_index(rank, groups, columns_slant(size, groups, version));
}

int topology_group(int rank, int size, int group_size, int64_t version, int32_t *members) {
    int n = 0;
    if (is_butterfly(size, group_size)) {
        uint32_t free_bits = butterfly_free_bits(butterfly_at(size, group_size, version));
        uint32_t shared = (uint32_t)rank & ~free_bits;
        uint32_t subset = 0;
        do { /* the subsets of free_bits, ascending: a carry runs through the other bits */
            members[n++] = (int32_t)(shared | subset);
            subset = (subset - free_bits) & free_bits;
        } while (subset != 0);
        return n;
    }
    int groups = topology_group_count(size, group_size);
    int slant = columns_slant(size, groups, version);
    int height = columns_index(rank, groups, slant);
    for (int column = 0; column < size; column += groups) { /* column: its first rank */
        if (column + height < size)
            members[n++] = column + height;
        height += slant;
        if (height >= groups)
            height -= groups;
    }
    return n;
}

/* Pairs: the rounds of a tournament, one drawn per version. With m the largest odd number <= size,
 * round k of 0..m-1 pairs i with j where i + j = k modulo m; the one rank that would meet itself
 * meets rank m (size even) or stays alone. P=6, k=2: {0 2} {3 4} {1 5}. Every two ranks meet in
 * exactly one round, so that a uniform draw gives each rank a uniform partner. */
int topology_partner(int rank, int size, uint64_t seed, int64_t version) {
    const int m = size % 2 ? size : size - 1;
    const int k = (int)(mix(seed ^ mix((uint64_t)version)) % (uint64_t)m);
    const int half = (int)((int64_t)k * ((m + 1) / 2) % m); /* half + half = k modulo m */
    if (rank == m)
        return half;
    if (rank == half)
        return m == size ? rank : m;
    const int other = k - rank;
    return other < 0 ? other + m : other;
}

int topology_members(const struct topology *topology, int rank, int64_t version, int32_t *members) {
    if (topology->grouping != WAGMA_GROUPING_PAIRS || topology->size == 1)
        return topology_group(rank, topology->size, topology->group_size,
                              topology->grouping == WAGMA_GROUPING_FIXED ? 0 : version, members);
    const int other = topology_partner(rank, topology->size, topology->seed, version);
    members[0] = rank < other ? rank : other;
    members[other != rank] = rank < other ? other : rank;
    return 1 + (other != rank);
}

int topology_mixing_bound(int size, int group_size) {
    if (group_size >= size)
        return 1;
    if (group_size == 1)
        return 0;
    if (is_butterfly(size, group_size)) {
        int p = __builtin_ctz((unsigned)size), s = __builtin_ctz((unsigned)group_size);
        return (p + s - 1) / s;
    }
    int groups = topology_group_count(size, group_size);
    int alone = size / groups == 1 ? 2 : 0; /* what a group of one costs */
    return 1 + log_ceil(columns_base(size, groups), groups) + alone;
}
