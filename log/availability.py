"""Whether a log can be used."""

from __future__ import annotations

from collections.abc import Callable

from .errors import StorageError


class LogAvailability:
    """Whether a log is open, closed, or has failed for good. After a failed fsync its files' contents are unknown."""

    __slots__ = ("_directory", "_on_failed", "failure", "is_closed")

    def __init__(self, directory: str, on_failed: Callable[[OSError], None]) -> None:
        self._directory = directory
        self._on_failed = on_failed
        self.failure: StorageError | None = None
        """The error that every operation raises from now on."""
        self.is_closed = False

    def check(self) -> None:
        """Raise `StorageError` if the log is closed or has failed."""
        if self.failure is not None:
            raise self.failure
        if self.is_closed:
            raise StorageError(f"{self._directory} is closed")

    def fail(self, what: str, error: BaseException) -> StorageError:
        """The log has failed for good; returns the error to raise. The first failure counts."""
        if self.failure is None:
            self.failure = StorageError(f"{self._directory} has failed, {what}: {error}")
            self.failure.__cause__ = error
            if isinstance(error, OSError):
                self._on_failed(error)
        return self.failure
