"""One core in an estimate: when each pipe takes, finishes and waits for what. Durations are cost.py's.

Times are cycles since the block started. A flag carries the time at which everything before it has finished.
"""
from __future__ import annotations

from collections import deque

from .cost import CostModel
from .engine import Mailbox
from .errors import NpusimError
from .views import ALL, CORE_NAMES, FIX, MTE1, MTE2, PIPES, M, S, Unknown, V, View


class Gm:
    """A global buffer of an estimate: its length, and its data where the launch gave them."""

    __slots__ = ("name", "numel", "size", "data", "read", "written")

    def __init__(self, name: str, numel: int, size: float, data=None) -> None:
        self.name, self.numel, self.size, self.data = name, numel, size, data
        self.read = self.written = 0

    def __repr__(self) -> str:
        return self.name


class TimeEngine:
    """One core. Times are cycles since the block started; pipes are indexed as in views.py."""

    def __init__(self, core: int, model: CostModel, mail: Mailbox, blocks: int, trace: bool) -> None:
        self.core, self.model, self.mail, self.blocks, self.sub_blocks = core, model, mail, blocks, mail.vectors
        self.name = CORE_NAMES[core]
        m = model.m
        self.alu, self.issue, self.depth = m.scalar_op.value, m.issue.value, int(m.queue_depth.value)
        self.flag_cost, self.barrier_cost, self.cross = m.flag.value, m.barrier.value, m.cross_core.value
        self.load_cost, self.l0_latency, self.mmad_latency = (
            n.value for n in (m.scalar_memory, m.l0_latency, m.mmad_latency))
        self.steps = self.iterations = self.handoffs = 0
        self.now = 0.0
        self.free, self.done, self.busy = [0.0] * 7, [0.0] * 7, [0.0] * 7
        self.queues = [deque([0.0] * self.depth, self.depth) for _ in PIPES]
        self.flags: dict[tuple, deque] = {}
        self.waits: dict[str, float] = {}
        self.counts = [0] * 7
        self.cached: set = set()  # 64-byte lines of global memory that the scalar pipe has read
        self.events: list | None = [] if trace else None

    def memory(self, space: str) -> str:
        return space

    # queues --------------------------------------------------------------------------------------------------------
    def enqueue(self, instr, pipe: int) -> None:
        """The scalar pipe hands an instruction over; it stands still while the queue is full."""
        self.steps += 1
        now = self.now + instr.pre * self.alu + self.issue
        if self.queues[pipe][0] > now:
            self.wait(f"{PIPES[pipe]} queue full", self.queues[pipe][0] - now)
            now = self.queues[pipe][0]
        self.now = now

    def execute(self, instr, pipe: int, busy: float, after: float) -> float:
        start = max(self.now, self.free[pipe])
        self.free[pipe] = start + busy
        end = start + busy + after
        if end > self.done[pipe]:
            self.done[pipe] = end
        self.busy[pipe] += busy
        self.counts[pipe] += 1
        self.queues[pipe].append(start)
        if self.events is not None:
            self.events.append((pipe, start, busy, after, instr.name, instr.line))
        return end

    def wait(self, why: str, cycles: float) -> None:
        self.waits[why] = self.waits.get(why, 0.0) + cycles

    def tick(self, operations: int) -> None:
        self.steps += 1
        self.now += operations * self.alu

    def iteration(self) -> None:
        self.iterations += 1

    # instructions --------------------------------------------------------------------------------------------------
    def op(self, instr, ins, outs, temps) -> None:
        pipe = instr.pipe
        key = tuple((v.sizes, v.strides, v.addr % 4096) for v in (*ins, *outs) if type(v) is View)
        known = self.model.known.setdefault(instr, {})
        cost = known.get(key)
        if cost is None:
            cost = self.model.vector(instr, ins, outs) if pipe == V else self.model.move(instr, ins, outs)
            known[key] = cost
        self.enqueue(instr, pipe)
        if instr.unit_flag:
            self.free[FIX] = max(self.free[FIX], self.done[M])
        self.execute(instr, pipe, cost.busy, cost.after)
        if cost.read:
            ins[0].mem.read += cost.read
        elif cost.written:
            outs[0].mem.written += cost.written

    def mmad(self, instr, a, b, init, m, k, n, c, sync) -> None:
        """L1->L0 on MTE1 and the product on M, with the event ids that the op carries for them."""
        wait_a, wait_b, set_a, set_b, turn, *back = sync
        self.enqueue(instr, MTE1)
        # The library multiplies all rows of the accumulator.
        moved, product, slices = self.model.mmad(instr, c.sizes[1] * c.sizes[2], k, n)
        for event in (wait_a, wait_b):
            if event != -1:
                self.pipe_wait(MTE2, MTE1, event)
        if instr.unit_flag:  # the accumulator is free again once fixpipe has read it
            self.free[M] = max(self.free[M], self.free[FIX])
        halves = [0.0, 0.0]  # when the product that reads a half of L0 ends
        for piece in range(slices):
            half = (piece + (turn * slices if turn != -1 else 0)) % 2
            if back[half] != -1:
                self.pipe_wait(M, MTE1, back[half])
            self.free[MTE1] = max(self.free[MTE1], halves[half])
            ready = self.execute(instr, MTE1, moved / slices + 8, self.l0_latency) + self.flag_cost
            self.wait("M: operands from L1", max(0.0, ready - max(self.free[M], self.now)))
            self.free[M] = max(self.free[M], ready)
            halves[half] = self.execute(instr, M, product / slices + 4, self.mmad_latency)
            if back[half] != -1:
                self.flags.setdefault((M, MTE1, back[half]), deque()).append(self.done[M])
        for event in (set_a, set_b):
            if event != -1:
                self.flags.setdefault((MTE1, MTE2, event), deque()).append(self.done[MTE1])
        if -1 in back:  # without events of its own, the library waits for the product before it returns
            self.free[MTE1] = max(self.free[MTE1], self.done[M])

    def set_flag(self, instr, source, target, event) -> None:
        self.steps += 1
        self.now += instr.pre * self.alu + 2
        when = self.now if source == S else max(self.done[source], self.now)
        self.flags.setdefault((source, target, event), deque()).append(when)

    def wait_flag(self, instr, source, target, event) -> bool:
        self.steps += 1
        self.now += instr.pre * self.alu + 2
        self.pipe_wait(source, target, event, instr)
        return True

    def pipe_wait(self, source, target, event, instr=None) -> None:
        queue = self.flags.get((source, target, event))
        if not queue:
            raise NpusimError(f"{instr or 'mmadL1'}: {PIPES[target]} waits for event {event} of {PIPES[source]}, "
                              "which nothing has set: run npusim.execute on this program")
        ready = queue.popleft() + self.flag_cost
        if target == S:
            self.wait(f"S: {PIPES[source]}", max(0.0, ready - self.now))
            self.now = max(self.now, ready)
            return
        self.wait(f"{PIPES[target]}: {PIPES[source]}", max(0.0, ready - max(self.free[target], self.now)))
        self.free[target] = max(self.free[target], ready)

    def barrier(self, instr, pipe) -> None:
        self.steps += 1
        self.now += instr.pre * self.alu + 2
        drained = self.done[pipe] + self.barrier_cost
        if drained > self.free[pipe]:
            self.wait(f"{PIPES[pipe]}: own results", drained - max(self.free[pipe], self.now) if
                      drained > max(self.free[pipe], self.now) else 0.0)
            self.free[pipe] = drained

    def drain(self, instr) -> bool:
        self.steps += 1
        self.now = max(self.now + instr.pre * self.alu + 2, *self.done)
        return True

    def sync_block_set(self, instr, pipe, flag) -> None:
        self.steps += 1
        self.handoffs += 1
        self.now += instr.pre * self.alu + 2
        self.mail.post(self.core, flag, max(self.now, self.now if pipe in (S, ALL) else self.done[pipe]))

    def sync_block_wait(self, instr, pipe, flag) -> bool:
        values = self.mail.take(self.core, flag)
        if values is None:
            return False
        self.steps += 1
        self.now += instr.pre * self.alu + 2
        ready = max(values) + self.cross
        self.wait(f"S: flag {flag} of the {'vector' if self.core == 0 else 'cube'} core", max(0.0, ready - self.now))
        self.now = max(self.now, ready)
        return True

    def scalar_load(self, instr, view, where):
        self.enqueue(instr, S)
        memory = view.mem
        index = (view.addr - view.base) // view.bits + sum(i * s for i, s in zip(where, view.strides, strict=True))
        line = (memory, index * view.bits // 512)
        cold = isinstance(memory, Gm) and line not in self.cached
        self.cached.add(line)
        self.now += self.model.m.gm_read_latency.value if cold else self.load_cost
        data = memory.data if isinstance(memory, Gm) else None
        if data is None:
            return Unknown(f"line {instr.line} from {memory!r}")
        if not 0 <= index < len(data):
            raise NpusimError(f"{instr}: reads element {index} of {memory.name}, which has {len(data)}")
        return data[index].item()

    def scalar_store(self, instr, value, view, where) -> None:
        self.enqueue(instr, S)
        self.now += self.load_cost

    def finish(self) -> None:
        self.steps += 1
        self.now = max(self.now, *self.done)
