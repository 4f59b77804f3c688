# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""The parts of a measurement in which the interpreter would take part of the time.

`Meeting` lets ranks start together; `run` is a timed loop around a `Call` of the engine or of MPI.
"""
import numpy as np

from cpython.buffer cimport (
    PyBUF_C_CONTIGUOUS, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer,
)
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uintptr_t
from libc.string cimport memcpy

from _wagma cimport WAGMA_OK, wagma_handle, wagma_outcome

cdef extern from "sched.h" nogil:
    int sched_yield()

cdef extern from "_loop.h" nogil:
    int64_t loop_now()
    void loop_sleep_until(int64_t ns)
    void loop_pause()
    void loop_store(int64_t *word, int64_t value)
    int64_t loop_load(const int64_t *word)
    void loop_publish(int64_t *word, int64_t value)
    int64_t loop_read(const int64_t *word)

    ctypedef struct loop_mpi:
        void *function
        const void *sendbuf
        void *recvbuf
        int count
        int handle_bytes
        int64_t datatype
        int64_t op
        int64_t comm

    int loop_mpi_call(const loop_mpi *call)


class PeerLeftError(RuntimeError):
    """A rank that others wait for has left or is dead."""


def now():
    """CLOCK_MONOTONIC, ns: that of `time.monotonic_ns`."""
    return loop_now()


include "_meeting.pxi"

# ---- calls ---------------------------------------------------------------------------------------
ctypedef int (*allreduce_function)(wagma_handle *, void *, double, wagma_outcome *) noexcept nogil
ctypedef int (*contribution_function)(wagma_handle *, void **) noexcept nogil


cdef class Call:
    """What `run` repeats; `wagma_call` and `mpi_call` make them. One thread at a time."""
    cdef object handle               # wagma's Handle, None for MPI
    cdef allreduce_function allreduce
    cdef contribution_function next_contribution
    cdef double weight
    cdef loop_mpi mpi
    cdef object error                # status of MPI -> exception

    def __init__(self):
        raise TypeError("use wagma_call() or mpi_call()")


def wagma_call(handle, *, double weight=1.0, size_t allreduce, size_t next_contribution):
    """A call of `handle.allreduce`, without the binding.

    Args:
        handle: `wagma.collectives.Handle`. It counts as in use as long as a loop runs.
        weight: of each contribution.
        allreduce, next_contribution: addresses of the engine's functions, see `native.wagma_call`.
    """
    cdef Call self = Call.__new__(Call)
    self.handle = handle
    self.weight = weight
    self.allreduce = <allreduce_function>allreduce
    self.next_contribution = <contribution_function>next_contribution
    return self


def mpi_call(*, size_t function, size_t sendbuf, size_t recvbuf, int count, int64_t datatype,
             int64_t op, int64_t comm, int handle_bytes, error):
    """A call of MPI_Allreduce at the address `function`; see `native.mpi_call`.

    Args:
        sendbuf, recvbuf: addresses; sendbuf may be that of MPI.IN_PLACE.
        datatype, op, comm: MPI's handles, which have `handle_bytes` bytes each.
        error: makes the exception for a status that is not 0.
    """
    cdef Call self = Call.__new__(Call)
    self.mpi.function = <void *>function
    self.mpi.sendbuf = <const void *>sendbuf
    self.mpi.recvbuf = <void *>recvbuf
    self.mpi.count = count
    self.mpi.datatype = datatype
    self.mpi.op = op
    self.mpi.comm = comm
    self.mpi.handle_bytes = handle_bytes
    self.error = error
    return self


# ---- outcomes ------------------------------------------------------------------------------------
cdef struct Record:
    int64_t version
    double weight
    int32_t late
    int32_t merged
    int32_t results     # versions that the call delivered; 0 with late="stale"
    int32_t n


def outcome_dtype(int size):
    """What `run` notes of each outcome of wagma, among `size` ranks.

    Fields: those of `Outcome`: version, weight, late, merged; results: their number; n, and in
    contributors[:n] and versions[:n] whose contributions, of which versions, are in the result.
    """
    fields = [("version", "i8"), ("weight", "f8"), ("late", "i4"), ("merged", "i4"),
              ("results", "i4"), ("n", "i4"), ("versions", "i8", (size,)),
              ("contributors", "i4", (size,))]
    return np.dtype(fields, align=True)


cdef void _note(uint8_t *to, const wagma_outcome *given, int size) noexcept nogil:
    cdef Record *record = <Record *>to
    cdef int n = given.contributors_count
    record.version = given.version
    record.weight = given.weight
    record.late = given.late
    record.merged = given.merged
    record.results = given.results_count
    record.n = n
    to += sizeof(Record)
    memcpy(to, given.versions, n * sizeof(int64_t))
    memcpy(to + size * sizeof(int64_t), given.contributors, n * sizeof(int32_t))


# ---- the loop ------------------------------------------------------------------------------------
def run(Meeting start, Call call not None, size_t x_address, const uint8_t[:, ::1] inputs,
        const int64_t[::1] arrivals, int64_t[::1] began, int64_t[::1] ended, results=None,
        outcomes=None):
    """Repeats a call, once for each element of `arrivals`.

    Iteration i copies `inputs[i % len(inputs)]` to x, waits for the common start plus
    `arrivals[i]`, calls, and notes when, and what came out.

    Args:
        start: where the ranks meet before each call; None: they do not.
        x_address: of the memory that is filled before each call; 0: wagma's next contribution
            (out of place).
        inputs: uint8[rows, bytes]: what x is before a call.
        arrivals: int64[iterations], ns after the start.
        began, ended: int64[iterations]: time before and after the call, ns of the common clock.
        results: uint8[iterations, bytes]: what it gave: x, MPI's receive buffer or, out of place,
            the undivided result (nothing is copied where nothing was merged). None: not noted.
        outcomes: array of `outcome_dtype(size)`, [iterations]. None: not noted; only wagma's calls
            have any.

    Raises:
        ValueError: sizes do not match.
        What the call, a signal handler or the meeting raises; what was noted before stays.
    """
    cdef Py_ssize_t iterations = arrivals.shape[0], rows = inputs.shape[0], nbytes = inputs.shape[1]
    if began.shape[0] != iterations or ended.shape[0] != iterations:
        raise ValueError(f"began has {began.shape[0]} elements and ended {ended.shape[0]}, there "
                         f"are {iterations} arrivals")
    if rows == 0:
        raise ValueError("inputs has no rows")
    if x_address == 0 and call.handle is None:
        raise ValueError("x_address=0: MPI has no buffer to give")
    cdef uint8_t *copies = _rows(results, "results", iterations, nbytes)
    cdef int size = 0
    cdef Py_ssize_t record_bytes = 0
    cdef uint8_t *records = NULL
    if outcomes is not None:
        if call.handle is None:
            raise ValueError("outcomes: a call of MPI has none")
        size = call.handle.size
        dtype = outcome_dtype(size)
        if outcomes.dtype != dtype:
            raise ValueError(f"outcomes: must be of outcome_dtype({size}), is {outcomes.dtype}")
        record_bytes = dtype.itemsize
        records = _rows(outcomes.view(np.uint8).reshape(-1, record_bytes), "outcomes", iterations,
                        record_bytes)
    if call.handle is None:
        _loop(start, call, NULL, <uint8_t *>x_address, inputs, arrivals, began, ended, copies,
              records, record_bytes, size, None)
        return
    cdef size_t address
    with call.handle.lend() as lent:
        address = lent.address
        _loop(start, call, <wagma_handle *>address, <uint8_t *>x_address, inputs, arrivals, began,
              ended, copies, records, record_bytes, size, lent)


cdef uint8_t *_rows(object array, str name, Py_ssize_t rows, Py_ssize_t nbytes) except? NULL:
    """The memory of a uint8 array of so many rows; NULL: None was given."""
    cdef uint8_t[:, ::1] view
    if array is None:
        return NULL
    view = array
    if view.shape[0] != rows or view.shape[1] != nbytes:
        raise ValueError(f"{name}: must have {rows} rows of {nbytes} bytes, has "
                         f"{view.shape[0]} of {view.shape[1]}")
    return &view[0, 0] if rows > 0 and nbytes > 0 else NULL


cdef int _loop(Meeting start, Call call, wagma_handle *handle, uint8_t *x,
               const uint8_t[:, ::1] inputs, const int64_t[::1] arrivals, int64_t[::1] began,
               int64_t[::1] ended, uint8_t *copies, uint8_t *records, Py_ssize_t record_bytes,
               int size, object lent) except -1:
    cdef Py_ssize_t i, rows = inputs.shape[0], nbytes = inputs.shape[1]
    cdef bint out_of_place = x == NULL, meets = start is not None
    cdef int64_t correction = start.correction_ns if meets else 0
    cdef int64_t looked = loop_now(), t
    cdef const void *result
    cdef void *given_out
    cdef wagma_outcome given
    cdef int status = 0
    with nogil:
        for i in range(arrivals.shape[0]):
            if out_of_place:
                status = call.next_contribution(handle, &given_out)
                if status != WAGMA_OK:
                    break
                x = <uint8_t *>given_out
            if nbytes > 0:
                memcpy(x, &inputs[i % rows, 0], nbytes)
            if meets:
                start.start(arrivals[i])
            began[i] = loop_now() + correction
            if handle != NULL:
                status = call.allreduce(handle, x, call.weight, &given)
            else:
                status = loop_mpi_call(&call.mpi)
            t = loop_now()
            ended[i] = t + correction
            if status != 0:
                break
            if copies != NULL:
                if handle == NULL:
                    result = call.mpi.recvbuf
                elif out_of_place:
                    result = given.result
                else:
                    result = x
                if result != NULL:
                    memcpy(copies + i * nbytes, result, nbytes)
            if records != NULL:
                _note(records + i * record_bytes, &given, size)
            if t - looked > LOOK_NS:
                looked = t
                with gil:
                    PyErr_CheckSignals()
    if status != 0:
        raise call.error(status) if lent is None else lent.error(status)
    return 0
