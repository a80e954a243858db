"""Consumers go over from one group protocol to the other and back, one after the other, while records come in."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from support.e2e import helpers
from support.e2e.consumers import CLASSIC, CONSUMER, COOPERATIVE, PARTITIONS, confluent

RATE = 200


@dataclass
class Stream:
    """Numbers come in at a steady rate; consumers are polled in turn, and commit by themselves."""

    bootstrap: str
    topic: str
    sent: int = 0
    read: Counter[int] = field(default_factory=Counter)
    consumers: dict[str, Consumer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._producer = Producer({"bootstrap.servers": self.bootstrap, **helpers.PRODUCER})
        self._began = time.monotonic()

    def start(self, name: str, **config: Any) -> None:
        settings = {"enable.auto.commit": True, "auto.commit.interval.ms": 200, **config}
        self.consumers[name] = confluent(self.bootstrap, self.topic, **settings)
        self.consumers[name].subscribe([self.topic])

    def stop(self, name: str) -> None:
        self.consumers.pop(name).close()

    def step(self, *, sends: bool = True) -> None:
        while sends and self.sent < (time.monotonic() - self._began) * RATE:
            self._producer.produce(self.topic, str(self.sent), partition=self.sent % PARTITIONS)
            self.sent += 1
        self._producer.poll(0)
        for consumer in self.consumers.values():
            message = consumer.poll(0.005)
            if message is not None and message.error() is None:
                self.read[int(message.value() or b"")] += 1

    def until(self, condition: Callable[[], bool], *, sends: bool = True) -> None:
        deadline = time.monotonic() + 40
        while not condition():
            assert time.monotonic() < deadline, self.owned()
            self.step(sends=sends)

    def owned(self) -> list[list[int]]:
        return [sorted(one.partition for one in consumer.assignment()) for consumer in self.consumers.values()]

    def is_shared_out(self) -> bool:
        owned = self.owned()
        return all(owned) and sorted(part for parts in owned for part in parts) == list(range(PARTITIONS))

    def settle(self) -> None:
        """Until everybody has its share, and has read something of it."""
        self.until(self.is_shared_out)
        mark = self.sent
        self.until(lambda: all(number in self.read for number in range(max(mark - PARTITIONS, 0), mark)))

    def finish(self) -> None:
        assert self._producer.flush(30) == 0
        self.until(lambda: len(self.read) == self.sent, sends=False)


def kind_of(bootstrap: str, group: str) -> str:
    """The group's protocol, as the coordinator lists it."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    listed = admin.list_consumer_groups(request_timeout=10).result().valid
    return next(str(one.type.name).lower() for one in listed if one.group_id == group)


@pytest.mark.parametrize("classic", [CLASSIC, COOPERATIVE], ids=["eager", "cooperative"])
def test_a_rolling_upgrade_and_back(bootstrap: str, topic: str, classic: dict[str, str]) -> None:
    """Nothing is lost, and nothing read twice, since whoever leaves commits first."""
    helpers.create_topic(bootstrap, topic, PARTITIONS)
    stream = Stream(bootstrap, topic)
    classic = {**classic, "heartbeat.interval.ms": 300, "session.timeout.ms": 10000}  # type: ignore[dict-item]
    for name in ("a", "b"):
        stream.start(name, **classic)
    stream.settle()
    kinds = [kind_of(bootstrap, topic)]
    for config in (CONSUMER, classic):
        for name in ("a", "b"):
            stream.stop(name)
            stream.start(name, **config)
            stream.settle()
            kinds.append(kind_of(bootstrap, topic))
    assert kinds == ["classic", "consumer", "consumer", "consumer", "classic"]
    stream.finish()
    assert sorted(stream.read) == list(range(stream.sent))
    assert [number for number, count in stream.read.items() if count > 1] == []
    for name in ("a", "b"):
        stream.stop(name)
