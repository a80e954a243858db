"""A wave of members with large subscriptions: their records are one batch, which the log takes whole or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from support.broker.group_harness import GroupHarness, play, played

from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.codec import Struct
from raftwerk.wire.errors import ErrorCode

NAMES = [f"orders.region-{number:04}.events" for number in range(300)]
"""8 KB a member: a wave of them is larger than one batch may be."""
FIRST = [f"m{number:03}" for number in range(100)]
WAVE = [f"w{number:03}" for number in range(150)]
TRY_AGAIN = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE)


def commits_later(harness: GroupHarness) -> None:
    """A batch is committed 3 ms after its append, as with replicas; it is refused at once."""
    append = harness.append

    def later(acks: int, timeout_ms: int, entries: Any, done: Callable[[Any], None], *rest: Any, **more: Any) -> None:
        def answered(result: Any) -> None:
            if result[0].error_code:
                done(result)
            else:
                asyncio.get_running_loop().call_later(0.003, done, result)

        append(acks, timeout_ms, entries, answered, *rest, **more)

    harness.replicas.append = later  # type: ignore[method-assign]


async def join(harness: GroupHarness, member_id: str) -> list[int]:
    """Join, and try again where the coordinator says so; the codes."""
    fields = {"group_id": "g", "member_id": member_id, "member_epoch": 0, "rebalance_timeout": 60_000}
    codes: list[int] = []
    while not codes or codes[-1] in TRY_AGAIN:
        asked = {**fields, "subscribed_topic_names": NAMES, "topic_partitions": []}
        answer: Callable[[], Struct | None] = harness.parked(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, asked)
        for _ in range(1000):
            await asyncio.sleep(0.005)
            if (found := answer()) is not None:
                break
        assert found is not None
        codes.append(found.error_code)
    return codes


async def join_as_a_wave(harness: GroupHarness) -> list[list[int]]:
    """The codes that each member of the wave gets, which joins after others have."""
    for member_id in FIRST:
        assert await join(harness, member_id) == [0]
    return await asyncio.gather(*(join(harness, member_id) for member_id in WAVE))


@pytest.mark.parametrize("has_replicas", [False, True])
def test_all_members_of_a_wave_join(has_replicas: bool) -> None:
    async def test(harness: GroupHarness) -> None:
        shard = harness.groups.shard_of("g")
        if has_replicas:
            commits_later(harness)
        assert await join_as_a_wave(harness) == [[0]] * len(WAVE)
        assert sorted(shard.groups["g"].members) == FIRST + WAVE  # type: ignore[arg-type]
        assert harness.groups.shard_of("g") is shard

    play(test)


@played
async def test_a_wave_that_does_not_fit_is_tried_again_in_smaller_ones(harness: GroupHarness) -> None:
    """Where max.message.bytes is smaller than by default, nobody is told of a join that is not in the log."""
    shard = harness.groups.shard_of("g")
    for log in harness.logs.values():
        log.config = replace(log.config, max_message_bytes=100_000)
    told = await join_as_a_wave(harness)
    assert {codes[-1] for codes in told} == {0} and [0] in told
    assert {code for codes in told for code in codes} == {0, ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert sorted(shard.groups["g"].members) == FIRST + WAVE  # type: ignore[arg-type]
    assert harness.groups.shard_of("g") is shard
