"""Runs a compiled program on numpy buffers and looks for faults: the meaning of the instruction stream of lower.py.

Each core has a queue per pipe; a pipe runs its queue in order and stands still at a wait_flag until the flag is set.
Vector clocks record what is known to have finished when an instruction starts; conflicting accesses that they do not
order are races. Instructions of one pipe start in order but may overlap until a barrier, a flag or the end.
Blocks run one after the other; between blocks nothing is ordered, so any conflict between them is a race.
"""
from __future__ import annotations

import numpy as np

from .dataengine import DataEngine
from .engine import Mailbox, blocks_of, check_arguments, layout, run_block
from .errors import NpusimError
from .findings import Faults, RunResult
from .floats import STORAGE
from .machine import machine
from .memory import Memory
from .mlir_text import BITS
from .parse import Module
from .views import CORE_NAMES, Meta, View

SPACES = {"ub": "UB_SIZE", "cbuf": "L1_SIZE", "cc": "L0C_SIZE"}


def run(module: Module, grid, args, target: str = "Ascend910B2", blocks=None, unwritten=(),
        scratch=()) -> RunResult:
    """Run a launch on numpy buffers, in place.

    grid: programs per axis; args: run-time arguments in order: a contiguous 1-D array per buffer (bf16 as uint16), a
    number per scalar; blocks: which blocks to run (default all); unwritten: indices of buffers whose content counts as
    never written (fresh outputs); scratch: those of them that nobody reads afterwards, where a program may store what
    nothing wrote (unused lanes) as long as it does not use it. Findings are returned, not raised; an op without meaning
    raises UnsupportedError.
    """
    machine(target)
    check_arguments(module, args)
    total, axes = blocks_of(grid)
    picked = list(range(total)) if blocks is None else sorted({int(b) for b in blocks})
    if picked and not 0 <= picked[0] <= picked[-1] < total:
        raise NpusimError(f"blocks {picked} are not all within the grid's {total}")
    faults = Faults()
    values = _arguments(module, args, total, axes, faults, set(unwritten), set(scratch))
    for block in picked:
        mail = Mailbox(sum(kind == "AIV" for _, kind, _ in layout(module)))
        engines = {}
        for core, _, _ in layout(module):
            memories = {space: Memory(f"{space} of {CORE_NAMES[core]}",
                                      np.zeros(module.target_spec[limit] // 8, np.uint8), faults.report)
                        for space, limit in SPACES.items()}
            engines[core] = DataEngine(core, block, total, mail, faults, memories=memories)
        stuck = run_block(module, engines, values, block)
        for core in stuck:
            engines[core].stuck()
            faults.add("deadlock", f"{CORE_NAMES[core]} waits for a flag of another core or pipe that is never set",
                       block, CORE_NAMES[core], 0)
        for receiver, flag, times in [] if stuck else mail.left():
            faults.add("event_left_set", f"cross-core flag {flag} to {receiver} is set {times} time(s) more than it is "
                                         "waited for", block, receiver, 0, flag + 1)
    return RunResult(list(faults.found.values()), picked)


def _arguments(module: Module, args, total: int, axes, faults: Faults, unwritten: set[int],
               scratch: set[int]) -> tuple:
    func, given, values, index = module.kernels()[0], iter(args), [], -1
    for position, (_, kind, attrs) in enumerate(func.params):
        if position >= len(func.params) - 3:
            values.append(axes[position - len(func.params)])
            continue
        hidden = "hacc.arg_type" in attrs
        value = None if hidden else next(given)
        index += not hidden
        if isinstance(kind, str):
            values.append(0 if value is None else value)
            continue
        if hidden:
            data, label = np.zeros(module.workspace_bytes * total if "workspace" in attrs else 0, np.uint8), "workspace"
        else:
            data, label = _bytes(value, kind.dtype, index), f"argument {index}"
        inner = hidden or index in scratch
        fresh = inner or index in unwritten
        memory = Memory(label, data, faults.report, written=not fresh, shared=True, result=not inner)
        numel = len(data) * 8 // BITS[kind.dtype]
        values.append(View(memory, 0, 8 * len(data), 0, (numel,), (1,), BITS[kind.dtype]))
    return tuple(values)


def _bytes(value, dtype: str, index: int) -> np.ndarray:
    wanted = STORAGE[dtype]
    if isinstance(value, Meta) or not isinstance(value, np.ndarray):
        raise NpusimError(f"argument {index} needs data (a numpy array of {np.dtype(wanted)}) to run, got {value!r}")
    if value.dtype.itemsize != np.dtype(wanted).itemsize or not value.flags.c_contiguous:
        raise NpusimError(f"argument {index} is {value.dtype}{'' if value.flags.c_contiguous else ', not contiguous'}; "
                          f"the kernel takes contiguous {dtype} (numpy {np.dtype(wanted)})")
    return value.reshape(-1).view(np.uint8)


