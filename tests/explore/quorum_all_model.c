/* States of the model: layout, start, and one move of one rank. */
#include "quorum_all_model.h"

#include <string.h>

#include "protocol/topology.h"

enum { ALL_DEPARTED = 0xFFFF, MAX_WORD = 0x8000 };

/* -- local states ------------------------------------------------------------------------------ */
static uint16_t pack_version(int64_t version) {
    return version == INT64_MAX ? ALL_DEPARTED : (uint16_t)(version + 1);
}
static int64_t unpack_version(uint16_t cell) {
    return cell == ALL_DEPARTED ? INT64_MAX : cell - 1;
}

/* What a rank has read: a claim, a count or another word. */
static uint16_t pack_word(uint64_t word) {
    const uint64_t version = word >> QUORUM_ALL_SLICE_BITS;
    const uint64_t count = word & ((UINT64_C(1) << QUORUM_ALL_SLICE_BITS) - 1);
    return (uint16_t)(version ? MAX_WORD | version << 8 | count : count);
}
static uint64_t unpack_word(uint16_t cell) {
    if (cell < MAX_WORD)
        return cell;
    return (uint64_t)((cell & ~MAX_WORD) >> 8) << QUORUM_ALL_SLICE_BITS | (cell & 0xFF);
}

static uint16_t pack_ranks(const int32_t *ranks, int32_t n) {
    uint16_t bits = 0;
    for (int32_t k = 0; k < n; k++)
        bits |= (uint16_t)(1u << ranks[k]);
    return bits;
}
static int32_t unpack_ranks(uint16_t bits, int32_t *ranks) {
    int32_t n = 0;
    for (int32_t r = 0; r < QUORUM_ALL_RANKS; r++)
        if (bits >> r & 1)
            ranks[n++] = r;
    return n;
}

static void unpack(struct quorum_all_memory *m) {
    const struct quorum_all_config *g = m->config;
    const uint16_t *f = quorum_all_field(m, m->rank, 0);
    struct quorum_all_local *l = &m->local;
    *l = (struct quorum_all_local){
        .seen = m->seen,
        .group = {m->group[0], m->group[1]},
        .present = m->present,
        .contributors = m->contributors,
        .weights = m->weights,
        .missing = m->missing,
        .pc = f[R_PC],
        .t = f[R_T] - 1,
        .sync = f[R_SYNC],
        .i = f[R_I],
        .s = f[R_S],
        .why = f[R_WHY],
        .low = unpack_version(f[R_LOW]),
        .word = unpack_word(f[R_WORD]),
        .slowest = unpack_version(f[R_SLOWEST]),
        .other = f[R_OTHER] - 1,
        .resume = f[R_RESUME],
        .fate = f[R_FATE],
        .j = f[R_J] - 1,
        .lost = f[R_LOST] - 1,
        .posted = f[R_POSTED] != 0,
        .resting = f[R_POSTED] == 2,
        .missing_n = f[R_MISSING],
        .present_n = unpack_ranks(f[R_PRESENT], m->present),
        .contributors_n = unpack_ranks(f[R_CONTRIBUTORS], m->contributors),
    };
    l->divisor = l->contributors_n;
    if (l->t >= 0) {
        l->members = g->members[l->sync][l->t][m->rank];
        l->n = g->count[l->sync][l->t][m->rank];
    }
    for (int p = 0; p < 2; p++) {
        const int t = f[R_GROUP + p] - 1, sync = f[R_GROUP_SYNC + p];
        l->group_version[p] = t;
        if (t < 0)
            continue;
        l->group_n[p] = g->count[sync][t][m->rank];
        memcpy(l->group[p], g->members[sync][t][m->rank], sizeof m->group[p]);
    }
    for (int r = 0; r < g->ranks; r++)
        l->seen[r] = f[R_SEEN + r] - 1;
}

static void pack(struct quorum_all_memory *m) {
    const struct quorum_all_local *l = &m->local;
    uint16_t *f = quorum_all_field(m, m->rank, 0);
    f[R_PC] = (uint16_t)l->pc;
    f[R_T] = (uint16_t)(l->t + 1);
    f[R_SYNC] = (uint16_t)l->sync;
    f[R_I] = (uint16_t)l->i;
    f[R_S] = (uint16_t)l->s;
    f[R_LOW] = pack_version(l->low);
    f[R_WORD] = pack_word(l->word);
    f[R_SLOWEST] = pack_version(l->slowest);
    f[R_OTHER] = (uint16_t)(l->other + 1);
    /* meaningless but while waiting, and while looking whom for */
    const int seeking = f[R_MODE] == SEEKING;
    f[R_WHY] = f[R_MODE] == GOING ? 0 : (uint16_t)l->why;
    f[R_RESUME] = seeking ? (uint16_t)l->resume : 0;
    f[R_FATE] = seeking ? (uint16_t)l->fate : 0;
    f[R_J] = seeking ? (uint16_t)(l->j + 1) : 0;
    f[R_LOST] = seeking ? (uint16_t)(l->lost + 1) : 0;
    f[R_MISSING] = seeking && l->missing_n; /* it matters whether there is one */
    f[R_POSTED] = (uint16_t)(l->posted ? 1 + l->resting : 0);
    f[R_PRESENT] = pack_ranks(l->present, l->present_n);
    f[R_CONTRIBUTORS] = pack_ranks(l->contributors, l->contributors_n);
    for (int p = 0; p < 2; p++)
        if (l->group_n[p] && l->group_version[p] == l->t) {
            f[R_GROUP + p] = (uint16_t)(l->t + 1);
            f[R_GROUP_SYNC + p] = (uint16_t)l->sync;
        }
    for (int r = 0; r < m->config->ranks; r++)
        f[R_SEEN + r] = (uint16_t)(l->seen[r] + 1);
}

