"""The errors of the clients, with texts for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...wire.errors import ErrorCode
from .error_sentences import error_sentence

_RETRIABLE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)


class ClientError(Exception):
    """A request was refused, or no broker answered."""


class WrongArgumentError(ClientError):
    """An argument cannot mean anything to any cluster; no broker was asked."""


class UnreachableError(ClientError):
    """No broker answers.

    `reasons` has what each address did, as "refuses the connection". Those that are `silent` took the connection
    and did not answer.
    """

    def __init__(self, reasons: Mapping[tuple[str, int], str], silent: Iterable[tuple[str, int]] = ()) -> None:
        self.reasons = reasons
        self.silent = tuple(silent)
        told = "; ".join(f"{host}:{port} {reason}" for (host, port), reason in reasons.items())
        super().__init__(f"no broker answers: {told}")


class RefusedError(ClientError):
    """The cluster answered with an error code. The text says what it means and what to do."""

    def __init__(self, code: int, what: str, message: str | None = None) -> None:
        self.code = code
        super().__init__(f"{what}: {error_sentence(code, message)}")


def is_retriable(code: int) -> bool:
    """Whether the same request may succeed later."""
    return code in _RETRIABLE
