# Part of _engine.pyx: the outcome of a call.

cdef enum:
    INLINE_MEMBERS = 16  # larger groups are allocated separately


@cython.final
@cython.freelist(64)
cdef class Outcome:
    """Outcome of a version on this rank.

    Attributes:
        version: the version that the call executed.
        late: whether the version was pinned without this rank's contribution.
        merged: False: x is unchanged, because a newer result had been merged before, or because the
            weights sum to 0.
        skipped: versions that the counter jumped over.
        weight: divisor with average=True.
        waited: seconds spent waiting for others; `wagma.AllreduceSGD` sets it to the sum over all
            buckets that delayed the step.
        staleness: versions between the model from which this rank's contribution was computed and
            this version; 0, unless the caller sets it (`wagma.KAsync`).
        contributors: ranks whose contribution is in the result, ascending.
        versions: version of each contribution; -1 is the first one, given at creation.
        results: with late="skip" or "carry", the results of `version` and of the later versions
            that the call delivered, oldest first, None if the weights sum to 0. Read-only numpy
            arrays of the handle's shape (bfloat16 as uint16); on a GPU `DeviceArray`. x holds the
            newest; with quorum="all" the newest is a view of x (do not resize x while reading it).
            `weight`, `contributors` and `versions` belong to the newest result. With another
            `late`: ().
        result: after a call with the array of `next_contribution()`: the undivided result, a
            read-only array as in `results`, whose divisor is `weight`; None if merged is False.
            None after other calls, and with late="skip" and "carry", whose averages are in
            `results`.

    The handle's next call (or close) reuses the memory of these arrays: do not read them
    after that. Fetching one after that raises HandleError.
    """
    cdef readonly int64_t version
    cdef readonly int64_t skipped
    cdef readonly double weight
    cdef public double waited
    cdef public int64_t staleness
    cdef readonly bint late
    cdef readonly bint merged
    cdef int count
    cdef int32_t *ranks      # in inline_ranks, or allocated where the group is large
    cdef int64_t *of_version
    cdef int32_t inline_ranks[INLINE_MEMBERS]
    cdef int64_t inline_versions[INLINE_MEMBERS]
    cdef int results_count
    cdef const void *const *all_results
    cdef const void *undivided
    cdef PyObject *views     # a reference to _Views, free of cost where there are no arrays (NULL)
    cdef int64_t call

    def __init__(self):
        raise TypeError("outcomes are made by the collective")

    def __dealloc__(self):
        if self.of_version != self.inline_versions:
            free(self.of_version)
        Py_XDECREF(self.views)

    @property
    def contributors(self):
        return tuple([self.ranks[i] for i in range(self.count)])

    @property
    def versions(self):
        return tuple([self.of_version[i] for i in range(self.count)])

    @property
    def results(self):
        if self.results_count == 0:
            return ()
        self._check_views()
        return tuple([self._array(self.all_results[i]) for i in range(self.results_count)])

    @property
    def result(self):
        if self.undivided == NULL:
            return None
        self._check_views()
        return self._array(self.undivided)

    cdef object _array(self, const void *address):
        return None if address == NULL else (<_Views>self.views).array(address)

    cdef int _check_views(self) except -1:
        if (<_Views>self.views).calls != self.call:
            raise HandleError(
                f"the results of version {self.version} were not fetched in time: the handle has "
                "made another call or was closed, and their memory is used again; read `result` or "
                "`results` before, and copy what is needed for longer")
        return 0

    def __repr__(self):
        return (f"Outcome(version={self.version}, late={self.late}, merged={self.merged}, "
                f"skipped={self.skipped}, weight={self.weight:g}, waited={self.waited:.3g}, "
                f"contributors={self.contributors}, versions={self.versions})")


cdef Outcome _outcome(const wagma_outcome *given, _Views views):
    cdef Outcome self = Outcome.__new__(Outcome)
    cdef int n = given.contributors_count
    self.version = given.version
    self.skipped = given.skipped
    self.weight = given.weight
    self.waited = given.waited
    self.late = given.late
    self.merged = given.merged
    self.ranks = self.inline_ranks
    self.of_version = self.inline_versions
    if n > INLINE_MEMBERS:
        self.of_version = <int64_t *>malloc(n * (sizeof(int64_t) + sizeof(int32_t)))
        if self.of_version == NULL:
            raise MemoryError
        self.ranks = <int32_t *>(self.of_version + n)
    self.count = n
    memcpy(self.ranks, given.contributors, n * sizeof(int32_t))
    memcpy(self.of_version, given.versions, n * sizeof(int64_t))
    if given.results_count != 0 or given.result != NULL:
        self.results_count = given.results_count
        self.all_results = given.results
        self.undivided = given.result
        Py_INCREF(views)
        self.views = <PyObject *>views
        self.call = views.calls
    return self
