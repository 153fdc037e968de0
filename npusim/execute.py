"""Runs a compiled program on numpy buffers and looks for faults: the meaning of the instruction stream of lower.py.

Each core has a queue per pipe; a pipe runs its queue in order and stands still at a wait_flag until the flag is set.
Vector clocks record what is known to have finished when an instruction starts; conflicting accesses that they do not
order are races. Instructions of one pipe start in order but may overlap until a barrier, a flag or the end.
Blocks run one after the other; between blocks nothing is ordered, so any conflict between them is a race.
"""
from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from .engine import Mailbox, blocks_of, check_arguments, layout, run_block
from .errors import NpusimError, UnsupportedError
from .floats import STORAGE
from .machine import machine
from .memory import INDEX_BITS, INDEX_MASK, PIPE_MASK, Access, Memory
from .parse import BITS, Module
from .semantics import compute, from_fractal, product, to_fractal
from .views import ALL, FIX, MTE1, MTE2, PIPES, M, Meta, S, View

CORE_NAMES = ("cube", "vector0", "vector1")
SPACES = {"ub": "UB_SIZE", "cbuf": "L1_SIZE", "cc": "L0C_SIZE"}
MOST_FINDINGS = 200


@dataclass(frozen=True)
class Finding:
    """A fault. kind: out_of_bounds, poison_read, race, deadlock or event_left_set; line: in the IR text."""

    kind: str
    message: str
    block: int
    core: str
    line: int

    def __str__(self) -> str:
        return f"{self.kind}: {self.message} (line {self.line}, block {self.block}, {self.core})"


@dataclass
class RunResult:
    """findings: each fault once per pair of places; blocks: the ones that ran. Outputs are in the caller's buffers."""

    findings: list[Finding] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)

    @property
    def kinds(self) -> set[str]:
        """The kinds of fault that were found."""
        return {f.kind for f in self.findings}


class Faults:
    """Collects findings, each once per kind and pair of lines."""

    def __init__(self) -> None:
        self.found: dict[tuple, Finding] = {}
        self.history: dict[tuple[int, int], list] = {}  # (block, pipe) -> instruction per running number

    def add(self, kind: str, message: str, block: int, core: str, line: int, other: int = 0) -> None:
        if len(self.found) < MOST_FINDINGS:
            self.found.setdefault((kind, line, other, core), Finding(kind, message, block, core, line))

    def report(self, kind: str, access: Access, text: str, other: int = 0) -> None:
        """What Memory calls; `other` is the stamp of the access before."""
        core, pipe = divmod(access.pipe, 7)
        message, line = f"{access.instr} on {PIPES[pipe]} {text}", 0
        if other:
            block, place = (other >> (INDEX_BITS + 6)) - 1, (other >> INDEX_BITS) & PIPE_MASK
            earlier = self.history[block, place][(other & INDEX_MASK) - 1]
            line = earlier.line
            where = "" if block == access.block else f" in block {block}"
            message += f" by {earlier} on {CORE_NAMES[place // 7]} {PIPES[place % 7]}{where}: nothing orders them"
        self.add(kind, message, access.block, CORE_NAMES[core], access.instr.line, line)


class Pipe:
    """A queue of (action, what it waits for); clock: what had finished when its latest instruction started."""

    __slots__ = ("queue", "clock", "count", "history")

    def __init__(self, history: list) -> None:
        self.queue: deque = deque()
        self.clock = np.zeros(21, np.int64)
        self.count = 0
        self.history = history


