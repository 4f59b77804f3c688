# Part of _engine.pyx: one rank's handle, and the hooks that the engine calls from its waits.

cdef enum:
    DIMENSIONS = 8       # arrays of more dimensions take the slow way
    GIL_BYTES = 16384    # up to here a call is tried with the GIL held: releasing it costs more

cdef object _torch_tensor = None


cdef void _warn(void *context, const char *message) noexcept with gil:
    cdef Handle self = <Handle>context
    _log.warning("rank %d%s: %s", self.rank, "" if self.name is None else f" ({self.name})",
                 message.decode("utf-8", "replace"))


cdef int _interrupted(void *context) noexcept with gil:
    cdef Handle self = <Handle>context
    try:
        PyErr_CheckSignals()
        if self.watch is not None:
            self.watch()
    except BaseException as error:  # KeyboardInterrupt, or what a signal handler or watch raised
        self.pending = error
        return 1
    return 0


@cython.no_gc_clear  # the segment has to outlive the engine's handle
cdef class Handle:
    """One rank's view of a collective over a segment.

    Creation is collective: it returns when every rank of the segment has joined.

    Args:
        segment: the memory that the ranks share.
        rank: 0 <= rank < size.
        initial: this rank's first contribution, which also gives the shape; None: zeros.
        weight: of that contribution, finite and >= 0.
        shape: of the arrays; None: the shape of `initial`, or one dimension.
        name: for messages.
        watch: called about every 50 ms while creation waits for others; what it raises ends that.

    Raises:
        ValueError, TypeError: an argument is wrong.
        SegmentError: /dev/shm cannot hold this rank's part.
        PeerError, StallError: another rank did not join.

    Different handles may be used by different threads at once; a handle that is in use refuses a
    second thread. A forked child cannot use its copies of the parent's handles.
    """
    cdef wagma_handle *handle
    cdef Segment segment     # None after close()
    cdef wagma_options used
    cdef readonly int rank
    cdef readonly tuple shape
    cdef readonly str name
    cdef readonly bint closed
    cdef object dtype_
    cdef object torch_dtype
    cdef object watch        # during creation
    cdef object pending      # exception of a signal handler that ran inside a wait
    cdef object shared       # weak reference to the memory that empty() gave out
    cdef object __weakref__
    cdef int generation
    cdef bint busy
    cdef bint small
    cdef char format_1
    cdef char format_2
    cdef int ndim
    cdef Py_ssize_t dims[DIMENSIONS]
    cdef int64_t nothing     # stands for arrays without elements
    cdef int64_t last_version
    cdef wagma_stats last_stats
    cdef tuple last_ranks    # what _ranks() said at the end

    def __init__(self, Segment segment not None, int rank, initial=None, *, double weight=1.0,
                 shape=None, str name=None, watch=None):
        if self.dtype_ is not None:
            raise HandleError("the handle was initialised before")
        cdef int64_t count = segment.used.count
        dtype = arrays.dtype_of_code(segment.used.dtype)
        cdef void *address = NULL
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
            raise ValueError(f"shape {shape} has {elements} elements, the segment's count is {count}")
        if address == NULL and initial is not None:
            address = &self.nothing
        self.used = segment.used
        self.rank = rank
        self.shape = shape
        self.name = name
        self.dtype_ = dtype
        self.generation = generation
        self.small = count * dtype.storage.itemsize <= GIL_BYTES
        self.format_1 = ord(dtype.formats[0])
        self.format_2 = ord(dtype.formats[len(dtype.formats) - 1])
        self.ndim = len(shape)
        for i in range(min(self.ndim, DIMENSIONS)):
            self.dims[i] = shape[i]
        cdef wagma_hooks hooks
        hooks.context = <void *>self
        hooks.warn = _warn
        hooks.interrupted = _interrupted
        cdef int status
        self.watch = watch
        with nogil:
            status = wagma_create(segment.segment, rank, address, weight, &hooks, &self.handle)
        self.watch = None
        if status != WAGMA_OK:
            raise self._failure(status)
        self.segment = segment
        _open.add(self)

    def __dealloc__(self):
        if self.handle != NULL and self.generation == generation:
            wagma_free(self.handle)

    # ---- calls ---------------------------------------------------------------------------------
    def allreduce(self, x, double weight=1.0):
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
        return self._call(x, weight, 0)

    def sync(self, x, double weight=1.0):
        """`x` becomes the result of every rank, none of them late.

        An ordinary version of the counter, which every rank has to call as `sync` (or at which
        `sync_period` makes one). Arguments, result and errors are those of `allreduce`, and
        MismatchError if the ranks call it at different versions.
        """
        return self._call(x, weight, 1)

    cdef Outcome _call(self, object x, double weight, int sync):
        cdef Py_buffer view
        cdef void *address = NULL
        cdef wagma_outcome given
        cdef int status
        memset(&view, 0, sizeof(view))
        self._enter()
        try:
            if not (self._buffer(x, &view, &address) or self._tensor(x, &address)):
                array = arrays.resolve(x, expected=self.dtype_)
                arrays.match(array, self.dtype_, self.shape)
                address = <void *><uintptr_t>array.address
            if address == NULL:
                address = &self.nothing
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
                raise self._failure(status)
            return _outcome(&given)
        finally:
            self.busy = False
            PyBuffer_Release(&view)

    cdef bint _buffer(self, object x, Py_buffer *view, void **address) noexcept:
        """Whether x is a buffer that fits as it is; what does not is for `arrays` to explain."""
        if not PyObject_CheckBuffer(x):
            return False
        if try_buffer(x, view, PyBUF_WRITABLE | PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) != 0:
            PyErr_Clear()
            return False
        cdef const char *form = view.format
        if form == NULL or form[1] != 0 or (form[0] != self.format_1 and form[0] != self.format_2):
            return False
        if view.ndim != self.ndim or view.ndim > DIMENSIONS:
            return False
        cdef int i
        for i in range(view.ndim):
            if view.shape[i] != self.dims[i]:
                return False
        address[0] = view.buf
        return True

    cdef bint _tensor(self, object x, void **address):
        """The same for a torch tensor; everything is asked anew in every call (resize_, set_)."""
        global _torch_tensor
        if _torch_tensor is None:
            _torch_tensor = arrays.torch_tensor()
        if _torch_tensor is None or not isinstance(x, _torch_tensor):
            return False
        if self.torch_dtype is None:
            self.torch_dtype = arrays.torch_dtype(self.dtype_)
        try:
            if (x.dtype is not self.torch_dtype or not x.is_cpu or x.shape != self.shape
                    or not x.is_contiguous() or x.is_neg()):  # is_conj(): complex numbers only
                return False
            address[0] = <void *><uintptr_t>x.data_ptr()
            return True
        except RuntimeError:  # tensors without storage
            return False

    cdef int _enter(self) except -1:
        if self.handle == NULL:
            raise HandleError(f"the handle of rank {self.rank} is closed")
        if self.generation != generation:
            raise HandleError(
                f"the handle of rank {self.rank} belongs to the process that made it: it cannot be "
                "used in a forked child")
        if self.busy:
            raise HandleError(
                f"the handle of rank {self.rank} is in use: one thread at a time, and not from a "
                "signal handler that interrupts a call")
        self.busy = True
        return 0

    cdef object _failure(self, int status):
        error = self.pending
        self.pending = None
        if status == WAGMA_EINTERRUPTED and error is not None:
            return error
        return _error(status)

    # ---- the rank's array ----------------------------------------------------------------------
    def empty(self):
        """This rank's array in the segment: numpy, of the handle's shape, uninitialised.

        With quorum="all" it is reduced where it lies, without a copy. bfloat16 comes as uint16
        (``torch.from_numpy(a).view(torch.bfloat16)``). There is one such memory: the array stays
        valid after `close()`, and until it and all its views are gone a second call is refused.

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
            memory = self._memory()
            self.shared = weakref.ref(memory)
            return np.ndarray(self.shape, self.dtype_.storage, memory)
        finally:
            self.busy = False

    cdef _SharedMemory _memory(self):
        cdef _SharedMemory memory = _SharedMemory.__new__(_SharedMemory)
        memory.segment = self.segment
        memory.address = wagma_shared_array(self.handle)
        memory.nbytes = self.used.count * self.dtype_.storage.itemsize
        return memory

    # ---- state ---------------------------------------------------------------------------------
    @property
    def version(self):
        """The next version that this rank calls; the first is 0."""
        return self.last_version if self.handle == NULL else wagma_version(self.handle)

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
                     s.grace, s.segment_bytes, self._ranks())

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

        Local, does not block, harmless when repeated (or in a forked child). With `sync` every rank
        meets the others in one last sync version to which it contributes nothing: when that returns,
        all have come this far. It makes no average; `sync(x)` does.

        Raises:
            PeerError, StallError: with `sync`, as in `allreduce`.
        """
        if self.handle == NULL or self.generation != generation:
            return
        if sync:
            self._meet()
        self._enter()
        wagma_close(self.handle)
        self._release()

    cdef int _meet(self) except -1:
        """A sync version at weight 0, in the rank's own array: another could need more memory."""
        self._enter()
        try:
            array = np.ndarray(self.shape, self.dtype_.storage, self._memory())
            kept = array.copy()  # a view that empty() gave out may be alive
        finally:
            self.busy = False
        self._call(array, 0.0, 1)
        array[...] = kept
        return 0

    def fail(self):
        """Marks this rank as failed: every wait that needs it ends in PeerError at once."""
        if self.handle == NULL or self.generation != generation:
            return
        wagma_fail(self.handle)
        if not self.busy:  # at exit a daemon thread may still be inside a call
            self._release()

    cdef int _release(self) except -1:
        self.last_version = wagma_version(self.handle)
        wagma_get_stats(self.handle, &self.last_stats)
        self.last_ranks = self._ranks()
        wagma_free(self.handle)
        self.handle = NULL
        self.segment = None  # unmaps, if no other handle and no empty() array needs it
        self.busy = False
        self.closed = True
        _open.discard(self)
        return 0

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        if kind is None:
            self.close()
        else:
            self.fail()

    def __repr__(self):
        cdef wagma_options *o = &self.used
        name = "" if self.name is None else f"name={self.name!r}, "
        state = "closed" if self.closed else f"version={self.version}"
        return (f"{type(self).__name__}({name}rank={self.rank}, size={o.size}, shape={self.shape}, "
                f"dtype={self.dtype}, group_size={o.group_size}, quorum={o.quorum}, "
                f"sync_period={o.sync_period or None}, window={o.window}, {state}, "
                f"segment_bytes={self.stats().segment_bytes})")
