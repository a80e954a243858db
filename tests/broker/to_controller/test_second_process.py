"""A second process with a broker's id and listeners neither takes over the id nor hides the broker's end."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

from support.broker.broker_harness import FakeTransport, until
from support.controller.controller_harness import CLUSTER_ID, scenario
from support.controller.controller_listener import DIRECTORIES, ControllerListener

from raftwerk.controller.brokers.listener_probe import ProbeResult
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.codec import decode_response
from raftwerk.wire.errors import ErrorCode

FEATURES = {"metadata.version": 29, "raftwerk.record.version": 2, "transaction.version": 2}


class Cluster(ControllerListener):
    """A controller to which broker 1 sends heartbeats over one connection, and which a second process asks."""

    def __init__(self) -> None:
        super().__init__(broker_session_timeout_ms=9_000)
        self.own = self.connect()
        self.second = self.connect()

    async def ask(self, transport: FakeTransport, key: ApiKey, version: int, fields: dict[str, Any]) -> int:
        before = len(transport.frames())
        transport.deliver(self.frame(key, version, fields))
        await until(lambda: len(transport.frames()) > before)
        header_bytes = 5  # the correlation id, and no tagged fields
        answer = decode_response(key, version, memoryview(transport.frames()[-1])[header_bytes:])
        return int(answer.error_code)

    async def beat(self) -> int:
        fields = {"broker_id": 1, "broker_epoch": 1, "current_metadata_offset": self.harness.image.offset}
        return await self.ask(self.own, ApiKey.BROKER_HEARTBEAT, 1, fields)

    async def register_second(self) -> int:
        fields = {
            "broker_id": 1,
            "cluster_id": CLUSTER_ID,
            "incarnation_id": UUID(int=77),
            "listeners": [{"name": "PLAINTEXT", "host": "b1", "port": 9092, "security_protocol": 0}],
            "features": [
                {"name": name, "min_supported_version": 0, "max_supported_version": level}
                for name, level in FEATURES.items()
            ],
            "log_dirs": list(DIRECTORIES[0]),
        }
        return await self.ask(self.second, ApiKey.BROKER_REGISTRATION, 4, fields)


@scenario
async def test_it_is_refused_also_after_it_has_connected_again() -> None:
    cluster = Cluster()
    assert await cluster.beat() == 0
    for _ in range(3):
        assert await cluster.register_second() == ErrorCode.DUPLICATE_BROKER_REGISTRATION
        cluster.second.close()
        await asyncio.sleep(0.2)
        cluster.second = cluster.connect()
    assert await cluster.beat() == 0
    cluster.harness.controller.close()


@scenario
async def test_the_brokers_end_is_noticed_though_the_second_process_spoke_last() -> None:
    cluster = Cluster()
    assert await cluster.beat() == 0
    assert await cluster.register_second() == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    cluster.harness.probes.down["b1", 9092] = ProbeResult.REFUSED
    cluster.own.close()
    await asyncio.sleep(1)
    assert cluster.harness.image.brokers[1].fenced
    cluster.harness.controller.close()


@scenario
async def test_it_takes_over_when_the_broker_is_gone() -> None:
    cluster = Cluster()
    assert await cluster.beat() == 0
    cluster.own.close()
    await asyncio.sleep(0.1)
    assert await cluster.register_second() == 0
    cluster.harness.controller.close()
