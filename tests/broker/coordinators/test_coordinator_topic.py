"""Where the keys of a coordinator's topic belong, and requests that wait until it is created."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from raftwerk.broker.coordinators.coordinator_topic import CoordinatorTopic
from raftwerk.broker.coordinators.partition_for import partition_for
from raftwerk.broker.transactions.transaction_config import TransactionTopicConfig
from raftwerk.chaos.sim.kernel.event_loop import ProcessLoop, Scheduler
from raftwerk.controller.metadata.metadata_image import MetadataDelta, MetadataImage
from raftwerk.controller.metadata.metadata_records import (
    BrokerChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)

NAME, TOPIC_ID = "__transaction_state", UUID(int=9)
ACTIVE, FENCED, NOBODY = 1, 2, 3
LEADERS = (ACTIVE, FENCED, NOBODY, -1)


def made(image: MetadataImage) -> CoordinatorTopic:
    metadata: Any = SimpleNamespace(image=image)
    return CoordinatorTopic(NAME, TransactionTopicConfig(partitions=50), metadata)


def replay(image: MetadataImage, *records: Any) -> None:
    for record in records:
        image.replay(record, image.offset + 1, MetadataDelta())


def fresh() -> MetadataImage:
    """Three brokers are there, and no topic."""
    image = MetadataImage("cluster")
    replay(image, *(RegisterBrokerRecord(one, UUID(int=one), (), fenced=False) for one in (ACTIVE, FENCED, NOBODY)))
    return image


def create(image: MetadataImage, name: str = NAME, number: int = 9) -> None:
    """Each broker leads one partition, and nobody leads the last one."""
    topic_id, replicas = UUID(int=number), (ACTIVE, FENCED, NOBODY)
    partitions = [PartitionRecord(topic_id, index, replicas, replicas, leader) for index, leader in enumerate(LEADERS)]
    replay(image, TopicRecord(name, topic_id), *partitions)


def key_of(partition: int) -> str:
    """A key of that partition, of four."""
    return next(str(number) for number in range(1_000) if partition_for(str(number), 4) == partition)


def run(body: Coroutine[Any, Any, None]) -> None:
    scheduler = Scheduler()
    ProcessLoop(scheduler, "coordinator").run_until_complete(body, 600.0)
    assert not scheduler.errors


def test_a_key_has_its_partition_before_the_topic_is_created_by_the_number_that_it_will_have() -> None:
    """Who commits offsets first has the topic created, and asks for the coordinator then."""
    image = fresh()
    topic = made(image)
    assert topic.image is None and topic.registration_of("t") is None and topic.coordinator_of("t") is None
    assert topic.partition_of("t") == partition_for("t", 50)
    create(image)
    assert topic.image is not None and topic.image.topic_id == TOPIC_ID
    assert topic.partition_of("t") == partition_for("t", 4)


def test_only_a_broker_that_serves_is_named_as_the_coordinator() -> None:
    """A client would else ask a dead broker again and again."""
    image = fresh()
    create(image)
    epochs = {broker_id: broker.epoch for broker_id, broker in image.brokers.items()}
    replay(
        image, BrokerChangeRecord(FENCED, epochs[FENCED], fenced=True), UnregisterBrokerRecord(NOBODY, epochs[NOBODY])
    )
    topic = made(image)
    assert [topic.coordinator_of(key_of(partition)) for partition in range(4)] == [ACTIVE, None, None, None]
    registrations = [topic.registration_of(key_of(partition)) for partition in range(4)]
    assert [one.leader for one in registrations if one is not None] == list(LEADERS)


def test_who_waits_for_the_topic_goes_on_when_it_is_created_and_not_before() -> None:
    async def body() -> None:
        image, loop = fresh(), asyncio.get_running_loop()
        topic = made(image)
        waiting = [loop.create_task(topic.wait(10.0)) for _ in range(2)]
        await asyncio.sleep(1.0)
        create(image, "another", 8)
        topic.on_metadata(image)
        await asyncio.sleep(1.0)
        assert not any(task.done() for task in waiting)
        create(image)
        topic.on_metadata(image)
        await asyncio.sleep(0.001)
        assert all(task.done() for task in waiting)
        topic.on_metadata(image)

    run(body())


def test_who_waits_in_vain_goes_on_after_the_time_out_and_may_wait_again() -> None:
    async def body() -> None:
        image, loop = fresh(), asyncio.get_running_loop()
        topic = made(image)
        began = loop.time()
        await topic.wait(10.0)
        assert 9.999 <= loop.time() - began <= 10.001
        again = loop.create_task(topic.wait(10.0))
        await asyncio.sleep(1.0)
        create(image)
        topic.on_metadata(image)
        await asyncio.sleep(0.001)
        assert again.done()

    run(body())


def test_nobody_waits_for_a_coordinator_that_stops() -> None:
    async def body() -> None:
        loop = asyncio.get_running_loop()
        topic = made(MetadataImage("cluster"))
        waiting = loop.create_task(topic.wait(10.0))
        await asyncio.sleep(1.0)
        topic.close()
        await asyncio.sleep(0.001)
        assert waiting.done()

    run(body())
