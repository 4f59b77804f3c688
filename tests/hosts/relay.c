/* A switch between emulated hosts that delays, slows down and loses what passes it.
 *
 *   relay DELAY_US RATE_MBIT LOSS SEED NETNS...
 *
 * In every network namespace (a file as in /proc/PID/ns/net) it makes an interface eth0, whose
 * frames it reads and writes itself (TAP). A frame goes to the port with its destination address, a
 * broadcast to all. Every port is a link that loses a frame with probability LOSS, or when its
 * queue is full; carries RATE_MBIT, 0 for unlimited, one frame after the other; and delivers
 * DELAY_US later. The draws depend on SEED alone. Says "ready" when the interfaces exist; ends when
 * it is killed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    PORTS_MAX = 64,
    ADDRESS_BYTES = 6,
    FRAME_BYTES = 1514, /* of an interface with the usual MTU of 1500 */
    QUEUE_FRAMES = 1024,
    BATCH = 64, /* frames read from one port before the others have their turn */
};

struct frame {
    int64_t due_ns;
    int bytes;
    unsigned char data[FRAME_BYTES];
};

/* Frames on their way to a port leave in the order in which they came: the delay is the same for
 * all. */
struct port {
    int fd;
    unsigned char address[ADDRESS_BYTES];
    int64_t free_ns; /* when the link has carried all that is queued */
    int head;
    int count;
    struct frame *queue;
};

struct link {
    int64_t delay_ns;
    double rate_mbit;
    double loss;
    uint64_t random;
};

static void fail(const char *what) {
    fprintf(stderr, "relay: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* In [0, 1): splitmix64. */
static double draw(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

/* Makes the interface of a namespace; this thread is in that namespace afterwards. */
static void open_port(struct port *port, const char *netns) {
    int ns = open(netns, O_RDONLY | O_CLOEXEC);
    if (ns < 0 || setns(ns, CLONE_NEWNET) != 0)
        fail(netns);
    close(ns);

    struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI};
    strcpy(request.ifr_name, "eth0");
    port->fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (port->fd < 0 || ioctl(port->fd, TUNSETIFF, &request) != 0)
        fail("/dev/net/tun");
    /* TAP devices answer for the interface: no socket of the namespace is needed. */
    if (ioctl(port->fd, SIOCGIFHWADDR, &request) != 0)
        fail("SIOCGIFHWADDR");
    memcpy(port->address, request.ifr_hwaddr.sa_data, ADDRESS_BYTES);

    port->queue = malloc(QUEUE_FRAMES * sizeof *port->queue);
    if (port->queue == NULL)
        fail("malloc");
}

static void put(struct port *port, struct link *link, const struct frame *frame, int64_t now) {
    if (draw(&link->random) < link->loss || port->count == QUEUE_FRAMES)
        return;
    if (port->free_ns < now)
        port->free_ns = now;
    if (link->rate_mbit > 0)
        port->free_ns += (int64_t)(frame->bytes * 8 * 1e3 / link->rate_mbit);

    struct frame *slot = &port->queue[(port->head + port->count++) % QUEUE_FRAMES];
    slot->due_ns = port->free_ns + link->delay_ns;
    slot->bytes = frame->bytes;
    memcpy(slot->data, frame->data, (size_t)frame->bytes);
}

/* Reads what a port has sent into the queues of those it is for. */
static void receive(struct port *ports, int count, int from, struct link *link) {
    struct frame frame;
    for (int i = 0; i < BATCH; i++) {
        ssize_t bytes = read(ports[from].fd, frame.data, sizeof frame.data);
        if (bytes < ADDRESS_BYTES)
            return;
        frame.bytes = (int)bytes;
        int64_t now = now_ns();
        bool everyone = frame.data[0] & 1; /* the group bit of an Ethernet address */
        for (int to = 0; to < count; to++)
            if (to != from && (everyone || !memcmp(frame.data, ports[to].address, ADDRESS_BYTES)))
                put(&ports[to], link, &frame, now);
    }
}

/* Delivers what is due; returns when the next frame is, INT64_MAX: there is none. */
static int64_t deliver(struct port *port) {
    int64_t now = now_ns();
    while (port->count > 0) {
        struct frame *frame = &port->queue[port->head];
        if (frame->due_ns > now)
            return frame->due_ns;
        /* An interface that is down, or full, loses the frame, as a wire would. */
        ssize_t written = write(port->fd, frame->data, (size_t)frame->bytes);
        (void)written;
        port->head = (port->head + 1) % QUEUE_FRAMES;
        port->count--;
    }
    return INT64_MAX;
}

static void relay(struct port *ports, int count, struct link *link) {
    struct pollfd polled[PORTS_MAX];
    for (int i = 0; i < count; i++)
        polled[i] = (struct pollfd){.fd = ports[i].fd, .events = POLLIN};
    for (;;) {
        int64_t due = INT64_MAX;
        for (int i = 0; i < count; i++) {
            int64_t next = deliver(&ports[i]);
            due = next < due ? next : due;
        }
        int64_t rest = due - now_ns();
        rest = rest < 0 ? 0 : rest;
        struct timespec timeout = {rest / 1000000000, rest % 1000000000};
        if (ppoll(polled, (nfds_t)count, due == INT64_MAX ? NULL : &timeout, NULL) < 0)
            fail("ppoll");
        for (int i = 0; i < count; i++)
            if (polled[i].revents)
                receive(ports, count, i, link);
    }
}

int main(int argc, char **argv) {
    int count = argc - 5;
    if (count < 1 || count > PORTS_MAX) {
        fprintf(stderr, "usage: relay DELAY_US RATE_MBIT LOSS SEED NETNS... (at most %d)\n",
                PORTS_MAX);
        return 2;
    }
    struct link link = {
        .delay_ns = atoll(argv[1]) * 1000,
        .rate_mbit = atof(argv[2]),
        .loss = atof(argv[3]),
        .random = strtoull(argv[4], NULL, 10),
    };
    struct port ports[PORTS_MAX] = {0};
    for (int i = 0; i < count; i++)
        open_port(&ports[i], argv[5 + i]);

    /* Delays are as exact as this process is awake; where it may not, they are only longer. */
    prctl(PR_SET_TIMERSLACK, 1000);
    sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){.sched_priority = 50});
    puts("ready");
    fflush(stdout);
    relay(ports, count, &link);
}
