# Part of _engine.pyx: the request of iallreduce(), which keeps its array alive.

# Arrays of failed calls over messages, kept until the process ends.
_for_messages = []

@cython.final
cdef class _Posted:
    """The array of a pending request; its memory stays alive and in place."""
    cdef object keeper       # owner of the array's memory
    cdef object tensor       # the array, if it is a tensor: its memory can be replaced
    cdef Py_buffer view
    cdef void *address
    cdef object frozen       # the array, if it was made read-only

    def __dealloc__(self):
        PyBuffer_Release(&self.view)

    cdef int freeze(self, object x) except -1:
        """Make x read-only where that can be undone."""
        if not isinstance(x, np.ndarray) or not x.flags.writeable:
            return 0
        base = x.base
        if (base is None or isinstance(base, _Memory)
                or (isinstance(base, np.ndarray) and base.flags.writeable)):
            x.flags.writeable = False
            self.frozen = x
        return 0

    cdef int release(self) except -1:
        """Release the array."""
        frozen = self.frozen
        self.frozen = None
        self.keeper = self.tensor = None
        PyBuffer_Release(&self.view)
        if frozen is not None:
            try:
                frozen.flags.writeable = True
            except ValueError:  # its base has become read-only meanwhile
                pass
        return 0


@cython.final
cdef class Request:
    """A posted version that is not complete; `Handle.iallreduce` returns it.

    `test` and `wait` merge the result. A rank that calls neither delays no other rank, but gets no
    result. The call that completes the request returns its Outcome; afterwards `test` and `wait`
    raise HandleError. A request keeps its handle alive.

    Use it in one thread at a time, not necessarily the one that posted.

    Attributes:
        version: the version that was posted.
    """
    cdef Handle handle
    cdef readonly int64_t version
    cdef bint complete       # also after an error

    def __init__(self):
        raise TypeError("requests are made by iallreduce()")

    def __del__(self):
        cdef Handle handle = self.handle
        if (handle is None or self.complete or handle.busy != PENDING
                or handle.process != process_serial()):
            return
        handle.dropped = True
        if handle.transport == "shm":  # messages still use the array
            handle.posted.release()
        warnings.warn(f"the request of version {self.version} (rank {handle.rank}) was dropped "
                      "before it was complete: keep what iallreduce() returns, and wait() for it",
                      ResourceWarning, source=self)

    def test(self):
        """Make progress without waiting.

        Returns:
            The Outcome if the version is complete: the array holds its result. Otherwise None.

        Raises:
            PeerError, StallError: as in `Handle.allreduce`, even if the program calls `test` only.
            HandleError: the request was completed before, its handle has ended, or the posted
                tensor has got other memory (`resize_`, `set_`, ``.data =``): then it stays pending.
        """
        self._check()
        return self.handle._go_on(self, False, 0)

    def wait(self, timeout=None):
        """Wait until the version is complete.

        Args:
            timeout: seconds, 0 or more; None: no limit beside the handle's own `timeout`.

        Returns:
            The Outcome; the array holds the result.

        Raises:
            TimeoutError: the request is not complete yet; the message names the version and the
                missing ranks. The request stays pending, and parts of `x` may be overwritten
                already: leave `x` alone, and wait for the request again.
            PeerError, StallError: as in `Handle.allreduce`; the handle is broken.
            HandleError: as in `test`.
            TypeError, ValueError: `timeout` is wrong.
            KeyboardInterrupt, or the exception of another signal handler: the request counts as
                complete, but `x` may hold anything; the handle is broken.
        """
        cdef double seconds = -1 if timeout is None else _number("timeout", timeout)
        if timeout is not None and not seconds >= 0:
            raise ValueError(f"timeout={timeout!r} must be 0 or more seconds, or None")
        self._check()
        cdef Outcome outcome = self.handle._go_on(self, True, seconds)
        if outcome is None:
            raise TimeoutError(
                f"{wagma_last_error().decode('utf-8', 'replace')}; it is pending, wait() again")
        return outcome

    cdef int _check(self) except -1:
        cdef Handle handle = self.handle
        if self.complete:
            raise HandleError(
                f"the request of version {self.version} (rank {handle.rank}) is complete: the "
                "test() or wait() before this one returned its Outcome or raised its error")
        if handle.busy != PENDING or handle.process != process_serial():
            handle._enter()  # raises the reason
            handle.busy = IDLE
        return 0

    def __repr__(self):
        state = "complete" if self.complete else "pending"
        return f"Request(version={self.version}, {state})"


cdef Request _request(Handle handle):
    cdef Request self = Request.__new__(Request)
    self.handle = handle
    self.version = wagma_version(handle.handle)
    return self
