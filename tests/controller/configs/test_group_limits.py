"""What a group may set: within the operator's limits, and a session that outlasts the heartbeats."""

from __future__ import annotations

import pytest

from raftwerk.controller.configs.group_configs import GroupLimits
from raftwerk.wire.errors import ErrorCode, ProtocolError

SESSION, INTERVAL = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


@pytest.mark.parametrize(
    ("values", "refusal"),
    [
        ({}, None),
        ({SESSION: "45000", INTERVAL: "5000"}, None),
        ({SESSION: "60000", INTERVAL: "15000"}, None),
        ({SESSION: "44999"}, "greater than or equal to group.consumer.min.session.timeout.ms"),
        ({SESSION: "60001"}, "less than or equal to group.consumer.max.session.timeout.ms"),
        ({INTERVAL: "4999"}, "greater than or equal to group.consumer.min.heartbeat.interval.ms"),
        ({INTERVAL: "15001"}, "less than or equal to group.consumer.max.heartbeat.interval.ms"),
    ],
)
def test_the_limits_are_apache_kafkas(values: dict[str, str], refusal: str | None) -> None:
    check(GroupLimits(), values, refusal)


@pytest.mark.parametrize(
    ("values", "refusal"),
    [
        ({SESSION: "5001"}, None),
        ({SESSION: "5000"}, f"{SESSION} must be greater than {INTERVAL}"),
        ({SESSION: "9000", INTERVAL: "8999"}, None),
        ({SESSION: "9000", INTERVAL: "9000"}, f"{SESSION} must be greater than {INTERVAL}"),
        ({INTERVAL: "45000"}, f"{SESSION} must be greater than {INTERVAL}"),
    ],
)
def test_a_session_outlasts_the_heartbeats_of_the_group(values: dict[str, str], refusal: str | None) -> None:
    """A value that the group does not set is the operator's."""
    check(GroupLimits(session_ms=(1, 100_000), interval_ms=(1, 100_000)), values, refusal)


def check(limits: GroupLimits, values: dict[str, str], refusal: str | None) -> None:
    if refusal is None:
        limits.check(values)
        return
    with pytest.raises(ProtocolError) as refused:
        limits.check(values)
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    assert refusal in (refused.value.message or "")
