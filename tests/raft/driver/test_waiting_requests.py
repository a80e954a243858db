"""Requests that wait at a node for their answer: none waits for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

from support.raft.nodes import RaftNode, RaftNodes, until

from raftwerk.raft.types import METADATA_TOPIC, METADATA_TOPIC_ID
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.codec import decode_request, encode_request
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.fetch import FetchPartition, FetchPartitionResponse, FetchRequest, FetchTopic

HOUR_MS = 60 * 60 * 1000


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


async def led(nodes: RaftNodes) -> RaftNode:
    """The lone voter, which has committed the first record of its epoch."""
    node = await nodes.elected()
    await until(lambda: node.driver.high_watermark == 1)
    return node


def lone_voter(directory: Path) -> RaftNodes:
    nodes = RaftNodes(directory, 1)
    nodes.nodes[1].config = replace(nodes.nodes[1].config, directory_id=UUID(int=7))
    return nodes


def fetch_at_end(node: RaftNode) -> asyncio.Task[FetchPartitionResponse]:
    """An observer fetches what follows all that it has, and waits an hour for it at most."""
    partition = FetchPartition(
        partition=0,
        current_leader_epoch=node.driver.epoch,
        fetch_offset=node.driver.log_end_offset,
        last_fetched_epoch=node.driver.epoch,
        log_start_offset=0,
        max_bytes=1000,
        replica_directory_id=UUID(int=9),
        high_watermark=node.driver.high_watermark,
    )
    topic = FetchTopic(name=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])
    request = FetchRequest(replica_id=9, max_wait_ms=HOUR_MS, max_bytes=1000, topics=[topic], cluster_id="c")

    async def answered() -> FetchPartitionResponse:
        response = await node.driver.handle_fetch(18, request)
        return response.topics[0].partitions[0]

    return asyncio.get_running_loop().create_task(answered())


async def is_waiting(task: asyncio.Task[Any]) -> bool:
    for _ in range(5):
        await asyncio.sleep(0)
    return not task.done()


def test_an_upgrade_of_the_version_answers_the_fetches_that_wait_for_records(tmp_path: Path) -> None:
    async def test() -> None:
        async with lone_voter(tmp_path) as nodes:
            node = await led(nodes)
            waiting = fetch_at_end(node)
            assert await is_waiting(waiting)
            node.driver.upgrade_kraft_version(node.driver.epoch, 1, validate_only=False)
            assert len((await waiting).records_in_memory())

    run(test())


def test_who_leaves_the_quorum_answers_what_waits_even_if_the_answer_could_not_be_sent(tmp_path: Path) -> None:
    """A later epoch ends the leadership, but it cannot be written, and so no effect of it is carried out."""

    async def test() -> None:
        async with lone_voter(tmp_path) as nodes:
            node = await led(nodes)
            waiting = fetch_at_end(node)
            assert await is_waiting(waiting)
            node.disk.refuses_state = True
            vote = {
                "cluster_id": "c",
                "voter_id": 1,
                "topics": [
                    {
                        "topic_name": METADATA_TOPIC,
                        "partitions": [
                            {
                                "partition_index": 0,
                                "replica_epoch": node.driver.epoch + 1,
                                "replica_id": 2,
                                "replica_directory_id": UUID(int=2),
                                "voter_directory_id": UUID(int=7),
                                "last_offset_epoch": node.driver.epoch,
                                "last_offset": 100,
                                "pre_vote": False,
                            }
                        ],
                    }
                ],
            }
            request = decode_request(ApiKey.VOTE, 2, memoryview(encode_request(ApiKey.VOTE, 2, vote)))
            refused = await node.driver.handle_request(ApiKey.VOTE, 2, request)
            assert refused["error_code"] == ErrorCode.KAFKA_STORAGE_ERROR
            assert (await waiting).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert node.driver.failure.done()
            node.disk.refuses_state = False

    run(test())
