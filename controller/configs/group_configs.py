"""The table of group configurations (KIP-848, resource type GROUP), and the limits that the operator sets for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...wire.config_def import INT, POSITIVE, ConfigKey, Synonym
from ...wire.errors import ErrorCode, ProtocolError

SESSION, INTERVAL = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"

GROUP_CONFIGS: Mapping[str, ConfigKey] = {
    key.name: key
    for key in (
        ConfigKey(
            INTERVAL,
            INT,
            "5000",
            "How often members of the consumer protocol send heartbeats.",
            POSITIVE,
            (Synonym("group.consumer.heartbeat.interval.ms"),),
        ),
        ConfigKey(
            SESSION,
            INT,
            "45000",
            "A member of the consumer protocol that sends no heartbeat for this time leaves its group.",
            POSITIVE,
            (Synonym("group.consumer.session.timeout.ms"),),
        ),
    )
}


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """`group.consumer.(min|max).*`: what a group may set, in milliseconds, and the values of a group that sets none."""

    session_ms: tuple[int, int] = (45_000, 60_000)
    interval_ms: tuple[int, int] = (5_000, 15_000)
    default_session_ms: int = 45_000
    default_interval_ms: int = 5_000

    def check(self, values: Mapping[str, str]) -> None:
        """Check valid values against the limits. Raises `ProtocolError(INVALID_CONFIG)`."""
        session_ms = int(values.get(SESSION, self.default_session_ms))
        interval_ms = int(values.get(INTERVAL, self.default_interval_ms))
        if SESSION in values:
            _check_range(SESSION, session_ms, self.session_ms, "session.timeout.ms")
        if INTERVAL in values:
            _check_range(INTERVAL, interval_ms, self.interval_ms, "heartbeat.interval.ms")
        if values and session_ms <= interval_ms:
            raise ProtocolError(ErrorCode.INVALID_CONFIG, f"{SESSION} must be greater than {INTERVAL}")


def _check_range(name: str, value: int, limits: tuple[int, int], setting: str) -> None:
    low, high = limits
    if value < low:
        complaint = f"{name} must be greater than or equal to group.consumer.min.{setting}"
        raise ProtocolError(ErrorCode.INVALID_CONFIG, complaint)
    if value > high:
        complaint = f"{name} must be less than or equal to group.consumer.max.{setting}"
        raise ProtocolError(ErrorCode.INVALID_CONFIG, complaint)
