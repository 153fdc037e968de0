"""`status()`: what the operator did last, and for every consumer whether it is fused, and if not why.

Also looks at MindSpeed packages on disk, without importing them. Collects only; records are made in `log.py`.
"""
from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from pathlib import Path

from mindspeed_kkt_plugin import paths

from .consumers import CONSUMERS, Consumer
from .forward import consumer_of
from .imports import namespace
from .log import records
from .pairing import why_unpaired_source


def status() -> dict:
    """Versions, devices, paths and calls of the operator (see `paths.status`), and `consumers`: a list of dicts with
    id, target, chosen_by, state and detail.

    state is `active` (fused now), `overridden` (was, and something replaced it since), `waiting` (fused when its
    module is imported), `left alone` (detail says why), `found` (on disk and usable; not switched on in this process)
    or `absent`. Looks at names and files only: no device, no import of MindSpeed.
    """
    found = paths.status()
    found["versions"] |= {package: _version(package) for package in ("mindspeed_llm", "mindspeed_mm")}
    return {**found, "consumers": [_consumer(consumer) for consumer in CONSUMERS]}


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _consumer(consumer: Consumer) -> dict:
    state, detail = _state(consumer)
    return {"id": consumer.id, "target": consumer.target, "chosen_by": consumer.chosen_by,
            "state": state, "detail": detail}


def _state(consumer: Consumer) -> tuple[str, str]:
    names = namespace(sys.modules.get(consumer.module))
    if consumer_of(names.get(consumer.function)) == consumer.id:
        return "active", ""
    record = records.get(consumer.id)
    if record is None:
        return _on_disk(consumer)
    if record.state == "active":
        now = names.get(consumer.function)
        where = f"{getattr(now, '__module__', '?')}.{getattr(now, '__qualname__', now)}"
        return "overridden", f"the name is now bound to {where}"
    return record.state, record.detail


def _on_disk(consumer: Consumer) -> tuple[str, str]:
    """From the source file of a consumer that this process has not been asked to fuse."""
    try:
        spec = importlib.util.find_spec(consumer.package)  # a top-level name: nothing is imported
    except (ImportError, ValueError):
        spec = None
    if spec is None or not spec.submodule_search_locations:
        return "absent", f"{consumer.package} is not installed"
    tail = Path(*consumer.module.split(".")[1:]).with_suffix(".py")
    file = next((Path(p) / tail for p in spec.submodule_search_locations if (Path(p) / tail).is_file()), None)
    if file is None:
        return "absent", f"{consumer.package} has no {tail}"
    reason = why_unpaired_source(file.read_text(encoding="utf-8"), consumer.function)
    return ("left alone", reason) if reason else ("found", "usable; not switched on (install() or the launcher does)")
