# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Bindings of the engine (wagma.h): Segment, Channel, Handle, Outcome and the grouping.

No logic lives here: arrays become addresses, statuses become exceptions, and calls that may wait or
work for long release the GIL.
"""
import atexit
import errno
import logging
import math
import os
import threading
import time
import warnings
import weakref

import numpy as np

from . import arrays, nvrtc
from .errors import (
    DeviceError, HandleError, MismatchError, PeerError, QuorumMismatchError, SegmentError, StallError,
    TransportError,
)
from .stats import RankStats, Stats

cimport cython
from cpython.buffer cimport (
    PyBUF_C_CONTIGUOUS, PyBUF_FORMAT, PyBUF_WRITABLE, PyBuffer_FillInfo, PyBuffer_Release,
    PyObject_CheckBuffer,
)
from cpython.exc cimport PyErr_CheckSignals, PyErr_Clear
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid, PyCapsule_SetName
from cpython.ref cimport Py_INCREF, Py_XDECREF, PyObject
from libc.stdint cimport (
    int32_t, int64_t, intptr_t, uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t,
)
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from _wagma cimport *

cdef extern from "Python.h":
    int try_buffer "PyObject_GetBuffer"(object, Py_buffer *, int) noexcept

cdef extern from "_ndarray.h":
    int NDARRAY_C_CONTIGUOUS
    int NDARRAY_WRITEABLE
    ctypedef struct ndarray_dtype:
        char byteorder
        int number
    ctypedef struct ndarray:
        void *data
        int ndim
        Py_ssize_t *shape
        ndarray_dtype *dtype
        int flags

cdef extern from "_dlpack.h":
    int DLPACK_MAJOR
    int DLPACK_CPU
    int DLPACK_CUDA
    ctypedef struct dlpack_tensor:
        void *data
        int32_t device_type
        int32_t device_id
        int32_t ndim
        uint8_t code
        uint8_t bits
        uint16_t lanes
        int64_t *shape
        int64_t *strides  # NULL: C-contiguous
        uint64_t byte_offset
    ctypedef struct dlpack_exchange:
        uint32_t major
        dlpack_exchange *previous
        int (*tensor_from_object)(void *, dlpack_tensor *) noexcept
        int (*current_stream)(int, int32_t, void **) noexcept
    void *dlpack_export(PyObject *owner, void *data, int device, int code, int bits, int ndim,
                        int versioned, int read_only) noexcept
    int64_t *dlpack_shape(void *exported, int versioned) noexcept
    object dlpack_capsule(void *exported, int versioned)

cdef extern from "_ending.h" nogil:
    bint ending_enter()
    void ending_leave()
    void ending_begin()
    bint ending_has_begun()
    void ending_forked()

cdef extern from "base/process.h" nogil:
    uint32_t process_serial()

cdef extern from "protocol/starter.h" nogil:
    int starter(uint64_t seed, uint64_t t, uint32_t lowest, int found, int rank)

cdef extern from "kernels/reduce.h" nogil:
    ctypedef struct reduce_kernels:
        const char *name
    const reduce_kernels *reduce_best()

cdef extern from "base/pages.h" nogil:
    bint pages_can_join()

MAX_RANKS = WAGMA_MAX_RANKS
MAX_NEIGHBORS = WAGMA_MAX_NEIGHBORS
ABI_VERSION = WAGMA_ABI_VERSION
TRANSPORT_ABI = _TRANSPORT_ABI
_log = logging.getLogger("wagma")

if wagma_abi_version() != WAGMA_ABI_VERSION:
    raise ImportError(
        f"wagma.collectives was built for ABI {WAGMA_ABI_VERSION} of the engine and runs with ABI "
        f"{wagma_abi_version()}: build it again, in the root of the sources: "
        "python -m pip install --force-reinstall .")


def simd_level():
    """Return the name of the kernels that this process uses: "scalar", "avx2" or "avx512"."""
    return reduce_best().name.decode()


def huge_pages():
    """Return whether this system puts shared memory into huge pages on request."""
    return pages_can_join()


# ---- fork: a handle belongs to the process that created it --------------------------------------
# A forked child must not mark the parent's rank failed when it exits and drops its copies of the
# parent's handles. Every object that refers to the engine's memory therefore remembers its process.
process_serial()  # counts forks from now on
os.register_at_fork(after_in_child=lambda: ending_forked())

# ---- exit: a rank that leaves without close() counts as failed ----------------------------------
_open = weakref.WeakSet()


@atexit.register
def _fail_open_handles():
    with nogil:  # waits of other threads no longer request the GIL
        ending_begin()
    for handle in list(_open):
        handle.fail()


cdef int _leave_ending_program() except -1:
    """Raise SystemExit in a daemon thread of a program that is ending, instead of an error.

    SystemExit ends the thread without a message, and exit handlers of the program can join it.
    Threads that Python has not started get the error: SystemExit may end the process there.
    """
    if ending_has_begun():
        thread = threading.current_thread()
        if thread.daemon and not isinstance(thread, threading._DummyThread):
            raise SystemExit
    return 0


# ---- errors --------------------------------------------------------------------------------------
_BY_SYSTEM = {"shm": SegmentError, "mpi": TransportError, "device": DeviceError}


cdef object _error(int status, str transport="shm"):
    """Return the exception for a status; call it in the failing thread, before its next call."""
    text = wagma_last_error().decode("utf-8", "replace")
    if status == WAGMA_EINVAL:
        return ValueError(text)
    if status == WAGMA_ETYPE:
        return TypeError(text)
    if status == WAGMA_ENOMEM:
        return MemoryError(text)
    if status == WAGMA_ENOSPC:
        return SegmentError(errno.ENOSPC, text)
    if status == WAGMA_ESTALL:
        return StallError(text)
    if status == WAGMA_EPEER:
        return PeerError(text)
    if status == WAGMA_EMISMATCH:
        return MismatchError(text)
    if status == WAGMA_EQUORUM:
        return QuorumMismatchError(text)
    if status == WAGMA_ECLOSED or status == WAGMA_EINTERRUPTED:  # the interpreter is ending
        return HandleError(text)
    return _BY_SYSTEM[transport](text)  # WAGMA_ESYS


cdef double _number(str name, object value) except? -1:
    """Return the value of an argument as a number, or raise a TypeError that names the argument."""
    try:
        return value
    except TypeError:
        raise TypeError(f"{name}={value!r}: must be a number") from None


# ---- grouping ------------------------------------------------------------------------------------
GROUPINGS = {"dynamic": WAGMA_GROUPING_DYNAMIC, "fixed": WAGMA_GROUPING_FIXED,
             "pairs": WAGMA_GROUPING_PAIRS}


def group_of(int rank, int size, int group_size, int64_t version, *, str grouping="dynamic",
             uint64_t seed=0):
    """Return the members of `rank`'s group at `version`, ascending.

    Args:
        grouping: "dynamic", "fixed" or "pairs", see `Options`.
        seed: seed of the pairs.

    Raises:
        ValueError: an argument is out of its range.
    """
    cdef int32_t members[WAGMA_MAX_RANKS]
    if grouping not in GROUPINGS:
        raise ValueError(f"grouping={grouping!r}: must be one of {', '.join(map(repr, GROUPINGS))}")
    cdef int n = wagma_group_of(rank, size, group_size, GROUPINGS[grouping], seed, version, members)
    if n < 0:
        raise _error(n)
    return tuple([members[i] for i in range(n)])


def starter_of(members, int64_t version, *, uint64_t seed=0):
    """Return the member that starts `version` with quorum "majority".

    Args:
        members: the ranks of the group, ascending, of which none has departed.
        version: version of the collective, at least 0.
        seed: seed of the draws, see `Options`.
    """
    cdef int rank, found = -1
    for rank in members:
        found = starter(seed, <uint64_t>version + 1, members[0], found, rank)
    return found


GRAPHS = {"ring": WAGMA_GRAPH_RING, "exponential": WAGMA_GRAPH_EXPONENTIAL}


def neighbors_of(int rank, int size, str graph, int neighbors, int64_t version):
    """Return the ranks that send to `rank` at `version`, ascending.

    Args:
        graph: "ring" or "exponential", see `NeighborExchange`.
        neighbors: number of ranks that each rank of an exponential graph sends to; 1 for a ring.

    Raises:
        ValueError: an argument is out of its range.
    """
    cdef int32_t found[WAGMA_MAX_NEIGHBORS]
    if graph not in GRAPHS:
        raise ValueError(f"graph={graph!r}: must be one of {', '.join(map(repr, GRAPHS))}")
    cdef int n = wagma_neighbors_of(rank, size, GRAPHS[graph], neighbors, version, found)
    if n < 0:
        raise _error(n)
    return tuple([found[i] for i in range(n)])


# ---- options -------------------------------------------------------------------------------------
LATE = {"stale": WAGMA_LATE_STALE, "skip": WAGMA_LATE_SKIP, "carry": WAGMA_LATE_CARRY}
MISSED = {"once": WAGMA_MISSED_ONCE, "fast-forward": WAGMA_MISSED_FAST_FORWARD}
PRIVATE_WAYS = {WAGMA_PRIVATE_NONE: None, WAGMA_PRIVATE_CHUNKS: "chunks", WAGMA_PRIVATE_READ: "read"}
ACTIVATIONS = {"group": WAGMA_ACTIVATION_GROUP, "world": WAGMA_ACTIVATION_WORLD}
QUORUM_MAJORITY = WAGMA_QUORUM_MAJORITY
PROGRESS = {"sleep": WAGMA_PROGRESS_SLEEP, "yield": WAGMA_PROGRESS_YIELD,
            "spin": WAGMA_PROGRESS_SPIN, "main": WAGMA_PROGRESS_MAIN}


cdef int _read_options(options, wagma_options *o) except -1:
    """Write `options`, keyed by the struct's field names, over the engine's defaults; check."""
    wagma_options_init(o)
    values: dict = o[0]
    for key, value in options.items():
        if key == "struct_size" or key not in values:
            raise TypeError(f"the engine has no option {key!r}")
        values[key] = value
        try:
            o[0] = values
        except OverflowError:
            raise ValueError(f"{key}={value} is out of range") from None
    cdef int status = wagma_options_check(o)
    if status != WAGMA_OK:
        raise _error(status)
    return 0


def check_options(options):
    """Return the engine's options with defaults filled in, checked as at creation.

    Raises:
        ValueError, TypeError: an option is wrong.
    """
    cdef wagma_options o
    _read_options(options, &o)
    checked: dict = o
    del checked["struct_size"]
    return checked


def segment_memory(options):
    """Return the bytes of shared memory that the arrays of one rank take.

    Returns:
        Bytes at creation, and the maximum without shm_limit. Some kilobytes of words come on top.

    Raises:
        ValueError, TypeError: an option is wrong.
    """
    cdef wagma_options o
    cdef uint64_t first = 0, most = 0
    _read_options(options, &o)
    cdef int status = wagma_segment_memory(&o, &first, &most)
    if status:
        raise _error(status)
    return first, most


# ---- segment -------------------------------------------------------------------------------------
@cython.final
@cython.no_gc_clear
cdef class Segment:
    """Shared memory of the ranks of one collective.

    `Segment.create(options)` creates a segment for ranks that are threads of this process or forked
    from it. `Segment.create(options, name)` ("/x") creates one that other processes open by name.
    The options are those of wagma_options in wagma.h, as ints and floats. The segment is unmapped
    when the last reference to it goes. Thread-safe.
    """
    cdef wagma_segment *segment
    cdef wagma_options used
    cdef uint32_t process
    cdef list devices        # of the ranks of this process: freed after the segment

    def __cinit__(self):
        self.devices = []

    def __init__(self):
        raise TypeError("use Segment.create() or Segment.open()")

    @staticmethod
    def create(options, name=None):
        """Create a segment.

        Raises:
            ValueError, TypeError: an option is wrong.
            SegmentError: the shared memory is not available.
        """
        cdef Segment self = Segment.__new__(Segment)
        cdef bytes path = None if name is None else name.encode()
        self.process = process_serial()
        _read_options(options, &self.used)
        cdef const char *c_name = NULL
        cdef int status
        if path is not None:
            c_name = path
        with nogil:
            status = wagma_segment_create(&self.used, c_name, &self.segment)
        if status != WAGMA_OK:
            raise _error(status)
        return self

    @staticmethod
    def open(options, name):
        """Map the segment of that name or address, which another process created.

        Raises:
            MismatchError: the segment was created with other options.
            SegmentError: there is no such segment, or it cannot be mapped.
        """
        cdef Segment self = Segment.__new__(Segment)
        cdef bytes path = name.encode()
        self.process = process_serial()
        _read_options(options, &self.used)
        cdef const char *c_name = path
        cdef int status
        with nogil:
            status = wagma_segment_open(&self.used, c_name, &self.segment)
        if status != WAGMA_OK:
            raise _error(status)
        return self

    def address(self):
        """Return what another process of this user opens: the name, or the address if unnamed.

        Raises:
            SegmentError: the address cannot be determined.
        """
        cdef char text[256]
        cdef int status = wagma_segment_address(self.segment, text, sizeof(text))
        if status != WAGMA_OK:
            raise _error(status)
        return text.decode()

    def unlink(self):
        """Remove the name; the memory lives on. Repeated calls do nothing."""
        cdef int status = wagma_segment_unlink(self.segment)
        if status != WAGMA_OK:
            raise _error(status)

    def fail(self, int rank):
        """Announce that `rank` will not join: ranks that wait for it get PeerError."""
        cdef int status = wagma_segment_fail(self.segment, rank)
        if status != WAGMA_OK:
            raise _error(status)

    def __dealloc__(self):
        # In a forked child the mapping may still hold ranks that were created there, and the name
        # is the parent's: the child's exit cleans up.
        if self.segment != NULL and self.process == process_serial():
            wagma_segment_close(self.segment)


include "_channel.pxi"
include "_memory.pxi"
include "_device.pxi"
include "_outcome.pxi"
include "_input.pxi"
include "_hooks.pxi"
include "_handle_state.pxi"
include "_handle.pxi"
include "_request.pxi"
include "_lent.pxi"
