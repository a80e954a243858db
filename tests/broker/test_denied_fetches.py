"""Fetches without the right to read: of consumers in a session, of very many partitions, and of who is no replica."""

from __future__ import annotations

from typing import Any

import pytest
from support.broker.broker_harness import TOPIC, TOPIC_ID, Harness, run

from raftwerk.broker.authorization import Authorization
from raftwerk.security.authorizer.acl_binding import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)
from raftwerk.security.authorizer.standard_authorizer import StandardAuthorizer
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.codec import Struct
from raftwerk.wire.errors import ErrorCode

MAY_READ = AclBinding(
    ResourceType.TOPIC, TOPIC, PatternType.LITERAL, "User:*", "*", AclOperation.READ, AclPermissionType.ALLOW
)
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
MANY = 800
"""So many partitions are handled in steps."""


def _fetch(*topics: tuple[dict[str, Any], int], **fields: Any) -> dict[str, Any]:
    rows = [
        {
            **topic,
            "partitions": [{"partition": n, "fetch_offset": 0, "partition_max_bytes": 9999} for n in range(count)],
        }
        for topic, count in topics
    ]
    sizes = {"max_wait": 0, "min_bytes": 0, "max_bytes": 1 << 20, "session_id": 0, "session_epoch": -1}
    return {"replica_id": -1, **sizes, "topics": rows, **fields}


def _codes(answer: Struct) -> dict[Any, set[int]]:
    return {
        topic.get("topic") or topic.get("topic_id"): {row.error_code for row in topic.partitions}
        for topic in answer.responses
    }


def _harness(*bindings: AclBinding) -> tuple[Harness, StandardAuthorizer]:
    authorizer = StandardAuthorizer()
    authorizer.replace(bindings)
    harness = Harness(authorization=Authorization(authorizer))
    harness.replicas.records[f"{TOPIC}-0"] = b"secret"
    return harness, authorizer


def test_a_session_reads_nothing_when_the_right_is_gone() -> None:
    async def test() -> None:
        harness, authorizer = _harness(MAY_READ)
        connection = harness.connect()
        first = _fetch(({"topic": TOPIC}, 1), session_epoch=0)
        opened = await harness.call(ApiKey.FETCH, 12, first, connection)
        assert bytes(opened.responses[0].partitions[0].records) == b"secret"
        authorizer.change((), (MAY_READ,))
        following = _fetch(session_id=opened.session_id, session_epoch=1)
        answer = await harness.call(ApiKey.FETCH, 12, following, connection)
        assert _codes(answer) == {TOPIC: {DENIED}}
        assert not answer.responses[0].partitions[0].records
        authorizer.change((MAY_READ,), ())
        answer = await harness.call(ApiKey.FETCH, 12, following | {"session_epoch": 2}, connection)
        assert bytes(answer.responses[0].partitions[0].records) == b"secret"

    run(test())


@pytest.mark.parametrize("count", [1, MANY])
def test_nobody_learns_by_a_fetch_which_names_exist(count: int) -> None:
    async def test() -> None:
        harness, _ = _harness()
        answer = await harness.call(ApiKey.FETCH, 12, _fetch(({"topic": TOPIC}, count), ({"topic": "nothing"}, count)))
        assert _codes(answer) == {TOPIC: {DENIED}, "nothing": {DENIED}}
        assert sum(len(topic.partitions) for topic in answer.responses) == 2 * count
        assert b"secret" not in bytes(str(answer), "utf-8")

    run(test())


@pytest.mark.parametrize("count", [1, MANY])
def test_who_is_no_node_does_not_fetch_as_a_replica(count: int) -> None:
    async def test() -> None:
        harness, _ = _harness(MAY_READ)
        as_replica = {"replica_state": {"replica_id": 2, "replica_epoch": -1}, "session_epoch": 0}
        answer = await harness.call(ApiKey.FETCH, 17, _fetch(({"topic_id": TOPIC_ID}, count), **as_replica))
        assert _codes(answer) == {TOPIC_ID: {DENIED}}
        assert answer.session_id == 0

    run(test())
