# Part of _loop.pyx: ranks that start at the same moment, without what is being measured.

cdef enum:
    LINE = 16              # words of 8 bytes: two cache lines, which the hardware fetches together
    TIME = 0               # a rank's words of a meeting: when it came, by the common clock
    PASSED = 1             # and the number of the meeting
    VOLLEY = 32            # round trips that are timed together
    BALL = 8               # word of the line that round_trip() plays with, after that of LEFT
    LOOK_NS = 50_000_000   # between looks at signals and at the other ranks
    SPINS = 128            # turns between two looks at the clock
    DOZE_AFTER_NS = 1_000_000  # a rank without a core of its own yields so long, then sleeps
    DOZE_NS = 50_000
    # Nearer moments are not slept for, and a sleeping rank is awake in time: the kernel wakes it too
    # late, and with cold caches.
    SLEEP_NS = 3_000_000
    AWAKE_NS = 1_000_000
    CROWDED_SLEEP_NS = 300_000
    CROWDED_AWAKE_NS = 100_000


def words_of(int size):
    """Bytes of the shared memory in which `size` ranks meet."""
    return 3 * LINE * sizeof(int64_t) * size


cdef class Meeting:
    """Where ranks meet, and agree on the moment at which they start together.

    Every rank says when it came; once all have, they start at the latest of these moments plus a
    margin, by a clock that they share. Nobody is let go by a message that reaches one rank before
    another. Ranks without a core of their own (`crowded`) yield or sleep instead of spinning, and
    start as soon as they see that all have come.

    Every rank calls the same methods in the same order. While they wait, signals are looked at
    (KeyboardInterrupt), and whether the others can still come. After an exception the ranks have
    lost step: what remains is `leave`. One thread at a time per object.

    Args:
        memory: writable buffer of `words_of(size)` bytes, zeros, the same memory for all ranks; or
            None: `agree(now)` says how late the last rank came.
        rank, size: 0 <= rank < size.
        crowded: ranks have no core each.
        margin_ns: from the last arrival to the start, unless they are crowded.
        correction_ns: the common clock minus this process's CLOCK_MONOTONIC.
        timeout: seconds for which ranks wait for one that does not come; None: for ever.
    """
    cdef Py_buffer memory
    cdef int64_t *words        # NULL: agree() is asked
    cdef readonly int rank
    cdef readonly int size
    cdef readonly bint crowded
    cdef public int64_t margin_ns
    cdef public int64_t correction_ns
    cdef readonly int64_t missed   # starts that had gone by when this rank knew of them
    cdef int64_t timeout_ns    # negative: for ever
    cdef int64_t passed        # meetings
    cdef int64_t looked        # when signals were looked at, by CLOCK_MONOTONIC

    def __init__(self, memory, int rank, int size, *, bint crowded, int64_t margin_ns=3000,
                 int64_t correction_ns=0, timeout=None):
        if self.size != 0:
            raise RuntimeError("the meeting was initialised before")
        if not 0 <= rank < size:
            raise ValueError(f"rank={rank}: must be one of {size}")
        if memory is not None:
            PyObject_GetBuffer(memory, &self.memory, PyBUF_WRITABLE | PyBUF_C_CONTIGUOUS)
            self.words = <int64_t *>self.memory.buf
            if self.memory.len < <Py_ssize_t>words_of(size):
                raise ValueError(f"memory has {self.memory.len} bytes, {size} ranks need "
                                 f"{words_of(size)}")
        self.rank = rank
        self.size = size
        self.crowded = crowded
        self.margin_ns = margin_ns
        self.correction_ns = correction_ns
        self.timeout_ns = -1 if timeout is None else <int64_t>(timeout * 1e9)
        self.looked = loop_now()

    def __dealloc__(self):
        PyBuffer_Release(&self.memory)

    # ---- what programs call --------------------------------------------------------------------
    def now(self):
        """The common clock, ns."""
        return loop_now() + self.correction_ns

    def meet(self):
        """Returns when all ranks have come.

        Raises:
            PeerLeftError: a rank will never come.
            TimeoutError: a rank has not come for `timeout` seconds.
        """
        with nogil:
            self.come()

    def wait(self, int64_t arrival_ns=0):
        """Meets, and returns at the start plus `arrival_ns`.

        Returns:
            The start, ns of the common clock: the same on all ranks.

        Raises:
            As `meet`.
        """
        cdef int64_t start
        with nogil:
            start = self.start(arrival_ns)
        return start

    def round_trip(self, int volleys=50):
        """How long a line of the caches takes from rank 0's core to another's and back.

        All times of small arrays are multiples of it. It depends on which caches the cores share;
        a virtual machine may move its cores while it runs. Every rank has to call it.

        Args:
            volleys: of VOLLEY round trips, with each rank; the fastest counts. At least 1.

        Returns:
            ns, with rank 0; on rank 0 that of the rank that is farthest. None: ranks are crowded,
            share no memory, or there is one only.

        Raises:
            As `meet`.
        """
        if volleys < 1:
            raise ValueError(f"volleys={volleys}: at least 1 is needed")
        if self.crowded or self.words == NULL or self.size == 1:
            return None
        cdef int other
        cdef int64_t farthest = 0, took
        with nogil:
            for other in range(1, self.size):
                self.come()
                if self.rank == 0 or self.rank == other:
                    took = self.play(other, volleys)
                    farthest = took if took > farthest else farthest
        return farthest / VOLLEY

    def leave(self):
        """Tells the others that this rank will not come again. Harmless when repeated."""
        if self.words != NULL:
            loop_publish(self.left_word(self.rank), 1)

    def agree(self, int64_t now):
        """When the last rank came; asked where ranks share no memory."""
        raise NotImplementedError

    def check(self, int rank):
        """Called about every 50 ms of waiting for `rank`: raises if that is in vain."""

    # ---- what the loop calls -------------------------------------------------------------------
    cdef int64_t *left_word(self, int rank) noexcept nogil:
        return self.words + (2 * self.size + rank) * LINE

    cdef int64_t come(self) except? -1 nogil:
        """Meets; when the last rank came."""
        cdef int64_t now = loop_now() + self.correction_ns
        if self.words == NULL:
            with gil:
                return self.agree(now)
        self.passed += 1
        # Two sets of words: a rank may come to the next meeting before another has read those of
        # this one, but not to the one after it.
        cdef int64_t *set_ = self.words + self.passed % 2 * self.size * LINE
        cdef int64_t *mine = set_ + self.rank * LINE
        cdef int64_t *theirs
        cdef int64_t latest = now
        cdef int other
        loop_store(mine + TIME, now)
        loop_publish(mine + PASSED, self.passed)  # release: who reads it below sees TIME
        for other in range(self.size):
            theirs = set_ + other * LINE
            if loop_read(theirs + PASSED) != self.passed:  # acquire: see above
                self.wait_for(other, theirs + PASSED, self.passed)
            now = loop_load(theirs + TIME)
            if now > latest:
                latest = now
        return latest

    cdef int wait_for(self, int other, int64_t *word, int64_t value) except -1 nogil:
        cdef int64_t began = loop_now(), now
        cdef int turn = 0
        # acquire: pairs with the publications in come() and round_trip()
        while loop_read(word) != value:
            if not self.crowded:
                loop_pause()
                turn += 1
                if turn % SPINS != 0:
                    continue
            now = loop_now()
            if now - self.looked > LOOK_NS:
                self.look(other, word, value, now - began)
            if self.crowded:
                if now - began < DOZE_AFTER_NS:
                    sched_yield()
                else:
                    loop_sleep_until(now + DOZE_NS)
        return 0

    cdef int64_t play(self, int other, int volleys) except -1 nogil:
        """Ranks 0 and `other` wait for each other in turns; ns of the fastest volley."""
        cdef int64_t *ball = self.left_word(other) + BALL
        cdef int64_t value = self.passed << 32  # of no earlier game
        cdef int64_t began, took, fastest = INT64_MAX
        cdef int turn
        for _ in range(volleys):
            began = loop_now()
            for turn in range(VOLLEY):
                value += 2
                if self.rank == 0:
                    loop_publish(ball, value - 1)
                    self.wait_for(other, ball, value)
                else:
                    self.wait_for(0, ball, value - 1)
                    loop_publish(ball, value)
            took = loop_now() - began
            fastest = took if took < fastest else fastest
        return fastest

    cdef int look(self, int other, int64_t *word, int64_t value, int64_t waited) except -1 nogil:
        """Lets signal handlers run; `other`: the rank whose `word` is waited for, -1: none."""
        self.looked = loop_now()
        with gil:
            PyErr_CheckSignals()
            if other < 0:
                return 0
            # A word of its own, stored after the last meeting to which the rank came: that may
            # have been this one.
            if loop_read(self.left_word(other)) != 0 and loop_read(word) != value:
                raise PeerLeftError(f"rank {other} has left, rank {self.rank} waits for it")
            self.check(other)
            if 0 <= self.timeout_ns < waited:
                raise TimeoutError(f"rank {other} has not come for {waited / 1e9:.1f} s (timeout="
                                   f"{self.timeout_ns / 1e9:g}), rank {self.rank} waits for it")
        return 0

    cdef int64_t start(self, int64_t arrival) except? -1 nogil:
        """Meets, waits until the start + `arrival`; the start."""
        cdef int64_t start = self.come()
        if not self.crowded:
            start += self.margin_ns
        cdef int64_t moment = start + arrival - self.correction_ns  # by CLOCK_MONOTONIC
        cdef int64_t now = loop_now(), wake
        cdef int64_t sleep = CROWDED_SLEEP_NS if self.crowded else SLEEP_NS
        cdef int64_t awake = CROWDED_AWAKE_NS if self.crowded else AWAKE_NS
        if now > moment and not self.crowded:
            self.missed += 1
        while now < moment:
            if moment - now > sleep:
                wake = moment - awake
                loop_sleep_until(wake if wake < now + LOOK_NS else now + LOOK_NS)
                self.look(-1, NULL, 0, 0)
            elif self.crowded:
                sched_yield()
            else:
                loop_pause()
            now = loop_now()
        return start
