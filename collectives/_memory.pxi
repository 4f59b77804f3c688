# Part of _engine.pyx: the engine's memory as arrays, and its owners.

@cython.final
@cython.no_gc
cdef class _Engine:
    """The engine's handle; lives while arrays of its results do."""
    cdef wagma_handle *handle
    cdef Segment segment     # must outlive the handle; None: over a channel
    cdef Device device       # likewise, and outlives the segment; None: arrays in host memory
    cdef bint staged         # contribution buffers on the device are the handle's
    cdef void *own           # memory of the device, of one array
    cdef uint32_t process

    cdef inline object memory(self):
        """Return the owner of the rank's own array and of its contribution buffers."""
        return self if self.segment is None or self.staged else self.segment

    def __dealloc__(self):
        if self.handle != NULL and self.process == process_serial():
            wagma_free(self.handle)
            if self.own != NULL:
                self.device.device.calls.free(self.device.device, self.own)


@cython.final
@cython.no_gc
cdef class _Views:
    """State that the arrays of outcomes need.

    Outcomes do not refer to the handle itself: a program may store them in it, which would make a
    cycle.
    """
    cdef _Engine engine      # None after close()
    cdef tuple shape
    cdef object storage      # numpy dtype
    cdef object dtype        # arrays.Dtype
    cdef Device device       # None: the arrays are in host memory
    cdef void *stream        # the caller's stream, of the last call
    cdef object x            # keeps the memory of the last call's array, if that is a result
    cdef void *x_address
    cdef int64_t calls       # a change makes an outcome's arrays invalid

    cdef object array(self, const void *address):
        owner = self.engine
        if self.x is not None and address == self.x_address:
            owner = self.x
            if _moved(owner, self.x_address):
                raise HandleError(
                    "the array that was passed has been resized, and the result was in its memory: "
                    "fetch `results` before")
        return _array(_memory(owner, <void *>address, self, True), self)


@cython.final
@cython.no_gc
cdef class _Memory:
    """An array of the handle's size for the buffer protocol; keeps its owner alive."""
    cdef object owner
    cdef void *address
    cdef Py_ssize_t nbytes
    cdef bint readonly
    cdef _Views views        # of the handle with this contribution buffer, otherwise None
    cdef object __weakref__

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.address, self.nbytes, self.readonly, flags)

    def __dealloc__(self):
        global _handed_out_count
        if self.views is not None:
            _handed_out_count -= 1


cdef _Memory _memory(object owner, void *address, _Views views, bint readonly):
    cdef _Memory memory = _Memory.__new__(_Memory)
    cdef Py_ssize_t elements = 1
    for extent in views.shape:
        elements *= extent
    memory.owner = owner
    memory.address = address
    memory.nbytes = elements * <Py_ssize_t>views.storage.itemsize
    memory.readonly = readonly
    return memory


cdef object _array(_Memory memory, _Views views):
    if views.device is not None:
        return _device_array(memory, views)
    return np.ndarray(views.shape, views.storage, memory)


# ---- contribution buffers of next_contribution() -------------------------------------------------
_handed_out = weakref.WeakSet()     # of _Memory
cdef int _handed_out_count = 0      # number alive: calls look into the set only if it is not 0


cdef _Memory _hand_out(void *address, _Views views):
    global _handed_out_count
    cdef _Memory memory = _memory(views.engine.memory(), address, views, False)
    memory.views = views
    _handed_out_count += 1
    _handed_out.add(memory)
    return memory


cdef int _refuse_handed_out(uintptr_t address, _Views views) except -1:
    """Raise ValueError for a buffer that is another handle's or was published."""
    cdef _Memory memory
    cdef uintptr_t first
    for memory in tuple(_handed_out):
        first = <uintptr_t>memory.address
        if not first <= address < first + memory.nbytes:
            continue
        if memory.views is not views:
            raise ValueError(
                "x is a contribution buffer of another handle: pass what this handle's "
                "next_contribution() gave")
        if memory.readonly:
            raise ValueError(
                "x is a contribution buffer that an earlier call published: next_contribution() "
                "gives another one")
    return 0