class DataEngine:
    """One core of one block."""

    def __init__(self, core: int, block: int, blocks: int, mail: Mailbox, memories: dict, faults: Faults) -> None:
        self.core, self.block, self.blocks, self.mail, self.faults = core, block, blocks, mail, faults
        self.sub_blocks, self.name, self.steps, self.internal = mail.vectors, CORE_NAMES[core], 0, 0
        self.memories = memories
        self.first = 7 * core
        self.pipes = [Pipe(faults.history.setdefault((block, self.first + p), [])) for p in range(7)]
        self.issued = np.zeros(21, np.int64)  # what the scalar pipe knows to have finished
        self.flags: dict[tuple, deque] = {}

    def memory(self, space: str) -> Memory:
        return self.memories[space]

    def tick(self, operations: int) -> None:
        self.steps += 1

    def iteration(self) -> None:
        self.steps += 1

    # pipes ---------------------------------------------------------------------------------------------------------
    def push(self, pipe: int, action, waits=None) -> None:
        """action(pipe state) runs once everything before it in the pipe ran and `waits`, a flag's key, is set."""
        self.steps += 1
        self.pipes[pipe].queue.append((action, waits, self.issued))
        self.advance(pipe)

    def advance(self, pipe: int) -> None:
        state = self.pipes[pipe]
        while state.queue:
            action, waits, issued = state.queue[0]
            np.maximum(state.clock, issued, out=state.clock)
            if waits is not None:
                flag = self.flags.get(waits)
                if not flag:
                    return
                np.maximum(state.clock, flag.popleft(), out=state.clock)
            state.queue.popleft()
            if action is not None:
                action(state)

    def begin(self, instr, pipe: int) -> Access:
        """The next instruction of a pipe starts: its place in history and what it may rely on."""
        state = self.pipes[pipe]
        state.count += 1
        state.history.append(instr)
        return Access(instr, self.block, self.first + pipe, state.count, state.clock.copy())

    def finished(self, pipe: int) -> np.ndarray:
        """Everything the pipe started has finished: what a flag or a barrier after it tells."""
        clock = self.pipes[pipe].clock.copy()
        clock[self.first + pipe] = self.pipes[pipe].count
        return clock

    def signal(self, key: tuple) -> None:
        clock = self.issued.copy() if key[0] == S else self.finished(key[0])
        if key[0] == S:
            clock[self.first] = self.pipes[S].count
        self.flags.setdefault(key, deque()).append(clock)
        if key[1] != S:
            self.advance(key[1])

    # order ---------------------------------------------------------------------------------------------------------
    def set_flag(self, instr, source, target, event) -> None:
        key = (source, target, event)
        if source == S:
            self.steps += 1
            self.signal(key)
        else:
            self.push(source, lambda state: self.signal(key))

    def wait_flag(self, instr, source, target, event) -> bool:
        key = (source, target, event)
        if target != S:
            self.push(target, None, key)
            return True
        if not self.flags.get(key):
            return False
        self.steps += 1
        self.issued = np.maximum(self.issued, self.flags[key].popleft())
        return True

    def barrier(self, instr, pipe) -> None:
        def passed(state) -> None:
            state.clock[self.first + pipe] = state.count
        self.push(pipe, passed)

    def drain(self, instr) -> bool:
        if any(p.queue for p in self.pipes):
            return False
        self.steps += 1
        self.issued = np.maximum.reduce([self.issued, *(self.finished(p) for p in range(7))])
        return True

    def sync_block_set(self, instr, pipe, flag) -> None:
        if pipe in (S, ALL):
            self.steps += 1
            self.mail.post(self.core, flag, self.issued.copy())
        else:
            self.push(pipe, lambda state: self.mail.post(self.core, flag, self.finished(pipe)))

    def sync_block_wait(self, instr, pipe, flag) -> bool:
        values = self.mail.take(self.core, flag)
        if values is None:
            return False
        self.steps += 1
        self.issued = np.maximum.reduce([self.issued, *values])
        return True

    def finish(self) -> None:
        """The program's end: queues that never emptied and flags that nobody waited for."""
        self.steps += 1
        self.stuck()
        for (source, target, event), values in self.flags.items():
            if values:
                self.faults.add("event_left_set", f"event {event} from {PIPES[source]} to {PIPES[target]} is set "
                                f"{len(values)} time(s) more than it is waited for", self.block, self.name, 0,
                                hash((source, target, event)))

    def stuck(self) -> None:
        """Report each pipe that waits for a flag which nothing sets."""
        for pipe, state in enumerate(self.pipes):
            if state.queue:
                _, key, _ = state.queue[0]
                source = f"event {key[2]} of {PIPES[key[0]]}" if key else "an earlier instruction"
                self.faults.add("deadlock", f"pipe {PIPES[pipe]} waits for {source}, which is never set; "
                                f"{len(state.queue)} entries are behind it", self.block, self.name, 0, pipe + 1)

    # data ----------------------------------------------------------------------------------------------------------
    def after(self, first: int, then: int) -> None:
        """What `then` does next comes after what `first` was given so far: the hardware's unit flag."""
        self.internal += 1
        key = (first, then, ("unit", self.internal))
        self.push(first, lambda state: self.signal(key))
        self.push(then, None, key)

    def op(self, instr, ins, outs, temps) -> None:
        if instr.unit_flag:
            self.after(M, FIX)
        self.push(instr.pipe, lambda state: self.perform(instr, ins, outs, temps))

    def perform(self, instr, ins, outs, temps) -> None:
        access = self.begin(instr, instr.pipe)
        if len(outs) != 1:
            raise UnsupportedError(f"line {instr.line}: {instr.name} with {len(outs)} outputs is not modelled")
        out, out_type = outs[0], instr.outs[0]
        inputs, poisons = [], []
        for value, kind in zip(ins, instr.ins or ("index",) * len(ins), strict=True):
            data, poison = (value.mem.read(value, kind.dtype, access) if isinstance(value, View) else (value, None))
            inputs.append(data)
            poisons.append(poison)
        for temp in temps:
            temp.mem.scratch(temp, access)
        if 0 in out.sizes:
            return
        if instr.name == "nd2nz":
            values = to_fractal(inputs[0], out.sizes)
            poison = None if poisons[0] is None else to_fractal(poisons[0], out.sizes)
            self.fractal_write(out, out_type.dtype, values, poison, inputs[0].shape[0], access)
            return
        if instr.name == "fixpipe":
            values, poison = self.fixpipe(instr, inputs[0], poisons[0], out)
        else:
            if instr.name == "load" and instr.attrs.get("left_padding_num", "0") != "0":
                raise UnsupportedError(f"line {instr.line}: load with left padding is not modelled by npusim")
            values, poison = compute(instr, inputs, poisons, out)
        if poison is not None and poison.any() and out.mem.unwritten is None:
            self.faults.report("poison_read", access,
                               f"stores {int(poison.sum())} elements to {out.mem.name} that nothing wrote before")
        out.mem.write(out, out_type.dtype, values, poison, access)

    def fractal_write(self, out: View, dtype: str, values, poison, rows: int, access: Access) -> None:
        """nd2nz writes the rows that it has; the rest of the last fractal stays as it was."""
        whole = rows // 16
        parts = [(0, whole, 16)] if whole else []
        parts += [(whole, 1, rows % 16)] if rows % 16 else []
        for start, blocks, lines in parts:
            sizes = (out.sizes[0], blocks, lines, out.sizes[3])
            part = View(out.mem, out.base, out.limit, out.addr + start * out.strides[1] * out.bits, sizes,
                        out.strides, out.bits)
            where = (slice(None), slice(start, start + blocks), slice(0, lines))
            part.mem.write(part, dtype, values[where], None if poison is None else poison[where], access)

    def fixpipe(self, instr, values, poison, out: View):
        if "enable_nz2nd" not in instr.attrs and "nz2nd" not in instr.attrs.get("dma_mode", "").lower():
            raise UnsupportedError(f"line {instr.line}: fixpipe without nz2nd is not modelled by npusim")
        rows, columns = out.sizes[-2:]
        matrix = from_fractal(values)[:rows, :columns]
        if "relu" in instr.attrs.get("pre_relu", "").lower() and "NO" not in instr.attrs["pre_relu"]:
            matrix = np.maximum(matrix, 0)
        poison = None if poison is None else from_fractal(poison)[:rows, :columns].reshape(out.sizes)
        return matrix.reshape(out.sizes), poison

    def mmad(self, instr, a, b, init, m, k, n, c, sync) -> None:
        """Two instructions: L1 to L0 on MTE1, the product on M, with the waits and sets of the library between."""
        wait_a, wait_b, set_a, set_b, _, back0, back1 = sync
        kind, loaded = instr.ins[0].dtype, []
        self.internal += 1
        ready, done = (MTE1, M, ("ready", self.internal)), (M, MTE1, ("done", self.internal))

        def load(state) -> None:
            access = self.begin(instr, MTE1)
            loaded.extend((a.mem.read(a, kind, access), b.mem.read(b, kind, access)))

        def multiply(state) -> None:
            access = self.begin(instr, M)
            (a_values, a_poison), (b_values, b_poison) = loaded
            self.accumulate(instr, a_values, a_poison, b_values, b_poison, init, k, n, c, access)

        for event in (wait_a, wait_b):
            if event != -1:
                self.push(MTE1, None, (MTE2, MTE1, event))
        for event in {back0, back1} - {-1}:
            self.push(MTE1, None, (M, MTE1, event))
        self.push(MTE1, load)
        for event in (set_a, set_b):
            if event != -1:
                self.push(MTE1, lambda state, event=event: self.signal((MTE1, MTE2, event)))
        self.push(MTE1, lambda state: self.signal(ready))
        if instr.unit_flag:
            self.after(FIX, M)
        self.push(M, None, ready)
        self.push(M, multiply)
        self.push(M, lambda state: state.clock.__setitem__(self.first + M, state.count))  # the library's barrier
        for event in {back0, back1} - {-1}:
            self.push(M, lambda state, event=event: self.signal((M, MTE1, event)))
        if -1 in (back0, back1):
            self.push(M, lambda state: self.signal(done))
            self.push(MTE1, None, done)

    def accumulate(self, instr, a, a_poison, b, b_poison, init, k, n, c: View, access: Access) -> None:
        rows = c.sizes[1] * c.sizes[2]
        a, b = from_fractal(a), from_fractal(b)
        result = np.zeros((rows, c.sizes[0] * c.sizes[3]), np.float32)
        value = product(a, b, rows, k, n, instr)
        result[:value.shape[0], :value.shape[1]] = value
        poison = None
        if a_poison is not None or b_poison is not None:
            blank = np.zeros((), bool)
            pa = blank if a_poison is None else from_fractal(a_poison)
            pb = blank if b_poison is None else from_fractal(b_poison)
            pa = np.broadcast_to(pa, a.shape).T if "a_transpose" in instr.attrs else np.broadcast_to(pa, a.shape)
            pb = np.broadcast_to(pb, b.shape).T if "b_transpose" in instr.attrs else np.broadcast_to(pb, b.shape)
            poison = np.zeros(result.shape, bool)
            mark = pa[:rows, :k].any(1)[:, None] | pb[:k, :n].any(0)[None, :]
            poison[:mark.shape[0], :mark.shape[1]] = mark
            poison = to_fractal(poison, c.sizes)
        kind = instr.outs[0].dtype
        if not init:
            before, before_poison = c.mem.read(c, kind, access)
            result = result + from_fractal(before)
            if before_poison is not None:
                poison = before_poison if poison is None else poison | before_poison
        c.mem.write(c, kind, to_fractal(result, c.sizes), poison, access)

    def scalar_access(self, instr) -> Access:
        self.steps += 1
        state = self.pipes[S]
        state.clock = self.issued
        access = self.begin(instr, S)
        self.issued = self.issued.copy()
        self.issued[self.first] = state.count  # the scalar pipe finishes one access before the next
        return access

    def scalar_load(self, instr, view: View, where):
        access = self.scalar_access(instr)
        values, poison = view.mem.read(_element(view, where), instr.ins[0].dtype, access)
        if poison is not None and poison.any():
            self.faults.report("poison_read", access, f"loads a scalar of {view.mem.name} that nothing wrote")
        return values.reshape(-1)[0].item()

    def scalar_store(self, instr, value, view: View, where) -> None:
        access = self.scalar_access(instr)
        view.mem.write(_element(view, where), instr.outs[0].dtype, np.asarray(value), None, access)


