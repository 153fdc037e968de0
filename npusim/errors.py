"""The errors npusim raises. Every message names what was met, and what is allowed or how to go on.

Findings about a program that ran are data (see execute), not exceptions.
"""
from __future__ import annotations


class NpusimError(Exception):
    """Base of everything npusim raises on purpose; the command line prints its text and exits with 1."""


class UnsupportedError(NpusimError):
    """An option, target, argument type or IR op that npusim does not model. It is named in the text."""


class NpuCompileError(NpusimError):
    """The NPU compiler refused a kernel.

    memory, needed_bits, available_bits: set when an on-chip memory overflowed ("ub", "cbuf", "cc", …), else None.
    detail: what the compiler printed.
    """

    def __init__(self, text: str, *, memory: str | None = None, needed_bits: int | None = None,
                 available_bits: int | None = None, detail: str = "") -> None:
        super().__init__(text)
        self.memory = memory
        self.needed_bits = needed_bits
        self.available_bits = available_bits
        self.detail = detail
