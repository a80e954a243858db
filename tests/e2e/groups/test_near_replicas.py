"""Clients that name their rack read from the replica in it (KIP-392)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager

from confluent_kafka import Consumer, Producer, TopicPartition
from support.e2e import helpers

from raftwerk.cluster.local.supervisor import Supervisor
from raftwerk.controller.configs.broker_configs import RACK_AWARE_SELECTOR

TOPIC = "near"
DEADLINE_S = 60.0
RECORDS = 50


class Reader:
    """A consumer in a rack: the offsets that it has read, and the broker that it reads from."""

    def __init__(self, bootstrap: str, rack: str) -> None:
        self.offsets: list[int] = []
        self.broker = -1
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"g-{rack}",
                "client.rack": rack,
                "fetch.wait.max.ms": 100,
                "reconnect.backoff.max.ms": 200,
                "statistics.interval.ms": 100,
                "stats_cb": self._on_statistics,
            }
        )
        self.consumer.assign([TopicPartition(TOPIC, 0, 0)])

    def _on_statistics(self, told: str) -> None:
        partition = json.loads(told)["topics"].get(TOPIC, {}).get("partitions", {}).get("0")
        if partition is not None:
            self.broker = partition["broker"]

    def poll(self) -> None:
        message = self.consumer.poll(0.05)
        if message is not None and message.error() is None:
            self.offsets.append(message.offset() or 0)


@contextmanager
def readers(bootstrap: str, *racks: str) -> Iterator[dict[str, Reader]]:
    with ExitStack() as stack:
        found = {rack: Reader(bootstrap, rack) for rack in racks}
        for reader in found.values():
            stack.enter_context(closing(reader.consumer))
        yield found


def read_until(found: Mapping[str, Reader], brokers: Mapping[str, int], records: int) -> None:
    """Read until each of these has all records, and reads from the broker that it should."""
    deadline = time.monotonic() + DEADLINE_S
    while any(len(found[rack].offsets) < records or found[rack].broker != broker for rack, broker in brokers.items()):
        told = {rack: (len(reader.offsets), reader.broker) for rack, reader in found.items()}
        assert time.monotonic() < deadline, told
        for rack in brokers:
            found[rack].poll()
    assert all(found[rack].offsets == list(range(records)) for rack in brokers)


def produce(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, **helpers.PRODUCER})
    for number in range(RECORDS):
        producer.produce(TOPIC, str(number))
    assert producer.flush(DEADLINE_S) == 0


def test_librdkafka_reads_in_its_rack_and_from_the_leader_when_nobody_else_is_there(
    new_cluster: Callable[..., Supervisor],
) -> None:
    settings = {"replica.selector.class": RACK_AWARE_SELECTOR, "replica.fetch.wait.max.ms": "100"}
    cluster = new_cluster(racks=("a", "b", "c"), overrides=settings)
    bootstrap = cluster.plan.bootstrap
    helpers.create_on(bootstrap, TOPIC, [[1, 2, 3]])
    produce(bootstrap)
    with readers(bootstrap, "a", "b", "c", "nowhere") as found:
        read_until(found, {"a": 1, "b": 2, "c": 3, "nowhere": 1}, RECORDS)
        cluster.kill(3)
        produce(bootstrap)
        read_until(found, {"b": 2, "c": 1}, 2 * RECORDS)
