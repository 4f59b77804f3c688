/* The phases of an exchange: messages are posted and sums are computed as soon as their data is
 * available, see exchange_state.h. */
#include "messages/exchange_state.h"

#include <string.h>

/* Bytes that are summed up until messages have their turn. */
enum { BUSY = 32 << 10 };

/* ---- streams --------------------------------------------------------------------------------- */

/* For the timeline: the step is under way from the first message that it sends (or asks for, if it
 * sends none), until exchange_over() the last one. */
static void note_beginning(const struct exchange_pool *pool, transfer *t) {
    if (pool->trace && t->began == 0)
        t->began = trace_begin(pool->trace);
}

static void note_final(const struct exchange *e, schedule_range r) {
    if (e->start.going)
        e->start.going->note(e->start.going, e->start.result, r.begin, r.end);
}

void exchange_over(struct exchange_pool *pool, struct exchange *e, int step, int out,
                   uint32_t chunk) {
    transfer *t = &e->transfers[step];
    stream *s = out ? &t->out : &t->in;
    const int p = phase_of(e, step);
    pool->moves++;
    s->over |= UINT32_C(1) << chunk % EXCHANGE_AHEAD;
    while (s->done < s->posted && s->over & UINT32_C(1) << s->done % EXCHANGE_AHEAD)
        s->over &= ~(UINT32_C(1) << s->done++ % EXCHANGE_AHEAD);
    if (t->began != 0 && t->in.done == t->in.chunks && t->out.done == t->out.chunks) {
        trace_end(pool->trace, TRACE_PHASE, t->began, e->start.version,
                  e->members[e->schedule.step[step].peer], p);
        t->began = 0;
    }
    if (!out && !phase_is_reduce(e, p) && !s->eager)
        note_final(e, stream_chunk(s, chunk));
    if (out || phase_is_reduce(e, p) || !s->eager) /* else when it is copied */
        e->left--;
    uint32_t phases = UINT32_C(1) << p;
    if (out && phase_is_reduce(e, p)) /* its memory may be free for others */
        phases |= ((UINT32_C(1) << e->schedule.phases) - 1) & ~(phases - 1);
    exchange_mark(pool, e, phases);
}

/* Elements up to here, from the beginning of the stream's range, are over. */
static size_t done_until(const stream *s) {
    return s->done == s->chunks ? s->range.end : s->range.begin + (size_t)s->done * s->chunk;
}

/* Return 1 if the data that phase p sends of a range is available. */
static int is_ready(const struct exchange *e, int p, schedule_range r) {
    if (p == 0)
        return parts_written(e->start.coming, r.begin, r.end);
    if (p > e->schedule.reduces)
        return e->copied >= p;
    const phase_state *before = &e->phase[p - 1];
    return before->reduced == before->chunks ||
           r.end <= e->schedule.phase[p - 1].kept.begin + (size_t)before->reduced * before->chunk;
}

static int tag_of(const struct exchange_pool *pool, const struct exchange *e, int p) {
    return (int)(e->start.version % pool->tags) * pool->phases + p;
}

static transport_completion completion_of(struct exchange *e, int step, int out, uint32_t chunk) {
    return (transport_completion){e, (uint64_t)chunk << 32 | (uint64_t)step << 1 | (uint64_t)out};
}

/* Data of this member is not read where its weights are 0: an empty message says so. */
static int sends_data(const struct exchange *e, int p) {
    return phase_is_reduce(e, p) ? e->phase[p].carries : e->carries;
}

/* The header of a step, with the data if that is eager; as soon as both are there. */
static int tell(struct exchange_pool *pool, struct exchange *e, int p, int i) {
    const schedule_step *step = &e->schedule.step[i];
    transfer *t = &e->transfers[i];
    const int data = t->out.eager && (phase_is_reduce(e, p) || e->carries);
    if (t->told || (length(step->tell) == 0 && !data) || (data && !is_ready(e, p, t->out.range)))
        return WAGMA_OK;
    if (data)
        note_beginning(pool, t);
    const size_t bytes = data && sends_data(e, p) ? length(t->out.range) * size_in(pool, e, p) : 0;
    const int status = exchange_tell(pool, e, p, i, source(pool, e, p, t->out.range.begin), bytes);
    if (status != WAGMA_OK)
        return status;
    t->told = 1;
    if (data) {
        t->out.posted = 1;
        exchange_over(pool, e, i, 1, 0);
    }
    return WAGMA_OK;
}

