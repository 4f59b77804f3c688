/* Shared words of the model: sequentially consistent, or (tso) with a FIFO of stores per rank, as
 * on x86: stores of any order but seq_cst wait in it, loads look into it first, read-modify-writes
 * and seq_cst stores need it empty. */
#include "model.h"

enum {
    POISON = 255, /* contents of words that nobody may read any more */
};

/* A cell: version 4 | sync 1 | view 1 | left 1 | 0, low 8 or 1, takes 4, buffer 4. */
enum { CELL_BUFFERS = 256, CELL_LEFT = 512, CELL_VIEW = 1024, CELL_SYNC = 2048, CELL_VERSION = 12 };

uint16_t encode_word(uint64_t word) {
    if (word == ROUND_DEPARTED)
        return 0xFFFF;
    if (word == ROUND_DEPARTED_VERSION)
        return 0xFFFE;
    const uint64_t version = round_version(word);
    const uint32_t takes = round_takes(word), buffer = round_buffer(word);
    const uint32_t flags = (round_low(word) & ROUND_PUB_SYNC ? CELL_SYNC : 0) |
                           (round_low(word) & ROUND_PUB_VIEW ? CELL_VIEW : 0) |
                           (round_low(word) & ROUND_PUB_LEFT ? CELL_LEFT : 0);
    if (version > 15 || takes > 15 || buffer > (takes ? 15 : 255))
        __builtin_trap(); /* the configuration is too large for the cells */
    const uint32_t low = takes ? CELL_BUFFERS | takes << 4 | buffer : buffer;
    return (uint16_t)(version << CELL_VERSION | flags | low);
}

uint64_t decode_word(uint16_t cell) {
    if (cell == 0xFFFF)
        return ROUND_DEPARTED;
    if (cell == 0xFFFE)
        return ROUND_DEPARTED_VERSION;
    const uint32_t low =
        cell & CELL_BUFFERS ? (cell & 15u) | (cell >> 4 & 15u) << ROUND_BUFFER_BITS : cell & 255u;
    return round_pack(cell >> CELL_VERSION, low | (cell & CELL_LEFT ? ROUND_PUB_LEFT : 0) |
                                                (cell & CELL_VIEW ? ROUND_PUB_VIEW : 0) |
                                                (cell & CELL_SYNC ? ROUND_PUB_SYNC : 0));
}

static uint16_t *stores(const struct round_memory *m) {
    return cell(m, KIND_STORES, m->rank, 0);
}

/* What m->rank sees. */
static uint16_t view(const struct round_memory *m, int index) {
    if (m->config->tso) {
        const uint16_t *buffer = stores(m);
        for (int k = buffer[0]; k-- > 0;)
            if (buffer[1 + 2 * k] == index)
                return buffer[2 + 2 * k];
    }
    return m->cells[index];
}

/* What a life leaves behind is nobody's: equal situations are equal states. Reading the data, or
 * using the words, without a reference is a violation. Only HEAD and IN are read without one, by a
 * rank with an old pointer, which must come out as late; that it would also from what is wiped here
 * is checked: no fresh member is left that has not taken the round (check_freed). */
static void end_life(struct round_memory *m, int c) {
    for (int k = 0; k < m->config->ranks; k++)
        *cell(m, ROUND_IN, c, k) = 0;
    *cell(m, ROUND_HEAD, c, 0) = 0;
    for (int s = 0; s < m->config->slices; s++)
        *cell(m, KIND_RESULT, c, s) = 0;
    *cell(m, KIND_META, c, 0) = 0;
    *cell(m, KIND_LIFE, c, 0) = 0;
    *cell(m, ROUND_DONE, c, 0) = *cell(m, ROUND_NEXT, c, 0) = POISON;
}

/* Ends the life of a round that every rank has gone past, but for what its owner will ask about. */
void forget_round(struct round_memory *m, int c) {
    const uint16_t head = *cell(m, ROUND_HEAD, c, 0), life = *cell(m, KIND_LIFE, c, 0);
    end_life(m, c);
    *cell(m, ROUND_HEAD, c, 0) = head;
    *cell(m, KIND_LIFE, c, 0) = life;
}

static void forget_data(struct round_memory *m, int r, int b) {
    const uint16_t pub = *cell(m, ROUND_PUB, r, 0);
    if (!m->config->tso && *cell(m, ROUND_CREF, r, b) == 0 &&
        (pub == 0xFFFF || (int)round_buffer(decode(pub)) != b) &&
        !(*cell(m, KIND_DATA, r, b) & TORN))
        *cell(m, KIND_DATA, r, b) = POISON;
}

/* A store reaches the memory that all ranks see. */
static void commit(struct round_memory *m, enum access_kind kind, int word, int i, int j,
                   uint16_t value) {
    const struct config *g = m->config;
    check_commit(m, kind, word, i, j, value);
    const uint16_t before = *cell(m, word, i, j);
    *cell(m, word, i, j) = value;
    switch (word) {
    case ROUND_FREE:
        if (value) {
            check_freed(m, i);
            end_life(m, i);
        } else { /* a pin begins: remember what was the newest */
            const int t = rank_field(g, m->cells, m->rank, R_t);
            const int sync = rank_field(g, m->cells, m->rank, R_sync);
            for (int k = 0; k < g->count[sync][t][m->rank]; k++) {
                const int q = g->members[sync][t][m->rank][k];
                *cell(m, KIND_RANK, m->rank, R_FLOOR + k) = *cell(m, ROUND_PUB, q, 0);
            }
        }
        break;
    case ROUND_IN:
        if (kind != ACCESS_STORE)
            break; /* the pin is over: a member has left something to the round */
        check_recorded(m, i, j);
        *cell(m, KIND_RANK, m->rank, R_FLOOR + j) = 0;
        break;
    case ROUND_NEXT: /* beyond the last slice all values mean the same */
        if (value > m->config->slices)
            *cell(m, ROUND_NEXT, i, 0) = (uint16_t)m->config->slices;
        break;
    case ROUND_HEAD: *cell(m, KIND_LIFE, i, 0) = (uint16_t)round_version(decode(value)); break;
    case ROUND_PUB:
        if (before != 0xFFFF)
            forget_data(m, i, (int)round_buffer(decode(before)));
        break;
    case ROUND_CREF:
        if (value == 0)
            forget_data(m, i, j);
        break;
    default: break;
    }
}

