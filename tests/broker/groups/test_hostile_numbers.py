"""Offsets, epochs and generations at the ends of their ranges: each is answered, and survives a failover."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest
from support.broker.group_harness import GroupHarness, on_virtual_time, settle

from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.errors import ErrorCode

INT32S = (-(2**31), -3, 2**31 - 1)
INT64S = (-(2**63), -2, -1, 2**63 - 1)


def play(test: Any) -> None:
    failures: list[dict[str, Any]] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
        await test(GroupHarness())

    on_virtual_time(main)
    assert failures == []


@pytest.mark.parametrize("offset", INT64S)
@pytest.mark.parametrize("leader_epoch", INT32S)
def test_any_offset_may_be_committed_and_is_there_after_a_failover(offset: int, leader_epoch: int) -> None:
    """As with Apache Kafka 4.2, which refuses none."""

    async def test(harness: GroupHarness) -> None:
        row = {
            "partition_index": 0,
            "committed_offset": offset,
            "committed_leader_epoch": leader_epoch,
            "committed_metadata": "m",
        }
        topic = {"name": "flights", "topic_id": UUID(int=0xF117), "partitions": [row]}
        assert await harness.commit("g", topics=[topic]) == 0
        assert await harness.committed("g") == offset
        harness.lead(2)
        harness.lead(1)
        await settle()
        assert await harness.committed("g") == offset
        assert harness.groups.partitions.passed_over == 0
        assert await harness.commit("g", offset=7) == 0
        assert await harness.committed("g") == 7

    play(test)


@pytest.mark.parametrize("number", INT32S)
def test_generations_and_member_epochs_that_nobody_has_are_refused(number: int) -> None:
    async def test(harness: GroupHarness) -> None:
        joined = await harness.join("g")
        await harness.sync("g", joined)
        beat = {"group_id": "g", "generation_id": number, "member_id": joined.member_id, "group_instance_id": None}
        answer = await harness.call(ApiKey.HEARTBEAT, 4, beat)
        assert answer.error_code == ErrorCode.ILLEGAL_GENERATION
        commit = {"member_id": joined.member_id, "generation_id_or_member_epoch": number}
        assert await harness.commit("g", **commit) == ErrorCode.ILLEGAL_GENERATION
        fields = {
            "group_id": "modern",
            "member_id": "m",
            "instance_id": None,
            "rack_id": None,
            "rebalance_timeout": 60_000,
            "subscribed_topic_names": ["flights"],
            "subscribed_topic_regex": None,
            "server_assignor": None,
            "topic_partitions": [],
        }
        first = await harness.call(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, {**fields, "member_epoch": 0})
        assert first.error_code == 0
        wrong = await harness.call(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, {**fields, "member_epoch": number})
        assert wrong.error_code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.INVALID_REQUEST)
        again = {**beat, "generation_id": joined.generation_id}
        assert (await harness.call(ApiKey.HEARTBEAT, 4, again)).error_code == 0

    play(test)


@pytest.mark.parametrize("number", [-(2**31), -1, 0, 2**31 - 1])
def test_time_outs_of_any_length_hold_no_group(number: int) -> None:
    async def test(harness: GroupHarness) -> None:
        static = await harness.join("g", group_instance_id="i", rebalance_timeout=number)
        await harness.sync("g", static)  # refused where the time-out is over before
        fields = {
            "group_id": "g",
            "session_timeout": 10_000,
            "rebalance_timeout": number,
            "member_id": "",
            "group_instance_id": "j",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        }
        answer = harness.parked(ApiKey.JOIN_GROUP, 9, fields)
        await asyncio.sleep(30)
        found = answer()
        assert found is not None
        assert found.error_code == 0

    play(test)
