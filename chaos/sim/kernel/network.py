"""A network in memory between simulated hosts: streams with latency, flow control, cuts and resets.

A connection is two pipes. Bytes arrive in order after a latency drawn from the seed, and wait in the receiver's kernel
until its process reads them. At most a window of bytes is on the way; the rest stays in the sender's transport, which
pauses its protocol above the high-water mark.

Every link between two hosts can be cut, in one direction or both. TCP repeats what is lost, so bytes that were sent
over a cut link arrive some time after it heals, or the connection is reset. A connection attempt repeats its SYN after
1, 2, 4 ... seconds. The kernel of a killed process closes its connections (end of stream or reset, by seed) and refuses
new ones. A host without power answers nothing; when it is up again, it answers unknown connections with a reset.

A link that rejects answers every segment with a reset and lets none through, as a packet filter does. It makes
connections half-open: one end is gone, and the other end learns of it when it sends something.
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from ....wire.api_keys import ApiKey
from .event_loop import KernelLoop, ProcessLoop, Scheduler
from .run_observer import RunObserver
from .trace import Trace
from .transport import Address, Pipe, Signal, SimTransport

_SYN_RETRIES = 6
_EPHEMERAL_PORT = 49_152
_RETRANSMIT_MAX_S = 0.4
_FETCHES = tuple(int(key).to_bytes(2, "big") for key in (ApiKey.FETCH, ApiKey.FETCH_SNAPSHOT))
"""How requests begin that fetch the metadata log, after their size."""

ProtocolFactory: TypeAlias = Callable[[], asyncio.BaseProtocol]


@dataclass(slots=True)
class _Link:
    """One direction between two hosts."""

    cut: bool = False
    rejects: bool = False
    latency_s: tuple[float, float] | None = None
    late: tuple[float, float] | None = None
    """The probability that a segment is late, and by how many seconds at most."""

    @property
    def state(self) -> str:
        """What is wrong with it; empty if nothing is."""
        if self.cut:
            return "cut"
        if self.rejects:
            return "rejects"
        return "slow" if self.latency_s is not None or self.late is not None else ""


@dataclass(slots=True)
class _Attempt:
    """A connection being opened."""

    process: ProcessLoop
    factory: ProtocolFactory
    host: str
    port: int
    future: asyncio.Future[tuple[asyncio.Transport, asyncio.BaseProtocol]]
    tries: int = 0


@dataclass(slots=True)
class NetworkConfig:
    """Latencies are one way, in seconds."""

    latency_s: tuple[float, float] = (0.0001, 0.001)
    spike_probability: float = 0.005
    spike_s: float = 0.02
    split_probability: float = 0.05
    reset_after_heal_probability: float = 0.2
    metadata_port: int = 9093
    """Where controllers listen."""


class SimSocket:
    """The part of a listening socket that callers use."""

    def __init__(self, address: Address) -> None:
        self._address = address

    def getsockname(self) -> Address:
        """The address of the listener."""
        return self._address

    def setsockopt(self, level: int, option: int, value: int, /) -> None:
        """Do nothing: a simulated connection has no buffers of a system."""


class SimServer(asyncio.AbstractServer):
    """A listener. Closing it does not close its connections. See `asyncio.Server`."""

    def __init__(self, network: SimNetwork, process: ProcessLoop, factory: ProtocolFactory, port: int) -> None:
        self.process = process
        self.factory = factory
        self.address: Address = (process.name, port)
        self._network = network
        self._serving = True

    @property
    def sockets(self) -> tuple[SimSocket, ...]:
        """The listening socket; none after `close`."""
        return (SimSocket(self.address),) if self._serving else ()

    def close(self) -> None:
        """Stop listening."""
        if self._serving:
            self._serving = False
            self._network.unlisten(self)

    def is_serving(self) -> bool:
        """Whether it listens."""
        return self._serving

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The loop of its process."""
        return self.process.as_asyncio

    async def start_serving(self) -> None:
        """Does nothing: it listens from the start."""
        return

    async def serve_forever(self) -> None:
        """Wait until the task is cancelled."""
        await self.process.create_future()

    async def wait_closed(self) -> None:
        """Does nothing: `close` takes effect at once."""
        return


