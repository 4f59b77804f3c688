# The C interface of the engine (csrc/include/wagma.h), as far as the binding uses it.
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

cdef extern from "messages/transport.h" nogil:
    const uint64_t _TRANSPORT_ABI "TRANSPORT_ABI"

    ctypedef struct wagma_transport:
        int rank
        int size

cdef extern from "device/device.h" nogil:
    enum:
        DEVICE_RECORD_WORDS

    ctypedef struct device_record:
        uint64_t words[DEVICE_RECORD_WORDS]

    ctypedef enum wagma_dtype:
        WAGMA_F32

    ctypedef struct device_calls:
        int (*alloc)(wagma_device *d, size_t bytes, void **memory) noexcept nogil
        void (*free)(wagma_device *d, void *memory)
        int (*export)(wagma_device *d, void *memory, device_record *record) noexcept nogil
        int (*open)(wagma_device *d, const device_record *record, void **memory) noexcept nogil
        void (*close)(wagma_device *d, void *memory) noexcept nogil
        int (*stream_new)(wagma_device *d, void **stream)
        void (*stream_free)(wagma_device *d, void *stream)
        int (*event_new)(wagma_device *d, void **event)
        void (*event_free)(wagma_device *d, void *event)
        int (*record)(wagma_device *d, void *event, void *stream)
        int (*wait)(wagma_device *d, void *stream, void *event)
        int (*synchronise)(wagma_device *d, void *stream) noexcept nogil
        int (*copy)(wagma_device *d, void *stream, void *out, const void *in_, size_t bytes)
        int (*sum)(wagma_device *d, void *stream, wagma_dtype dtype, void *out,
                   const void *const *in_, const double *weights, int n, double divisor,
                   size_t count)

    ctypedef struct wagma_device:
        const device_calls *calls
        const char *name

cdef extern from "device/cuda/nvrtc.h" nogil:
    void nvrtc_set_paths(const char *paths)

