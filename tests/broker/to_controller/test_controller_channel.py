"""The channel to the active controller: connecting, closing and cancelling, and requests that wait for others."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from raftwerk.broker.to_controller import controller_channel
from raftwerk.broker.to_controller.controller_channel import ControllerAddress, ControllerChannel
from raftwerk.chaos.sim.disk.sim_disk import SimDisk
from raftwerk.runtime.ports import Runtime
from raftwerk.security.principals import ANONYMOUS
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.codec import decode_request, encode_request, encode_response
from raftwerk.wire.errors import ErrorCode, ProtocolError
from raftwerk.wire.frames import encode_response as encode_frame
from raftwerk.wire.frames import parse_request_header, response_header


class FixedClock:
    def wall_ms(self) -> int:
        return 0


class Client:
    """A request of a client that the broker forwards."""

    api_key, api_version, correlation_id, client_id = int(ApiKey.CREATE_TOPICS), 7, 1, "c"
    sink = SimpleNamespace(principal=ANONYMOUS, peer="127.0.0.1")


@pytest.fixture
def address() -> list[ControllerAddress]:
    """The controller that the quorum names."""
    return [ControllerAddress(1, "h", 1)]


@pytest.fixture
def channel(monkeypatch: pytest.MonkeyPatch, address: list[ControllerAddress]) -> ControllerChannel:
    """One whose controller accepts no connection and refuses none."""

    async def hang(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(controller_channel, "connect", hang)
    runtime = Runtime(disk=SimDisk(random.Random(0)), clock=FixedClock(), rng=random.Random(0))
    return ControllerChannel(lambda: address[0], runtime, "test", 30_000)


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


def test_a_change_of_controller_cancels_no_request(
    channel: ControllerChannel, address: list[ControllerAddress]
) -> None:
    async def main() -> None:
        task = await begin(channel)
        address[0] = ControllerAddress(2, "h", 2)
        channel.on_leader_change()
        for _ in range(10):
            await asyncio.sleep(0)
        assert not task.done(), "it tries the new one"
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    asyncio.run(main())


def test_an_attempt_that_fails_when_no_request_waits_for_it_concerns_no_later_request(
    channel: ControllerChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the later one would be told of a failure that is over, and wait for a back-off."""
    attempts: list[asyncio.Future[None]] = []

    async def connect(*_: object, **__: object) -> None:
        attempts.append(asyncio.get_running_loop().create_future())
        await attempts[-1]

    monkeypatch.setattr(controller_channel, "connect", connect)

    async def main() -> None:
        first = await begin(channel)
        first.cancel()
        await asyncio.wait([first])
        attempts[0].set_exception(ConnectionRefusedError("nothing listens there"))
        later = await begin(channel)
        assert len(attempts) == 2
        later.cancel()
        await asyncio.wait([later])

    asyncio.run(main())


class Controller:
    """A controller that answers on each connection in the order of the requests, and envelopes when the test lets it.

    `requests` has what it carried out: the names of topics, and the keys of requests that are no envelopes.
    """

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.connections = 0
        self.may_answer_envelopes = asyncio.Event()
        self._server: asyncio.Server | None = None

    async def start(self) -> ControllerAddress:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return ControllerAddress(1, "127.0.0.1", self._server.sockets[0].getsockname()[1])

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def wait_for(self, *requests: str) -> None:
        async with asyncio.timeout(10):
            while self.requests != list(requests):  # noqa: ASYNC110
                await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        frames: asyncio.Queue[bytes] = asyncio.Queue()
        answering = asyncio.create_task(self._answer(frames, writer))
        try:
            while True:
                frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                self.requests.append(_name(frame))
                frames.put_nowait(frame)
        except (asyncio.IncompleteReadError, ConnectionError):
            answering.cancel()
            writer.close()

    async def _answer(self, frames: asyncio.Queue[bytes], writer: asyncio.StreamWriter) -> None:
        while True:
            frame = await frames.get()
            header, position = parse_request_header(frame)
            key, version = ApiKey(header.api_key), header.api_version
            if key is ApiKey.ENVELOPE:
                await self.may_answer_envelopes.wait()
                envelope = decode_request(key, version, frame, position)
                inner, _ = parse_request_header(envelope.request_data)
                data = response_header(inner.api_key, inner.api_version, inner.correlation_id)
                rows = [{"name": _name(frame), "error_code": 0}]
                data += encode_response(ApiKey(inner.api_key), inner.api_version, {"topics": rows})
                fields: dict[str, Any] = {"error_code": 0, "response_data": data}
            else:
                fields = {"error_code": 0, "producer_id_start": 7, "producer_id_len": 1}
            writer.writelines(encode_frame(key, version, header.correlation_id, encode_response(key, version, fields)))


