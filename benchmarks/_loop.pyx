# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""The parts of a measurement in which the interpreter would take part of the time."""
from libc.stdint cimport int64_t
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec


cdef inline int64_t _now() noexcept nogil:
    cdef timespec t
    clock_gettime(CLOCK_MONOTONIC, &t)
    return <int64_t>t.tv_sec * 1000000000 + t.tv_nsec


def now():
    """CLOCK_MONOTONIC, ns: that of `time.monotonic_ns`."""
    return _now()
