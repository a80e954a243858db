"""The error of a run that broke an invariant."""

from __future__ import annotations


class InvariantBroken(Exception):
    """A run reached a state that must not be reached. `name` is the invariant, `detail` what was seen."""

    def __init__(self, name: str, detail: str) -> None:
        super().__init__(f"{name}: {detail}")
        self.name = name
        self.detail = detail
