/* The transport over MPI, as its contract (csrc/messages/transport.h) says. */
#include "everywhere.h"

#include <fcntl.h>
#include <mpi.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mpi/transport.h"

static wagma_transport *t;

static uint64_t draw(uint64_t *state) {
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 33;
}

static void test_description(void) {
    int level;
    MPI_Query_thread(&level);
    CHECK(t->rank == world_rank && t->size == world_size, "%d of %d", t->rank, t->size);
    CHECK(t->tags >= 32768, "%d", t->tags);
    CHECK(t->threads == (level == MPI_THREAD_MULTIPLE), "%d", t->threads);
    CHECK(strlen(t->name) >= 5 && strstr(t->name, "MPI") && !strstr(t->name, "  "), "'%s'",
          t->name);
    CHECK(t->calls->dead(t, (int32_t[64]){0}) == 0, "a rank is dead");
}

/* ---- control messages ------------------------------------------------------------------------ */

/* The length of message `number` of a pair, which the receiver knows: up to the longest, mostly
 * short, so that some go by the MPI's way for long ones and overtake nothing. */
static size_t control_length(int from, int to, int number) {
    uint64_t state = (uint64_t)((from * 64 + to) * 100003 + number);
    draw(&state);
    switch (draw(&state) % 4) {
    case 0: return TRANSPORT_CONTROL_MAX - draw(&state) % 100;
    case 1: return draw(&state) % TRANSPORT_CONTROL_MAX;
    default: return draw(&state) % 40;
    }
}

static int send_numbered(int to, int number) {
    unsigned char message[TRANSPORT_CONTROL_MAX];
    size_t bytes = control_length(world_rank, to, number);
    for (size_t i = 0; i < bytes; i++)
        message[i] = world_byte(world_rank, to, (uint64_t)number, i);
    int status = t->calls->send_control(t, to, message, bytes);
    memset(message, 0xee, sizeof message); /* it was copied */
    return status;
}

/* Number of wrong bytes, or of a wrong length. */
static size_t check_numbered(int from, int number, const unsigned char *message, size_t bytes) {
    size_t wrong = bytes != control_length(from, world_rank, number);
    for (size_t i = 0; i < bytes; i++)
        wrong += message[i] != world_byte(from, world_rank, (uint64_t)number, i);
    return wrong;
}

/* Receives until `expected` messages of each other rank came, in order. Sends one to everybody
 * after each look while there are any left. */
static void exchange_numbered(int expected, int to_send) {
    int *next = calloc((size_t)world_size, sizeof *next), sent = 0, received = 0, from;
    const void *message;
    size_t bytes;
    while (received < expected * (world_size - 1) || sent < to_send) {
        for (int to = 0; sent < to_send && to < world_size; to++)
            if (to != world_rank)
                CHECK(send_numbered(to, sent) == WAGMA_OK, "%s", wagma_mpi_last_error());
        sent += sent < to_send;
        int came = t->calls->poll_control(t, &from, &message, &bytes);
        CHECK(came >= 0, "%s", wagma_mpi_last_error());
        if (came == 0) {
            sched_yield();
            continue;
        }
        CHECK(from >= 0 && from < world_size && from != world_rank, "from %d", from);
        size_t wrong = check_numbered(from, next[from], message, bytes);
        CHECK(wrong == 0, "message %d of rank %d: %zu bytes are wrong", next[from], from, wrong);
        next[from]++;
        received++;
    }
    free(next);
}

static void wait_until_flushed(void) {
    int flushed;
    while ((flushed = t->calls->flushed(t)) == 0)
        sched_yield();
    CHECK(flushed == 1, "%s", wagma_mpi_last_error());
}

static void test_control_order(void) {
    exchange_numbered(300, 300);
    wait_until_flushed();
}

/* Far more than the ring and the pool have room for, before anybody looks. */
static void test_control_flood(void) {
    for (int i = 0; i < 400; i++)
        for (int to = 0; to < world_size; to++)
            if (to != world_rank)
                CHECK(send_numbered(to, i) == WAGMA_OK, "%s", wagma_mpi_last_error());
    exchange_numbered(400, 0);
    wait_until_flushed();
}

/* A message and its answer, again and again: nothing is allocated for it beyond the first buffers.
 * Between two ranks, which cannot run ahead of each other. */
