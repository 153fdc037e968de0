"""The pipes of one core in a run: queues, flags, barriers, cross-core signals, and what each event is known to follow.

A pipe runs its queue in order and stands still at a flag that is not set. Clocks hold, per pipe of the block, how many
instructions are known to have finished. What instructions do to data is dataengine.py.
"""
from __future__ import annotations

from collections import deque

import numpy as np

from .engine import Mailbox
from .findings import Faults
from .memory import Access
from .views import ALL, CORE_NAMES, PIPES, S


class Pipe:
    """A queue of (action, what it waits for); clock: what had finished when its latest instruction started."""

    __slots__ = ("queue", "clock", "count", "history")

    def __init__(self, history: list) -> None:
        self.queue: deque = deque()
        self.clock = np.zeros(21, np.int64)
        self.count = 0
        self.history = history


class Queues:
    """Order on one core of one block."""

    def __init__(self, core: int, block: int, blocks: int, mail: Mailbox, faults: Faults) -> None:
        self.core, self.block, self.blocks, self.mail, self.faults = core, block, blocks, mail, faults
        self.sub_blocks, self.name, self.steps, self.internal = mail.vectors, CORE_NAMES[core], 0, 0
        self.first = 7 * core
        self.pipes = [Pipe(faults.history.setdefault((block, self.first + p), [])) for p in range(7)]
        self.issued = np.zeros(21, np.int64)  # what the scalar pipe knows to have finished
        self.flags: dict[tuple, deque] = {}

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

    def after(self, first: int, then: int) -> None:
        """What `then` does next comes after what `first` was given so far: an order no flag of the IR shows."""
        self.internal += 1
        key = (first, then, ("internal", self.internal))
        self.push(first, lambda state: self.signal(key))
        self.push(then, None, key)

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