static int push(struct exchange_pool *pool, struct exchange *e, int p, int i) {
    stream *s = &e->transfers[i].out;
    const int to = e->members[e->schedule.step[i].peer];
    const size_t size = sends_data(e, p) ? size_in(pool, e, p) : 0;
    while (!s->eager && s->posted < s->chunks && s->posted - s->done < EXCHANGE_AHEAD) {
        const schedule_range r = stream_chunk(s, s->posted);
        if (!is_ready(e, p, r))
            break;
        note_beginning(pool, &e->transfers[i]);
        const int status = pool->transport->calls->send(
            pool->transport, to, tag_of(pool, e, p), source(pool, e, p, r.begin), length(r) * size,
            completion_of(e, i, 1, s->posted));
        if (status != WAGMA_OK)
            return status;
        s->posted++;
    }
    return WAGMA_OK;
}

/* Return the place where chunk c of a stream is received, if not in the result. */
static unsigned char *slot(const struct exchange_pool *pool, const struct exchange *e, int p,
                           const stream *s, uint32_t c) {
    return s->ring + c % EXCHANGE_AHEAD * padded(s->chunk * size_in(pool, e, p));
}

/* Post receives. Data for a sum stays in the ring until it is summed. Data of a result is received
 * in place, once nothing is sent from there any more. */