static void test_control_steady(void) {
    wagma_transport *kept = t;
    t = world_transport();
    struct control *c = &mpi_transport_of(t)->control;
    exchange_numbered(1, 1);
    int blocks = c->blocks_n, capacity = c->sends.capacity;
    for (int round = 0; round < 200 && world_size == 2 && check_in_test == 0; round++)
        exchange_numbered(1, 1);
    int blocks_after = c->blocks_n, capacity_after = c->sends.capacity;
    wait_until_flushed();
    t->calls->close(t, 1);
    t = kept;
    CHECK(blocks_after == blocks && capacity_after == capacity, "%d blocks, room for %d sends",
          blocks_after, capacity_after);
}

/* While its peer does not call MPI, a rank that has sent more than MPI buffers is not flushed. */
static void test_control_not_flushed(void) {
    enum { N = 4000 };
    char name[] = "/tmp/wagma-transport-XXXXXX";
    _Atomic int *told = MAP_FAILED;
    int file = world_rank == 0 ? mkstemp(name) : -1;
    if (world_rank == 0 && ftruncate(file, sizeof *told) != 0)
        name[0] = '\0';
    world_tell(name, sizeof name);
    if (world_rank == 1)
        file = open(name, O_RDWR);
    if (file >= 0)
        told = mmap(NULL, sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    world_meet();
    unlink(name);
    if (world_rank == 0 && world_size > 1) {
        unsigned char message[TRANSPORT_CONTROL_MAX] = {0};
        for (int i = 0; i < N; i++)
            CHECK(t->calls->send_control(t, 1, message, sizeof message) == WAGMA_OK, "%s",
                  wagma_mpi_last_error());
        int flushed = t->calls->flushed(t);
        atomic_store(told, 1);
        CHECK(flushed == 0, "%d", flushed);
        wait_until_flushed();
    }
    if (world_rank == 1) {
        const void *message;
        size_t bytes;
        int from;
        while (!atomic_load(told))
            usleep(100);
        for (int received = 0; received < N;) {
            int came = t->calls->poll_control(t, &from, &message, &bytes);
            CHECK(came >= 0, "%s", wagma_mpi_last_error());
            received += came;
        }
    }
    if (file >= 0)
        close(file);
}

/* ---- data messages --------------------------------------------------------------------------- */

enum { DATA = 300, LONGEST = 200000 };

static size_t data_length(int from, int to, int number) {
    uint64_t state = (uint64_t)((from * 64 + to) * 100003 + number + 77);
    draw(&state);
    uint64_t kind = draw(&state) % 8;
    return kind == 0 ? 0 : draw(&state) % (kind == 1 ? LONGEST : 500);
}

struct posted {
    unsigned char *bytes;
    int peer, number, receive, ended;
};

static void fill(const struct posted *p) {
    size_t bytes = data_length(world_rank, p->peer, p->number);
    for (size_t i = 0; i < bytes; i++)
        p->bytes[i] = world_byte(world_rank, p->peer, (uint64_t)p->number, i);
}

static size_t wrong_bytes(const struct posted *p) {
    size_t wrong = 0, bytes = data_length(p->peer, world_rank, p->number);
    for (size_t i = 0; i < bytes; i++)
        wrong += p->bytes[i] != world_byte(p->peer, world_rank, (uint64_t)p->number, i);
    return wrong;
}

static int post(struct posted *p, int tag) {
    transport_completion completion = {.context = p, .cookie = ~(uint64_t)p->number};
    if (p->receive)
        return t->calls->receive(t, p->peer, tag, p->bytes,
                                 data_length(p->peer, world_rank, p->number), completion);
    fill(p);
    return t->calls->send(t, p->peer, tag, p->bytes, data_length(world_rank, p->peer, p->number),
                          completion);
}

/* Polls until all have ended, `most` at a time. */
static void finish_data(struct posted *all, int n, int most) {
    transport_completion ended[64];
    int left = n;
    while (left > 0) {
        int got = t->calls->poll_data(t, ended, most);
        CHECK(got >= 0 && got <= most, "%d: %s", got, wagma_mpi_last_error());
        if (got == 0)
            sched_yield();
        for (int i = 0; i < got; i++, left--) {
            struct posted *p = ended[i].context;
            CHECK(p >= all && p < all + n, "context %p", ended[i].context);
            CHECK(p->ended++ == 0, "ended twice");
            CHECK(ended[i].cookie == ~(uint64_t)p->number, "cookie %lx",
                  (unsigned long)ended[i].cookie);
        }
    }
    for (int i = 0; i < n; i++)
        if (all[i].receive)
            CHECK(wrong_bytes(&all[i]) == 0, "message %d of rank %d: %zu bytes are wrong",
                  all[i].number, all[i].peer, wrong_bytes(&all[i]));
    CHECK(t->calls->poll_data(t, ended, most) == 0, "one more");
}

/* DATA messages to and from every other rank, begun in an order that each rank draws. */
static struct posted *plan_data(int *n) {
    struct posted *all = calloc((size_t)(2 * DATA * world_size), sizeof *all);
    uint64_t state = (uint64_t)world_rank + 5;
    *n = 0;
    for (int peer = 0; peer < world_size; peer++)
        for (int i = 0; peer != world_rank && i < 2 * DATA; i++)
            all[(*n)++] = (struct posted){
                .bytes = malloc(LONGEST), .peer = peer, .number = i / 2, .receive = i % 2};
    for (int i = *n - 1; i > 0; i--) {
        int j = (int)(draw(&state) % (uint64_t)(i + 1));
        struct posted swapped = all[i];
        all[i] = all[j];
        all[j] = swapped;
    }
    return all;
}

static void free_data(struct posted *all, int n) {
    for (int i = 0; i < n; i++)
        free(all[i].bytes);
    free(all);
}

/* Every message has a tag of its own; the highest tag is among them. */
static void test_data_by_tag(void) {
    int n;
    struct posted *all = plan_data(&n);
    for (int i = 0; i < n; i++)
        CHECK(post(&all[i], t->tags - 1 - all[i].number) == WAGMA_OK, "%s", wagma_mpi_last_error());
    finish_data(all, n, 7);
    free_data(all, n);
}

/* One tag for all: they match in the order in which they were posted. */
static void test_data_in_order(void) {
    enum { N = 200 };
    struct posted all[2 * N];
    unsigned char *memory = malloc((size_t)2 * N * LONGEST);
    int peer = world_rank ^ 1;
    if (peer < world_size) {
        for (int i = 0; i < 2 * N; i++) {
            all[i] = (struct posted){.bytes = memory + (size_t)i * LONGEST,
                                     .peer = peer,
                                     .number = i / 2,
                                     .receive = i % 2};
            CHECK(post(&all[i], 3) == WAGMA_OK, "%s", wagma_mpi_last_error());
        }
        finish_data(all, 2 * N, 64);
    }
    free(memory);
}

static void test_data_steady(void) {
    struct mpi_transport *m = mpi_transport_of(t);
    int capacity = m->messages.capacity;
    CHECK(world_size == 1 || capacity >= DATA, "room for %d", capacity);
    test_data_by_tag();
    CHECK(m->messages.capacity == capacity && m->messages.n == 0, "room for %d, %d in progress",
          m->messages.capacity, m->messages.n);
}

/* ---- sum, errors, the end -------------------------------------------------------------------- */

static void test_sum(void) {
    for (int64_t i = 0; i < 20; i++) {
        int64_t mine[2] = {i + world_rank, -i * world_rank * (INT64_C(1) << 40)}, totals[2];
        int64_t ranks = (int64_t)world_size * (world_size - 1) / 2;
        int done;
        while ((done = t->calls->sum(t, mine, totals)) == 0)
            sched_yield();
        CHECK(done == 1, "%s", wagma_mpi_last_error());
        CHECK(totals[0] == i * world_size + ranks && totals[1] == -i * ranks * (INT64_C(1) << 40),
              "%ld %ld", (long)totals[0], (long)totals[1]);
    }
}

static void test_errors(void) {
    unsigned char byte = 0;
    int status = t->calls->send_control(t, world_size, &byte, 1);
    CHECK(status == WAGMA_ESYS, "%d", status);
    CHECK(strstr(wagma_mpi_last_error(), t->name) &&
              strstr(wagma_mpi_last_error(), "MPI_Isend of a control message") &&
              strstr(wagma_mpi_last_error(), "rank"),
          "%s", wagma_mpi_last_error());
    status = t->calls->receive(t, world_size, 0, &byte, 1, (transport_completion){0});
    CHECK(status == WAGMA_ESYS && strstr(wagma_mpi_last_error(), "MPI_Irecv of data"), "%d: %s",
          status, wagma_mpi_last_error());
}

/* More came than the receive has room for: the others that ended at the same time are not lost. */
static void test_truncated(void) {
    unsigned char small, right[100], sent[100];
    transport_completion ended[8];
    int peer = world_rank ^ 1, errors = 0, endings = 0;
    if (peer >= world_size) {
        world_meet();
        return;
    }
    memset(sent, 1 + world_rank, sizeof sent);
    /* The error comes first among all that have ended when they are polled. */
    t->calls->receive(t, peer, 1, &small, 1, (transport_completion){.cookie = 1});
    t->calls->receive(t, peer, 2, right, 100, (transport_completion){.cookie = 2});
    t->calls->send(t, peer, 1, sent, 100, (transport_completion){.cookie = 3});
    t->calls->send(t, peer, 2, sent, 100, (transport_completion){.cookie = 4});
    world_meet();
    for (int i = 0; i < 100; i++)
        CHECK(t->calls->flushed(t) == 1, "%s", wagma_mpi_last_error());
    while (errors + endings < 4) {
        int got = t->calls->poll_data(t, ended, 8);
        errors += got < 0;
        endings += got > 0 ? got : 0;
    }
    CHECK(errors == 1 && endings == 3, "%d errors", errors);
    CHECK(strstr(wagma_mpi_last_error(), "runcat"), "%s", wagma_mpi_last_error());
    CHECK(right[99] == 1 + peer, "%d", right[99]);
}

/* MPI's profiling interface: calls of the library come here first. */
static int communicators;

int MPI_Comm_dup(MPI_Comm comm, MPI_Comm *duplicate) {
    communicators++;
    return PMPI_Comm_dup(comm, duplicate);
}

int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *part) {
    communicators++;
    return PMPI_Comm_split_type(comm, type, key, info, part);
}

