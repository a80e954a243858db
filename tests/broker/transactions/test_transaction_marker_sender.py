"""The sender of transaction markers, with a channel that fails."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from support.broker.broker_harness import settle
from support.broker.group_harness import on_virtual_time

from raftwerk.broker.transactions import transaction_marker_sender
from raftwerk.broker.transactions.marker_queues import Ending
from raftwerk.broker.transactions.transaction_marker_sender import TransactionMarkerSender
from raftwerk.isr.leader.transaction_markers import TransactionMarker
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.types import TopicPartition

PARTITION = TopicPartition("t", 0)
ENDING = Ending(3, "tx", TransactionMarker(1, 0, 7, True, 2))


class FailingChannels:
    """Brokers of which the first request fails in a way that nobody expects."""

    def __init__(self) -> None:
        self.requests = 0

    async def request(self, broker_id: int, api_key: ApiKey, version: int, fields: Any, *, timeout_ms: int) -> Any:
        self.requests += 1
        if self.requests == 1:
            raise RuntimeError("a bug")
        row = SimpleNamespace(partition_index=0, error_code=0)
        topic = SimpleNamespace(name="t", partitions=[row])
        return SimpleNamespace(markers=[SimpleNamespace(producer_id=1, topics=[topic])])


def metadata_with_leader(broker_id: int) -> Any:
    topic = SimpleNamespace(partitions={0: SimpleNamespace(leader=broker_id)})
    return SimpleNamespace(image=SimpleNamespace(topics_by_name={"t": topic}))


async def send_until_marked(channels: FailingChannels) -> list[object]:
    marked: asyncio.Future[Sequence[TopicPartition]] = asyncio.get_running_loop().create_future()
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context.get("exception")))
    sender = TransactionMarkerSender(channels, metadata_with_leader(2), lambda _, done: marked.set_result(done))
    sender.send(ENDING, [PARTITION])
    assert await asyncio.wait_for(marked, 10) == [PARTITION]
    sender.close()
    return reported


def test_markers_are_sent_again_after_a_failure_that_nobody_expects(monkeypatch: Any) -> None:
    monkeypatch.setattr(transaction_marker_sender, "RETRY_S", 0.0)
    channels = FailingChannels()
    reported = asyncio.run(send_until_marked(channels))
    assert channels.requests == 2
    assert [str(each) for each in reported] == ["a bug"]


class SilentChannels:
    """Brokers that answer when the test does."""

    def __init__(self) -> None:
        self.requests: list[asyncio.Future[Any]] = []
        self.brokers: list[int] = []

    async def request(self, broker_id: int, api_key: ApiKey, version: int, fields: Any, *, timeout_ms: int) -> Any:
        self.brokers.append(broker_id)
        self.requests.append(asyncio.get_running_loop().create_future())
        return await self.requests[-1]


def test_markers_that_still_wait_when_another_broker_coordinates_are_never_sent() -> None:
    """The next coordinator sends them. These would be refused, since they carry the former coordinator epoch."""
    channels = SilentChannels()

    async def main() -> None:
        sender = TransactionMarkerSender(channels, metadata_with_leader(2), lambda *_: None)
        for number in range(transaction_marker_sender.REQUESTS_PER_BROKER + 1):
            sender.send(Ending(3, f"tx-{number}", TransactionMarker(number, 0, 7, True, 2)), [PARTITION])
            await settle()
        assert len(channels.requests) == transaction_marker_sender.REQUESTS_PER_BROKER
        sender.drop(3)
        for request in list(channels.requests):
            request.set_exception(OSError("the broker has stopped"))
        await settle()
        assert len(channels.requests) == transaction_marker_sender.REQUESTS_PER_BROKER
        sender.close()

    asyncio.run(main())


def answer(code: ErrorCode) -> Any:
    """The answer of a broker to the marker of `ENDING`."""
    topic = SimpleNamespace(name="t", partitions=[SimpleNamespace(partition_index=0, error_code=int(code))])
    return SimpleNamespace(markers=[SimpleNamespace(producer_id=1, topics=[topic])])


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_what_brokers_answer_to_a_former_coordinator_is_of_no_account(code: ErrorCode) -> None:
    """The next coordinator may already be in the next transaction of the id."""
    channels, marked = SilentChannels(), []

    async def main() -> None:
        sender = TransactionMarkerSender(channels, metadata_with_leader(2), lambda *what: marked.append(what))
        sender.send(ENDING, [PARTITION])
        await settle()
        sender.drop(ENDING.coordinator_partition)
        channels.requests[0].set_result(answer(code))
        await settle()
        await asyncio.sleep(2 * transaction_marker_sender.RETRY_S)
        assert len(channels.requests) == 1
        sender.close()

    on_virtual_time(main)
    assert not marked


def test_a_broker_that_stops_sends_no_marker_again() -> None:
    channels = SilentChannels()

    async def main() -> None:
        sender = TransactionMarkerSender(channels, metadata_with_leader(2), lambda *_: None)
        sender.send(ENDING, [PARTITION])
        await settle()
        channels.requests[0].set_result(answer(ErrorCode.NOT_ENOUGH_REPLICAS))
        await settle()
        sender.close()
        await asyncio.sleep(2 * transaction_marker_sender.RETRY_S)

    on_virtual_time(main)
    assert len(channels.requests) == 1


@pytest.mark.parametrize("leader", [0, -1])
def test_broker_0_leads_as_any_other_and_where_nobody_leads_markers_wait(leader: int) -> None:
    channels = SilentChannels()

    async def main() -> None:
        sender = TransactionMarkerSender(channels, metadata_with_leader(leader), lambda *_: None)
        sender.send(ENDING, [PARTITION])
        await settle()
        sender.close()

    on_virtual_time(main)
    assert channels.brokers == ([0] if leader == 0 else [])
