# Part of _engine.pyx: the channel that carries messages between ranks on any nodes.

# The destructor of the capsule closes its transport only if the capsule has the first name.
cdef const char *OWNED = "wagma_transport"
cdef const char *TAKEN = "wagma_transport, taken"


@cython.final
cdef class Channel:
    """Messages between the ranks of one collective, on any nodes.

    The first handle created over a channel takes it, even if that creation fails. A channel that no
    handle took is closed when the last reference to it goes.

    Args:
        options: those of wagma_options in wagma.h, as ints and floats.
        capsule: the transport, as `transport.connect` made it.

    Raises:
        ValueError, TypeError: an option is wrong; the capsule is no transport, or was used before.
    """
    cdef object capsule      # owns the transport until a handle does
    cdef wagma_transport *transport
    cdef wagma_options used
    cdef uint32_t process

    def __init__(self, options, capsule):
        if self.capsule is not None:
            raise HandleError("the channel was initialised before")
        self.process = process_serial()
        _read_options(options, &self.used)
        self.transport = <wagma_transport *>PyCapsule_GetPointer(capsule, OWNED)
        self.capsule = capsule

    cdef int check(self, int rank) except -1:
        """Check that a handle of `rank` can be created."""
        if self.transport == NULL:
            raise HandleError("the channel was taken by a handle before: make another one")
        if rank != self.transport.rank:
            raise ValueError(f"rank={rank}: the channel is that of rank {self.transport.rank}")
        return 0

    cdef wagma_transport *take(self) except NULL:
        """Return the transport, which the caller owns from now on."""
        cdef wagma_transport *transport = self.transport
        PyCapsule_SetName(self.capsule, TAKEN)
        self.transport = NULL
        return transport

    def __dealloc__(self):
        if self.transport != NULL and self.process != process_serial():
            PyCapsule_SetName(self.capsule, TAKEN)  # the capsule is the parent's