def _name(frame: bytes) -> str:
    header, position = parse_request_header(frame)
    if header.api_key != ApiKey.ENVELOPE:
        return ApiKey(header.api_key).name
    envelope = decode_request(ApiKey.ENVELOPE, header.api_version, frame, position)
    inner, start = parse_request_header(envelope.request_data)
    request = decode_request(ApiKey(inner.api_key), inner.api_version, envelope.request_data, start)
    return str(request.topics[0].name)


def create(channel: ControllerChannel, topic: str, timeout_ms: int) -> asyncio.Task[memoryview]:
    """Forward a client's request that creates a topic."""
    row = {"name": topic, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    fields = {"topics": [row], "timeout": timeout_ms, "validate_only": False}
    client: Any = Client()
    return asyncio.create_task(channel.forward(client, encode_request(ApiKey.CREATE_TOPICS, 7, fields)))


def with_controller(
    main: Callable[[ControllerChannel, Controller], Coroutine[Any, Any, None]], request_timeout_ms: int = 30_000
) -> None:
    async def run() -> None:
        controller = Controller()
        address = await controller.start()
        runtime = Runtime(disk=SimDisk(random.Random(0)), clock=FixedClock(), rng=random.Random(0))
        channel = ControllerChannel(lambda: address, runtime, "test", request_timeout_ms)
        try:
            await main(channel, controller)
        finally:
            channel.close()
            controller.close()

    asyncio.run(run())


def test_the_short_timeout_of_one_client_does_not_send_the_requests_of_others_again() -> None:
    """The controller would refuse them the second time: it has created the topics already."""

    async def main(channel: ControllerChannel, controller: Controller) -> None:
        patient = create(channel, "patient", 30_000)
        await controller.wait_for("patient")
        hasty = create(channel, "hasty", 150)
        with pytest.raises(ProtocolError) as refused:
            await hasty
        assert refused.value.code == ErrorCode.REQUEST_TIMED_OUT
        later = create(channel, "later", 30_000)
        await controller.wait_for("patient", "hasty", "later")
        controller.may_answer_envelopes.set()
        assert b"patient" in bytes(await patient)
        assert b"later" in bytes(await later), "the answer to the request that has timed out is dropped"
        assert controller.requests == ["patient", "hasty", "later"]

    with_controller(main)


def test_a_connection_on_which_an_answer_is_overdue_is_closed() -> None:
    """It may be dead; clients with short time-outs must not keep it."""

    async def main(channel: ControllerChannel, controller: Controller) -> None:
        for topic in ("first", "second", "third"):
            with pytest.raises(ProtocolError):
                await create(channel, topic, 150)
        assert controller.connections > 1

    with_controller(main, request_timeout_ms=200)


def test_a_request_of_the_broker_does_not_wait_for_a_long_request_of_a_client() -> None:
    """A shrink of an ISR would wait for the creation of thousands of topics, time out and be sent again with it."""

    async def main(channel: ControllerChannel, controller: Controller) -> None:
        forwarded = create(channel, "many", 30_000)
        await controller.wait_for("many")
        fields = {"broker_id": 1, "broker_epoch": 1}
        answer = await channel.request(ApiKey.ALLOCATE_PRODUCER_IDS, 0, fields, timeout_ms=10_000)
        assert answer.producer_id_start == 7
        assert not forwarded.done()
        controller.may_answer_envelopes.set()
        assert b"many" in bytes(await forwarded)
        assert controller.requests == ["many", "ALLOCATE_PRODUCER_IDS"]

    with_controller(main)