int MPI_Comm_free(MPI_Comm *comm) {
    communicators--;
    return PMPI_Comm_free(comm);
}

static void test_closed_together(void) {
    wagma_transport *kept = t;
    int before = communicators;
    for (int i = 0; i < 5; i++) {
        t = world_transport();
        exchange_numbered(3, 3);
        wait_until_flushed();
        CHECK(communicators > before, "%d communicators", communicators);
        t->calls->close(t, 1);
        CHECK(communicators == before, "%d communicators are left", communicators - before);
    }
    t = kept;
}

/* With messages under way in both directions, while the others go on. */
static void test_closed_alone(void) {
    wagma_transport *kept = t;
    static unsigned char memory[LONGEST], into[LONGEST];
    int peer = world_rank ^ 1;
    t = world_transport();
    for (int to = 0; to < world_size; to++)
        if (to != world_rank)
            send_numbered(to, 0);
    if (peer < world_size) {
        t->calls->receive(t, peer, 5, into, LONGEST, (transport_completion){0});
        t->calls->receive(t, peer, 6, into, LONGEST, (transport_completion){0});
        t->calls->send(t, peer, 5, memory, LONGEST, (transport_completion){0});
    }
    t->calls->close(t, 0);
    t = kept;
    exchange_numbered(10, 10);
}

int main(int argc, char **argv) {
    world_begin(&argc, &argv);
    t = world_transport();
    RUN_EVERYWHERE(test_description);
    RUN_EVERYWHERE(test_control_order);
    RUN_EVERYWHERE(test_control_flood);
    RUN_EVERYWHERE(test_control_steady);
    RUN_EVERYWHERE(test_control_not_flushed);
    RUN_EVERYWHERE(test_data_by_tag);
    RUN_EVERYWHERE(test_data_steady);
    RUN_EVERYWHERE(test_data_in_order);
    RUN_EVERYWHERE(test_sum);
    RUN_EVERYWHERE(test_errors);
    RUN_EVERYWHERE(test_truncated);
    RUN_EVERYWHERE(test_closed_together);
    RUN_EVERYWHERE(test_closed_alone);
    t->calls->close(t, 1);
    MPI_Finalize();
    return world_rank == 0 ? check_summary() : 0;
}
