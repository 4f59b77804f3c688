/* Parts of the arrays of a call. See staged.h. */
#include <string.h>

#include "staged/staged.h"

enum { PART_CHUNKS = 4 }; /* messages of a part, at least: each part costs a copy and an event */

static struct staged *staged_with(call_parts *p) {
    return (struct staged *)((unsigned char *)p - offsetof(struct staged, parts));
}

static size_t size_of(const wagma_handle *h) {
    return reduce_dtype_size((wagma_dtype)h->options.dtype);
}

static size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

/* ---- the contribution ------------------------------------------------------------------------ */

/* Elements begin..end-1 from the first one that is needed, which may be two pieces of x. */
static int copy_circular(const wagma_handle *h, unsigned char *out, size_t begin, size_t end) {
    const struct staged *s = h->staged;
    const size_t size = size_of(h), count = s->parts.count;
    int status = WAGMA_OK;
    while (begin < end && status == WAGMA_OK) {
        const size_t at = (s->parts.first + begin) % count;
        const size_t n = smaller(end - begin, count - at);
        status = s->device->calls->copy(s->device, s->stream, out + at * size,
                                        (const unsigned char *)h->call.given + at * size, n * size);
        begin += n;
    }
    return status;
}

int staged_copy_x(wagma_handle *h, void *out) {
    struct staged *s = h->staged;
    const size_t count = s->parts.count, part = s->by_parts ? s->part : count;
    int status = WAGMA_OK;
    s->parts.first = s->by_parts ? h->executor->calls.first_needed(h) : 0;
    s->parts.written = 0;
    s->copies = s->copied_n = 0;
    do {
        const size_t begin = (size_t)s->copies * part;
        status = copy_circular(h, out, begin, smaller(begin + part, count));
        if (status == WAGMA_OK)
            status = s->device->calls->record(s->device, s->copied[s->copies++], s->stream);
    } while (status == WAGMA_OK && (size_t)s->copies * part < count);
    return status;
}

int staged_find_copied(wagma_handle *h) {
    struct staged *s = h->staged;
    const int status = s->device->calls->query(s->device, s->copied[s->copied_n]);
    if (status != WAGMA_OK)
        return status;
    s->copied_n++;
    s->parts.written = s->copied_n == s->copies ? s->parts.count : (size_t)s->copied_n * s->part;
    return WAGMA_OK;
}

static int look(wagma_handle *h) {
    const struct staged *s = h->staged;
    int more = 0, status = WAGMA_OK;
    while (s->copied_n < s->copies && (status = staged_find_copied(h)) == WAGMA_OK)
        more = 1;
    return status == WAGMA_OK || status == WAGMA_INPROGRESS ? more : status;
}

/* ---- the result ------------------------------------------------------------------------------ */

static void note(call_parts *p, const void *result, size_t begin, size_t end) {
    struct staged *s = staged_with(p);
    s->from = result;
    while (begin < end) {
        const size_t k = begin / s->part, until = smaller(end, (k + 1) * s->part);
        s->missing[k] -= until - begin;
        begin = until;
    }
}

/* Copy the parts that are not copied yet, without those of which elements are missing. */
static int copy_parts(const wagma_handle *h, int all) {
    struct staged *s = h->staged;
    const size_t size = size_of(h);
    int status = WAGMA_OK;
    for (int k = 0; k < s->parts_n && status == WAGMA_OK; k++) {
        const size_t begin = (size_t)k * s->part;
        while (k < s->parts_n && !s->gone[k] && (all || s->missing[k] == 0))
            s->gone[k++] = 1;
        const size_t end = smaller((size_t)k * s->part, s->parts.count);
        if (begin >= end)
            continue;
        s->took = s->taking = 1;
        status = s->device->calls->copy(s->device, s->back, (unsigned char *)s->to + begin * size,
                                        (const unsigned char *)s->from + begin * size,
                                        (end - begin) * size);
    }
    return status;
}

static int take(wagma_handle *h) {
    const struct staged *s = h->staged;
    if (!s->from || (s->from != s->x && !(s->direct && staged_reach(h, s->from))))
        return WAGMA_OK;
    return copy_parts(h, 0);
}

/* The device copies a part while the host divides the next one. */
static int copy_divided(const wagma_handle *h, unsigned char *out, unsigned char *x) {
    const struct staged *s = h->staged;
    const size_t size = size_of(h), count = s->parts.count;
    int status = WAGMA_OK;
    for (size_t begin = 0; begin < count && status == WAGMA_OK; begin += s->part) {
        const size_t n = smaller(s->part, count - begin), at = begin * size;
        h->kernels->divided_copy((wagma_dtype)h->options.dtype, x + at, x + at, s->parts.divisor,
                                 n);
        status = s->device->calls->copy(s->device, s->back, out + at, x + at, n * size);
    }
    return status;
}

int staged_copy_x_back(wagma_handle *h) {
    struct staged *s = h->staged;
    return s->by_parts && s->parts.divisor != 1 ? copy_divided(h, h->call.given, s->x)
                                                : staged_copy_result(h, h->call.given, s->x);
}

int staged_copy_result(wagma_handle *h, void *out, const void *result) {
    const struct staged *s = h->staged;
    if (s->took && out == s->to && result == s->from)
        return copy_parts(h, 1);
    return s->bytes ? s->device->calls->copy(s->device, s->back, out, result, s->bytes) : WAGMA_OK;
}

/* ---- a call ---------------------------------------------------------------------------------- */

void staged_choose_parts(wagma_handle *h) {
    struct staged *s = h->staged;
    s->by_parts = s->parts_n > 1 && (s->direct || h->policy.in_place);
    s->from = NULL;
    s->took = s->taking = 0;
    if (!s->by_parts)
        return;
    s->parts.divisor = 1;
    s->to = s->out_of_place ? s->views[0].array : h->call.given;
    memset(s->gone, 0, sizeof s->gone);
    for (int k = 0; k < s->parts_n; k++)
        s->missing[k] = smaller(s->part, s->parts.count - (size_t)k * s->part);
}

void staged_lay_out(wagma_handle *h) {
    struct staged *s = h->staged;
    const size_t count = (size_t)h->options.count;
    size_t part = PART_CHUNKS * (size_t)h->options.schedule_chunk / size_of(h);
    const size_t most = (count + STAGED_PARTS_MAX - 1) / STAGED_PARTS_MAX;
    if (part < most)
        part = most;
    s->parts = (call_parts){.count = count, .look = look, .note = note, .take = take};
    s->part = part;
    s->parts_n =
        h->executor->calls.first_needed && count > part ? (int)((count - 1) / part + 1) : 1;
}
