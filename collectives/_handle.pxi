# Part of _engine.pyx: the calls of one rank's handle.

def _word(words, number):
    """Return the user's word for the engine's `number` of an option."""
    return next(word for word, code in words.items() if code == number)


@cython.no_gc_clear  # like its base class
cdef class Handle(_HandleState):
    """One rank's view of a collective over a segment or a channel.

    Creation is collective: it returns when every rank of the segment or channel has joined.

    Args:
        over: the segment that the ranks share, or the channel between them. The handle owns a
            channel from then on.
        rank: this rank, 0 <= rank < size; equal to the channel's rank.
        initial: this rank's first contribution, which also gives the shape; None: zeros.
        weight: weight of that contribution, finite and >= 0.
        shape: shape of the arrays; None: the shape of `initial`, or one dimension.
        name: shown in messages.
        watch: called about every 50 ms while creation waits for other ranks; an exception raised by
            `watch` ends the wait.

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
            x: array of the handle's shape, dtype and memory (the host's, or a GPU's): numpy, torch,
                CuPy, a C-contiguous buffer or DLPack; overwritten. On a GPU it is read after the
                work that was queued on the caller's current stream before the call, and later work
                on that stream finds the result.
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

        This is an ordinary version of the counter. Every rank has to call it by `sync`, unless it
        is a sync version by `sync_period`. Arguments, result and errors are those of `allreduce`;
        MismatchError: the ranks called `sync` at different versions.
        """
        return self._call(x, _number("weight", weight), 1)

    def iallreduce(self, x, weight=1.0):
        """Post the next version: publish `x`, so that this rank counts as arrived, and return.

        Ranks that are present may execute the version meanwhile. With quorum="all" the last rank to
        arrive reduces its share of a large array before `iallreduce` returns. `x` becomes the
        result inside `Request.test` or `Request.wait`. If publishing has to wait for other ranks
        (`window`, `shm_limit`), `test` or `wait` does this waiting. There is one request at a time:
        until it is complete the handle refuses every call but `fail`, `stats` and `dump_state`.

        Do not access `x` until then. A numpy array that owns its memory (or is a view of one) is
        read-only meanwhile, so that writing to it raises ValueError. Writes through other views of
        the memory or other kinds of arrays (torch) are not detected; they may give this rank
        another result than the others. Reads are not detected either: an array of `empty()` with
        quorum="all", and any array over messages, may hold anything. The handle keeps `x` and its
        memory alive; `test` and `wait` refuse a tensor whose memory was replaced. An array on a GPU
        is published once the work that produces it is done: by `iallreduce`, or else by the `test`
        or `wait` after that. The stream is that of `iallreduce`, also for the result.

        Args, raises: as `allreduce`.

        Returns:
            The request. Keep it: a request that is dropped before completion can never be
            completed, and then only `fail` ends the handle.
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
            self._set_stream()
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
            self._set_stream()
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
        or more uses huge pages if the system has them: MPI copies these faster between processes.

        With another quorum, in shared memory and from 1 MiB on, a blocking call does not copy the
        array: it publishes the array's memory and maps other memory at the same address (Linux
        5.13). Do not register the array with a device. A process that is forked later has its own
        copy, which may show values newer than the fork.

        bfloat16 comes as uint16 (``torch.from_numpy(a).view(torch.bfloat16)``). A handle has one
        such array. It stays valid after `close()`. A second call is refused while the array or a
        view of it exists.

        Raises:
            BufferError: the array of an earlier call is still alive.
            ValueError: the handle's arrays are on a GPU, where the engine has no such array.
            HandleError: the handle cannot be used.
        """
        self._enter()
        try:
            if self.shared is not None and self.shared() is not None:
                raise BufferError(
                    f"the array that empty() of rank {self.rank} gave out is still alive, and a "
                    "second one would be the same memory: use that one, or delete it and its views")
            if self.views.device is not None:
                raise ValueError(
                    f"the arrays of rank {self.rank} are on GPU {self.views.device.gpu}, where the "
                    "engine has no array to reduce in place: pass any array of that GPU, such as "
                    "torch.empty_like(x)")
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

        The buffer is a numpy array of the handle's shape, uninitialised (bfloat16 as uint16); on a
        GPU a `DeviceArray`, for ``torch.from_dlpack(buffer)`` or ``cupy.from_dlpack(buffer)``.
        Repeated calls return the same array until a call uses it. `allreduce`, `sync` and
        `iallreduce` recognise the buffer by its address, so a torch tensor over it works, too. The
        result is then in `Outcome.result`; with late="skip" or "carry" that is None, and
        `Outcome.results` has the averages (or sums). From then on the array is read-only. Do not
        write to earlier views of it, which stay writeable. The array stays readable while it
        exists, but the engine changes its content.

        Arrays of the last call's outcome stay valid. It waits only if `shm_limit` was reached.

        Raises:
            ValueError: the quorum is every member of a group (quorum="all", k of k ranks,
                group_size=1, one rank), whose arrays are reduced in place (use `empty`; with
                memory="staged" pass any array of the GPU); or 16-bit elements with average=True.
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
        """Return the outcome or None, or raise an error; the handle is PENDING."""
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
        if status != WAGMA_OK:
            try:
                self._keep_for_messages(status, keeper, &self.posted.view)
                raise self._failure(status)
            finally:
                self.posted.release()
                self.busy = IDLE
        self.busy = IDLE
        outcome = self._outcome(&given, keeper, self.posted.address)
        self.posted.release()
        return outcome

    def lend(self):
        """Lend the handle to C code that calls the engine itself (wagma.h): a context manager.

        ``with handle.lend() as lent`` gives the address of the `wagma_handle` in `lent.address`.
        The handle still owns it: C code calls it inside the block only, from one thread at a time,
        and does not free it. Inside the block the handle counts as in use, so that a call from
        Python is refused (HandleError). `fail` is allowed, and ends waits of the C code with an
        error. Arrays of earlier outcomes are invalid. `lent.error(status)` returns the exception
        for a failed call. Waits may take the GIL for a moment (signals, warnings), so the C code
        must call without holding it. The shared object `wagma.collectives._engine.__file__` exports
        the engine's functions (dlsym).

        Raises:
            HandleError: entering the block: the handle cannot be used, a request is pending, or an
                array of `next_contribution` was not passed to a call.
        """
        return _lent(self)

    # ---- leaving ---------------------------------------------------------------------------------
    def close(self, sync=False):
        """Leave the collective: weight 0 from the next version on, and no rank waits for this one.

        With transport="shm" `close` is local and does not block, but for arrays on a GPU: there it
        waits for work that uses them, and for ranks that may open this rank's memory. With "mpi" it
        is collective: it takes part in the versions of other ranks, and returns when all ranks have
        closed (or failed). Close the collectives of a program in the same order on all ranks.
        `close` waits for ranks that still call or compute as long as they live: `timeout` counts
        from a rank's last sign of life. Its progress thread gives these signs; with progress="main"
        only its calls do. Repeated calls, and calls in a forked child, do nothing.

        With `sync` all ranks first take part in one last sync version, without contributions: when
        `close` returns, every rank has called it. This version averages nothing; `sync(x)` does.

        Raises:
            PeerError, StallError: with `sync`, as in `allreduce`; and with transport="mpi" or
                arrays on a GPU, where the handle is closed all the same.
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
        try:
            if status != WAGMA_OK:
                raise self._failure(status)
        finally:
            self._release()

    cdef int _meet(self) except -1:
        """Call a sync version at weight 0, in the rank's own array, so that no memory is added."""
        if self.views.device is not None:
            self._call(self._own_array(), 0.0, 1)
            return 0
        self._enter()
        try:
            array = _array(self._shared_memory(), self.views)
            kept = array.copy()  # a view of empty()'s array may be alive
        finally:
            self.busy = IDLE
        self._call(array, 0.0, 1)
        array[...] = kept
        return 0

    cdef object _own_array(self):
        """Return an array in memory of the device that lives as long as the engine's handle."""
        cdef _Engine engine = self.engine
        cdef wagma_device *device = self.views.device.device
        cdef int64_t nbytes = self.used.count * <int64_t>self.dtype_.storage.itemsize
        cdef int status = device.calls.alloc(device, max(nbytes, 1), &engine.own)
        if status != WAGMA_OK:
            raise self._failure(status)
        return _array(_memory(engine, engine.own, self.views, False), self.views)

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
        if o.late != WAGMA_LATE_STALE:  # the results that are kept for late ranks
            results = f"results_bytes={o.window * o.count * self.dtype_.storage.itemsize}, "
        device = ("" if self.device is None
                  else f"device={self.device!r}, memory={self.memory!r}, ")
        stats = self.stats()
        if quorum == "all" and self.transport == "shm" and self.device is None:
            results += f"private={stats.private!r}, "
        state = "closed" if self.closed else f"version={self.version}"
        if self.busy == PENDING:
            state += ", pending"
        return (f"{type(self).__name__}({name}rank={self.rank}, size={o.size}, shape={self.shape}, "
                f"dtype={self.dtype}, transport={self.transport!r}, {device}"
                f"group_size={o.group_size}, quorum={quorum!r}, "
                f"late={_word(LATE, o.late)!r}, missed={_word(MISSED, o.missed)!r}, "
                f"activation={_word(ACTIVATIONS, o.activation)!r}, "
                f"grouping={_word(GROUPINGS, o.grouping)!r}, "
                f"sync_period={o.sync_period or None}, window={o.window}, {state}, {results}"
                f"segment_bytes={stats.segment_bytes})")
