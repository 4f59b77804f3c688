# Part of _engine.pyx: one rank's handle, and the hooks that the engine calls from its waits.

cdef enum:
    GIL_BYTES = 16384    # up to here a call is tried with the GIL held: releasing it costs more

cdef enum:               # bytes of text about its last events
    STATE_BYTES = 16384  # all that are kept
    REPORT_BYTES = 3072  # beside an error: the newest, about 40

cdef enum:               # what a handle is doing
    IDLE = 0
    CALLING = 1          # inside a call
    PENDING = 2          # iallreduce() has returned, its request is not complete


cdef void _warn(void *context, const char *message) noexcept nogil:
    if ending_enter():
        _log_warning(context, message)
        ending_leave()


cdef int _interrupted(void *context) noexcept nogil:
    if not ending_enter():
        return 1
    cdef int stop = _asks_to_stop(context)
    ending_leave()
    return stop


cdef void _log_warning(void *context, const char *message) noexcept with gil:
    cdef Handle self = <Handle>context
    text = message.decode("utf-8", "replace")
    named = text.removeprefix(f"rank {self.rank} ")
    if named == text:
        _log.warning("%s: %s", self._who(), text)
    else:  # a wait that lasts
        _log.warning("%s %s%s", self._who(), named, "" if self.hint is None else f". {self.hint}")


cdef int _asks_to_stop(void *context) noexcept with gil:
    cdef Handle self = <Handle>context
    try:
        PyErr_CheckSignals()
        if self.watch is not None:
            self.watch()
    except BaseException as error:  # KeyboardInterrupt, or what a signal handler or watch raised
        self.pending = error
        return 1
    return 0


def _word(words, number):
    """What users call an option that the engine calls `number`."""
    return next(word for word, code in words.items() if code == number)


