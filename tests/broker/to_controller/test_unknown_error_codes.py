"""Answers of a controller that is newer than this broker: an error code that it does not know is a server error."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from support.broker.broker_harness import LISTENER
from support.broker.group_harness import on_virtual_time

from raftwerk.broker.config import AdvertisedListener, BrokerConfig
from raftwerk.broker.to_controller.alter_partition_sender import AlterPartitionSender
from raftwerk.broker.to_controller.assignment_sender import AssignmentSender
from raftwerk.broker.to_controller.broker_lifecycle import BrokerState
from raftwerk.broker.to_controller.broker_lifecycle_manager import BrokerLifecycleManager
from raftwerk.broker.to_controller.producer_id_manager import ProducerIdBlockSource
from raftwerk.wire.errors import ErrorCode, ProtocolError, known_error

UNKNOWN = 32_000


class Controller:
    """Answers each request with these error codes, the last one again and again."""

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)
        self.requests = 0

    async def request(self, *_: Any, **__: Any) -> Any:
        self.requests += 1
        code = self.codes.pop(0) if len(self.codes) > 1 else self.codes[0]
        return SimpleNamespace(
            error_code=code, broker_epoch=3, is_fenced=False, is_caught_up=True, should_shut_down=False
        )

    def close(self) -> None:
        pass


def test_known_and_unknown_codes() -> None:
    assert known_error(36) is ErrorCode.TOPIC_ALREADY_EXISTS
    assert known_error(UNKNOWN) is ErrorCode.UNKNOWN_SERVER_ERROR


SENDERS: list[Callable[[Any], Awaitable[object]]] = [
    lambda channel: AlterPartitionSender(channel, 1, lambda: 3).send([]),
    lambda channel: AssignmentSender(channel, 1, lambda: 3).send({}),
    lambda channel: ProducerIdBlockSource(channel, 1, lambda: 3).allocate(),
]


@pytest.mark.parametrize("send", SENDERS, ids=["AlterPartition", "AssignReplicasToDirs", "AllocateProducerIds"])
def test_a_request_is_refused_by_it(send: Callable[[Any], Awaitable[object]]) -> None:
    async def main() -> None:
        with pytest.raises(ProtocolError) as refused:
            await send(Controller(UNKNOWN))
        assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR

    on_virtual_time(main)


def manager_at(controller: Any, failures: list[BaseException]) -> BrokerLifecycleManager:
    listeners = (AdvertisedListener(LISTENER, "h", 9092),)
    config = BrokerConfig(node_id=1, cluster_id="c", listeners=listeners, inter_broker_listener=LISTENER)
    loader: Any = SimpleNamespace(image=SimpleNamespace(offset=5, brokers={}))
    return BrokerLifecycleManager(config, UUID(int=5), loader, controller, lambda: 5, failures.append)


def test_a_broker_without_the_right_says_so_once_and_asks_again(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        denied = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        controller = Controller(*[denied] * 5, 0)
        failures: list[BaseException] = []
        manager = manager_at(controller, failures)
        manager.start()
        manager.begin_serving()
        await asyncio.sleep(60)
        assert manager.state is BrokerState.RUNNING
        assert not failures
        await manager.stop()

    on_virtual_time(main)
    (line,) = [one for one in caplog.messages if "super.users" in one]
    assert "needs ClusterAction on the cluster" in line


def test_heartbeats_go_on_after_it() -> None:
    async def main() -> None:
        controller = Controller(0, 0, UNKNOWN, 0)
        failures: list[BaseException] = []
        manager = manager_at(controller, failures)
        manager.start()
        manager.begin_serving()
        await asyncio.sleep(60)
        assert controller.requests > 10
        assert manager.state is BrokerState.RUNNING
        assert not failures
        await manager.stop()

    on_virtual_time(main)
