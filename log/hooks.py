"""What a log tells its owner, such as that its checkpoints have to change first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


def _ignore(*_: object) -> None:
    pass


@dataclass(frozen=True, slots=True)
class LogHooks:
    """What a log tells its owner."""

    on_failed: Callable[[OSError], None] = _ignore
    """The disk refused, and the log has failed for good."""
    on_recovery_point_lowered: Callable[[int], None] = _ignore
    """The recovery point will be lowered: checkpoints of it and of the start offset must not be above it on return."""
    on_truncating: Callable[[int], None] = _ignore
    """The log is about to end at this offset: the checkpoint of its high watermark must not be above it on return."""
    on_files_deleted: Callable[[int, list[str]], None] | None = None
    """`file.delete.delay.ms`, and files of deleted segments, renamed already, to be removed after it; None: at once."""
    on_gaps: Callable[[bool], None] = _ignore
    """Recovery has to know that offsets may be missing: durably on return if the flag is set, soon if not."""


NO_HOOKS = LogHooks()
