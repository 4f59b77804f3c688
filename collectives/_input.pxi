# Part of _engine.pyx: the arrays that a handle accepts, and their addresses.

cdef enum:
    DIMENSIONS = 8       # arrays of more dimensions take the slow path

cdef object _torch_tensor = None
cdef dlpack_exchange *_torch_exchange = NULL  # NULL: the methods of tensors are called instead


def ndarray_fields(array):
    """Read a numpy array's fields at the offsets of `ndarray` in _ndarray.h.

    Returns:
        address, ndim, shape (of two dimensions), number and byte order of the dtype, whether it is
        C-contiguous, whether it is writeable; None: the fields are elsewhere.
    """
    if type(array) is not np.ndarray or array.ndim != 2:
        raise TypeError(f"expected a numpy array of two dimensions, got {type(array).__name__}")
    cdef const ndarray *fields = <const ndarray *>array
    # The first fields show whether the pointers are at the expected offsets.
    if (<uintptr_t>fields.data != array.__array_interface__["data"][0] or fields.ndim != 2
            or <PyObject *>fields.dtype != <PyObject *>array.dtype):
        return None
    return (<uintptr_t>fields.data, fields.ndim, (fields.shape[0], fields.shape[1]),
            fields.dtype.number, chr(fields.dtype.byteorder),
            fields.flags & NDARRAY_C_CONTIGUOUS != 0, fields.flags & NDARRAY_WRITEABLE != 0)


cdef object _known_ndarray():
    """Return np.ndarray, or None where numpy's fields lie elsewhere (buffer protocol then)."""
    for array in (np.ones((3, 5), np.float64), np.ones((3, 5), ">i4"), np.ones((3, 5), "H")[:, ::2]):
        array.flags.writeable = array.dtype.isnative
        expected = (array.__array_interface__["data"][0], 2, array.shape, array.dtype.num,
                    "=" if array.dtype.isnative else ">", array.flags.c_contiguous,
                    array.flags.writeable)
        if ndarray_fields(array) != expected:
            return None
    return np.ndarray


cdef object _ndarray_type = _known_ndarray()


cdef bint _is_tensor(object x) except -1:
    if _torch_tensor is None:
        _find_torch()
    return _torch_tensor is not None and isinstance(x, _torch_tensor)


cdef int _find_torch() except -1:
    global _torch_tensor, _torch_exchange
    tensor = arrays.torch_tensor()
    if tensor is None:
        return 0
    capsule = getattr(tensor, "__dlpack_c_exchange_api__", None)
    cdef dlpack_exchange *exchange = NULL
    if capsule is not None and PyCapsule_IsValid(capsule, "dlpack_exchange_api"):
        exchange = <dlpack_exchange *>PyCapsule_GetPointer(capsule, "dlpack_exchange_api")
    while exchange != NULL and exchange.major != DLPACK_MAJOR:
        exchange = exchange.previous
    if exchange != NULL and exchange.tensor_from_object != NULL:
        _torch_exchange = exchange
    _torch_tensor = tensor
    return 0


cdef object _kept(object x):
    """Return an object that keeps the current memory of `x`: set_ and .data may replace a tensor's.

    A memoryview prevents resizing of a buffer; `_moved` detects a resized tensor.
    """
    if _is_tensor(x):
        return x.detach()
    return memoryview(x) if PyObject_CheckBuffer(x) else x


cdef bint _moved(object x, void *address) except -1:
    """Return whether `x` is a tensor that has left `address`."""
    if not _is_tensor(x):
        return False
    try:
        return <void *><uintptr_t>x.data_ptr() != address
    except RuntimeError:  # the tensor has lost its storage
        return True


