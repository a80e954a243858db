"""How faults are injected into a node that allows it, from outside of its process.

The node listens on a Unix socket of the abstract namespace, whose name has its process id, and takes commands of the
user who started it, and of root, only. A command is a line of JSON that says all faults that hold from then on; the
node answers with a line when they hold. They hold as long as the connection: when it ends, however the other side has
ended, they are healed. The faults of several connections hold together.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from ..log_lines import log_event
from .full_disk import FillableDisk, Fullness
from .network_faults import Address, NetworkFaults

_logger = logging.getLogger("raftwerk.node")
_READ = 65536
_TIMEOUT_S = 10.0
_CREDENTIALS = struct.Struct("3i")
_DONE = b"done\n"


class FaultSocketError(Exception):
    """A node takes no faults; the message says why, to follow "node 2"."""


@dataclass(frozen=True, slots=True)
class NodeFaults:
    """All faults of one node. Addresses are `host:port`; `delays_ms` are by address."""

    cut: tuple[str, ...] = ()
    delays_ms: Mapping[str, int] = field(default_factory=dict)
    is_disk_full: bool = False


class FaultListener:
    """The node's side. It is made on the running loop, before the node opens its first connection."""

    def __init__(self) -> None:
        self._links = NetworkFaults()
        self._fullness = Fullness()
        self._faults: dict[socket.socket, NodeFaults] = {}
        self._serving: set[asyncio.Task[None]] = set()
        self._listening = socket.socket(socket.AF_UNIX)

    def new_disk(self) -> FillableDisk:
        """A disk that is full when it is asked to be."""
        return FillableDisk(self._fullness)

    def listen(self) -> None:
        """Listen for as long as this object lives."""
        self._listening.setblocking(False)
        self._listening.bind(_name_of(os.getpid()))
        self._listening.listen()
        asyncio.get_running_loop().add_reader(self._listening, self._on_connection)

    def _on_connection(self) -> None:
        connected, _ = self._listening.accept()
        connected.setblocking(False)
        task = asyncio.get_running_loop().create_task(self._serve(connected))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, connected: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        rest = b""
        with connected:
            try:
                while _peer_of(connected)[1] in (0, os.getuid()) and (data := await loop.sock_recv(connected, _READ)):
                    *lines, rest = (rest + data).split(b"\n")
                    for line in lines:
                        self._faults[connected] = NodeFaults(**json.loads(line))
                        self._apply()
                        await loop.sock_sendall(connected, _DONE)
            except (OSError, ValueError, TypeError) as error:
                _logger.warning("the connection by which faults were injected ended: %s", error)
            finally:
                if self._faults.pop(connected, None) is not None:
                    self._apply()

    def _apply(self) -> None:
        every = self._faults.values()
        delays: dict[str, int] = {}
        for faults in every:
            delays |= {at: max(delay_ms, delays.get(at, 0)) for at, delay_ms in faults.delays_ms.items()}
        cut = [at for faults in every for at in faults.cut]
        is_full = any(faults.is_disk_full for faults in every)
        self._links.slow({_address(at): delay_ms / 1000 for at, delay_ms in delays.items()})
        self._links.cut(map(_address, cut))
        self._fullness.is_full = is_full
        log_event(_logger, "faults-injected", cut=cut, slow=list(delays), disk_full=is_full)


class FaultConnection:
    """The other side: one connection to the node that runs as process `pid`. Its calls block, for ten seconds at most.

    Raises `FaultSocketError` where the node takes no faults.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(_TIMEOUT_S)
        try:
            self._socket.connect(_name_of(pid))
        except ConnectionRefusedError:
            self._socket.close()
            raise FaultSocketError("takes no faults: it was started without fault.injection.enable=true") from None
        except OSError as error:
            self._socket.close()
            raise FaultSocketError(f"takes no faults: {error}") from None
        if _peer_of(self._socket)[0] != pid:
            self._socket.close()
            raise FaultSocketError(f"takes no faults: another process has the socket of process {pid}")

    def inject(self, faults: NodeFaults) -> None:
        """Let these faults hold, and no others; returns when they do."""
        try:
            self._socket.sendall(json.dumps(asdict(faults)).encode() + b"\n")
            answer = self._socket.recv(len(_DONE))
        except OSError as error:
            raise FaultSocketError(f"did not take the faults: {error}") from None
        if answer != _DONE:
            raise FaultSocketError("did not take the faults: it has ended, or is another user's")

    def close(self) -> None:
        """End the connection, which heals the node."""
        self._socket.close()


def _name_of(pid: int) -> str:
    return f"\0raftwerk-faults-{pid}"


def _peer_of(connected: socket.socket) -> tuple[int, int]:
    """The process id and the user id of the other side."""
    found = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(found)
    return pid, uid


def _address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return host, int(port)
