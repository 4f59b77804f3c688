"""Parallel compilation of an extension's sources, which setuptools compiles one by one."""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor, wait
from threading import Event
from typing import Any

from setuptools.errors import OptionError


def jobs() -> int:
    """Return how many sources to compile at a time: MAX_JOBS, or this process's number of cores.

    Raises:
        OptionError: MAX_JOBS is not a positive number; setup.py prints the error as its last line.
    """
    asked = os.environ.get("MAX_JOBS", "")
    if not asked:
        return len(os.sched_getaffinity(0))
    if not asked.isdecimal() or int(asked) < 1:
        raise OptionError(f"MAX_JOBS={asked!r}: it is a number of compilers, 1 or more")
    return int(asked)


def compile_with(compiler: Any, most: int) -> None:
    """Make a setuptools compiler compile up to `most` sources of an extension at a time.

    After an error or Ctrl-C no further source is begun. The error is raised when the running
    compilations have ended.
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
            # setuptools calls this for one source after the other, once their folders exist.
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
