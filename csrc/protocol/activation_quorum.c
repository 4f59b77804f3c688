/* Quorums that change from version to version. A notice carries the quorum that its sender called
 * the version with; an activation carries the quorum of one rank that called it. The coordinator
 * compares the notices of a version. A rank that is activated compares with what it knows, and so
 * does a rank that calls later. The graph reaches every rank on a path of growing dimensions: two
 * activations of a version with different quorums meet on such a path or at its end, and the rank
 * where they meet knows both.
 *
 * A rank may be told of a version by data alone. It does not join the window's next barrier before
 * the activation has come: until then the version keeps its slot.
 *
 * Every rank that hears of a dispute passes it on before it fails. Without that a rank could hear
 * of such a failure before the finder's message, and report a lost rank. The messages of one sender
 * come in order: a rank that hears of the failure has heard of the dispute. */
#include "protocol/activation_state.h"

enum { SECOND_SHIFT = 16, QUORUM_SHIFT = 48 };

struct activation_dispute activation_disputed(const struct activation_message *m) {
    const int64_t low = (INT64_C(1) << QUORUM_SHIFT) - 1;
    return (struct activation_dispute){
        .version = m->version & low,
        .ranks = {m->detail & ((1 << SECOND_SHIFT) - 1), m->detail >> SECOND_SHIFT},
        .quorums = {m->quorum, (int32_t)(m->version >> QUORUM_SHIFT)},
    };
}

void activation_quorum(struct activation *a, int quorum) {
    a->config.quorum = quorum;
}

void activation_dispute(struct activation *a, const struct activation_message *m) {
    if (a->troubled)
        return;
    for (int r = 0; r < a->config.size; r++)
        if (r != a->config.rank)
            activation_push(
                a, (struct activation_action){.kind = ACTIVATION_SEND, .to = r, .message = *m});
    const struct activation_dispute dispute = activation_disputed(m);
    a->troubled = 1;
    activation_push(a, (struct activation_action){.kind = ACTIVATION_TROUBLE,
                                                  .to = dispute.ranks[1],
                                                  .reason = ACTIVATION_QUORUMS,
                                                  .version = dispute.version,
                                                  .message = *m});
}

int activation_claim(struct activation *a, struct activation_version *v, int rank, int quorum) {
    if (!a->config.varies || v->quorum == quorum)
        return 0;
    if (v->quorum == 0) {
        v->quorum = (uint16_t)quorum;
        v->claimant = rank;
        return 0;
    }
    activation_dispute(
        a, &(struct activation_message){.kind = ACTIVATION_DISPUTE,
                                        .quorum = v->quorum,
                                        .detail = v->claimant | rank << SECOND_SHIFT,
                                        .version = v->version | (int64_t)quorum << QUORUM_SHIFT});
    return 1;
}

int activation_is_unclaimed(const struct activation *a, const struct activation_version *v) {
    return a->config.varies && v->state != ACTIVATION_IDLE && !v->sync && !v->activated;
}
