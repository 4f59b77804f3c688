# Part of _engine.pyx: the base of a handle: creation, errors, state and end.

cdef enum:
    GIL_BYTES = 16384    # smaller calls first run with the GIL: releasing it costs more

cdef enum:               # bytes of text about the handle's last events
    STATE_BYTES = 16384  # all events that are kept
    REPORT_BYTES = 3072  # with an error: the newest events, about 40

cdef enum:               # state of a handle
    IDLE = 0
    CALLING = 1          # inside a call
    PENDING = 2          # iallreduce() has returned, and its request is not complete


@cython.no_gc_clear  # its deallocation marks the rank failed, which needs the engine's handle
cdef class _HandleState:
    """A handle without its calls; see `Handle`."""
    cdef wagma_handle *handle
    cdef _Engine engine      # owns the engine's handle; None after close()
    cdef _Views views
    cdef wagma_options used
    cdef readonly int rank
    cdef readonly tuple shape
    cdef readonly str name
    cdef readonly str transport  # "shm" or "mpi"
    cdef readonly str device     # name of the GPU that has the arrays; None: in host memory
    cdef readonly str memory     # "host"; "direct" or "staged": how arrays of a GPU are served
    cdef bint in_segment     # "shm"
    cdef public str hint     # advice that warnings about long waits add, or None
    cdef readonly bint closed
    cdef object dtype_
    cdef _Input input
    cdef object watch        # during creation
    cdef object pending      # exception raised by a signal handler inside a wait
    cdef object shared       # weak reference to the memory of empty()'s array
    cdef object __weakref__
    cdef uint32_t process
    cdef int busy            # IDLE, CALLING or PENDING
    cdef bint small
    cdef _Posted posted      # array of the pending request
    cdef bint dropped        # the request was dropped and can never be completed
    cdef bint ended          # a call over messages has raised an error
    cdef int64_t last_version
    cdef int32_t last_quorum
    cdef wagma_stats last_stats
    cdef tuple last_ranks    # _ranks() at the end
    cdef str last_state      # dump_state() at the end

    def __init__(self, over, int rank, initial=None, *, weight=1.0, shape=None,
                 str name=None, watch=None):
        if self.dtype_ is not None:
            raise HandleError("the handle was initialised before")
        cdef Segment segment = over if isinstance(over, Segment) else None
        cdef Channel channel = None
        if segment is None:
            channel = over   # raises TypeError for anything else
            if channel is None:
                raise TypeError("a handle is made over a Segment or a Channel, not None")
            channel.check(rank)
        self.used = channel.used if segment is None else segment.used
        cdef int64_t count = self.used.count
        dtype = arrays.dtype_of_code(self.used.dtype)
        cdef void *address = NULL
        cdef double weight_ = _number("weight", weight)
        gpu = None
        cdef void *stream = NULL
        if initial is not None:
            array = arrays.resolve(initial, expected=dtype, writable=False)
            if shape is None:
                shape = array.shape
            gpu = array.gpu
            if (gpu is None) != (self.used.memory == WAGMA_MEMORY_HOST):
                raise TypeError(
                    f"memory={self.used.memory} and an array {arrays.place(gpu)}: pass MEMORY['direct']"
                    " or ['staged'] to the segment for arrays on a GPU, and ['host'] for others")
            stream = <void *><uintptr_t>array.stream
            arrays.match(array, dtype, tuple(shape), gpu)
            address = <void *><uintptr_t>array.address
        elif self.used.memory != WAGMA_MEMORY_HOST:
            raise ValueError("initial=None: pass an array on a GPU, where the others are to be")
        elif shape is None:
            shape = (count,)
        shape = tuple(shape)
        cdef int64_t elements = 1
        for extent in shape:
            elements *= extent
        if elements != count:
            raise ValueError(f"shape {shape} has {elements} elements, the options' count is {count}")
        self.rank = rank
        self.shape = shape
        self.name = name
        self.transport = "mpi" if segment is None else "shm"
        self.in_segment = segment is not None
        self.memory = _word(MEMORY, self.used.memory)
        self.dtype_ = dtype
        self.process = process_serial()
        self.small = gpu is None and count * dtype.storage.itemsize <= GIL_BYTES
        self.views = _Views.__new__(_Views)
        self.views.shape = shape
        self.views.storage = dtype.storage
        self.views.dtype = dtype
        self.views.stream = stream
        self.input = _input(self.views)
        self.posted = _Posted.__new__(_Posted)
        if address == NULL and initial is not None:
            address = &self.input.nothing
        cdef _Engine engine = _Engine.__new__(_Engine)
        engine.segment = segment
        engine.process = process_serial()
        cdef Device device = None
        cdef wagma_device *used_device = NULL
        if gpu is not None:
            device = engine.device = self.views.device = Device(gpu)
            used_device = device.device
            engine.staged = self.used.memory == WAGMA_MEMORY_STAGED
            self.device = device.name
            if segment is not None:
                segment.devices.append(device)
        cdef wagma_hooks hooks
        hooks.context = <void *>self
        hooks.warn = _warn
        hooks.interrupted = _interrupted
        cdef wagma_transport *transport = NULL if channel is None else channel.take()
        cdef int status
        self.watch = watch
        with nogil:
            if used_device != NULL and transport != NULL:
                status = wagma_create_over_on(transport, &self.used, used_device, stream, address,
                                              weight_, &hooks, &engine.handle)
            elif used_device != NULL:
                status = wagma_create_on(segment.segment, rank, used_device, stream, address,
                                         weight_, &hooks, &engine.handle)
            elif transport == NULL:
                status = wagma_create(segment.segment, rank, address, weight_, &hooks,
                                      &engine.handle)
            else:
                status = wagma_create_over(transport, &self.used, address, weight_, &hooks,
                                           &engine.handle)
        self.watch = None
        if status != WAGMA_OK:
            raise self._failure(status)
        self.handle = engine.handle
        self.engine = self.views.engine = engine
        self._label_trace(0, None)
        _open.add(self)

    def __dealloc__(self):
        if self.handle != NULL and self.process == process_serial():
            if self.busy == PENDING:
                self._keep_for_messages(WAGMA_EPEER, self.posted.keeper, &self.posted.view)
            with nogil:
                wagma_fail(self.handle)

    # ---- errors ----------------------------------------------------------------------------------
    cdef int _keep_for_messages(self, int status, object keeper, Py_buffer *view) except -1:
        """Keep the array of a failed call: active messages may still use it, see wagma.h.

        The first error ends the handle, so later calls do not begin. With a graph, and where
        arrays are on a GPU, messages use the engine's own memory only.
        """
        if (self.transport == "shm" or self.ended or status == WAGMA_EINVAL
                or status == WAGMA_ETYPE or self.used.graph != WAGMA_GRAPH_NONE
                or self.views.device is not None):
            return 0
        self.ended = True
        cdef _Posted kept = _Posted.__new__(_Posted)
        kept.keeper = _kept(keeper)
        kept.view = view[0]
        memset(view, 0, sizeof(view[0]))
        _for_messages.append(kept)
        return 0

    cdef object _failed_call(self, int status):
        if status == WAGMA_EINVAL or status == WAGMA_ETYPE:
            self.views.calls -= 1  # refused: the arrays of the previous call are still valid
        return self._failure(status)

    cdef int _enter(self) except -1:
        if self.handle == NULL:
            _leave_ending_program()
            raise HandleError(f"the handle of rank {self.rank} is closed")
        if self.process != process_serial():
            raise HandleError(
                f"the handle of rank {self.rank} belongs to the process that made it: it cannot be "
                "used in a forked child, which can read its arrays, and write to a copy of them; "
                "let the parent make the call")
        if self.busy != IDLE:
            raise self._occupied()
        self.busy = CALLING
        return 0

    cdef object _occupied(self):
        if self.busy == CALLING:
            return HandleError(
                f"the handle of rank {self.rank} is in use: one thread at a time, and not from a "
                "signal handler that interrupts a call")
        if self.dropped:
            return HandleError(
                f"the request of version {self.version} was dropped before it was complete, and "
                f"the handle of rank {self.rank} cannot go on: keep what iallreduce() returns and "
                "wait() for it; fail() ends this handle")
        return HandleError(
            f"a request of the handle of rank {self.rank} is pending (version {self.version}): "
            "wait() for it first")

    cdef object _failure(self, int status):
        _leave_ending_program()
        error = self.pending
        self.pending = None
        if (status == WAGMA_ESTALL or status == WAGMA_EPEER) and self.handle != NULL:
            failed = _error(status)  # before any other call of the engine
            _log.error("%s broke: %s\n%s", self._who(), failed, self._state(REPORT_BYTES))
            return failed
        if status == WAGMA_EINTERRUPTED and error is not None:
            return error
        return _error(status, self.transport if self.views.device is None else "device")

    cdef int _set_stream(self) except -1:
        """Set the engine's stream to that of the array that was located last."""
        cdef int status
        cdef void *stream = self.input.stream
        if self.views.device is None or stream == self.views.stream:
            return 0
        with nogil:
            status = wagma_set_stream(self.handle, stream)
        if status != WAGMA_OK:
            raise self._failure(status)
        self.views.stream = stream
        return 0

    # ---- state ---------------------------------------------------------------------------------
    @property
    def version(self):
        """Return the next version that this rank calls; the first is 0."""
        return self.last_version if self.handle == NULL else wagma_version(self.handle)

    def _get_quorum(self):
        """Return the number of ranks that start the next version; QUORUM_MAJORITY: a drawn rank."""
        return self.last_quorum if self.handle == NULL else wagma_quorum(self.handle)

    def _set_quorum(self, int32_t quorum):
        """Set the number of ranks that start a version, from this rank's next version on.

        Args:
            quorum: 1 to the number of ranks, which the caller has checked.

        Raises:
            ValueError: the handle's quorum cannot change.
            HandleError: the handle cannot be used, or a request is pending.
        """
        cdef int status
        self._enter()
        with nogil:
            status = wagma_set_quorum(self.handle, quorum)
        self.busy = IDLE
        if status != WAGMA_OK:
            raise self._failure(status)

    def pinned(self):
        """Return whether this rank's next version has been pinned without it.

        If so, the version's contributors are fixed and the call will be late: a computation for it
        can stop. Call this between calls, in the thread that computes, as often as needed. In
        shared memory it takes less than 1 us; over messages it also handles messages that have
        arrived. It waits for no other rank and changes no result.

        Returns:
            bool: False if this rank knows of no pin; always False with quorum="all", before a sync
            version, and with a graph.

        Raises:
            HandleError: the handle is closed, broken, or in use by another thread, or a request is
                pending.
        """
        cdef int status
        self._enter()
        if self.in_segment:
            status = wagma_pinned(self.handle)
        else:
            with nogil:
                status = wagma_pinned(self.handle)
        self.busy = IDLE
        if status < 0:
            raise self._failure(status)
        return status != 0

    @property
    def size(self):
        """Return the number of ranks."""
        return self.used.size

    @property
    def dtype(self):
        """Return the name of the element type."""
        return self.dtype_.name

    def stats(self):
        """Return counters of this rank since creation, and of all ranks at the last sync version.

        Local; works after `close()` too. ``stats().summary()`` names slow ranks.
        """
        cdef wagma_stats s = self.last_stats
        if self.handle != NULL:
            wagma_get_stats(self.handle, &s)
        return Stats(s.calls, s.late, s.unmerged, s.redone_slices, s.buffer_waits, s.waited,
                     s.grace, s.segment_bytes, s.wakeups, s.direct,
                     PRIVATE_WAYS[s.private_way], self.device, self.memory, self._ranks())

    def dump_state(self):
        """Return the state and the last events of this rank as text, one event per line.

        Call it from any thread, even while another thread waits in a call of the handle, to inspect
        a job that hangs. After `close()` it returns the final state.
        """
        return self.last_state if self.handle == NULL else self._state(STATE_BYTES)

    cdef str _state(self, size_t size):
        cdef bytearray text = bytearray(size)
        cdef char *address = text
        wagma_dump_state(self.handle, address, size)
        return address.decode("utf-8", "replace")

    def lost(self):
        """Return the ranks that are known to have failed or died, ascending; do not wait.

        Raises:
            HandleError: the handle cannot be used, or a request is pending.
        """
        cdef int32_t ranks[WAGMA_MAX_RANKS]
        cdef int n
        self._enter()
        n = wagma_lost(self.handle, ranks)
        self.busy = IDLE
        if n < 0:
            raise self._failure(n)
        return [ranks[i] for i in range(n)]

    cdef str _who(self):
        return f"rank {self.rank}" + ("" if self.name is None else f" ({self.name})")

    def _is_traced(self):
        """Return whether this handle writes a timeline (WAGMA_TRACE)."""
        return self.handle != NULL and bool(wagma_is_traced(self.handle))

    def _label_trace(self, uint64_t collective, clock):
        """Label the timeline: the collective's number, (offset_ns, error_ns) to rank 0's clock."""
        cdef wagma_trace_label label
        cdef bytes name = b"" if self.name is None else self.name.encode()
        memset(&label, 0, sizeof(label))
        label.struct_size = sizeof(label)
        label.collective = collective
        if name:
            label.name = name
        if clock is not None:
            label.clock_compared = 1
            label.clock_offset_ns, label.clock_error_ns = clock
        wagma_label_trace(self.handle, &label)

    cdef tuple _ranks(self):
        cdef wagma_rank_stats s
        if self.handle == NULL:
            return self.last_ranks or ()
        wagma_gathered_stats(self.handle, self.rank, &s)
        if s.synced < 0:
            return ()
        gathered = []
        for rank in range(self.used.size):
            wagma_gathered_stats(self.handle, rank, &s)
            gathered.append(RankStats(
                rank, s.version, bool(s.departed), s.calls, s.late, s.unmerged, s.used, s.staleness,
                s.staleness_max, s.waited, s.compute, s.compute_median, s.behind))
        return tuple(gathered)

    # ---- the end ---------------------------------------------------------------------------------
    def fail(self):
        """Mark this rank as failed: every wait that needs it raises PeerError at once.

        Call it from any thread: a call that waits in another thread raises HandleError.
        """
        if self.handle == NULL or self.process != process_serial():
            return
        cdef _Engine engine = self.engine  # another thread may release the handle meanwhile
        with nogil:  # ends another thread's wait, where a hook may need the GIL
            wagma_fail(engine.handle)
        if self.handle != NULL and self.busy != CALLING:  # no other thread is inside a call
            if self.busy == PENDING:
                self._keep_for_messages(WAGMA_EPEER, self.posted.keeper, &self.posted.view)
            self.posted.release()
            self._release()

    cdef int _release(self) except -1:
        self.last_version = wagma_version(self.handle)
        self.last_quorum = wagma_quorum(self.handle)
        wagma_get_stats(self.handle, &self.last_stats)
        self.last_ranks = self._ranks()
        self.last_state = self._state(STATE_BYTES)
        self.handle = NULL
        self.views.calls += 1
        self.views.x = None
        self.engine = self.views.engine = None  # unmaps the memory, unless another object needs it
        self.input = None
        self.busy = IDLE
        self.closed = True
        _open.discard(self)
        return 0
