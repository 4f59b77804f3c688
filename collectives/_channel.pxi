# Part of _engine.pyx: the channel for messages between ranks on any nodes.

# The destructor of the capsule closes its transport only if the capsule has the first name.
cdef const char *OWNED = "wagma_transport"
cdef const char *TAKEN = "wagma_transport, taken"


@cython.final
cdef class Channel:
    """The messages between the ranks of one collective, which may be on any nodes.

    The first handle that is made over it takes it, also if that fails; a channel that none took is
    closed when nothing refers to it any more.

    Args:
        options: those of wagma_options in wagma.h, as ints and floats.
        capsule: the transport, as `transport.connect` made it.

    Raises:
        ValueError, TypeError: an option is wrong; the capsule is of something else, or was used.
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
        """Check that a handle of `rank` can be made."""
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
            PyCapsule_SetName(self.capsule, TAKEN)  # it is the parent's