static void record(struct round_memory *m, enum access_kind kind, const char *name, int word,
                   uint32_t i, uint32_t j, int order) {
    m->accesses++;
    m->access = (struct access){kind, name, word, (int)i, (int)j, order, 1, 0, 0};
    m->access.before = m->access.after =
        decode(view(m, cell_index(m->config, word, (int)i, (int)j)));
}

uint64_t model_load(struct round_memory *m, int kind, uint32_t i, uint32_t j, int order) {
    record(m, ACCESS_LOAD, "load", kind, i, j, order);
    if (kind == ROUND_HOLD && (int)i == m->rank)
        m->looked_up = 1; /* if the rank is late; else it is about to let it go */
    return m->access.before;
}

static int must_drain(struct round_memory *m) {
    if (m->config->tso && stores(m)[0])
        m->blocked = 1;
    return m->blocked;
}

static void put(struct round_memory *m, int index, uint16_t value) {
    uint16_t *buffer = stores(m);
    const int n = buffer[0]++;
    if (n == STORE_BUFFER)
        __builtin_trap(); /* raise STORE_BUFFER */
    buffer[1 + 2 * n] = (uint16_t)index;
    buffer[2 + 2 * n] = value;
}

void model_store(struct round_memory *m, int kind, uint32_t i, uint32_t j, uint64_t value,
                 int order) {
    record(m, ACCESS_STORE, "store", kind, i, j, order);
    m->access.after = value;
    if (m->config->tso && order != memory_order_seq_cst)
        put(m, cell_index(m->config, kind, (int)i, (int)j), encode(value));
    else if (!must_drain(m))
        commit(m, ACCESS_STORE, kind, (int)i, (int)j, encode(value));
}

int model_cas(struct round_memory *m, int kind, uint32_t i, uint32_t j, uint64_t *expected,
              uint64_t desired, int order) {
    if (must_drain(m))
        return 0;
    record(m, ACCESS_RMW, "cas", kind, i, j, order);
    const uint64_t value = m->access.before;
    m->access.done = value == *expected;
    if (m->access.done) {
        m->access.after = desired;
        commit(m, ACCESS_RMW, kind, (int)i, (int)j, encode(desired));
    }
    if (kind == ROUND_SLOT && m->access.done)
        check_pinned(m, (int)i, value, desired);
    *expected = value;
    return m->access.done;
}

uint64_t model_rmw(struct round_memory *m, enum rmw op, int kind, uint32_t i, uint32_t j,
                   uint64_t value, int order) {
    static const char *const names[] = {"swap", "add", "sub", "or"};
    if (must_drain(m))
        return 0;
    record(m, ACCESS_RMW, names[op], kind, i, j, order);
    const uint64_t before = m->access.before;
    if (op == RMW_SUB && before < value) {
        violate(m, "I9-held", "a counter of references falls below zero");
        return before;
    }
    const uint64_t after = op == RMW_SWAP  ? value
                           : op == RMW_ADD ? before + value
                           : op == RMW_SUB ? before - value
                                           : before | value;
    m->access.after = after;
    commit(m, ACCESS_RMW, kind, (int)i, (int)j, encode(after));
    return before;
}

uint16_t data_read(const struct round_memory *m, int kind, int i, int j) {
    return view(m, cell_index(m->config, kind, i, j));
}

void data_write(struct round_memory *m, int kind, int i, int j, uint16_t value) {
    if (m->config->tso)
        put(m, cell_index(m->config, kind, i, j), value);
    else
        *cell(m, kind, i, j) = value;
}

int model_has_stores(const struct config *g, const uint16_t *cells, int rank) {
    return g->tso && cells[cell_index(g, KIND_STORES, rank, 0)];
}

void model_flush(struct round_memory *m) {
    const struct config *g = m->config;
    uint16_t *buffer = stores(m);
    const int index = buffer[1];
    const uint16_t value = buffer[2];
    const int left = --buffer[0];
    for (int k = 0; k < 2 * left; k++)
        buffer[1 + k] = buffer[3 + k];
    buffer[1 + 2 * left] = buffer[2 + 2 * left] = 0;
    int kind = KINDS - 1;
    while (g->base[kind] > index)
        kind--;
    const int i = (index - g->base[kind]) / g->stride[kind];
    const int j = (index - g->base[kind]) % g->stride[kind];
    m->access = (struct access){
        ACCESS_STORE, "  visible: store", kind, i, j, memory_order_relaxed, 1, m->cells[index],
        value};
    if (kind > ROUND_FREE) {
        m->cells[index] = value;
        return;
    }
    m->access.before = decode(m->cells[index]);
    m->access.after = decode(value);
    commit(m, ACCESS_STORE, kind, i, j, value);
}
