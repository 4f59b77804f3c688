# Part of _engine.pyx: GPUs, and the engine's arrays in their memory.

# Where a handle's contributions and results are; arrays of calls are on a GPU, but for "host".
MEMORY = {
    "host": WAGMA_MEMORY_HOST,
    "direct": WAGMA_MEMORY_DEVICE,
    "staged": WAGMA_MEMORY_STAGED,
}
# Variable of the environment with a library that has the devices; unset: the engine's, over CUDA.
# Tests have one that needs no GPU.
DEVICE_LIBRARY = "WAGMA_DEVICE_LIBRARY"


@cython.final
@cython.no_gc
cdef class Device:
    """This rank's use of a GPU.

    Args:
        gpu: number of the GPU, as CUDA counts in this process.

    Raises:
        DeviceError: the GPU or its driver is not available.
    """
    cdef wagma_device *device
    cdef void *ordering      # event of `order`
    cdef void *offered       # memory of `offer`
    cdef readonly int gpu
    cdef uint32_t process

    def __init__(self, int gpu):
        cdef bytes path = os.environ.get(DEVICE_LIBRARY, "").encode()
        cdef bytes compilers = b""
        cdef const char *library = NULL
        cdef int status
        if self.device != NULL:
            raise HandleError("the device was initialised before")
        if path:
            library = path
        else:
            compilers = "\n".join(nvrtc.find()).encode()
            nvrtc_set_paths(compilers)
        self.gpu = gpu
        self.process = process_serial()
        with nogil:
            status = wagma_device_open(library, gpu, &self.device)
        if status != WAGMA_OK:  # also WAGMA_EINVAL: of the library or the GPU, not of an argument
            raise _error(WAGMA_ENOMEM if status == WAGMA_ENOMEM else WAGMA_ESYS, "device")

    @property
    def name(self):
        """Return the name of the GPU."""
        return self.device.name.decode("utf-8", "replace")

    def offer(self):
        """Return words by which other ranks try to open memory of this GPU, see `reach`.

        Raises:
            DeviceError, MemoryError: the GPU does not make memory that is shared.
        """
        cdef const device_calls *calls = self.device.calls
        cdef device_record record
        cdef int status = WAGMA_OK
        with nogil:
            if self.offered == NULL:
                status = calls.alloc(self.device, 1, &self.offered)
            if status == WAGMA_OK:
                status = calls.export(self.device, self.offered, &record)
        if status != WAGMA_OK:
            raise _error(status, "device")
        return [record.words[i] for i in range(DEVICE_RECORD_WORDS)]

    def reach(self, words):
        """Open what another rank offers, and close it again.

        Args:
            words: of the other rank's `offer`.

        Returns:
            str: empty, or why this GPU does not reach that memory.
        """
        cdef const device_calls *calls = self.device.calls
        cdef device_record record
        cdef void *memory = NULL
        cdef int status
        for i in range(DEVICE_RECORD_WORDS):
            record.words[i] = words[i]
        with nogil:
            status = calls.open(self.device, &record, &memory)
            if status == WAGMA_OK:
                calls.close(self.device, memory)
        return "" if status == WAGMA_OK else wagma_last_error().decode("utf-8", "replace")

    def time_sums(self, str dtype, size_t count, int n, int queued):
        """Return the seconds that `queued` sums of `n` arrays take, one after the other.

        Benchmarks measure the kernels and copies by it. The arrays are made for it, and freed.

        Args:
            dtype: element type.
            count: elements of each array.
            n: arrays that are added up, of weight 1, to 16; 0: one is copied.
            queued: sums, at least 1.

        Raises:
            DeviceError: the device reported an error.
            MemoryError: it has no memory for n + 1 arrays.
        """
        if not 0 <= n <= 16 or queued < 1:
            raise ValueError(f"n={n}, queued={queued}: n must be 0 to 16, queued at least 1")
        cdef const device_calls *calls = self.device.calls
        cdef wagma_device *device = self.device
        cdef wagma_dtype code = arrays.DTYPES[dtype].code
        cdef size_t nbytes = count * arrays.DTYPES[dtype].storage.itemsize
        cdef void *memory[17]  # the last one that is used is the sum's
        cdef double[16] weights
        cdef void *stream = NULL
        cdef int made = 0, k, number = max(n, 1)
        cdef int status = calls.stream_new(device, &stream)
        while status == WAGMA_OK and made <= number:
            status = calls.alloc(device, nbytes, &memory[made])
            if status == WAGMA_OK:
                made += 1  # zeros
                status = calls.sum(device, stream, code, memory[made - 1], NULL, NULL, 0, 1, count)
        for k in range(16):
            weights[k] = 1
        if status == WAGMA_OK:
            with nogil:
                status = calls.synchronise(device, stream)
        began = time.perf_counter()
        for k in range(queued):
            if status == WAGMA_OK and n == 0:
                status = calls.copy(device, stream, memory[1], memory[0], nbytes)
            elif status == WAGMA_OK:
                status = calls.sum(device, stream, code, memory[n], <const void *const *>memory,
                                   weights, n, 1, count)
        failure = None if status == WAGMA_OK else _error(status, "device")
        if stream != NULL:
            with nogil:
                status = calls.synchronise(device, stream)
        took = time.perf_counter() - began
        if failure is None and status != WAGMA_OK:
            failure = _error(status, "device")
        for k in range(made):
            calls.free(device, memory[k])
        if stream != NULL:
            calls.stream_free(device, stream)
        if failure is not None:
            raise failure
        return took

    cdef int order(self, void *before, void *after) except -1:
        """Let work that is queued on the stream `after` from now on wait for that on `before`."""
        cdef const device_calls *calls = self.device.calls
        cdef int status = WAGMA_OK
        if self.ordering == NULL:
            status = calls.event_new(self.device, &self.ordering)
        if status == WAGMA_OK:
            status = calls.record(self.device, self.ordering, before)
        if status == WAGMA_OK:
            status = calls.wait(self.device, after, self.ordering)
        if status != WAGMA_OK:
            raise _error(status, "device")
        return 0

    def __dealloc__(self):
        if self.device == NULL or self.process != process_serial():
            return
        if self.offered != NULL:
            self.device.calls.free(self.device, self.offered)
        if self.ordering != NULL:
            self.device.calls.event_free(self.device, self.ordering)
        wagma_device_close(self.device)