@cython.final
cdef class _Input:
    """The arrays that a handle accepts, and its contribution buffer that awaits a call."""
    cdef _Views views
    cdef object dtype        # arrays.Dtype
    cdef object torch_dtype
    cdef char format_1
    cdef char format_2
    cdef int number_1        # numpy's number of the same dtypes
    cdef int number_2
    cdef int dlpack_code     # DLPack's code
    cdef int dlpack_bits
    cdef int ndim
    cdef Py_ssize_t dims[DIMENSIONS]
    cdef int64_t elements
    cdef int64_t nothing     # address for arrays without elements
    cdef void *stream        # of the last array on a device that was located
    cdef void *next_address  # NULL: no buffer is given out
    cdef _Memory next_memory
    cdef object next_array

    cdef inline object locate(self, object x, Py_buffer *view, void **address):
        """Write the address of x; return an object that keeps its memory."""
        keeper = x
        if self.views.device is not None:
            keeper = self._on_device(x, address)
        elif not (self._ndarray(x, address) or self._buffer(x, view, address)
                or self._tensor(x, address)):
            if _handed_out_count:  # the error must say more than read-only
                _refuse_handed_out(
                    arrays.resolve(x, expected=self.dtype, writable=False).address, self.views)
            keeper = arrays.resolve(x, expected=self.dtype)
            arrays.match(keeper, self.dtype, self.views.shape, None)
            address[0] = <void *><uintptr_t>keeper.address
        if address[0] == NULL:
            address[0] = &self.nothing
        if _handed_out_count and address[0] != self.next_address:
            _refuse_handed_out(<uintptr_t>address[0], self.views)
        return keeper

    cdef object _on_device(self, object x, void **address):
        """Write the address and the stream of an array on the handle's device; return its owner."""
        if isinstance(x, DeviceArray):
            return self._own(<DeviceArray>x, address)
        if _is_tensor(x) and self._lent_tensor(x, address):
            return x
        found = arrays.resolve(x, expected=self.dtype)
        arrays.match(found, self.dtype, self.views.shape, self.views.device.gpu)
        address[0] = <void *><uintptr_t>found.address
        self.stream = <void *><uintptr_t>found.stream
        return found.owner

    cdef object _own(self, DeviceArray x, void **address):
        """Write the address of an array that a handle gave out; the stream stays that before."""
        if x.memory.readonly:
            _refuse_handed_out(<uintptr_t>x.memory.address, self.views)
            raise ValueError("x is a result, which is read-only: copy it")
        if x.views is not self.views:
            raise ValueError(
                "x is a contribution buffer of another handle: pass what this handle's "
                "next_contribution() gave")
        address[0] = x.memory.address
        self.stream = self.views.stream
        return x

    cdef inline bint _ndarray(self, object x, void **address) noexcept:
        """Return whether x is a numpy array that needs no conversion; every call checks all of it.

        The buffer protocol gives the same information, but numpy allocates memory for it.
        docs/performance.md has the cost.
        """
        if type(x) is not _ndarray_type:
            return False
        cdef const ndarray *array = <const ndarray *>x
        cdef const ndarray_dtype *dtype = array.dtype
        if dtype.byteorder != c'=' or not (dtype.number == self.number_1 or
                                           dtype.number == self.number_2):
            return False
        if (~array.flags & (NDARRAY_C_CONTIGUOUS | NDARRAY_WRITEABLE) or array.ndim != self.ndim
                or array.ndim > DIMENSIONS):
            return False
        cdef int i
        for i in range(array.ndim):
            if array.shape[i] != self.dims[i]:
                return False
        address[0] = array.data
        return True

    cdef inline bint _buffer(self, object x, Py_buffer *view, void **address) noexcept:
        """Return whether x is a buffer that fits as it is; otherwise `arrays` explains why."""
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
        """Return whether x is a torch tensor that fits; every call checks all of it (resize_)."""
        if not _is_tensor(x):
            return False
        if self._lent_tensor(x, address):
            return True
        if self.torch_dtype is None:
            self.torch_dtype = arrays.torch_dtype(self.dtype)
        try:
            if (x.dtype is not self.torch_dtype or not x.is_cpu or x.shape != self.views.shape
                    or not x.is_contiguous() or x.is_neg()):  # is_conj(): complex numbers only
                return False
            address[0] = <void *><uintptr_t>x.data_ptr()
            return address[0] != NULL or self.elements == 0
        except RuntimeError:  # tensors without storage
            return False

    cdef inline bint _lent_tensor(self, object x, void **address) except -1:
        """Return whether x is a tensor that needs no conversion, by torch's exchange in C.

        Subclasses may override the attributes of a tensor, so they take the slower path. DLPack has
        no flag for a pending negation.
        """
        cdef dlpack_tensor tensor
        if _torch_exchange == NULL or type(x) is not _torch_tensor:
            return False
        if _torch_exchange.tensor_from_object(<void *>x, &tensor) != 0:
            PyErr_Clear()
            return False
        if self.views.device is None:
            if tensor.device_type != DLPACK_CPU:
                return False
        elif not self._is_here(&tensor):
            return False
        if (tensor.code != self.dlpack_code
                or tensor.bits != self.dlpack_bits or tensor.lanes != 1
                or tensor.ndim != self.ndim or tensor.ndim > DIMENSIONS):
            return False
        cdef int64_t elements = 1
        cdef int i
        for i in range(tensor.ndim - 1, -1, -1):
            if tensor.shape[i] != self.dims[i]:
                return False
            if tensor.strides != NULL and tensor.shape[i] != 1 and tensor.strides[i] != elements:
                return False
            elements *= tensor.shape[i]
        if x.is_neg() or (tensor.data == NULL and elements != 0):
            return False
        address[0] = <char *>tensor.data + tensor.byte_offset
        return True

    cdef bint _is_here(self, const dlpack_tensor *tensor) except -1:
        """Return whether a tensor of torch is on the handle's GPU; write torch's current stream."""
        cdef void *stream = NULL
        if (tensor.device_type != DLPACK_CUDA or tensor.device_id != self.views.device.gpu
                or _torch_exchange.current_stream == NULL):
            return False
        if _torch_exchange.current_stream(DLPACK_CUDA, tensor.device_id, &stream) != 0:
            PyErr_Clear()
            return False
        self.stream = <void *><uintptr_t>arrays.LEGACY_STREAM if stream == NULL else stream
        return True

    # ---- out of place --------------------------------------------------------------------------
    cdef object give_out(self, void *address):
        """Return the array over the contribution buffer at `address`."""
        if address != self.next_address:
            self.next_memory = _hand_out(address, self.views)
            self.next_array = _array(self.next_memory, self.views)
            self.next_address = address
        return self.next_array

    cdef int take(self, object x) except -1:
        """Make the array over the buffer, and x, read-only: a call has published it."""
        self.next_memory.readonly = True
        if isinstance(self.next_array, np.ndarray):
            self.next_array.flags.writeable = False
        if isinstance(x, np.ndarray):
            x.flags.writeable = False
        self.next_address = NULL
        self.next_memory = None
        self.next_array = None
        return 0


cdef _Input _input(_Views views):
    cdef _Input self = _Input.__new__(_Input)
    dtype = views.dtype
    self.views = views
    self.dtype = dtype
    self.format_1 = ord(dtype.formats[0])
    self.format_2 = ord(dtype.formats[len(dtype.formats) - 1])
    self.number_1 = np.dtype(chr(self.format_1)).num
    self.number_2 = np.dtype(chr(self.format_2)).num
    self.dlpack_code, self.dlpack_bits = arrays.dlpack_dtype(dtype)
    self.ndim = len(views.shape)
    self.elements = math.prod(views.shape)
    for i in range(min(self.ndim, DIMENSIONS)):
        self.dims[i] = views.shape[i]
    return self
