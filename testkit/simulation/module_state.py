"""Puts simple values of modules and classes back before each run: counters, `None`. A process begins with them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

_SIMPLE = (int, float, str, bytes, tuple, frozenset, type(None))
_KEPT = (*sys.stdlib_module_names, "raftwerk", "pytest", "_pytest", "time_machine", "_time_machine")


def is_applications(module_name: str) -> bool:
    """Whether a module may be of the application or one of its libraries: it is not Python's, pytest's or ours."""
    return module_name.partition(".")[0] not in _KEPT


class ModuleState:
    """The simple values of all modules of the application that are loaded now, and of their classes."""

    def __init__(self) -> None:
        self._values = [
            (owner, name, value)
            for owner in _owners()
            for name, value in list(vars(owner).items())
            if isinstance(value, _SIMPLE) and not name.startswith("__")
        ]

    def restore(self) -> None:
        """Put the values back."""
        for owner, name, value in self._values:
            if vars(owner).get(name) is not value:
                setattr(owner, name, value)


def _owners() -> Iterator[Any]:
    for module_name, module in list(sys.modules.items()):
        if module is not None and is_applications(module_name) and hasattr(module, "__dict__"):
            yield module
            for value in list(vars(module).values()):
                if isinstance(value, type) and value.__module__ == module_name:
                    yield value
