from __future__ import annotations

import asyncio
import itertools
import random
import struct
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from raftwerk.chaos.sim.kernel.network import NetworkConfig
from raftwerk.chaos.sim.kernel.world import World
from raftwerk.runtime.ports import Runtime
from raftwerk.wire import codec, frames
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.client import (
    Backoff,
    Connection,
    ConnectionLostError,
    FrameReader,
    NodeChannel,
    RequestTimedOutError,
    connect,
)
from raftwerk.wire.errors import WireFormatError

Answer = Callable[["ScriptedBroker", frames.RequestHeader, memoryview], None]


class ScriptedBroker(asyncio.Protocol):
    """A server that gives each complete request to the script."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.held: list[frames.RequestHeader] = []
        self.buffer = bytearray()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while len(self.buffer) >= 4:
            (size,) = struct.unpack_from(">i", self.buffer)
            if len(self.buffer) < size + 4:
                return
            frame = memoryview(bytes(self.buffer[4 : size + 4]))
            del self.buffer[: size + 4]
            header, position = frames.parse_request_header(frame)
            self.answer(self, header, frame[position:])

    def respond(self, header: frames.RequestHeader, fields: dict[str, Any]) -> None:
        body = codec.encode_response(header.api_key, header.api_version, fields)
        self.transport.writelines(
            frames.encode_response(header.api_key, header.api_version, header.correlation_id, body)
        )


def echo_client(broker: ScriptedBroker, header: frames.RequestHeader, body: memoryview) -> None:
    """A Metadata response with the first requested topic as the cluster id."""
    request = codec.decode_request(header.api_key, header.api_version, body)
    broker.respond(header, {"cluster_id": request.topics[0].name})


def echo_bytes(broker: ScriptedBroker, header: frames.RequestHeader, body: memoryview) -> None:
    """A SaslAuthenticate response with the bytes of the request."""
    request = codec.decode_request(header.api_key, header.api_version, body)
    broker.respond(header, {"auth_bytes": request.auth_bytes})


def hold(broker: ScriptedBroker, header: frames.RequestHeader, body: memoryview) -> None:
    broker.held.append(header)


class Setting:
    """Hosts `client`, `a` and `b` on virtual time; `a` and `b` can run scripted servers."""

    def __init__(self, seed: int = 1) -> None:
        self.world = World(seed, NetworkConfig(spike_probability=0))
        self.hosts = {name: self.world.add_host(name) for name in ("client", "a", "b")}
        self.brokers: list[ScriptedBroker] = []
        self.client = self.hosts["client"].start(self._idle)

    @staticmethod
    async def _idle(_runtime: Runtime) -> None:
        return None

    def serve(self, name: str, answer: Answer, port: int = 9092) -> None:
        def accept() -> ScriptedBroker:
            self.brokers.append(ScriptedBroker(answer))
            return self.brokers[-1]

        process = self.hosts[name].start(self._idle)
        process.run_until_complete(process.create_server(accept, name, port))

    def run(self, main: Coroutine[Any, Any, Any], timeout_s: float = 600) -> Any:
        with self.world:
            result = self.client.run_until_complete(main, timeout_s)
        assert self.world.errors == []
        return result


async def cluster_id(to: Connection | NodeChannel, topic: str, **options: Any) -> Any:
    return (await to.request(ApiKey.METADATA, 9, {"topics": [{"name": topic}]}, **options)).cluster_id


def test_requests_are_pipelined_and_answered() -> None:
    setting = Setting()
    setting.serve("a", echo_client)

    async def main() -> None:
        connection = await connect("a", 9092, client_id="me")
        answers = await asyncio.gather(*(cluster_id(connection, f"t{i}") for i in range(20)))
        assert answers == [f"t{i}" for i in range(20)]
        assert connection.in_flight == 0
        assert connection.peer == "a:9092"
        connection.close()
        assert await connection.closed is None

    setting.run(main())


def test_responses_are_matched_by_correlation_id() -> None:
    def answer_two_backwards(broker: ScriptedBroker, header: frames.RequestHeader, body: memoryview) -> None:
        broker.held.append(header)
        if len(broker.held) == 2:
            for held in reversed(broker.held):
                broker.respond(held, {"cluster_id": f"answer-{held.correlation_id}"})

    setting = Setting()
    setting.serve("a", answer_two_backwards)

    async def main() -> None:
        connection = await connect("a", 9092)
        assert list(await asyncio.gather(cluster_id(connection, "x"), cluster_id(connection, "y"))) == [
            "answer-0",
            "answer-1",
        ]

    setting.run(main())


def test_a_loss_fails_every_waiting_request() -> None:
    def hang_up_at_the_third(broker: ScriptedBroker, header: frames.RequestHeader, body: memoryview) -> None:
        broker.held.append(header)
        if len(broker.held) == 3:
            broker.transport.abort()

    setting = Setting()
    setting.serve("a", hang_up_at_the_third)

    async def main() -> None:
        connection = await connect("a", 9092)
        answers = await asyncio.gather(*(cluster_id(connection, "x") for _ in range(3)), return_exceptions=True)
        assert [type(answer) for answer in answers] == [ConnectionLostError] * 3
        assert isinstance(await connection.closed, Exception)
        assert connection.is_closed
        with pytest.raises(ConnectionLostError, match="not connected to a:9092"):
            await cluster_id(connection, "x")

    setting.run(main())


def test_closing_fails_every_waiting_request() -> None:
    setting = Setting()
    setting.serve("a", hold)

    async def main() -> None:
        connection = await connect("a", 9092)
        future = connection.send_raw(ApiKey.API_VERSIONS, 0, [b""])
        connection.close()
        with pytest.raises(ConnectionLostError, match="closed"):
            await future

    setting.run(main())


def test_a_request_that_times_out_closes_the_connection() -> None:
    setting = Setting()
    setting.serve("a", hold)

    async def main() -> None:
        connection = await connect("a", 9092)
        start = asyncio.get_running_loop().time()
        allow_blocking_io = connection.send_raw(ApiKey.API_VERSIONS, 0, [b""], timeout_s=60)
        with pytest.raises(RequestTimedOutError, match="no answer from a:9092 to METADATA within 2 s"):
            await cluster_id(connection, "x", timeout_s=2)
        assert asyncio.get_running_loop().time() == pytest.approx(start + 2)
        assert connection.is_closed
        with pytest.raises(ConnectionLostError):
            await allow_blocking_io

    setting.run(main())


def test_an_answer_to_a_cancelled_request_is_dropped() -> None:
    setting = Setting()
    setting.serve("a", echo_client)

    async def main() -> None:
        connection = await connect("a", 9092)
        first = asyncio.get_running_loop().create_task(cluster_id(connection, "x"))
        await asyncio.sleep(0)
        first.cancel()
        assert await cluster_id(connection, "y") == "y"

    setting.run(main())


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (struct.pack(">ii", 4, 77), "not waiting: 77"),
        (struct.pack(">ih", 2, 0), "no header"),
        (struct.pack(">i", -1), "frame of -1 bytes"),
        (struct.pack(">i", 2**31 - 1), "frame of 2147483647 bytes"),
        (struct.pack(">iiBBB", 7, 0, 1, 0, 9), "past the end"),
    ],
)
def test_the_connection_to_a_peer_that_breaks_the_protocol_is_closed(reply: bytes, reason: str) -> None:
    setting = Setting()
    setting.serve("a", lambda broker, header, body: broker.transport.write(reply))

    async def main() -> None:
        connection = await connect("a", 9092)
        with pytest.raises((ConnectionLostError, WireFormatError), match=reason):
            await cluster_id(connection, "x")
        assert isinstance(await connection.closed, WireFormatError)

    setting.run(main())


def test_refused_and_silent_hosts() -> None:
    setting = Setting()
    setting.serve("a", echo_client)
    setting.world.network.cut("client", "a")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        with pytest.raises(TimeoutError):
            await connect("a", 9092, timeout_s=3)
        assert loop.time() == pytest.approx(3)
        setting.world.network.heal_all()
        with pytest.raises(ConnectionRefusedError):
            await connect("a", 9999)

    setting.run(main())


def test_api_versions() -> None:
    setting = Setting()
    setting.serve(
        "a",
        lambda broker, header, body: broker.respond(
            header, {"api_keys": [{"api_key": 0, "min_version": 3, "max_version": 13}]}
        ),
    )

    async def main() -> None:
        assert await (await connect("a", 9092)).api_versions() == {0: (3, 13)}

    setting.run(main())


def channel(setting: Setting, host: str = "a", port: int = 9092) -> NodeChannel:
    return NodeChannel(1, lambda _: connect(host, port), rng=setting.world.rng_for("channel"))


def test_a_channel_connects_once_for_all_waiting_callers() -> None:
    setting = Setting()
    setting.serve("a", echo_client)

    async def main() -> None:
        to_a = channel(setting)
        assert to_a.current is None
        assert list(await asyncio.gather(cluster_id(to_a, "x"), cluster_id(to_a, "y"))) == ["x", "y"]
        assert len(setting.brokers) == 1
        assert to_a.current is not None
        to_a.close()
        with pytest.raises(ConnectionLostError, match="channel to node 1 is closed"):
            await cluster_id(to_a, "x")

    setting.run(main())


def test_a_channel_connects_again_after_a_loss_and_a_back_off() -> None:
    setting = Setting()
    setting.serve("a", echo_client)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        to_a = channel(setting)
        await cluster_id(to_a, "x")
        setting.brokers[0].transport.abort()
        connection = to_a.current
        assert connection is not None
        await connection.closed
        lost_s = loop.time()
        assert await cluster_id(to_a, "y") == "y"
        assert 0.03 < loop.time() - lost_s < 0.1
        assert len(setting.brokers) == 2

    setting.run(main())


def test_a_channel_waits_longer_after_each_refusal() -> None:
    setting = Setting()

    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        to_a = channel(setting)
        times = []
        for _ in range(9):
            with pytest.raises(OSError):
                await cluster_id(to_a, "x")
            times.append(loop.time())
        return [after - before for before, after in itertools.pairwise(times)]

    setting.hosts["a"].start(Setting._idle)
    pauses = setting.run(main())
    for pause, expected in zip(pauses, (0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0)):
        assert 0.8 * expected <= pause <= 1.2 * expected + 0.05


def test_closing_a_channel_ends_an_attempt_to_connect() -> None:
    setting = Setting()
    setting.world.network.cut("client", "a")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        to_a = channel(setting)
        waiting = loop.create_task(cluster_id(to_a, "x"))
        impatient = loop.create_task(cluster_id(to_a, "y"))
        await asyncio.sleep(0.5)
        impatient.cancel()
        await asyncio.sleep(0.5)
        to_a.close()
        with pytest.raises(ConnectionLostError, match="is closed"):
            await waiting
        assert loop.time() == pytest.approx(1.0)
        assert impatient.cancelled()

    setting.run(main())


def test_drain_waits_for_space_in_the_send_buffer() -> None:
    async def main() -> None:
        connection = Connection("me")
        await connection.drain()
        connection.pause_writing()
        waiting = asyncio.get_running_loop().create_task(connection.drain())
        await asyncio.sleep(0)
        assert not waiting.done()
        connection.resume_writing()
        await waiting
        connection.pause_writing()
        waiting = asyncio.get_running_loop().create_task(connection.drain())
        await asyncio.sleep(0)
        connection.close()
        await waiting

    asyncio.run(main())


@given(st.lists(st.binary(max_size=300), max_size=8), st.randoms(use_true_random=False), st.booleans())
def test_frames_are_cut_however_the_bytes_come(bodies: list[bytes], rng: random.Random, large: bool) -> None:
    if large:
        bodies = [body * 700 for body in bodies]
    stream = b"".join(struct.pack(">i", len(body)) + body for body in bodies)
    reader = FrameReader()
    got: list[memoryview] = []
    position = 0
    while position < len(stream):
        buffer = reader.get_buffer()
        count = min(
            len(buffer), len(stream) - position, rng.choice((1, 3, 50, 5000, 1 << 20) if not large else (1 << 20,))
        )
        buffer[:count] = stream[position : position + count]
        got += reader.buffer_updated(count)
        position += count
    assert [bytes(frame) for frame in got] == bodies
    assert all(not frame.readonly for frame in got)


def test_backoff_grows_to_its_limit_and_starts_again() -> None:
    backoff = Backoff(random.Random(1), initial_s=0.1, max_s=2.0, jitter=0.0)
    assert [backoff.next_s() for _ in range(6)] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 2.0])
    backoff.reset()
    assert backoff.next_s() == pytest.approx(0.1)
    for _ in range(2000):
        assert backoff.next_s() <= 2.0


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_on_a_real_loop(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        brokers: list[ScriptedBroker] = []

        def accept() -> ScriptedBroker:
            brokers.append(ScriptedBroker(echo_bytes))
            return brokers[-1]

        server = await loop.create_server(accept, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        connection = await connect("127.0.0.1", port)
        bodies = [b"a", b"x" * 300_000, b"b"]
        requests = (connection.request(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": body}) for body in bodies)
        assert [answer.auth_bytes for answer in await asyncio.gather(*requests)] == bodies
        brokers[0].transport.close()
        assert isinstance(await connection.closed, ConnectionLostError)
        server.close()
        await server.wait_closed()
        with pytest.raises(ConnectionRefusedError):
            await connect("127.0.0.1", port)

    loop = new_loop()
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("host", ["a..b", ".a", "x" * 64, "a\0b"])
def test_a_host_name_that_cannot_be_encoded_is_refused_as_one_that_is_unknown(
    host: str, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """Who connects waits and tries again after an `OSError`; brokers may register with any name."""
    loop = new_loop()
    try:
        with pytest.raises(OSError):
            loop.run_until_complete(connect(host, 9092))
    finally:
        loop.close()


def test_a_throttled_client_waits_and_that_time_is_no_time_out() -> None:
    setting = Setting()
    received_at: list[float] = []

    def throttle_the_first(broker: ScriptedBroker, header: frames.RequestHeader, body: memoryview) -> None:
        loop = asyncio.get_running_loop()
        received_at.append(loop.time())
        is_first = len(received_at) == 1
        fields = {"cluster_id": "c", "throttle_time": 5000 if is_first else 0}
        loop.call_later(0.0 if is_first else received_at[0] + 6.0 - loop.time(), broker.respond, header, fields)

    setting.serve("a", throttle_the_first)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        connection = await connect("a", 9092)
        told: list[float] = []
        connection.on_throttled = told.append
        in_flight = [loop.create_task(cluster_id(connection, "t", timeout_s=3.0)) for _ in range(2)]
        assert await in_flight[0] == "c"
        assert told == [pytest.approx(loop.time() + 5.0)]
        assert await cluster_id(connection, "t", timeout_s=3.0) == "c"
        assert await in_flight[1] == "c"
        assert told[1:] == []
        connection.close()

    setting.run(main())
    first, second, third = received_at
    assert second - first < 1.0
    assert 5.0 <= third - first < 6.0


def test_a_broker_that_is_silent_after_the_throttle_time_is_given_up() -> None:
    setting = Setting()

    def throttle_once(broker: ScriptedBroker, header: frames.RequestHeader, _: memoryview) -> None:
        broker.respond(header, {"throttle_time": 5000})
        broker.answer = hold

    setting.serve("a", throttle_once)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        connection = await connect("a", 9092)
        began = loop.time()
        sent_before = connection.send_raw(ApiKey.METADATA, 9, [codec.encode_request(ApiKey.METADATA, 9, {})])
        in_flight = loop.create_task(cluster_id(connection, "t", timeout_s=3.0))
        await asyncio.sleep(0)
        connection.throttle(codec.decode_response(ApiKey.METADATA, 9, await sent_before).throttle_time)
        with pytest.raises(RequestTimedOutError, match="within 3 s"):
            await in_flight
        assert loop.time() - began == pytest.approx(8.0, abs=0.2)

    setting.run(main())


def test_a_throttled_request_learns_at_once_that_the_connection_is_lost() -> None:
    setting = Setting()
    setting.serve("a", lambda broker, header, _: broker.respond(header, {"throttle_time": 60_000}))

    async def main() -> None:
        loop = asyncio.get_running_loop()
        connection = await connect("a", 9092)
        await cluster_id(connection, "t")
        waiting = loop.create_task(cluster_id(connection, "t"))
        await asyncio.sleep(1.0)
        setting.brokers[0].transport.close()
        with pytest.raises(ConnectionLostError):
            await asyncio.wait_for(waiting, 5.0)

    setting.run(main())