@cython.no_gc_clear  # marks its rank failed when it goes, which needs the engine's handle
cdef class Handle:
    """One rank's view of a collective over a segment or a channel.

    Creation is collective: it returns when every rank of the segment or channel has joined.

    Args:
        over: the memory that the ranks share, or the channel between them, which the handle takes.
        rank: 0 <= rank < size; that of the channel.
        initial: this rank's first contribution, which also gives the shape; None: zeros.
        weight: of that contribution, finite and >= 0.
        shape: of the arrays; None: the shape of `initial`, or one dimension.
        name: for messages.
        watch: called about every 50 ms while creation waits for others; what it raises ends that.

    Raises:
        ValueError, TypeError: an argument is wrong.
        SegmentError: /dev/shm cannot hold this rank's part.
        TransportError: MPI refused something.
        PeerError, StallError: another rank did not join.

    Different handles may be used by different threads at once; a handle that is in use refuses a
    second thread. A forked child cannot use its copies of the parent's handles, and what it writes
    to their arrays stays its own.
    """
    cdef wagma_handle *handle
    cdef _Engine engine      # owns it; None after close()
    cdef _Views views
    cdef wagma_options used
    cdef readonly int rank
    cdef readonly tuple shape
    cdef readonly str name
    cdef readonly str transport  # "shm" or "mpi"
    cdef bint in_segment     # "shm"
    cdef public str hint     # what warnings about waits that last say besides, or None
    cdef readonly bint closed
    cdef object dtype_
    cdef _Input input
    cdef object watch        # during creation
    cdef object pending      # exception of a signal handler that ran inside a wait
    cdef object shared       # weak reference to the memory that empty() gave out
    cdef object __weakref__
    cdef uint32_t process
    cdef int busy            # IDLE, CALLING or PENDING
    cdef bint small
    cdef _Posted posted      # array of the pending request
    cdef bint dropped        # nobody can complete the request any more
    cdef bint ended          # a call over messages has ended in an error
    cdef int64_t last_version
    cdef int32_t last_quorum
    cdef wagma_stats last_stats
    cdef tuple last_ranks    # what _ranks() said at the end
    cdef str last_state      # what dump_state() said then

    def __init__(self, over, int rank, initial=None, *, weight=1.0, shape=None,
                 str name=None, watch=None):
        if self.dtype_ is not None:
            raise HandleError("the handle was initialised before")
        cdef Segment segment = over if isinstance(over, Segment) else None
        cdef Channel channel = None
        if segment is None:
            channel = over   # a TypeError, if it is something else
            if channel is None:
                raise TypeError("a handle is made over a Segment or a Channel, not None")
            channel.check(rank)
        self.used = channel.used if segment is None else segment.used
        cdef int64_t count = self.used.count
        dtype = arrays.dtype_of_code(self.used.dtype)
        cdef void *address = NULL
        cdef double weight_ = _number("weight", weight)
        if initial is not None:
            array = arrays.resolve(initial, expected=dtype, writable=False)
            if shape is None:
                shape = array.shape
            arrays.match(array, dtype, tuple(shape))
            address = <void *><uintptr_t>array.address
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
        self.dtype_ = dtype
        self.process = process_serial()
        self.small = count * dtype.storage.itemsize <= GIL_BYTES
        self.views = _Views.__new__(_Views)
        self.views.shape = shape
        self.views.storage = dtype.storage
        self.input = _input(self.views, dtype)
        self.posted = _Posted.__new__(_Posted)
        if address == NULL and initial is not None:
            address = &self.input.nothing
        cdef _Engine engine = _Engine.__new__(_Engine)
        engine.segment = segment
        engine.process = process_serial()
        cdef wagma_hooks hooks
        hooks.context = <void *>self
        hooks.warn = _warn
        hooks.interrupted = _interrupted
        cdef wagma_transport *transport = NULL if channel is None else channel.take()
        cdef int status
        self.watch = watch
        with nogil:
            if transport == NULL:
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

    # ---- calls ---------------------------------------------------------------------------------
    def allreduce(self, x, weight=1.0):
        """`x` becomes the result of this rank's next version.

        Args:
            x: array of the handle's shape and dtype: numpy, torch on the CPU, a C-contiguous buffer
                or DLPack; overwritten.
            weight: of this contribution, finite and >= 0; whole for integers.

        Returns:
            What the version gave.

        Raises:
            TypeError, ValueError: x or weight is wrong; the handle stays usable.
            PeerError, StallError: a rank that is needed is dead or missing; the handle is broken.
            HandleError: the handle cannot be used.
        """
        return self._call(x, _number("weight", weight), 0)

    def sync(self, x, weight=1.0):
        """`x` becomes the result of every rank, none of them late.

        An ordinary version of the counter, which every rank has to call as `sync` (or at which
        `sync_period` makes one). Arguments, result and errors are those of `allreduce`, and
        MismatchError if the ranks call it at different versions.
        """
        return self._call(x, _number("weight", weight), 1)

    def iallreduce(self, x, weight=1.0):
        """Posts the next version: publishes `x`, so that this rank counts as arrived, and returns.

        Others that are present may execute the version meanwhile; with quorum="all" the last rank to
        come reduces its share of a large array before it returns. `x` becomes the result inside
        `Request.test` or `Request.wait`. One request at a time: every other call of the handle
        (`fail`, `stats` and `dump_state` excepted) is refused until it is complete. Where publishing
        has to wait for others (`window`, `shm_limit`), that happens in `test` or `wait`, too.

        `x` must not be touched until then. A numpy array that owns its memory (or is a view of one)
        is made read-only meanwhile, so that writing to it raises ValueError. Not noticed are
        writes through other views of the memory or through other kinds of arrays (torch), and
        reads: with quorum="all" an array of `empty()`, over messages any array, may hold anything. A
        small one that is written to gives this rank another result than the others.
        The handle keeps `x` and its memory alive; a tensor that was given other memory is refused
        by `test` and `wait`.

        Args, raises: as `allreduce`.

        Returns:
            The request, which has to be kept: one that is dropped before it is complete can never
            be completed, and the handle only be left by `fail`.
        """
        cdef void *address = NULL
        cdef double weight_ = _number("weight", weight)
        cdef int status
        cdef Request request
        self._enter()
        try:
            request = _request(self)
            keeper = self.input.locate(x, &self.posted.view, &address)
            tensor = x if _is_tensor(x) and address != &self.input.nothing else None
            if tensor is not None:
                keeper = _kept(tensor)
            self.views.calls += 1
            if self.small:
                status = wagma_post(self.handle, address, weight_, 0)
            else:
                with nogil:
                    status = wagma_post(self.handle, address, weight_, 0)
            if status != WAGMA_INPROGRESS:
                self._keep_for_messages(status, keeper, &self.posted.view)
                raise self._failed_call(status)
            if address == self.input.next_address:
                self.input.take(x)
            else:
                self.posted.freeze(x)
                self.posted.tensor = tensor
        except:
            self.posted.release()
            self.busy = IDLE
            raise
        self.posted.keeper = keeper
        self.posted.address = address
        self.busy = PENDING
        return request

    cdef Outcome _call(self, object x, double weight, int sync):
        cdef Py_buffer view
        cdef void *address = NULL
        cdef wagma_outcome given
        cdef int status
        memset(&view, 0, sizeof(view))
        self._enter()
        try:
            keeper = self.input.locate(x, &view, &address)
            self.views.calls += 1
            if self.small:
                status = wagma_start(self.handle, address, weight, sync, &given)
                if status == WAGMA_INPROGRESS:
                    with nogil:
                        status = wagma_finish(self.handle, address, &given)
            else:
                with nogil:
                    status = wagma_start(self.handle, address, weight, sync, &given)
                    if status == WAGMA_INPROGRESS:
                        status = wagma_finish(self.handle, address, &given)
            if status != WAGMA_OK:
                self._keep_for_messages(status, keeper, &view)
                raise self._failed_call(status)
            if address == self.input.next_address:
                self.input.take(x)
            return self._outcome(&given, keeper, address)
        finally:
            self.busy = IDLE
            PyBuffer_Release(&view)

    @cython.final
    cdef inline Outcome _outcome(self, const wagma_outcome *given, object x, void *address):
        self.views.x = None
        if (given.results_count != 0 and given.results[given.results_count - 1] == address
                and address != &self.input.nothing):
            self.views.x = _kept(x)
            self.views.x_address = address
        return _outcome(given, self.views)

    cdef int _keep_for_messages(self, int status, object keeper, Py_buffer *view) except -1:
        """After an error in a call: messages under way may still use its array, see wagma.h.

        The first error ends the handle: later calls do not begin. With a graph only the engine's
        own memory is in messages.
        """
        if (self.transport == "shm" or self.ended or status == WAGMA_EINVAL
                or status == WAGMA_ETYPE or self.used.graph != WAGMA_GRAPH_NONE):
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
            self.views.calls -= 1  # refused: the arrays of the call before are still there
        return self._failure(status)

    cdef int _enter(self) except -1:
        if self.handle == NULL:
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
        error = self.pending
        self.pending = None
        if (status == WAGMA_ESTALL or status == WAGMA_EPEER) and self.handle != NULL:
            failed = _error(status)  # before anything else is asked of the engine
            _log.error("%s broke: %s\n%s", self._who(), failed, self._state(REPORT_BYTES))
            return failed
        if status == WAGMA_EINTERRUPTED and error is not None:
            return error
        return _error(status, self.transport)

    # ---- the rank's array ----------------------------------------------------------------------
    def empty(self):
        """This rank's array of the handle: numpy, of its shape, uninitialised.

        With quorum="all" it is reduced where it lies, without a copy. Over messages it lies in huge
        pages from 64 KiB on, where the system gives them: MPI copies those faster between
        processes. With another quorum, in
        shared memory and from 1 MiB on, a blocking call publishes its memory and lets it show
        other memory at the same address, which takes the place of a copy (Linux 5.13): do not
        register it with a device. A process that is forked later has a copy of its own: what it
        writes stays there, and what it reads may be newer than the fork. bfloat16 comes as uint16
        (``torch.from_numpy(a).view(torch.bfloat16)``). There is one such array: it stays valid
        after `close()`, and until it and all its views are gone a second call is refused.

        Raises:
            BufferError: the array of an earlier call is still alive.
            HandleError: the handle cannot be used.
        """
        self._enter()
        try:
            if self.shared is not None and self.shared() is not None:
                raise BufferError(
                    f"the array that empty() of rank {self.rank} gave out is still alive, and a "
                    "second one would be the same memory: use that one, or delete it and its views")
            memory = self._shared_memory()
            self.shared = weakref.ref(memory)
            return _array(memory, self.views)
        finally:
            self.busy = IDLE

    cdef _Memory _shared_memory(self):
        cdef void *address = wagma_shared_array(self.handle)
        if address == NULL and self.used.count > 0:
            raise self._failure(WAGMA_ENOMEM)
        return _memory(self.engine.memory(), address, self.views, False)

    def next_contribution(self):
        """A contribution buffer, to be filled and passed to the next call: out of place, no copy.

        numpy, of the handle's shape, uninitialised (bfloat16 as uint16); the same array until a
        call takes it. `allreduce`, `sync` and `iallreduce` take it by its address, so that a torch
        tensor over it will do, and then the result does not go there but to `Outcome.result`; with
        late="skip" or "carry" that is None, and `Outcome.results` has the averages (or sums). The
        array is read-only from then on (views that were made of it before are not, and must not be
        written to). It stays readable as long as it lives, but its content is the engine's.

        Arrays of the last call's outcome stay valid. Waits only where `shm_limit` was reached.

        Raises:
            ValueError: the quorum is every member of a group (quorum="all", k of k ranks,
                group_size=1, one rank), which is reduced in place (use `empty`); or 16-bit elements
                with average=True.
            PeerError, StallError: no buffer came free; the handle is broken.
            HandleError: the handle cannot be used, or a request is pending.
        """
        cdef void *address = NULL
        cdef int status
        self._enter()
        try:
            with nogil:
                status = wagma_next_contribution(self.handle, &address)
            if status != WAGMA_OK:
                raise self._failure(status)
            return self.input.give_out(address)
        finally:
            self.busy = IDLE

    cdef Outcome _go_on(self, Request request, bint waits, double timeout):
        """The outcome, None, or an error; the handle is PENDING."""
        cdef wagma_outcome given
        cdef int status
        if _moved(self.posted.tensor, self.posted.address):
            raise HandleError(
                f"the tensor posted for version {self.version} (rank {self.rank}) has other memory "
                "than then (resize_, set_, .data =): its result cannot be written there; a handle "
                "with a pending request is left by fail()")
        self.busy = CALLING
        if waits:
            with nogil:
                status = wagma_wait(self.handle, self.posted.address, timeout, &given)
        elif self.small:
            status = wagma_test(self.handle, self.posted.address, &given)
        else:
            with nogil:
                status = wagma_test(self.handle, self.posted.address, &given)
        if status == WAGMA_INPROGRESS:
            self.busy = PENDING
            return None
        request.complete = True
        keeper = self.posted.keeper
        self.busy = IDLE
        if status != WAGMA_OK:
            error = self._failure(status)
            self._keep_for_messages(status, keeper, &self.posted.view)
            self.posted.release()
            raise error
        outcome = self._outcome(&given, keeper, self.posted.address)
        self.posted.release()
        return outcome

    def lend(self):
        """For C code that calls the engine itself (wagma.h): a context manager.

        ``with handle.lend() as lent`` gives the address of the `wagma_handle` in `lent.address`.
        The handle still owns it: C code calls it inside the block only, from one thread at a time,
        and does not free it. Inside the block the handle counts as in use, so that a call from
        Python is refused (HandleError); `fail` is not, and ends waits of the C code with an error.
        Arrays of earlier outcomes are gone. `lent.error(status)` makes the exception for a call
        that failed. Waits may take the GIL for a moment (signals, warnings), so the C code must not
        hold it while it calls. The engine's functions are exported by the shared object
        `wagma.collectives._engine.__file__` (dlsym).

        Raises:
            HandleError: entering the block: the handle cannot be used, a request is pending, or an
                array of `next_contribution` was not passed to a call.
        """
        return _lent(self)

    # ---- state ---------------------------------------------------------------------------------
    @property
    def version(self):
        """The next version that this rank calls; the first is 0."""
        return self.last_version if self.handle == NULL else wagma_version(self.handle)

    def _get_quorum(self):
        """Return how many ranks start this rank's next version; QUORUM_MAJORITY: a drawn one."""
        return self.last_quorum if self.handle == NULL else wagma_quorum(self.handle)

    def _set_quorum(self, int32_t quorum):
        """Set how many ranks start a version, from this rank's next one on.

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
        """Return whether the version that this rank calls next has been pinned without it.

        Then its contributors are fixed, and the call will be late: work for it can end. The thread
        that computes asks between calls, as often as it likes. In shared memory that takes less
        than 1 us; over messages it also takes what has come. It waits for no other rank, and no
        result depends on it.

        Returns:
            bool: False where this rank does not know of a pin; with quorum="all", before a sync
            version and for neighbours always.

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
        """Number of ranks."""
        return self.used.size

    @property
    def dtype(self):
        """Name of the element type."""
        return self.dtype_.name

    def stats(self):
        """Counters of this rank since creation, and of all ranks as of the last sync version.

        Local; works after `close()` too. ``stats().summary()`` says who is slow.
        """
        cdef wagma_stats s = self.last_stats
        if self.handle != NULL:
            wagma_get_stats(self.handle, &s)
        return Stats(s.calls, s.late, s.unmerged, s.redone_slices, s.buffer_waits, s.waited,
                     s.grace, s.segment_bytes, s.wakeups, s.direct,
                     PRIVATE_WAYS[s.private_way], self._ranks())

    def dump_state(self):
        """What this rank is doing and what it did last, as text: one event per line, newest last.

        From any thread, also while another one waits in a call of the handle: for a look at a job
        that does not go on. After `close()` what it was at the end.
        """
        return self.last_state if self.handle == NULL else self._state(STATE_BYTES)

    cdef str _state(self, size_t size):
        cdef bytearray text = bytearray(size)
        cdef char *address = text
        wagma_dump_state(self.handle, address, size)
        return address.decode("utf-8", "replace")

    def lost(self):
        """The ranks that are known to have failed or died, ascending; does not wait.

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
        """Whether it writes a timeline (WAGMA_TRACE)."""
        return self.handle != NULL and bool(wagma_is_traced(self.handle))

    def _label_trace(self, uint64_t collective, clock):
        """The number that the ranks share; and (offset_ns, error_ns) of the clock to rank 0's."""
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

    # ---- leaving -------------------------------------------------------------------------------
    def close(self, sync=False):
        """This rank departs: weight 0 from the next version on, and nobody waits for it.

        With transport="shm" it is local and does not block. With "mpi" it is collective: it takes
        part in the versions of the others until all ranks close (or fail), which is when it
        returns; the collectives of a program are closed in the same order on all ranks. Ranks that
        go on calling, or compute, are waited for as long as they live: `timeout` counts from the
        last sign of life of a rank, which its progress thread gives when it is asked (with
        progress="main" its calls alone do). Harmless when repeated, or in a forked child.

        With `sync` every rank first meets the others in one last sync version to which it
        contributes nothing: when that returns, all have come this far. It makes no average;
        `sync(x)` does.

        Raises:
            PeerError, StallError: with `sync`, as in `allreduce`; and with transport="mpi", where
                the handle is closed all the same.
            KeyboardInterrupt, or what another signal handler raised: likewise.
        """
        cdef int status
        if self.handle == NULL or self.process != process_serial():
            return
        if sync:
            self._meet()
        self._enter()
        with nogil:
            status = wagma_close(self.handle)
        error = None if status == WAGMA_OK else self._failure(status)
        self._release()
        if error is not None:
            raise error

    cdef int _meet(self) except -1:
        """A sync version at weight 0, in the rank's own array: another could need more memory."""
        self._enter()
        try:
            array = _array(self._shared_memory(), self.views)
            kept = array.copy()  # a view that empty() gave out may be alive
        finally:
            self.busy = IDLE
        self._call(array, 0.0, 1)
        array[...] = kept
        return 0

    def fail(self):
        """Marks this rank as failed: every wait that needs it ends in PeerError at once.

        From any thread: a call that another one waits in ends with HandleError.
        """
        if self.handle == NULL or self.process != process_serial():
            return
        with nogil:  # a wait of another thread ends by this, in which a hook may want the GIL
            wagma_fail(self.handle)
        if self.busy != CALLING:  # at exit a daemon thread may still be inside a call
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
        self.engine = self.views.engine = None  # unmaps, if nothing else needs it
        self.input = None
        self.busy = IDLE
        self.closed = True
        _open.discard(self)
        return 0

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        if kind is None:
            try:
                self.close()
            except BaseException:  # a request is pending
                self.fail()
                raise
        else:
            self.fail()

    def __repr__(self):
        cdef wagma_options *o = &self.used
        name = "" if self.name is None else f"name={self.name!r}, "
        every = o.size if o.activation == WAGMA_ACTIVATION_WORLD else o.group_size
        quorum = self._get_quorum()
        if quorum == WAGMA_QUORUM_MAJORITY:
            quorum = "majority"
        elif quorum == every:
            quorum = "all"
        results = ""
        if o.late != WAGMA_LATE_STALE:  # so many are kept, for ranks that have not had them
            results = f"results_bytes={o.window * o.count * self.dtype_.storage.itemsize}, "
        stats = self.stats()
        if quorum == "all" and self.transport == "shm":
            results += f"private={stats.private!r}, "
        state = "closed" if self.closed else f"version={self.version}"
        if self.busy == PENDING:
            state += ", pending"
        return (f"{type(self).__name__}({name}rank={self.rank}, size={o.size}, shape={self.shape}, "
                f"dtype={self.dtype}, transport={self.transport!r}, "
                f"group_size={o.group_size}, quorum={quorum!r}, "
                f"late={_word(LATE, o.late)!r}, missed={_word(MISSED, o.missed)!r}, "
                f"activation={_word(ACTIVATIONS, o.activation)!r}, "
                f"grouping={_word(GROUPINGS, o.grouping)!r}, "
                f"sync_period={o.sync_period or None}, window={o.window}, {state}, {results}"
                f"segment_bytes={stats.segment_bytes})")