@cython.final
@cython.no_gc
cdef class DeviceArray:
    """An array of the engine in a GPU's memory, which other libraries make theirs without a copy.

    ``torch.from_dlpack(array)`` and ``cupy.from_dlpack(array)`` take it with the dtype of the
    handle; `cupy.asarray` by `__cuda_array_interface__`, which has no bfloat16: its bits come as
    uint16. torch does not see that a result is read-only. What the consumer queues on its current
    stream begins after the work of the handle's last call. Use it in the thread that calls the
    handle.

    Attributes:
        shape: of the handle.
        dtype: name of the element type.
        gpu: number of the GPU.
    """
    cdef _Memory memory
    cdef _Views views
    cdef readonly tuple shape
    cdef readonly str dtype
    cdef readonly int gpu
    cdef object __weakref__

    def __init__(self):
        raise TypeError("device arrays are made by the collective")

    @property
    def nbytes(self):
        """Return the size in bytes."""
        return self.memory.nbytes

    @property
    def __cuda_array_interface__(self):
        return {
            "version": 3, "shape": self.shape, "typestr": self.views.storage.str, "strides": None,
            "data": (<uintptr_t>self.memory.address, bool(self.memory.readonly)),
            "stream": <uintptr_t>self.views.stream,
        }

    def __dlpack_device__(self):
        return DLPACK_CUDA, self.gpu

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        """Return the array as a capsule of DLPack.

        Args:
            stream: handle of the consumer's stream; None: the legacy default stream; -1: do not
                order its work.
            max_version: newest version of DLPack that the consumer knows; None: one before 1.0.
            dl_device: only `__dlpack_device__()`.
            copy: only False or None.

        Raises:
            BufferError: a copy is wanted; or the array is read-only, which a consumer that knows
                no DLPack 1.0 would not see.
        """
        if copy or (dl_device is not None and tuple(dl_device) != self.__dlpack_device__()):
            raise BufferError(
                f"copy={copy!r}, dl_device={dl_device!r}: an array of the engine is exported where "
                "it is, without a copy; copy it afterwards")
        versioned = max_version is not None and max_version[0] >= 1
        if self.memory.readonly and not versioned:
            raise BufferError(
                "the array is read-only, which only DLPack 1.0 can say: use a newer consumer, or "
                "its function for __cuda_array_interface__, as cupy.asarray(array)")
        cdef intptr_t consumer = arrays.LEGACY_STREAM if stream is None else stream
        if consumer == 0:
            raise ValueError("stream=0 is ambiguous: pass 1 (legacy default) or 2 (per thread)")
        if consumer != -1 and <void *>consumer != self.views.stream:
            self.views.device.order(self.views.stream, <void *>consumer)
        code, bits = arrays.dlpack_dtype(arrays.DTYPES[self.dtype])
        cdef void *exported = dlpack_export(
            <PyObject *>self, self.memory.address, self.gpu, code, bits, len(self.shape),
            versioned, self.memory.readonly)
        if exported == NULL:
            raise MemoryError
        cdef int64_t *shape = dlpack_shape(exported, versioned)
        for i, extent in enumerate(self.shape):
            shape[i] = extent
        return dlpack_capsule(exported, versioned)

    def __repr__(self):
        return f"DeviceArray(shape={self.shape}, dtype={self.dtype!r}, gpu={self.gpu})"


cdef DeviceArray _device_array(_Memory memory, _Views views):
    cdef DeviceArray self = DeviceArray.__new__(DeviceArray)
    self.memory = memory
    self.views = views
    self.shape = views.shape
    self.dtype = views.dtype.name
    self.gpu = views.device.gpu
    return self
