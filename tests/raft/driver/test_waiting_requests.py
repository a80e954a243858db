"""Fetches that wait at a driver for their answer: none waits for ever."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any
from uuid import UUID

from support.raft.lone_voter import CONFIG, LoneVoter, run

from raftwerk.raft.messages.messages import Fetch, Vote
from raftwerk.raft.messages.wire_messages import election_request_fields, fetch_request
from raftwerk.raft.types import ReplicaKey
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.codec import decode_request, encode_request
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.fetch import FetchPartitionResponse

HOUR_MS = 60 * 60 * 1000


async def fetch_at_end(node: LoneVoter) -> asyncio.Task[FetchPartitionResponse]:
    """An observer fetches what follows all that it has, and waits an hour for it at most."""
    driver = node.driver
    await asyncio.sleep(5)  # until all is committed
    fetch = Fetch(
        cluster_id="c",
        replica=ReplicaKey(9, UUID(int=9)),
        epoch=driver.epoch,
        fetch_offset=driver.log_end_offset,
        last_epoch=driver.epoch,
        max_wait_ms=HOUR_MS,
        max_bytes=1000,
        high_watermark=driver.high_watermark,
    )

    async def answered() -> FetchPartitionResponse:
        response = await driver.handle_fetch(18, fetch_request(fetch))
        return response.topics[0].partitions[0]

    task = asyncio.get_running_loop().create_task(answered())
    await asyncio.sleep(1)
    assert not task.done()
    node.disk.set_sync_latency(1.0, 1.0)  # so that no commit is what answers it
    return task


def test_records_that_are_appended_in_one_turn_of_the_loop_are_answered_together() -> None:
    async def test(node: LoneVoter) -> None:
        driver = await node.start()
        waiting = await fetch_at_end(node)
        for record in (b"a", b"b"):
            driver.append([record], driver.epoch)
        answered = await asyncio.wait_for(waiting, 0.001)
        assert answered.records_in_memory() == driver.quorum_state.log.read(1, 1 << 20)
        waiting = await fetch_at_end(node)
        driver.append([b"c"], driver.epoch)
        assert len((await asyncio.wait_for(waiting, 0.001)).records_in_memory()), "the next ones, too"
        await driver.stop()

    run(test)


def test_an_upgrade_of_the_version_answers_the_fetches_that_wait_for_records() -> None:
    async def test(node: LoneVoter) -> None:
        driver = await node.start(replace(CONFIG, directory_id=UUID(int=7)))
        waiting = await fetch_at_end(node)
        driver.upgrade_kraft_version(driver.epoch, 1, validate_only=False)
        assert len((await asyncio.wait_for(waiting, 0.001)).records_in_memory())
        await driver.stop()

    run(test)


def test_a_fetch_is_answered_without_news_when_it_has_waited_long_enough() -> None:
    async def test(node: LoneVoter) -> None:
        driver = await node.start()
        waiting = await fetch_at_end(node)
        await asyncio.sleep(HOUR_MS / 1000 - 1.5)
        assert not waiting.done()
        await asyncio.sleep(1)
        answered = waiting.result()
        assert (answered.error_code, answered.high_watermark) == (ErrorCode.NONE, 1)
        await driver.stop()

    run(test)


def test_who_leaves_the_quorum_answers_what_waits_even_if_the_answer_could_not_be_sent() -> None:
    """A later epoch ends the leadership, but it cannot be written, and so no effect of it is carried out."""

    async def ask(node: LoneVoter, request: Vote) -> dict[str, Any]:
        fields = election_request_fields(request, "CONTROLLER")
        decoded = decode_request(ApiKey.VOTE, 2, memoryview(encode_request(ApiKey.VOTE, 2, fields)))
        return await node.driver.handle_request(ApiKey.VOTE, 2, decoded)

    async def test(node: LoneVoter) -> None:
        driver = await node.start()
        waiting = await fetch_at_end(node)
        node.disk.fail_dir("/data")
        vote = Vote(
            cluster_id="c",
            voter=ReplicaKey(1),
            candidate=ReplicaKey(2),
            epoch=driver.epoch + 1,
            last_epoch=driver.epoch,
            last_offset=100,
            pre_vote=False,
        )
        assert (await ask(node, vote))["error_code"] == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await waiting).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert driver.failure.done()
        await driver.stop()

    run(test)
