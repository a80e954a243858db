"""A request makes at most ten thousand partitions, in one topic or in several."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import pytest
from support.controller.controller_harness import decoded

from raftwerk.controller.metadata.metadata_image import MetadataDelta, MetadataImage
from raftwerk.controller.metadata.metadata_records import Endpoint, PartitionRecord, RegisterBrokerRecord, TopicRecord
from raftwerk.controller.result import Decision
from raftwerk.controller.settings import ControllerSettings
from raftwerk.controller.topics.create_partitions import create_partitions
from raftwerk.controller.topics.create_topics import create_topics
from raftwerk.controller.topics.new_partitions import TopicContext
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.errors import ErrorCode

LIMIT = 10_000


def context() -> TopicContext:
    image = MetadataImage("c")
    records: list[Any] = [RegisterBrokerRecord(1, UUID(int=5), (Endpoint("PLAINTEXT", "h", 1),), fenced=False)]
    for number, name in enumerate("ab", 1):
        topic_id = UUID(int=number)
        records += [TopicRecord(name, topic_id), PartitionRecord(topic_id, 0, (1,), (1,), 1)]
    for record in records:
        image.replay(record, image.offset + 1, MetadataDelta())
    return TopicContext(image, ControllerSettings(1), random.Random(0))


def codes(decision: Decision, rows: str) -> list[int]:
    """The error codes of a decision of any number of parts."""
    while True:
        try:
            next(decision)
        except StopIteration as end:
            return [row["error_code"] for row in end.value.response[rows]]


@pytest.mark.parametrize(
    ("counts", "errors"),
    [
        ((1 + LIMIT,), [0]),
        ((2 + LIMIT,), [ErrorCode.POLICY_VIOLATION]),
        ((LIMIT, 2), [0, 0]),
        ((LIMIT, 3), [0, ErrorCode.POLICY_VIOLATION]),
    ],
)
def test_partitions_that_are_added(counts: tuple[int, ...], errors: list[int]) -> None:
    """Both topics have one partition before."""
    rows = [{"name": name, "count": count, "assignments": None} for name, count in zip("ab", counts)]
    request = decoded(ApiKey.CREATE_PARTITIONS, topics=rows, validate_only=True)
    assert codes(create_partitions(context(), request), "results") == errors


@pytest.mark.parametrize(("count", "error"), [(LIMIT, 0), (LIMIT + 1, ErrorCode.POLICY_VIOLATION), (-1, 0)])
def test_partitions_of_a_new_topic(count: int, error: int) -> None:
    row = {"name": "new", "num_partitions": count, "replication_factor": 1}
    request = decoded(ApiKey.CREATE_TOPICS, topics=[row], validate_only=True)
    assert codes(create_topics(context(), request), "topics") == [error]


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"num_partitions": -2}, ErrorCode.INVALID_PARTITIONS),
        ({"num_partitions": 0}, ErrorCode.INVALID_PARTITIONS),
        ({"replication_factor": -2}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"replication_factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_numbers_that_mean_nothing(changes: dict[str, int], error: int) -> None:
    row = {"name": "new", "num_partitions": 1, "replication_factor": 1} | changes
    request = decoded(ApiKey.CREATE_TOPICS, topics=[row], validate_only=True)
    assert codes(create_topics(context(), request), "topics") == [error]