/* A rank that does no more steps: equal situations are equal states. */
static void end(struct quorum_all_memory *m, enum over over) {
    uint16_t *f = quorum_all_field(m, m->rank, 0);
    memset(f, 0, RANK_FIELDS * sizeof *f);
    f[R_OVER] = (uint16_t)over;
}

/* -- programs ---------------------------------------------------------------------------------- */
/* The user may write into the array. */
static void release_array(struct quorum_all_memory *m) {
    for (int s = 0; s < m->config->slices; s++)
        *quorum_all_cell(m, KIND_ARRAY, m->rank, s) = CONTENT_WRITING(m->rank);
}

/* Starts the next operation of the program; nothing shared is touched. */
static void begin_next(struct quorum_all_memory *m) {
    const struct quorum_all_config *g = m->config;
    uint16_t *f = quorum_all_field(m, m->rank, 0);
    const int op = f[R_OP];
    const char what = g->program[m->rank][op];
    release_array(m);
    f[R_MODE] = GOING;
    if (what == 'd' || what == 'f' || !what) {
        end(m, what == 'd' ? DEPARTING : what ? FAILING : FINISHED);
        return;
    }
    const int sync = what == 's' || what == 'y';
    f[R_OP]++;
    m->local.low = m->local.slowest; /* what is left over is meaningless */
    m->local.word = 0;
    m->local.s = 0;
    m->local.other = -1;
    quorum_all_begin(&m->local, op, sync, g->members[sync][op][m->rank],
                     g->count[sync][op][m->rank], what == 'p');
    pack(m);
}

/* -- moves ------------------------------------------------------------------------------------- */
static int has_data(enum quorum_all_action action) {
    return action == QUORUM_ALL_WRITE || action == QUORUM_ALL_PRIVATE ||
           action == QUORUM_ALL_SHARE || action == QUORUM_ALL_REDUCE ||
           action == QUORUM_ALL_DELIVER;
}

static struct quorum_all_context context_of(struct quorum_all_memory *m) {
    return (struct quorum_all_context){
        .memory = m,
        .rank = m->rank,
        .size = m->config->ranks,
        .window = m->config->window,
        .slices = (uint32_t)m->config->slices,
    };
}

static void step(struct quorum_all_memory *m, int seek) {
    uint16_t *f = quorum_all_field(m, m->rank, 0);
    const struct quorum_all_context context = context_of(m);
    unpack(m);
    if (f[R_ACTION]) {
        quorum_all_check_end(m, (enum quorum_all_action)f[R_ACTION]);
        f[R_ACTION] = QUORUM_ALL_STEP;
    }
    if (seek) {
        quorum_all_seek(&context, &m->local);
        f[R_MODE] = SEEKING;
    }
    m->action = quorum_all_step(&context, &m->local);
    if (m->accesses > 1)
        quorum_all_violate(m, "one-access", "%d shared accesses in one step", m->accesses);
    quorum_all_check_begin(m);
    if (m->action == QUORUM_ALL_WAIT)
        f[R_MODE] = WAITING;
    else if (m->action != QUORUM_ALL_STEP || f[R_MODE] == WAITING)
        f[R_MODE] = GOING;
    f[R_ACTION] = has_data(m->action) ? (uint16_t)m->action : QUORUM_ALL_STEP;
    if (m->action == QUORUM_ALL_RETURN)
        begin_next(m);
    else if (m->action == QUORUM_ALL_PEER || m->action == QUORUM_ALL_MISMATCH)
        end(m, FAILING);
    else
        pack(m);
}

static int count_dead(const struct quorum_all_memory *m) {
    int n = 0;
    for (int r = 0; r < m->config->ranks; r++)
        n += *quorum_all_field(m, r, R_OVER) == DEAD;
    return n;
}

/* The rank has posted, and its caller may be elsewhere: between slices, or where the others have
 * done everything. */
static int may_be_away(struct quorum_all_memory *m, int resting) {
    const uint16_t *f = quorum_all_field(m, m->rank, 0);
    unpack(m);
    if (f[R_MODE] != GOING || !m->local.posted)
        return 0;
    return (quorum_all_is_between_slices(&m->local) && (int)m->local.resting == resting &&
            f[R_ACTION] == QUORUM_ALL_STEP) ||
           (resting && f[R_ACTION] == QUORUM_ALL_DELIVER);
}

