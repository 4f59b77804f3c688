/* See exchange_stage.h. */
#include "exchange_stage.h"

#include <stdlib.h>

wagma_options options_of_algorithm(int n, schedule_algorithm algorithm, size_t count) {
    wagma_options o;
    wagma_options_init(&o);
    o.size = n;
    o.count = (int64_t)count;
    o.window = 16;
    o.schedule_switch = algorithm == SCHEDULE_DOUBLING ? INT64_MAX : 1;
    o.schedule_direct = algorithm == SCHEDULE_DIRECT ? CREW_RANKS : 1;
    o.schedule_part = 1;
    o.schedule_chunk = 16384;
    wagma_options_check(&o);
    return o;
}

int open_stage(stage *s, const wagma_options *o, size_t attached) {
    *s = (stage){.n = o->size, .dtype = (wagma_dtype)o->dtype, .count = (size_t)o->count};
    for (int r = 0; r < s->n; r++) {
        s->members[r] = r;
        s->input[r] = calloc(s->count + 1, 8);
        s->result[r] = calloc(s->count + 1, 8);
    }
    return crew_open(&s->crew, o, attached, 7, 5);
}

void close_stage(stage *s) {
    crew_close(&s->crew);
    for (int r = 0; r < s->n; r++) {
        free(s->input[r]);
        free(s->result[r]);
    }
}

void set_start(stage *s, int r, double weight) {
    s->parts[r] =
        (part){.start = {.version = s->version,
                         .members = s->members,
                         .n = s->n,
                         .index = r,
                         .input = s->input[r],
                         .result = s->result[r],
                         .mine = {.version = s->version, .weight = weight, .share = weight}}};
}

const char *run_version(stage *s) {
    for (int r = 0; r < s->n; r++)
        set_start(s, r, 1);
    const char *wrong = crew_run(&s->crew, s->parts, 1);
    crew_release(&s->crew, s->parts, 1);
    s->version++;
    return wrong ? wrong : crew_leftover(&s->crew);
}
