"""A CreateTopics of very many topics is decided in parts; each topic is in one batch, and one response follows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from support.controller.controller_harness import Harness, decoded, scenario

from raftwerk.controller.metadata.metadata_records import PartitionRecord, TopicRecord
from raftwerk.controller.topics import create_topics
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.errors import ErrorCode

PER_BATCH, COUNT, PARTITIONS = 10, 40, 3


@pytest.fixture(autouse=True)
def _few_at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(create_topics, "PARTITIONS_PER_BATCH", PER_BATCH)
    yield


async def cluster() -> Harness:
    harness = Harness()
    for broker_id in (1, 2, 3):
        await harness.add_broker(broker_id)
    return harness


def row(name: str, partitions: int = PARTITIONS) -> dict[str, Any]:
    return {"name": name, "num_partitions": partitions, "replication_factor": 3, "assignments": [], "configs": []}


def request(*rows: dict[str, Any], validate_only: bool = False) -> Any:
    return decoded(ApiKey.CREATE_TOPICS, topics=list(rows), validate_only=validate_only)


@scenario
async def test_topics_are_created_in_batches_and_each_is_in_one_batch() -> None:
    harness = await cluster()
    before = len(harness.quorum.batches)
    rows = [row(f"t{i}") for i in range(COUNT)]
    asked = harness.controller.create_topics(request(*rows, row("t7"), row("bad/name"), row("wide", 2 * PER_BATCH)))
    await asyncio.sleep(0)
    meanwhile = harness.controller.create_topics(request(row("between")))
    answer = await asked
    codes = {one["name"]: one["error_code"] for one in answer["topics"]}
    assert codes.pop("bad/name") == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert codes.pop("t7") == ErrorCode.INVALID_REQUEST, "named twice"
    assert list(codes) == [name for name in [*(f"t{i}" for i in range(COUNT)), "wide"] if name != "t7"]
    assert not any(codes.values()) and (await meanwhile)["topics"][0]["error_code"] == 0
    batches = [batch.records for batch in harness.quorum.batches[before:] if batch.records]
    assert len(batches) > COUNT * PARTITIONS // PER_BATCH
    by_offset = dict(harness.quorum.records())
    position = harness.quorum.batches[before].base_offset
    for records in batches:
        decoded = [by_offset[position + at] for at in range(len(records))]
        position += len(records)
        made = [one.topic_id for one in decoded if isinstance(one, TopicRecord)]
        assert {one.topic_id for one in decoded if isinstance(one, PartitionRecord)} == set(made)
        assert (
            len(decoded) <= PER_BATCH + PARTITIONS + 1
            or len(made) == 1
            or "wide" in {one.name for one in decoded if isinstance(one, TopicRecord)}
        )
    assert len(harness.image.topics_by_name["wide"].partitions) == 2 * PER_BATCH
    assert {len(topic.partitions) for topic in harness.image.topics_by_id.values()} >= {PARTITIONS, 2 * PER_BATCH}


@scenario
async def test_the_limit_of_a_request_counts_all_its_parts() -> None:
    harness = await cluster()
    rows = [row(f"t{i}") for i in range(COUNT)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(create_topics, "PARTITIONS_PER_REQUEST_MAX", 60)
        answer = await harness.controller.create_topics(request(*rows))
    codes = [one["error_code"] for one in answer["topics"]]
    assert codes == [0] * 20 + [int(ErrorCode.POLICY_VIOLATION)] * 20


@scenario
async def test_a_request_that_only_validates_is_decided_in_parts_too() -> None:
    harness = await cluster()
    offset = harness.image.offset
    answer = await harness.controller.create_topics(request(*[row(f"t{i}") for i in range(COUNT)], validate_only=True))
    assert [one["error_code"] for one in answer["topics"]] == [0] * COUNT
    assert harness.image.offset == offset and not harness.image.topics_by_name
