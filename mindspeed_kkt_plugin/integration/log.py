"""What happened to each consumer, and the lines that tell the user: a positive one, and every reason once.

Only records and prints; `report.py` turns the records into `status()`.
"""
from __future__ import annotations

import logging
import os
import sys
from dataclasses import dataclass

from .consumers import Consumer

logger = logging.getLogger("mindspeed_kkt_plugin")


@dataclass
class Record:
    state: str  # "active", "waiting" (for its module to be imported) or "left alone"
    detail: str


records: dict[str, Record] = {}
_said: set[tuple[str, str]] = set()


def active(consumer: Consumer) -> None:
    if consumer.id in records and records[consumer.id].state == "active":
        return  # MindSpeed removes and applies its patches anew more than once at start-up
    records[consumer.id] = Record("active", "")
    announce(f"fused kkt_solve active for: {consumer.id} {consumer.target}")


def waiting(consumer: Consumer) -> None:
    records[consumer.id] = Record("waiting", f"until {consumer.module} is imported")


def left_alone(consumer: Consumer, reason: str, *, warn: bool = True) -> None:
    """The original operators stay. warn=False: the user did not choose this consumer."""
    records[consumer.id] = Record("left alone", reason)
    if warn:
        once(consumer, f"not patched, the original two operators stay: {reason}")


def once(consumer: Consumer, message: str) -> None:
    """A warning, once per consumer and message in this process."""
    if (consumer.id, message) not in _said:
        _said.add((consumer.id, message))
        logger.warning("fused kkt_solve, %s %s: %s", consumer.id, consumer.target, message)


def announce(message: str) -> None:
    """A line that must be seen: printed by rank 0 as Megatron does, since INFO is hidden by default."""
    if os.environ.get("RANK", "0") == "0":
        sys.stdout.write(f"[mindspeed_kkt_plugin] {message}\n")  # one write, so that ranks do not interleave
        sys.stdout.flush()


def forget() -> None:
    records.clear()
    _said.clear()