cdef extern from "wagma.h" nogil:
    int wagma_device_open(const char *library, int ordinal, wagma_device **device)
    void wagma_device_close(wagma_device *device)

    enum:
        WAGMA_ABI_VERSION
        WAGMA_MAX_RANKS

    enum wagma_status:
        WAGMA_OK
        WAGMA_INPROGRESS
        WAGMA_EINVAL
        WAGMA_ENOMEM
        WAGMA_ENOSPC
        WAGMA_ESYS
        WAGMA_ESTALL
        WAGMA_EPEER
        WAGMA_ECLOSED
        WAGMA_EMISMATCH
        WAGMA_EINTERRUPTED
        WAGMA_ETYPE
        WAGMA_EQUORUM

    enum wagma_late:
        WAGMA_LATE_STALE
        WAGMA_LATE_SKIP
        WAGMA_LATE_CARRY

    enum wagma_missed:
        WAGMA_MISSED_ONCE
        WAGMA_MISSED_FAST_FORWARD

    enum wagma_activation:
        WAGMA_ACTIVATION_GROUP
        WAGMA_ACTIVATION_WORLD

    enum wagma_grouping:
        WAGMA_GROUPING_DYNAMIC
        WAGMA_GROUPING_FIXED
        WAGMA_GROUPING_PAIRS

    enum:
        WAGMA_MAX_NEIGHBORS

    enum wagma_graph:
        WAGMA_GRAPH_NONE
        WAGMA_GRAPH_RING
        WAGMA_GRAPH_EXPONENTIAL

    enum:
        WAGMA_QUORUM_MAJORITY

    enum:
        WAGMA_MEMORY_HOST
        WAGMA_MEMORY_DEVICE
        WAGMA_MEMORY_STAGED

    enum wagma_progress:
        WAGMA_PROGRESS_SLEEP
        WAGMA_PROGRESS_YIELD
        WAGMA_PROGRESS_SPIN
        WAGMA_PROGRESS_MAIN

    ctypedef struct wagma_options:
        uint32_t struct_size
        int32_t size
        int32_t group_size
        int32_t quorum
        int32_t late
        int32_t missed
        int32_t activation
        int32_t grouping
        int32_t graph
        int32_t neighbors
        int32_t dtype
        int32_t average
        int32_t memory
        int64_t count
        int64_t sync_period
        int64_t window
        double grace
        double timeout
        double stall_warning
        double redo_after
        uint64_t shm_limit
        uint64_t seed
        double progress_sleep
        int32_t progress
        int32_t progress_cpu
        int64_t schedule_switch
        int64_t schedule_chunk
        int64_t schedule_part
        int32_t schedule_direct

    void wagma_options_init(wagma_options *options)
    int wagma_options_check(wagma_options *options)
    int wagma_abi_version()
    const char *wagma_last_error()

    ctypedef struct wagma_segment:
        pass

    int wagma_segment_memory(const wagma_options *options, uint64_t *first, uint64_t *most)
    int wagma_segment_create(const wagma_options *options, const char *name,
                             wagma_segment **segment)
    int wagma_segment_open(const wagma_options *options, const char *name,
                           wagma_segment **segment)
    int wagma_segment_address(const wagma_segment *segment, char *text, size_t size)
    int wagma_segment_unlink(wagma_segment *segment)
    int wagma_segment_fail(wagma_segment *segment, int rank)
    void wagma_segment_close(wagma_segment *segment)

    ctypedef struct wagma_handle:
        pass

    ctypedef struct wagma_hooks:
        void *context
        void (*warn)(void *context, const char *message) noexcept
        int (*interrupted)(void *context) noexcept

    int wagma_create(wagma_segment *segment, int rank, const void *initial, double weight,
                     const wagma_hooks *hooks, wagma_handle **handle)

    int wagma_create_on(wagma_segment *segment, int rank, wagma_device *device, void *stream,
                        const void *initial, double weight, const wagma_hooks *hooks,
                        wagma_handle **handle)
    int wagma_set_stream(wagma_handle *handle, void *stream)

    int wagma_create_over(wagma_transport *transport, const wagma_options *options,
                          const void *initial, double weight, const wagma_hooks *hooks,
                          wagma_handle **handle)

    int wagma_create_over_on(wagma_transport *transport, const wagma_options *options,
                             wagma_device *device, void *stream, const void *initial,
                             double weight, const wagma_hooks *hooks, wagma_handle **handle)

    ctypedef struct wagma_outcome:
        int64_t version
        int64_t skipped
        double weight
        double waited
        int32_t late
        int32_t merged
        int32_t contributors_count
        int32_t results_count
        const int32_t *contributors
        const int64_t *versions
        const void *const *results
        const void *result

    int wagma_start(wagma_handle *handle, void *x, double weight, int sync,
                    wagma_outcome *outcome)
    int wagma_finish(wagma_handle *handle, void *x, wagma_outcome *outcome)
    int wagma_post(wagma_handle *handle, void *x, double weight, int sync)
    int wagma_test(wagma_handle *handle, void *x, wagma_outcome *outcome)
    int wagma_wait(wagma_handle *handle, void *x, double timeout, wagma_outcome *outcome)
    int wagma_next_contribution(wagma_handle *handle, void **buffer)
    int wagma_set_quorum(wagma_handle *handle, int32_t quorum)
    int32_t wagma_quorum(const wagma_handle *handle)
    int wagma_pinned(wagma_handle *handle)
    int64_t wagma_version(const wagma_handle *handle)
    void *wagma_shared_array(wagma_handle *handle)

    enum:
        WAGMA_PRIVATE_NONE
        WAGMA_PRIVATE_CHUNKS
        WAGMA_PRIVATE_READ

    ctypedef struct wagma_stats:
        int64_t calls
        int64_t late
        int64_t unmerged
        int64_t redone_slices
        int64_t buffer_waits
        double waited
        double grace
        uint64_t segment_bytes
        uint64_t wakeups
        int64_t direct
        int32_t private_way

    void wagma_get_stats(const wagma_handle *handle, wagma_stats *stats)

    ctypedef struct wagma_rank_stats:
        int64_t synced
        int64_t version
        int64_t calls
        int64_t late
        int64_t unmerged
        int64_t used
        int64_t staleness
        int64_t staleness_max
        double waited
        double compute
        double compute_median
        double behind
        int32_t departed

    int wagma_gathered_stats(const wagma_handle *handle, int rank, wagma_rank_stats *stats)
    int wagma_dump_state(const wagma_handle *handle, char *text, size_t size)

    ctypedef struct wagma_trace_label:
        uint32_t struct_size
        int32_t clock_compared
        int64_t clock_offset_ns
        uint64_t clock_error_ns
        uint64_t collective
        const char *name

    int wagma_is_traced(const wagma_handle *handle)
    int wagma_label_trace(wagma_handle *handle, const wagma_trace_label *label)
    int wagma_close(wagma_handle *handle)
    int wagma_lost(wagma_handle *handle, int32_t *ranks)
    void wagma_fail(wagma_handle *handle)
    void wagma_free(wagma_handle *handle)

    int wagma_group_of(int rank, int size, int group_size, int grouping, uint64_t seed,
                       int64_t version, int32_t *members)
    int wagma_neighbors_of(int rank, int size, int graph, int neighbors, int64_t version, int32_t *in_)
