# Part of _engine.pyx: which arrays a handle takes, and where they are.

cdef enum:
    DIMENSIONS = 8       # arrays of more dimensions take the slow way

cdef object _torch_tensor = None


cdef bint _is_tensor(object x) except -1:
    global _torch_tensor
    if _torch_tensor is None:
        _torch_tensor = arrays.torch_tensor()
    return _torch_tensor is not None and isinstance(x, _torch_tensor)


cdef object _kept(object x):
    """What keeps the memory that `x` has now: others may give a tensor another (set_, .data).

    A buffer cannot be resized as long as the memoryview lives; that a tensor was, says `_moved`.
    """
    if _is_tensor(x):
        return x.detach()
    return memoryview(x) if PyObject_CheckBuffer(x) else x


cdef bint _moved(object x, void *address) except -1:
    """Whether the tensor `x` is not at `address` any more; of other arrays: no."""
    if not _is_tensor(x):
        return False
    try:
        return <void *><uintptr_t>x.data_ptr() != address
    except RuntimeError:  # it has no storage any more
        return True


@cython.final
cdef class _Input:
    """The arrays that fit, and the contribution buffer that is given out and not taken yet."""
    cdef _Views views
    cdef object dtype        # arrays.Dtype
    cdef object torch_dtype
    cdef char format_1
    cdef char format_2
    cdef int ndim
    cdef Py_ssize_t dims[DIMENSIONS]
    cdef int64_t nothing     # stands for arrays without elements
    cdef void *next_address  # NULL: nothing is given out
    cdef _Memory next_memory
    cdef object next_array

    cdef inline object locate(self, object x, Py_buffer *view, void **address):
        """The memory of x, and what keeps it."""
        keeper = x
        if not (self._buffer(x, view, address) or self._tensor(x, address)):
            if _handed_out_count:  # a published one is read-only, but that is not the point
                _refuse_handed_out(
                    arrays.resolve(x, expected=self.dtype, writable=False).address, self.views)
            keeper = arrays.resolve(x, expected=self.dtype)
            arrays.match(keeper, self.dtype, self.views.shape)
            address[0] = <void *><uintptr_t>keeper.address
        if address[0] == NULL:
            address[0] = &self.nothing
        if _handed_out_count and address[0] != self.next_address:
            _refuse_handed_out(<uintptr_t>address[0], self.views)
        return keeper

    cdef inline bint _buffer(self, object x, Py_buffer *view, void **address) noexcept:
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
        if not _is_tensor(x):
            return False
        if self.torch_dtype is None:
            self.torch_dtype = arrays.torch_dtype(self.dtype)
        try:
            if (x.dtype is not self.torch_dtype or not x.is_cpu or x.shape != self.views.shape
                    or not x.is_contiguous() or x.is_neg()):  # is_conj(): complex numbers only
                return False
            address[0] = <void *><uintptr_t>x.data_ptr()
            return True
        except RuntimeError:  # tensors without storage
            return False

    # ---- out of place --------------------------------------------------------------------------
    cdef object give_out(self, void *address):
        """The array over the contribution buffer at `address`."""
        if address != self.next_address:
            self.next_memory = _hand_out(address, self.views)
            self.next_array = _array(self.next_memory, self.views)
            self.next_address = address
        return self.next_array

    cdef int take(self, object x) except -1:
        """A call has published the buffer; x is an array over it."""
        self.next_memory.readonly = True
        self.next_array.flags.writeable = False
        if isinstance(x, np.ndarray):
            x.flags.writeable = False
        self.next_address = NULL
        self.next_memory = None
        self.next_array = None
        return 0


cdef _Input _input(_Views views, object dtype):
    cdef _Input self = _Input.__new__(_Input)
    self.views = views
    self.dtype = dtype
    self.format_1 = ord(dtype.formats[0])
    self.format_2 = ord(dtype.formats[len(dtype.formats) - 1])
    self.ndim = len(views.shape)
    for i in range(min(self.ndim, DIMENSIONS)):
        self.dims[i] = views.shape[i]
    return self
