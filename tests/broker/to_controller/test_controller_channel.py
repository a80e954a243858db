"""The channel to the active controller: connecting, closing and cancelling at the same time."""

from __future__ import annotations

import asyncio
import random

import pytest

from raftwerk.broker.to_controller import controller_channel
from raftwerk.broker.to_controller.controller_channel import ControllerAddress, ControllerChannel
from raftwerk.chaos.sim.disk.sim_disk import SimDisk
from raftwerk.runtime.ports import Runtime
from raftwerk.wire.api_keys import ApiKey


class FixedClock:
    def wall_ms(self) -> int:
        return 0


@pytest.fixture
def channel(monkeypatch: pytest.MonkeyPatch) -> ControllerChannel:
    """One whose controller accepts no connection and refuses none."""

    async def hang(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(controller_channel, "connect", hang)
    runtime = Runtime(disk=SimDisk(random.Random(0)), clock=FixedClock(), rng=random.Random(0))
    return ControllerChannel(lambda: ControllerAddress(1, "h", 1), runtime, "test", 30_000)


async def begin(channel: ControllerChannel) -> asyncio.Task[object]:
    fields = {"broker_id": 1, "broker_epoch": 1, "producer_id_start": 0}
    task: asyncio.Task[object] = asyncio.create_task(channel.request(ApiKey.ALLOCATE_PRODUCER_IDS, 0, fields))
    for _ in range(5):
        await asyncio.sleep(0)
    return task


@pytest.mark.parametrize("turns", range(4))
def test_a_request_can_be_cancelled_while_the_channel_closes(channel: ControllerChannel, turns: int) -> None:
    async def main() -> None:
        task = await begin(channel)
        channel.close()
        for _ in range(turns):
            await asyncio.sleep(0)
        is_late = task.done()
        task.cancel()
        await asyncio.wait([task])
        assert is_late or task.cancelled()

    asyncio.run(main())


def test_a_change_of_controller_cancels_no_request(channel: ControllerChannel) -> None:
    async def main() -> None:
        task = await begin(channel)
        channel._find = lambda: ControllerAddress(2, "h", 2)
        channel.on_leader_change()
        for _ in range(10):
            await asyncio.sleep(0)
        assert not task.done(), "it tries the new one"
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    asyncio.run(main())