def _element(view: View, where) -> View:
    addr = view.addr + view.bits * sum(i * s for i, s in zip(where, view.strides, strict=True))
    return View(view.mem, view.base, view.limit, addr, (1,), (1,), view.bits)


def run(module: Module, grid, args, target: str = "Ascend910B2", blocks=None, unwritten=()) -> RunResult:
    """Run a launch on numpy buffers, in place.

    grid: programs per axis; args: run-time arguments in order: a contiguous 1-D array per buffer (bf16 as uint16), a
    number per scalar; blocks: which blocks to run (default all); unwritten: indices of buffers whose content counts as
    never written (fresh outputs). Findings are returned, not raised; an op without meaning raises UnsupportedError.
    """
    machine(target)
    check_arguments(module, args)
    total, axes = blocks_of(grid)
    picked = list(range(total)) if blocks is None else sorted({int(b) for b in blocks})
    if picked and not 0 <= picked[0] <= picked[-1] < total:
        raise NpusimError(f"blocks {picked} are not all within the grid's {total}")
    faults = Faults()
    values = _arguments(module, args, total, axes, faults, set(unwritten))
    for block in picked:
        mail = Mailbox(sum(kind == "AIV" for _, kind, _ in layout(module)))
        engines = {}
        for core, _, _ in layout(module):
            memories = {space: Memory(f"{space} of {CORE_NAMES[core]}",
                                      np.zeros(module.target_spec[limit] // 8, np.uint8), faults.report)
                        for space, limit in SPACES.items()}
            engines[core] = DataEngine(core, block, total, mail, memories, faults)
        stuck = run_block(module, engines, values, block)
        for core in stuck:
            engines[core].stuck()
            faults.add("deadlock", f"{CORE_NAMES[core]} waits for a flag of another core or pipe that is never set",
                       block, CORE_NAMES[core], 0)
        for receiver, flag, times in [] if stuck else mail.left():
            faults.add("event_left_set", f"cross-core flag {flag} to {receiver} is set {times} time(s) more than it is "
                                         "waited for", block, receiver, 0, flag + 1)
    return RunResult(list(faults.found.values()), picked)


def _arguments(module: Module, args, total: int, axes, faults: Faults, unwritten: set[int]) -> tuple:
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
        fresh = hidden or index in unwritten
        memory = Memory(label, data, faults.report, written=not fresh, shared=True)
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


