"""The network in memory: streams, flow control, refusals, cuts, resets, crashes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TypeVar

import pytest

from raftwerk.chaos.sim.kernel.event_loop import ProcessLoop, Scheduler, SimulationError
from raftwerk.chaos.sim.kernel.network import NetworkConfig, SimNetwork
from raftwerk.chaos.sim.kernel.trace import Trace

R = TypeVar("R", bound=asyncio.Protocol)


class World:
    """Two hosts and the network between them."""

    def __init__(self, seed: int = 1) -> None:
        self.scheduler = Scheduler()
        self.trace = Trace(lambda: self.scheduler.now_s)
        self.network = SimNetwork(self.scheduler, random.Random(seed), self.trace, NetworkConfig(spike_probability=0))
        self.server = self.process("server")
        self.client = self.process("client")

    def process(self, name: str) -> ProcessLoop:
        self.network.add_host(name)
        return ProcessLoop(self.scheduler, name, self.network)

    def serve(self, factory: Callable[[], asyncio.BaseProtocol], port: int = 9092) -> asyncio.AbstractServer:
        return self.server.run_until_complete(self.server.create_server(factory, "server", port))

    def serve_each(self, kind: type[R]) -> list[R]:
        """A server that makes a protocol of `kind` for each connection; the list grows with them."""
        accepted: list[R] = []

        def accept() -> R:
            accepted.append(kind())
            return accepted[-1]

        self.serve(accept)
        return accepted

    def connect(self, factory: Callable[[], asyncio.BaseProtocol], port: int = 9092, timeout_s: float = 60) -> Recorder:
        connecting = self.client.create_connection(factory, "server", port)
        return self.client.run_until_complete(connecting, timeout_s)[1]  # type: ignore[return-value]


class Recorder(asyncio.Protocol):
    """Records all its callbacks."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.events: list[str] = []
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        self.events.append("made")

    def data_received(self, data: bytes) -> None:
        self.received += data

    def eof_received(self) -> None:
        self.events.append("eof")

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append(f"lost {type(exc).__name__ if exc else 'in peace'}")

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")


class Echo(Recorder):
    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.transport.write(data)


