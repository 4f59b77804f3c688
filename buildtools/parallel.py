"""Compiles the sources of an extension at the same time, which setuptools does one by one."""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor, wait
from threading import Event
from typing import Any

from setuptools.errors import OptionError


def jobs() -> int:
    """Sources at a time: MAX_JOBS, or else as many as this process has cores.

    Raises:
        OptionError: MAX_JOBS is no positive number; setup.py prints it as its last line.
    """
    asked = os.environ.get("MAX_JOBS", "")
    if not asked:
        return len(os.sched_getaffinity(0))
    if not asked.isdecimal() or int(asked) < 1:
        raise OptionError(f"MAX_JOBS={asked!r}: it is a number of compilers, 1 or more")
    return int(asked)


def compile_with(compiler: Any, most: int) -> None:
    """Makes `compiler`, one of setuptools', compile up to `most` sources of an extension at a time.

    After an error or Ctrl-C no other source is begun, and the error is raised when those that were
    begun have ended.
    """
    compile_all, compile_one = compiler.compile, compiler._compile

    def compile_several(*args: Any, **options: Any) -> list[str]:
        begun: list[Future[None]] = []
        stopped = Event()

        def compile_next(*source: Any) -> None:
            if stopped.is_set():
                return
            try:
                compile_one(*source)
            except BaseException:
                stopped.set()
                raise

        with ThreadPoolExecutor(most) as pool:
            # Called for one source after the other, once their folders are there.
            compiler._compile = lambda *source: begun.append(pool.submit(compile_next, *source))
            try:
                objects: list[str] = compile_all(*args, **options)
                wait(begun)
            except BaseException:
                stopped.set()
                raise
            finally:
                compiler._compile = compile_one
        for compiled in begun:
            compiled.result()
        return objects

    compiler.compile = compile_several
