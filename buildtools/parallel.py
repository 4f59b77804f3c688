"""Compiles the sources of an extension at the same time, which setuptools does one by one."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


def compile_with(compiler: Any, jobs: int) -> None:
    """Makes `compiler`, one of setuptools', compile up to `jobs` sources of an extension at a time.

    setuptools' own option, `--parallel`, is for whole extensions. An error of one source is raised
    when the others that were begun have ended.
    """
    compile_all, compile_one = compiler.compile, compiler._compile

    def compile_several(*args: Any, **options: Any) -> list[str]:
        begun: list[Future[None]] = []
        with ThreadPoolExecutor(jobs) as pool:
            # Called for each source that is out of date, once its folder is there.
            compiler._compile = lambda *source: begun.append(pool.submit(compile_one, *source))
            objects: list[str] = compile_all(*args, **options)
        for compiled in begun:
            compiled.result()
        return objects

    compiler.compile = compile_several