class BufferedEcho(asyncio.BufferedProtocol):
    """Echoes through a small buffer of its own."""

    def __init__(self) -> None:
        self.buffer = bytearray(100)
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.transport.writelines(
            [memoryview(self.buffer)[: nbytes // 2], memoryview(self.buffer)[nbytes // 2 : nbytes]]
        )


@pytest.mark.parametrize("factory", [Echo, BufferedEcho])
def test_bytes_come_back_in_order(factory: Callable[[], asyncio.BaseProtocol]) -> None:
    world = World()
    world.serve(factory)
    client = world.connect(Recorder)
    sent = random.Random(3).randbytes(50_000)
    for start in range(0, len(sent), 777):
        client.transport.write(sent[start : start + 777])
        world.scheduler.run_for(0.0003)
    world.scheduler.run_for(1)
    assert bytes(client.received) == sent
    assert client.transport.get_extra_info("peername") == ("server", 9092)


def test_latency_is_at_least_a_round_trip() -> None:
    world = World()
    world.serve(Echo)
    client = world.connect(Recorder)
    assert world.scheduler.now_s >= 0.0002
    start_s = world.scheduler.now_s
    client.transport.write(b"x")
    assert world.scheduler.run_until(lambda: bool(client.received), 1)
    assert 0.0002 <= world.scheduler.now_s - start_s <= 0.002


def test_a_writer_is_paused_while_the_reader_does_not_read() -> None:
    world = World()
    accepted = world.serve_each(Recorder)
    client = world.connect(Recorder)
    world.scheduler.run_for(0.1)
    accepted[0].transport.pause_reading()
    sent = random.Random(1).randbytes(1_000_000)
    client.transport.write(sent)
    assert client.events == ["made", "pause"]
    world.scheduler.run_for(5)
    assert client.transport.get_write_buffer_size() > 500_000
    client.transport.close()
    world.scheduler.run_for(1)
    assert client.events == ["made", "pause"]
    accepted[0].transport.resume_reading()
    world.scheduler.run_for(1)
    assert bytes(accepted[0].received) == sent
    assert client.events == ["made", "pause", "resume", "lost in peace"]
    assert accepted[0].events == ["made", "eof", "lost in peace"]


def test_refused_unknown_and_busy() -> None:
    world = World()
    with pytest.raises(ConnectionRefusedError):
        world.connect(Recorder)
    with pytest.raises(OSError, match="not known"):
        world.client.run_until_complete(world.client.create_connection(Recorder, "nobody", 1))
    server = world.serve(Recorder)
    with pytest.raises(OSError, match="in use"):
        world.serve(Recorder)
    server.close()
    assert world.serve(Recorder, 0).sockets[0].getsockname()[1] > 0  # type: ignore[attr-defined]
    with pytest.raises(ConnectionRefusedError):
        world.connect(Recorder)


def test_abort_resets_the_peer() -> None:
    world = World()
    accepted = world.serve_each(Recorder)
    client = world.connect(Recorder)
    world.scheduler.run_for(0.1)
    client.transport.abort()
    world.scheduler.run_for(0.1)
    assert client.events == ["made", "lost in peace"]
    assert accepted[0].events == ["made", "lost ConnectionResetError"]


def test_writing_to_a_closed_peer_ends_in_a_reset() -> None:
    world = World()

    class NoticesNothing(Recorder):
        def eof_received(self) -> bool:  # type: ignore[override]
            return True

    accepted = world.serve_each(Recorder)
    client = world.connect(NoticesNothing)
    world.scheduler.run_for(0.1)
    accepted[0].transport.close()
    world.scheduler.run_for(0.1)
    assert client.events == ["made"]
    client.transport.write(b"hello?")
    world.scheduler.run_for(0.1)
    assert client.events == ["made", "lost ConnectionResetError"]


@pytest.mark.parametrize("seed", range(6))
def test_a_killed_process_is_noticed_and_refuses(seed: int) -> None:
    world = World(seed)
    world.serve(Echo)
    client = world.connect(Recorder)
    world.server.kill()
    world.network.kill_process(world.server, power_loss=False)
    world.scheduler.run_for(0.1)
    assert client.events in (["made", "eof", "lost in peace"], ["made", "lost ConnectionResetError"])
    with pytest.raises(ConnectionRefusedError):
        world.connect(Recorder)


def test_a_host_without_power_is_silent_until_it_is_back() -> None:
    world = World()
    world.serve(Echo)
    client = world.connect(Recorder)
    world.server.kill()
    world.network.kill_process(world.server, power_loss=True)
    world.network.set_power("server", False)
    client.transport.write(b"lost")
    world.scheduler.run_for(30)
    assert client.events == ["made"]
    with pytest.raises(TimeoutError):
        world.connect(Recorder, timeout_s=300)
    world.network.set_power("server", True)
    world.scheduler.run_for(1)
    assert client.events == ["made", "lost ConnectionResetError"]


def test_a_cut_delays_and_healing_delivers_or_resets() -> None:
    outcomes = []
    for seed in range(20):
        world = World(seed)
        world.serve(Echo)
        client = world.connect(Recorder)
        world.network.cut("server", "client")
        client.transport.write(b"one way")
        world.scheduler.run_for(10)
        assert client.received == b""
        assert world.server.run_until_complete(asyncio.sleep(0)) is None
        world.network.heal_all()
        client.transport.write(b" and back")
        world.scheduler.run_for(1)
        outcomes.append(bytes(client.received) if client.events == ["made"] else client.events[-1])
    assert set(outcomes) == {b"one way and back", "lost ConnectionResetError"}


def test_a_connection_attempt_survives_a_short_cut_and_times_out_in_a_long_one() -> None:
    world = World()
    world.serve(Echo)
    world.network.cut("client", "server")
    world.client.call_later(2.5, world.network.heal_all)
    world.connect(Recorder)
    assert 2.5 < world.scheduler.now_s < 3.5
    world.network.cut("server", "client")
    with pytest.raises(TimeoutError):
        world.connect(Recorder, timeout_s=300)


def test_an_abandoned_attempt_leaves_no_connection() -> None:
    world = World()
    accepted = world.serve_each(Recorder)

    async def give_up() -> None:
        async with asyncio.timeout(0.00025):
            await asyncio.get_running_loop().create_connection(Recorder, "server", 9092)

    world.network.set_latency("server", "client", (0.01, 0.01))
    with pytest.raises(TimeoutError):
        world.client.run_until_complete(give_up())
    world.scheduler.run_for(1)
    assert [each.events for each in accepted] in ([], [["made", "lost ConnectionResetError"]])
    assert world.network._transports == {}


def test_a_paused_server_accepts_and_answers_later() -> None:
    world = World()
    world.serve(Echo)
    world.server.pause()
    client = world.connect(Recorder)
    client.transport.write(b"hello")
    world.scheduler.run_for(5)
    assert client.received == b""
    world.server.resume()
    world.scheduler.run_for(1)
    assert client.received == b"hello"


def test_connections_can_be_reset() -> None:
    world = World()
    world.serve(Echo)
    client = world.connect(Recorder)
    assert world.network.reset_connections("client", "server") == 2
    world.scheduler.run_for(0.1)
    assert client.events == ["made", "lost ConnectionResetError"]


def test_a_connection_that_is_reset_while_it_is_made_is_known_to_be_lost() -> None:
    for step in range(200):
        world = World()
        ends: list[Recorder] = []

        def end(ends: list[Recorder] = ends) -> Recorder:
            ends.append(Recorder())
            return ends[-1]

        world.serve(end)
        attempt = world.client.create_task(world.client.create_connection(end, "server", 9092))
        world.scheduler.run_for(step * 1e-5)
        world.network.reset_connections("client", "server")
        world.network.lose_ends("client", "server")
        world.scheduler.run_for(1)
        assert attempt.done()
        if world.network._transports == {}:
            assert all(each.events in ([], ["made", "lost ConnectionResetError"]) for each in ends), step


def test_one_seed_gives_one_trace() -> None:
    def digest(seed: int) -> str:
        world = World(seed)
        world.serve(Echo)
        client = world.connect(Recorder)
        for size in range(200):
            client.transport.write(bytes(size))
            world.scheduler.run_for(0.0005)
        return world.trace.digest()

    assert digest(4) == digest(4) != digest(5)


def test_a_link_that_rejects_takes_one_end_and_leaves_the_other_in_the_dark() -> None:
    world = World()
    far = world.serve_each(Echo)
    near = world.connect(Recorder)
    world.network.reject("client", "server")
    near.transport.write(b"lost")
    world.scheduler.run_for(1)
    assert near.events == ["made", "lost ConnectionResetError"]
    assert far[0].events == ["made"]
    assert not far[0].received
    with pytest.raises(ConnectionRefusedError):
        world.connect(Recorder)
    world.network.accept("client", "server")
    world.scheduler.run_for(60)
    assert far[0].events == ["made"], "nobody tells it"
    far[0].transport.write(b"hello?")
    world.scheduler.run_for(1)
    assert far[0].events == ["made", "lost ConnectionResetError"]


def test_who_rejects_what_its_peer_sends_may_still_be_heard_once_and_learns_later() -> None:
    world = World()
    far = world.serve_each(Recorder)
    near = world.connect(Recorder)
    world.network.reject("server", "client")
    near.transport.write(b"heard")
    world.scheduler.run_for(1)
    assert bytes(far[0].received) == b"heard"
    assert far[0].events == ["made", "lost ConnectionResetError"]
    assert near.events == ["made"]
    with pytest.raises(SimulationError, match="did not end within 3 virtual seconds"):
        world.connect(Recorder, timeout_s=3)
    world.network.accept("server", "client")
    world.scheduler.run_for(1)
    assert near.events == ["made", "lost ConnectionResetError"], "what it repeats is answered"


def test_one_end_of_connections_can_be_lost() -> None:
    world = World()
    far = world.serve_each(Recorder)
    near = world.connect(Recorder)
    assert world.network.lose_ends("server", "client") == 1
    world.scheduler.run_for(60)
    assert (near.events, far[0].events) == (["made"], ["made", "lost ConnectionResetError"])
    near.transport.write(b"?")
    world.scheduler.run_for(1)
    assert near.events == ["made", "lost ConnectionResetError"]


def test_where_metadata_is_stalled_only_the_answers_to_its_fetches_wait() -> None:
    world = World()
    for port in (9092, 9093):
        world.serve(Echo, port)
    fetch, vote = bytes.fromhex("00000009 0001 0011"), bytes.fromhex("00000009 0034 0000")
    metadata, votes, records = world.connect(Recorder, 9093), world.connect(Recorder, 9093), world.connect(Recorder)
    world.network.stall_metadata("client")
    for connection, first in ((metadata, fetch), (votes, vote), (records, fetch)):
        connection.transport.write(first)
    world.scheduler.run_for(1)
    assert [bytes(each.received) for each in (metadata, votes, records)] == [b"", vote, fetch]
    world.network.deliver_metadata("client")
    world.scheduler.run_for(1)
    assert bytes(metadata.received) == fetch or metadata.events == ["made", "lost ConnectionResetError"]