class SimNetwork:
    """All hosts, links, listeners and connections of a simulation."""

    def __init__(
        self, scheduler: Scheduler, rng: random.Random, trace: Trace, config: NetworkConfig | None = None
    ) -> None:
        self.config = config or NetworkConfig()
        self._scheduler = scheduler
        self._rng = rng
        self._trace = trace
        self._kernel = KernelLoop(scheduler, "network")
        self._powered: dict[str, bool] = {}
        self._links: dict[tuple[str, str], _Link] = {}
        self._stalled: dict[str, None] = {}
        """Hosts to which no metadata is delivered."""
        self._servers: dict[Address, SimServer] = {}
        self._transports: dict[int, SimTransport] = {}
        self._with_undelivered: dict[int, Pipe] = {}
        self._entries = 0
        self._next_port: dict[str, int] = {}
        self.observer: RunObserver | None = None
        self.on_connection: Callable[[Pipe, Pipe], None] | None = None
        """Is called with the two pipes of each new connection, that of the requests first; it only looks."""

    # -- hosts and faults

    def add_host(self, name: str) -> None:
        """A host with power; its name is its address."""
        self._powered.setdefault(name, True)

    def has_host(self, name: str) -> bool:
        """Whether there is a host of this name."""
        return name in self._powered

    def set_power(self, host: str, on: bool) -> None:
        """Turn a host's power on or off. Call `kill_process` before turning it off."""
        self._powered[host] = on
        if on:
            self._redeliver_later(lambda pipe: host in (pipe.source, pipe.target))

    def kill_process(self, process: ProcessLoop, *, power_loss: bool) -> None:
        """Close the process's sockets as its kernel would; after a loss of power the peers are sent nothing."""
        for server in [server for server in self._servers.values() if server.process is process]:
            server.close()
        for transport in [each for each in self._transports.values() if each.process is process]:
            final_signal = Signal.RESET if self._rng.random() < 0.5 else Signal.END
            transport.close_by_kernel(None if power_loss else final_signal)

    def cut(self, source: str, target: str) -> None:
        """Lose everything from `source` to `target` until `heal`."""
        self._link(source, target).cut = True
        self._tell_observer(source, target)

    def heal(self, source: str, target: str) -> None:
        """End a cut. Soon the lost bytes are repeated, or the connection is reset."""
        link = self._link(source, target)
        if link.cut:
            link.cut = False
            self._tell_observer(source, target)
            self._redeliver_later(
                lambda pipe: (source, target) in ((pipe.source, pipe.target), (pipe.target, pipe.source))
            )

    def reject(self, source: str, target: str) -> None:
        """Answer everything from `source` to `target` with a reset, until `accept`."""
        self._link(source, target).rejects = True
        self._tell_observer(source, target)

    def accept(self, source: str, target: str) -> None:
        """End `reject`. Soon unacknowledged bytes are repeated, and an end that is gone answers with a reset."""
        link = self._link(source, target)
        if link.rejects:
            link.rejects = False
            self._tell_observer(source, target)
            self._redeliver_later(lambda pipe: {source, target} == {pipe.source, pipe.target})

    def heal_all(self) -> None:
        """End all cuts, rejections, stalls and slow latencies."""
        for host in list(self._stalled):
            self.deliver_metadata(host)
        for (source, target), link in self._links.items():
            link.latency_s = None
            link.late = None
            self._tell_observer(source, target)
            self.accept(source, target)
            self.heal(source, target)

    def set_latency(self, source: str, target: str, latency_s: tuple[float, float] | None) -> None:
        """Set the bounds of the latency in one direction, in seconds; None: the usual latency."""
        self._link(source, target).latency_s = latency_s
        self._tell_observer(source, target)

    def set_late(self, source: str, target: str, late: tuple[float, float] | None) -> None:
        """Set the probability that a segment is late in one direction, and by how many seconds at most; None: none."""
        self._link(source, target).late = late
        self._tell_observer(source, target)

    def stall_metadata(self, host: str) -> None:
        """Deliver no answers to the host's fetches of the metadata log, until `deliver_metadata`. All else passes."""
        self._stalled[host] = None
        if self.observer is not None:
            self.observer.on_link(host, "", "gets no metadata")

    def deliver_metadata(self, host: str) -> None:
        """End `stall_metadata`. Soon what was kept arrives, or the connections are reset."""
        if self._stalled.pop(host, True) is None:
            if self.observer is not None:
                self.observer.on_link(host, "", "")
            self._redeliver_later(lambda pipe: pipe.carries_metadata and pipe.target == host)

    def reset_connections(self, first: str, second: str) -> int:
        """Reset every connection between two hosts, at both ends; returns how many ends."""
        ends = [t for t in self._transports.values() if {t.local[0], t.remote[0]} == {first, second}]
        for transport in ends:
            transport.reset()
        return len(ends)

    def lose_ends(self, host: str, peer: str) -> int:
        """Reset the connections between two hosts at the end of `host` alone; returns how many."""
        ends = [t for t in self._transports.values() if (t.local[0], t.remote[0]) == (host, peer)]
        for transport in ends:
            transport.reset()
        return len(ends)

    # -- for process loops

    async def connect(
        self, process: ProcessLoop, factory: ProtocolFactory, host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Open a connection. `OSError` as in a real network: refused, timed out, unknown host."""
        target = process.name if host in ("localhost", "127.0.0.1", "0.0.0.0", "::1") else host
        if target not in self._powered:
            raise OSError(errno.EHOSTUNREACH, f"name or service not known: {host}")
        attempt = _Attempt(process, factory, target, port, process.create_future())
        self._send_syn(attempt)
        return await attempt.future

    def listen(self, process: ProcessLoop, factory: ProtocolFactory, port: int) -> SimServer:
        """Listen on a port; 0 takes a free one. `OSError` (EADDRINUSE) when it is in use."""
        port = port or self._free_port(process.name)
        if (process.name, port) in self._servers:
            raise OSError(errno.EADDRINUSE, f"address already in use: {process.name}:{port}")
        server = SimServer(self, process, factory, port)
        self._servers[server.address] = server
        return server

    def unlisten(self, server: SimServer) -> None:
        """Refuse new connections to the server."""
        self._servers.pop(server.address, None)

    # -- for pipes and transports

    def arrival_time(self, source: str, target: str) -> float:
        """When a segment that is sent now arrives, in virtual seconds."""
        return self._scheduler.now_s + self._latency(source, target)

    def schedule(self, when_s: float, callback: Callable[..., object], *args: Any) -> None:
        """Run a callback of the network at a virtual time."""
        self._scheduler.schedule(self._kernel, when_s, callback, args)

    def passes(self, source: str, target: str) -> bool:
        """Whether the link is not cut and the target has power."""
        link = self._links.get((source, target))
        return self._powered[target] and (link is None or not link.cut)

    def carries(self, pipe: Pipe) -> bool:
        """Whether what arrives at the end of the pipe is delivered."""
        return self.passes(pipe.source, pipe.target) and not (pipe.carries_metadata and pipe.target in self._stalled)

    def fetches_metadata(self, address: Address, data: bytes) -> bool:
        """Whether a connection to this address, with these first bytes, is one for fetches of the metadata log."""
        return address[1] == self.config.metadata_port and data[4:6] in _FETCHES

    def rejects(self, source: str, target: str) -> bool:
        """Whether segments in this direction are answered with a reset."""
        link = self._links.get((source, target))
        return link is not None and link.rejects

    def hash_segment(self, pipe: int, length: int, checksum: int) -> None:
        """Count a delivered segment in the trace's digest."""
        self._trace.hash_segment(pipe, length, checksum)

    def read_size(self, available: int) -> int:
        """How many of the available bytes one read returns: sometimes fewer, since a stream has no boundaries."""
        if available > 1 and self._rng.random() < self.config.split_probability:
            return self._rng.randrange(1, available)
        return available

    def forget(self, transport: SimTransport) -> None:
        """The transport is closed."""
        self._transports.pop(transport.number, None)

    def remember_undelivered(self, pipe: Pipe) -> None:
        """Remember a pipe with segments that wait for a link to heal."""
        self._with_undelivered[pipe.number] = pipe

    # -- inside

    def _link(self, source: str, target: str) -> _Link:
        return self._links.setdefault((source, target), _Link())

    def _tell_observer(self, source: str, target: str) -> None:
        if self.observer is not None:
            self.observer.on_link(source, target, self._link(source, target).state)

    def _latency(self, source: str, target: str) -> float:
        link = self._links.get((source, target))
        low, high = self.config.latency_s if link is None or link.latency_s is None else link.latency_s
        if source == target:
            low, high = low / 10, high / 10
        draw = self._rng.random
        latency_s = low + (high - low) * draw()
        if draw() < self.config.spike_probability:
            latency_s += self.config.spike_s * draw()
        if link is not None and link.late is not None and draw() < link.late[0]:
            latency_s += link.late[1] * draw()
        return latency_s

    def _free_port(self, host: str) -> int:
        port = self._next_port.get(host, _EPHEMERAL_PORT)
        self._next_port[host] = port + 1
        return port

    def _redeliver_later(self, concerned: Callable[[Pipe], bool]) -> None:
        for pipe in self._with_undelivered.values():
            if concerned(pipe):
                delay_s = self._rng.uniform(0, _RETRANSMIT_MAX_S)
                give_up = self._rng.random() < self.config.reset_after_heal_probability
                self.schedule(self._scheduler.now_s + delay_s, self._redeliver, pipe, give_up)

    def _redeliver(self, pipe: Pipe, give_up: bool) -> None:
        if give_up:
            pipe.sender.reset()
            pipe.receiver.reset()
        else:
            pipe.redeliver()
            if not pipe.has_undelivered:
                self._with_undelivered.pop(pipe.number, None)

    def _send_syn(self, attempt: _Attempt) -> None:
        self.schedule(self.arrival_time(attempt.process.name, attempt.host), self._on_syn, attempt)

    def _on_syn(self, attempt: _Attempt) -> None:
        client = attempt.process.name
        if attempt.future.done() or attempt.process.dead:
            return
        open_both_ways = self.passes(client, attempt.host) and self.passes(attempt.host, client)
        if not open_both_ways or self.rejects(attempt.host, client):
            self._retry_syn(attempt)
            return
        refused = self.rejects(client, attempt.host)
        server = None if refused else self._servers.get((attempt.host, attempt.port))
        answer_s = self.arrival_time(attempt.host, client)
        if server is None:
            self._scheduler.schedule(attempt.process, answer_s, self._refuse, (attempt,))
            return
        near, far = self._make_pair(attempt.process, server, answer_s)
        server.process.call_soon(lambda: far.open(server.factory()))
        self._scheduler.schedule(attempt.process, answer_s, self._connected, (attempt, near))

    def _retry_syn(self, attempt: _Attempt) -> None:
        attempt.tries += 1
        if attempt.tries > _SYN_RETRIES:
            error = TimeoutError(errno.ETIMEDOUT, f"connect to {attempt.host}:{attempt.port} timed out")
            attempt.process.call_soon(_fail, attempt.future, error)
        else:
            self.schedule(self._scheduler.now_s + 2.0 ** (attempt.tries - 1), self._on_syn, attempt)

    def _refuse(self, attempt: _Attempt) -> None:
        text = f"connect to {attempt.host}:{attempt.port} refused"
        _fail(attempt.future, ConnectionRefusedError(errno.ECONNREFUSED, text))

    def _connected(self, attempt: _Attempt, near: SimTransport) -> None:
        if attempt.future.done():
            near.abort()
            return
        protocol = attempt.factory()
        near.open(protocol)
        attempt.future.set_result((near, protocol))

    def _make_pair(self, client: ProcessLoop, server: SimServer, answer_s: float) -> tuple[SimTransport, SimTransport]:
        near_address = (client.name, self._free_port(client.name))
        near = self._make_end(client, near_address, server.address)
        far = self._make_end(server.process, server.address, near_address)
        there = Pipe(self, client.name, server.address[0], near.number)
        back = Pipe(self, server.address[0], client.name, far.number)
        there.carries_requests = True
        back.last_arrival_s = answer_s
        near.outgoing = far.incoming = there
        far.outgoing = near.incoming = back
        there.sender = back.receiver = near
        there.receiver = back.sender = far
        if self.on_connection is not None:
            self.on_connection(there, back)
        return near, far

    def _make_end(self, process: ProcessLoop, local: Address, remote: Address) -> SimTransport:
        self._entries += 1
        transport = SimTransport(self, process, local, remote, self._entries)
        self._transports[transport.number] = transport
        return transport


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
