"""Calls a function in a process without TRITON_INTERPRET, for callers (test suites) that run with it set.

Triton decides once per process whether kernels are interpreted; only compiled ones can be compiled for the NPU.
"""
from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

_worker: ProcessPoolExecutor | None = None


def call(function, *args, **kwargs):
    """`function(*args, **kwargs)` in a worker that is started once and kept. All of it must be picklable.

    The function's module is imported there before the call, so kernels it defines or imports are compiled ones.
    """
    global _worker
    if _worker is None:
        _worker = ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_forget_interpreter)
    return _worker.submit(function, *args, **kwargs).result()


def _forget_interpreter() -> None:
    os.environ.pop("TRITON_INTERPRET", None)
