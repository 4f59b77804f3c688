# Part of _engine.pyx: the calls of one rank's handle.

def _word(words, number):
    """Return the user's word for an option's `number` of the engine."""
    return next(word for word, code in words.items() if code == number)


@cython.no_gc_clear  # as its base
cdef class Handle(_HandleState):
    """One rank's view of a collective over a segment or a channel.

    Creation is collective: it returns when every rank of the segment or channel has joined.

    Args:
        over: the memory that the ranks share, or the channel between them; the handle owns a
            channel from then on.
        rank: this rank, 0 <= rank < size; it must be that of the channel.
        initial: this rank's first contribution, which also gives the shape; None: zeros.
        weight: weight of that contribution, finite and >= 0.
        shape: shape of the arrays; None: the shape of `initial`, or one dimension.
        name: shown in messages.
        watch: called about every 50 ms while creation waits for others; an exception that it raises
            ends the wait.

    Raises:
        ValueError, TypeError: an argument is wrong.
        SegmentError: /dev/shm cannot hold this rank's part.
        TransportError: a call of MPI failed.
        PeerError, StallError: another rank did not join.

    Different handles may be used by different threads at once; a handle that is in use refuses a
    second thread. A forked child cannot use its copies of the parent's handles, and the parent does
    not see what the child writes to their arrays.
    """

    # ---- calls ---------------------------------------------------------------------------------
    def allreduce(self, x, weight=1.0):
        """Contribute `x` to this rank's next version, and replace it by the result.

        Args:
            x: array of the handle's shape and dtype: numpy, torch on the CPU, a C-contiguous buffer
                or DLPack; overwritten.
            weight: weight of this contribution, finite and >= 0; whole for integers.

        Returns:
            The outcome of the version.

        Raises:
            TypeError, ValueError: x or weight is wrong; the handle stays usable.
            PeerError, StallError: a rank that is needed is dead or missing; the handle is broken.
            HandleError: the handle cannot be used.
        """
        return self._call(x, _number("weight", weight), 0)

    def sync(self, x, weight=1.0):
        """Replace `x` by the result of all ranks; no rank is late.

        It is an ordinary version of the counter, which every rank has to call by `sync` (or which
        is a sync version by `sync_period`). Arguments, result and errors are those of `allreduce`;
        MismatchError: the ranks called `sync` at different versions.
        """
        return self._call(x, _number("weight", weight), 1)

    def iallreduce(self, x, weight=1.0):
        """Post the next version: publish `x`, so that this rank counts as arrived, and return.

        Ranks that are present may execute the version meanwhile; with quorum="all" the last rank to
        arrive reduces its share of a large array before it returns. `x` becomes the result inside
        `Request.test` or `Request.wait`. If publishing has to wait for others (`window`,
        `shm_limit`), that wait is in `test` or `wait`, too. There is one request at a time: until it
        is complete the handle refuses every call but `fail`, `stats` and `dump_state`.

        Do not access `x` until then. A numpy array that owns its memory (or is a view of one) is
        read-only meanwhile, so that writing to it raises ValueError. Writes through other views of
        the memory or other kinds of arrays (torch) are not detected; they may give this rank
        another result than the others. Reads are not detected either: an array of `empty()` with
        quorum="all", and any array over messages, may hold anything. The handle keeps `x` and its
        memory alive; `test` and `wait` refuse a tensor whose memory was replaced.

        Args, raises: as `allreduce`.

        Returns:
            The request. Keep it: a request that is dropped before it is complete can never be
            completed, and only `fail` ends the handle then.
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

    # ---- the rank's array ----------------------------------------------------------------------
    def empty(self):
        """Return this rank's array in the engine's memory: numpy, of its shape, uninitialised.

        With quorum="all" it is reduced in place, without a copy. Over messages an array of 64 KiB
        or more uses huge pages if the system has them: MPI copies them faster between processes.
        With another quorum, in shared memory and from 1 MiB on, a blocking call publishes its
        memory and maps other memory at the same address instead of a copy (Linux 5.13): do not
        register it with a device. A process that is forked later has a copy of its own; what it
        reads may be newer than the fork. bfloat16 comes as uint16
        (``torch.from_numpy(a).view(torch.bfloat16)``). There is one such array. It stays valid
        after `close()`; a second call is refused as long as it or a view of it exists.

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
        """Return a contribution buffer to fill and pass to the next call: out of place, no copy.

        It is a numpy array of the handle's shape, uninitialised (bfloat16 as uint16); the same one
        until a call uses it. `allreduce`, `sync` and `iallreduce` recognise it by its address, so a
        torch tensor over it works, too. The result is then in `Outcome.result`; with late="skip" or
        "carry" that is None, and `Outcome.results` has the averages (or sums). From then on the
        array is read-only. Do not write to earlier views of it, which stay writeable. It stays
        readable as long as it exists, but the engine changes its content.

        Arrays of the last call's outcome stay valid. It waits only if `shm_limit` was reached.

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

    # ---- leaving ---------------------------------------------------------------------------------
    def close(self, sync=False):
        """Leave the collective: weight 0 from the next version on, and no rank waits for this one.

        With transport="shm" it is local and does not block. With "mpi" it is collective: it takes
        part in the versions of the others, and returns when all ranks have closed (or failed).
        Close the collectives of a program in the same order on all ranks. It waits for ranks that
        still call or compute as long as they live: `timeout` counts from the last sign of life of a
        rank. Its progress thread answers such requests; with progress="main" only its calls do.
        Repeated calls, and calls in a forked child, do nothing.

        With `sync` all ranks first take part in one last sync version, without contributions: when
        it returns, every rank has called `close`. It averages nothing; `sync(x)` does.

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
        """Call a sync version at weight 0, in the rank's own array: it needs no more memory."""
        self._enter()
        try:
            array = _array(self._shared_memory(), self.views)
            kept = array.copy()  # a view that empty() gave out may be alive
        finally:
            self.busy = IDLE
        self._call(array, 0.0, 1)
        array[...] = kept
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
