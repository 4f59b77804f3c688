# Part of _engine.pyx: the hooks that the engine calls from its waits.

cdef void _warn(void *context, const char *message) noexcept nogil:
    if ending_enter():
        _log_warning(context, message)
        ending_leave()


cdef int _interrupted(void *context) noexcept nogil:
    if not ending_enter():
        return 1
    cdef int stop = _asks_to_stop(context)
    ending_leave()
    return stop


cdef void _log_warning(void *context, const char *message) noexcept with gil:
    cdef _HandleState self = <_HandleState>context
    text = message.decode("utf-8", "replace")
    named = text.removeprefix(f"rank {self.rank} ")
    if named == text:
        _log.warning("%s: %s", self._who(), text)
    else:  # a long wait
        _log.warning("%s %s%s", self._who(), named, "" if self.hint is None else f". {self.hint}")


cdef int _asks_to_stop(void *context) noexcept with gil:
    cdef _HandleState self = <_HandleState>context
    try:
        PyErr_CheckSignals()
        if self.watch is not None:
            self.watch()
    except BaseException as error:  # KeyboardInterrupt, or raised by a signal handler or watch
        self.pending = error
        return 1
    return 0
