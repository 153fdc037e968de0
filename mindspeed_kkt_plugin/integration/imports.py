"""Runs a callback for a module once it is imported, now or later, without ever importing it early.

Importing a consumer early would initialise Triton's driver before the training script has chosen its device, and
would start MindSpeed's adaptors. Knows nothing of what the callbacks do.
"""
from __future__ import annotations

import importlib.abc
import sys
import types
from collections.abc import Callable

Callback = Callable[[types.ModuleType], None]


def namespace(module: object) -> dict:
    """A module's own names; does not wake lazy modules, whose `__getattribute__` or `__getattr__` would import."""
    return object.__getattribute__(module, "__dict__") if isinstance(module, types.ModuleType) else {}


class _Watcher(importlib.abc.MetaPathFinder):
    """First on sys.meta_path: lets the other finders find, and extends the loader of a watched module."""

    def __init__(self) -> None:
        self.callbacks: dict[str, Callback] = {}

    def find_spec(self, name, path=None, target=None):
        callback = self.callbacks.get(name)
        if callback is None:
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find else None
            if spec is not None:
                _call_after_execution(spec.loader, callback)
                return spec
        return None


def _call_after_execution(loader, callback: Callback) -> None:
    execute = loader.exec_module

    def exec_module(module: types.ModuleType) -> None:
        execute(module)
        callback(module)

    loader.exec_module = exec_module  # on this module's own loader object


_watcher = _Watcher()


def when_imported(name: str, callback: Callback) -> bool:
    """Call back now if the module is loaded, and at each later import of it (a reload too). True if it was loaded.

    A module that is loading at this moment counts as not loaded: its names may not exist yet.
    """
    _watcher.callbacks[name] = callback
    if _watcher not in sys.meta_path:
        sys.meta_path.insert(0, _watcher)
    module = sys.modules.get(name)
    if module is None or loading(module):
        return False
    callback(module)
    return True


def loading(module: object) -> bool:
    return bool(getattr(namespace(module).get("__spec__"), "_initializing", False))


def stop_watching(name: str) -> None:
    _watcher.callbacks.pop(name, None)
    if not _watcher.callbacks and _watcher in sys.meta_path:
        sys.meta_path.remove(_watcher)
