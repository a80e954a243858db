"""What a request of the browser is refused with."""

from __future__ import annotations


class RequestRefusedError(Exception):
    """The request is not carried out; the message says why, in a sentence for a person."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        """The HTTP status."""