int quorum_all_model_move(struct quorum_all_memory *m, enum quorum_all_choice choice) {
    const struct quorum_all_config *g = m->config;
    const uint16_t *f = quorum_all_field(m, m->rank, 0);
    const enum over over = (enum over)f[R_OVER];
    m->accesses = 0;
    m->access.name = NULL;
    m->action = QUORUM_ALL_RETURN;
    if (!quorum_all_is_running(over) ||
        (choice != CHOICE_DIE && choice != CHOICE_STEP && over != RUNNING))
        return 0;
    switch (choice) {
    case CHOICE_SEEK:
        if (f[R_MODE] != WAITING)
            return 0;
        step(m, 1);
        return 1;
    case CHOICE_STEP:
        if (over == RUNNING) {
            step(m, 0);
            return 1;
        }
        /* what segment_leave() does, and then the user with the array */
        *quorum_all_cell(m, QUORUM_ALL_STATE, m->rank, 0) =
            over == DEPARTING ? QUORUM_ALL_STATE_DEPARTED : QUORUM_ALL_STATE_FAILED;
        release_array(m);
        end(m, over == DEPARTING ? DEPARTED : FAILED);
        return 1;
    case CHOICE_GIVE_UP:
        if (!g->give_up || (f[R_MODE] != WAITING && !may_be_away(m, 1)))
            return 0;
        end(m, FAILING);
        return 1;
    case CHOICE_REST:
        if (!may_be_away(m, 0))
            return 0;
        quorum_all_rest(&m->local);
        pack(m);
        step(m, 0);
        return 1;
    case CHOICE_DIE:
        if (count_dead(m) >= g->deaths)
            return 0;
        end(m, DEAD);
        return 1;
    case QUORUM_ALL_CHOICES: break;
    }
    return 0;
}

/* -- configuration ----------------------------------------------------------------------------- */
static const char *check_numbers(const struct quorum_all_config *g) {
    if (g->ranks < 1 || g->ranks > QUORUM_ALL_RANKS)
        return "--ranks is out of range";
    if (g->group_size < 1 || g->group_size > g->ranks)
        return "--group is out of range";
    if (g->window < 1 || g->slices < 0 || g->slices > QUORUM_ALL_SLICES)
        return "--window or --slices is out of range";
    for (int r = 0; r < g->ranks; r++)
        if (strspn(g->program[r], "nszypdf") != strlen(g->program[r]) || !g->program[r][0] ||
            strcspn(g->program[r], "df") + 1 < strlen(g->program[r]))
            return "a program is a word of n, s, z, y, p and, at its end, d or f";
    return NULL;
}

static int is_sync(char operation) {
    return operation == 's' || operation == 'y';
}

const char *quorum_all_config_finish(struct quorum_all_config *g) {
    const char *error = check_numbers(g);
    if (error)
        return error;
    int versions = 0;
    for (int r = 0; r < g->ranks; r++) {
        const int n = (int)strspn(g->program[r], "nszyp");
        versions = n > versions ? n : versions;
        for (int k = 0; k < n && k < (int)strspn(g->program[0], "nszyp"); k++)
            g->mismatch |= is_sync(g->program[r][k]) != is_sync(g->program[0][k]);
    }
    const struct topology topology = {.size = g->ranks, .group_size = g->group_size};
    for (int t = 0; t < versions; t++)
        for (int r = 0; r < g->ranks; r++) {
            g->count[0][t][r] = topology_members(&topology, r, t, g->members[0][t][r]);
            g->count[1][t][r] = g->ranks;
            for (int k = 0; k < g->ranks; k++)
                g->members[1][t][r][k] = k;
        }
    for (int k = 0; k < KINDS; k++) {
        g->stride[k] = k == KIND_RANK    ? RANK_FIELDS
                       : k == KIND_ARRAY ? g->slices
                       : k == QUORUM_ALL_STAMP || k == QUORUM_ALL_CLAIM || k == QUORUM_ALL_DONE ||
                               k == KIND_RECORD
                           ? 2
                           : 1;
        g->base[k] = g->cells;
        g->cells += g->ranks * g->stride[k];
    }
    g->bytes = (g->cells * (int)sizeof(uint16_t) + 31) / 32 * 32;
    return g->bytes / 2 > SPACE_CELLS ? "the configuration is too large" : NULL;
}

void quorum_all_model_initial(const struct quorum_all_config *g, uint16_t *cells) {
    memset(cells, 0, (size_t)g->bytes);
    struct quorum_all_memory m = {.config = g, .cells = cells};
    for (m.rank = 0; m.rank < g->ranks; m.rank++) {
        const struct quorum_all_context context = context_of(&m);
        unpack(&m);
        quorum_all_init(&context, &m.local);
        begin_next(&m);
    }
}