static int pull(struct exchange_pool *pool, struct exchange *e, int p, int i) {
    transfer *t = &e->transfers[i];
    stream *s = &t->in;
    const int reduce = phase_is_reduce(e, p);
    const int from = e->members[e->schedule.step[i].peer];
    const uint32_t used = reduce ? e->phase[p].reduced : s->done; /* chunks */
    while (!s->eager && s->posted < s->chunks && s->posted - used < EXCHANGE_AHEAD) {
        const schedule_range r = stream_chunk(s, s->posted);
        if (t->guarded && done_until(&e->transfers[e->schedule.step[i].after].out) < r.end)
            break;
        if (t->out.chunks == 0) /* or what is sent is ready later */
            note_beginning(pool, t);
        unsigned char *to =
            reduce ? slot(pool, e, p, s, s->posted)
                   : (unsigned char *)e->start.result + r.begin * sum_size(pool->dtype, SUM_DATA);
        const int status = pool->transport->calls->receive(
            pool->transport, from, tag_of(pool, e, p), to, length(r) * size_in(pool, e, p),
            completion_of(e, i, 0, s->posted));
        if (status != WAGMA_OK)
            return status;
        s->posted++;
    }
    return WAGMA_OK;
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* Nobody sends any more from where chunk r of phase p is going to be written. With halving and
 * direct a member sends only what it does not keep. */
static int may_write(const struct exchange_pool *pool, const struct exchange *e, int p,
                     schedule_range r) {
    const schedule *s = &e->schedule;
    if (s->algorithm != SCHEDULE_DOUBLING)
        return 1;
    for (int q = 0; q <= p; q += p > 0 ? p : 1) /* the contribution; what this phase sends */
        for (int i = s->phase[q].begin; i < s->phase[q].end; i++)
            if (e->transfers[i].out.chunks > 0 && done_until(&e->transfers[i].out) < r.end &&
                source(pool, e, q, r.begin) == destination(pool, e, p, r.begin))
                return 0;
    return 1;
}

/* Everything that the next chunk of a phase needs is there. */
static int may_sum(const struct exchange_pool *pool, const struct exchange *e, int p,
                   schedule_range r) {
    const schedule_phase *phase = &e->schedule.phase[p];
    const uint32_t c = e->phase[p].reduced;
    if (e->heard <= p || !is_ready(e, p, r) || !may_write(pool, e, p, r))
        return 0;
    for (int i = phase->begin; i < phase->end; i++)
        if (e->transfers[i].in.chunks > 0 && e->transfers[i].in.done <= c)
            return 0;
    return 1;
}

/* Sums a chunk: this member's and what it received, in the order of the members. */
static void sum_chunk(struct exchange_pool *pool, struct exchange *e, int p, schedule_range r) {
    const schedule_phase *phase = &e->schedule.phase[p];
    const uint32_t c = e->phase[p].reduced;
    int n = 0, own = 0;
    for (int i = phase->begin;; i++) {
        if (!own && (i == phase->end || e->schedule.step[i].peer > e->schedule.index)) {
            e->inputs[n] = e->phase[p].carries ? source(pool, e, p, r.begin) : NULL;
            e->weights[n++] = p == 0 ? e->start.mine.weight : e->phase[p].carries;
            own = 1;
        }
        if (i == phase->end)
            break;
        const transfer *t = &e->transfers[i];
        if (t->in.chunks == 0)
            continue;
        e->inputs[n] = slot(pool, e, p, &t->in, c);
        e->weights[n++] = p == 0 ? e->records[e->schedule.step[i].peer].weight : (double)t->carries;
    }
    const uint64_t began = pool->trace ? trace_begin(pool->trace) : 0;
    sum_range(pool->kernels, pool->dtype, phase_form(e, p), is_final(e, p) ? SUM_DATA : SUM_PARTIAL,
              destination(pool, e, p, r.begin), e->inputs, e->weights, n,
              is_final(e, p) ? e->divisor : 1, length(r));
    if (is_final(e, p))
        note_final(e, r);
    if (pool->trace)
        trace_end(pool->trace, TRACE_REDUCE, began, e->start.version, -1, (int)c);
}

/* The next chunks; bytes of the last one, if there was work to do. */
static size_t reduce(struct exchange_pool *pool, struct exchange *e, int p) {
    phase_state *state = &e->phase[p];
    const stream kept = {.range = e->schedule.phase[p].kept, .chunk = state->chunk};
    const uint32_t before = state->reduced;
    size_t summed = 0;
    while (summed == 0 && state->reduced < state->chunks) {
        const schedule_range r = stream_chunk(&kept, state->reduced);
        if (!may_sum(pool, e, p, r))
            break;
        if (state->sums) {
            sum_chunk(pool, e, p, r);
            summed = length(r) * size_in(pool, e, p);
        }
        state->reduced++;
        e->left--;
        pool->moves++;
    }
    if (state->reduced != before) { /* room for messages, and something to send */
        const uint32_t all = (UINT32_C(1) << e->schedule.phases) - 1;
        const int last = is_final(e, p) && state->reduced == state->chunks;
        exchange_mark(pool, e, (last ? ~UINT32_C(0) : UINT32_C(3)) << p & all);
    }
    return summed;
}

/* Eager parts of the result go where they belong. */
static void copy(struct exchange_pool *pool, struct exchange *e, int p, int i) {
    transfer *t = &e->transfers[i];
    if (!t->in.eager || t->in.done == 0 || t->copied ||
        (t->guarded && done_until(&e->transfers[e->schedule.step[i].after].out) < t->in.range.end))
        return;
    const size_t size = size_in(pool, e, p);
    memcpy((unsigned char *)e->start.result + t->in.range.begin * size, t->in.ring,
           length(t->in.range) * size);
    note_final(e, t->in.range);
    t->copied = 1;
    e->left--;
}

/* ---- phases ---------------------------------------------------------------------------------- */

static int send_phase(struct exchange_pool *pool, struct exchange *e, int p) {
    const schedule_phase *phase = &e->schedule.phase[p];
    const int n = phase->end - phase->begin;
    int first = 0; /* the next member: so that not all send to the same one first */
    while (first < n && e->schedule.step[phase->begin + first].peer < e->schedule.index)
        first++;
    for (int k = 0; k < n; k++) {
        const int i = phase->begin + (first + k) % n;
        int status = tell(pool, e, p, i);
        if (status == WAGMA_OK && (phase_is_reduce(e, p) || e->carries))
            status = push(pool, e, p, i);
        if (status != WAGMA_OK)
            return status;
    }
    return WAGMA_OK;
}

static int receive_phase(struct exchange_pool *pool, struct exchange *e, int p) {
    const schedule_phase *phase = &e->schedule.phase[p];
    int status = WAGMA_OK;
    for (int i = phase->begin; i < phase->end && status == WAGMA_OK; i++) {
        status = pull(pool, e, p, i);
        if (!phase_is_reduce(e, p))
            copy(pool, e, p, i);
    }
    return status;
}

/* This member has of the result what it has after copy phase p, given the phases before. */
static int has_all(const struct exchange *e, int p) {
    const schedule_phase *phase = &e->schedule.phase[p];
    const phase_state *before = &e->phase[p - 1];
    if (before->reduced < before->chunks)
        return 0;
    for (int i = phase->begin; i < phase->end; i++) {
        const transfer *t = &e->transfers[i];
        if (t->in.eager ? !t->copied : t->in.done < t->in.chunks)
            return 0;
    }
    return 1;
}

static void note_copied(struct exchange_pool *pool, struct exchange *e, int p) {
    if (e->carries && e->copied == p && has_all(e, p)) {
        e->copied++;
        if (p + 1 < e->schedule.phases)
            exchange_mark(pool, e, UINT32_C(2) << p);
    }
}

/* For each bit of `phases`, lowest first. */
#define EACH(p, phases)                                                                            \
    for (uint32_t rest_ = (phases); rest_ != 0; rest_ &= rest_ - 1)                                \
        for (int p = __builtin_ctz(rest_), once_ = 1; once_; once_ = 0)

static int send_all(struct exchange_pool *pool, struct exchange *e, uint32_t phases) {
    int status = WAGMA_OK;
    EACH(p, phases) {
        if (status == WAGMA_OK && (phase_is_reduce(e, p) ? e->heard >= p : e->opened))
            status = send_phase(pool, e, p);
    }
    return status;
}

/* Messages of the result are fetched when the last sum was made: others wait for the sums. */
static int may_copy(const struct exchange *e) {
    const phase_state *last = &e->phase[e->schedule.reduces - 1];
    return e->carries && (!e->has_messages || last->reduced == last->chunks);
}

static int receive_all(struct exchange_pool *pool, struct exchange *e, uint32_t phases) {
    int status = WAGMA_OK;
    EACH(p, phases) {
        if (status == WAGMA_OK && (phase_is_reduce(e, p) || may_copy(e)))
            status = receive_phase(pool, e, p);
        if (!phase_is_reduce(e, p))
            note_copied(pool, e, p);
    }
    return status;
}

/* MPI may fetch a message inside of the call that posts its receive, or of the next poll. Therefore
 * messages are sent before anything is received: others can fetch them meanwhile. */
int exchange_advance(struct exchange_pool *pool, struct exchange *e) {
    size_t summed = 0;
    while (e->dirty != 0) {
        const uint32_t dirty = e->dirty;
        const int sends_first = e->has_messages || summed >= BUSY;
        int status = WAGMA_OK;
        e->dirty = 0;
        if (!sends_first)
            status = receive_all(pool, e, dirty);
        if (status == WAGMA_OK)
            status = send_all(pool, e, dirty);
        if (status != WAGMA_OK)
            return status;
        if (summed >= BUSY) {
            e->dirty |= dirty;
            return WAGMA_OK;
        }
        if (sends_first && (status = receive_all(pool, e, dirty)))
            return status;
        EACH(p, dirty & ((UINT32_C(1) << e->schedule.reduces) - 1)) {
            summed += reduce(pool, e, p);
        }
    }
    return WAGMA_OK;
}
