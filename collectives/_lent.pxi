# Part of _engine.pyx: a handle lent to C code.

@cython.final
cdef class Lent:
    """A handle that C code calls instead of Python: ``with handle.lend() as lent``.

    Attributes:
        address: the `wagma_handle` (wagma.h) while the handle is lent; 0 before and after.
    """
    cdef Handle handle
    cdef readonly size_t address

    def __init__(self):
        raise TypeError("use Handle.lend()")

    def __enter__(self):
        cdef Handle handle = self.handle
        handle._enter()
        if handle.input.next_address != NULL:
            handle.busy = IDLE
            raise HandleError(
                f"the handle of rank {handle.rank} has given out an array by next_contribution(), "
                "which has to be passed to a call before the handle is lent")
        handle.views.calls += 1  # C code's first call reuses the memory of earlier results
        handle.views.x = None
        self.address = <size_t>handle.handle
        return self

    def __exit__(self, kind, error, traceback):
        if self.address != 0:
            self.address = 0
            self.handle.busy = IDLE

    def error(self, int status):
        """Return the exception for the negative status of a call.

        Call it in the thread that made the call, before its next call.
        """
        return self.handle._failure(status)


cdef Lent _lent(Handle handle):
    cdef Lent self = Lent.__new__(Lent)
    self.handle = handle
    return self
