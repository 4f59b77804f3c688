/* Which executor makes a handle, and what is said where none does. */
/* short run: c asan */
#include <string.h>

#include "api/executors.h"
#include "check.h"

/* Whatever they point to: fits() is pure, and looks whether they are there. */
static char place;
static wagma_segment *const segment = (wagma_segment *)&place;
static wagma_transport *const transport = (wagma_transport *)&place;
static wagma_device *const device = (wagma_device *)&place;

static wagma_options options_of(int group_size, int quorum, int activation, int graph) {
    wagma_options o;
    wagma_options_init(&o);
    o.size = 4;
    o.group_size = group_size;
    o.quorum = quorum;
    o.activation = activation;
    o.graph = graph;
    o.count = 10;
    return wagma_options_check(&o) == WAGMA_OK ? o : (wagma_options){0};
}

/* The names of all that fit, the chosen one first. */
static const char *names_of(const wagma_options *o, wagma_segment *s, wagma_transport *t,
                            wagma_device *d) {
    static char names[256];
    const struct executor_request request = {
        .options = o, .segment = s, .transport = t, .device = d};
    const struct executor *chosen = executor_choose(executors, executors_n, &request);
    snprintf(names, sizeof names, "%s", chosen ? chosen->name : "");
    for (int i = 0; i < executors_n; i++)
        if (executors[i] != chosen && executors[i]->fits(&request) == NULL)
            snprintf(names + strlen(names), sizeof names - strlen(names), " %s",
                     executors[i]->name);
    return names;
}

static void test_one_fits(void) {
    const struct {
        wagma_options options;
        const char *in_memory, *over_messages;
    } rows[] = {
        {options_of(4, 4, WAGMA_ACTIVATION_GROUP, WAGMA_GRAPH_NONE), "shm/quorum_all",
         "messages/groups, quorum all"},
        {options_of(4, 3, WAGMA_ACTIVATION_GROUP, WAGMA_GRAPH_NONE), "shm/avoiding",
         "messages/groups"},
        {options_of(4, WAGMA_QUORUM_MAJORITY, WAGMA_ACTIVATION_GROUP, WAGMA_GRAPH_NONE),
         "shm/avoiding", "messages/groups"},
        {options_of(2, 2, WAGMA_ACTIVATION_GROUP, WAGMA_GRAPH_NONE), "shm/quorum_all",
         "messages/groups, quorum all"},
        {options_of(2, 2, WAGMA_ACTIVATION_WORLD, WAGMA_GRAPH_NONE), "shm/avoiding",
         "messages/groups"},
        {options_of(1, 1, WAGMA_ACTIVATION_GROUP, WAGMA_GRAPH_NONE), "shm/quorum_all",
         "messages/groups, quorum all"},
        {options_of(0, 0, WAGMA_ACTIVATION_GROUP, WAGMA_GRAPH_RING), "shm/graph", "messages/graph"},
        {options_of(0, 0, WAGMA_ACTIVATION_GROUP, WAGMA_GRAPH_EXPONENTIAL), "shm/graph",
         "messages/graph"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *names = names_of(&rows[i].options, segment, NULL, NULL);
        CHECK(strcmp(names, rows[i].in_memory) == 0, "row %zu: %s", i, names);
        names = names_of(&rows[i].options, NULL, transport, NULL);
        CHECK(strcmp(names, rows[i].over_messages) == 0, "row %zu: %s", i, names);
    }
}

/* One executor takes all policies, and no other takes arrays on devices. */
static void test_devices(void) {
    const int quorums[] = {0, 1, 2, WAGMA_QUORUM_MAJORITY};
    for (size_t i = 0; i < sizeof quorums / sizeof *quorums; i++) {
        wagma_options o = options_of(4, quorums[i], WAGMA_ACTIVATION_GROUP, WAGMA_GRAPH_NONE);
        o.memory = WAGMA_MEMORY_DEVICE;
        const char *names = names_of(&o, segment, NULL, device);
        CHECK(strcmp(names, "shm/device") == 0, "quorum %d: %s", quorums[i], names);
        CHECK(strcmp(names_of(&o, segment, NULL, NULL), "") == 0, "without a device");
        CHECK(strstr(wagma_last_error(), "shm/device: it needs a device;"), "%s",
              wagma_last_error());
        CHECK(strcmp(names_of(&o, NULL, transport, NULL), "") == 0, "over messages");
        CHECK(strstr(wagma_last_error(), "shm/device: it needs a segment;") &&
                  strstr(wagma_last_error(), "host memory"),
              "%s", wagma_last_error());
    }
}

static void test_reasons(void) {
    const wagma_options o = options_of(4, 1, WAGMA_ACTIVATION_GROUP, WAGMA_GRAPH_NONE);
    CHECK(strcmp(names_of(&o, NULL, NULL, NULL), "") == 0, "one fits");
    for (int i = 0; i < executors_n; i++)
        CHECK(strstr(wagma_last_error(), executors[i]->name), "\"%s\" does not name %s",
              wagma_last_error(), executors[i]->name);
    const char *reasons[] = {
        "shm/graph: it needs a graph;", "shm/quorum_all: it needs the quorum of all members;",
        "shm/avoiding: it needs a segment;", "shm/device: it needs arrays on devices;",
        "messages/groups: it needs a transport)"};
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        CHECK(strstr(wagma_last_error(), reasons[i]), "\"%s\" does not say \"%s\"",
              wagma_last_error(), reasons[i]);
}

int main(void) {
    RUN(test_one_fits);
    RUN(test_devices);
    RUN(test_reasons);
    return check_summary();
}
