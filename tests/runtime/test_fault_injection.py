"""Faults that are injected into a running process: slow and cut connections, a full disk, and the socket that asks."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest

from raftwerk.runtime.faults.fault_socket import FaultConnection, FaultListener, FaultSocketError, NodeFaults
from raftwerk.runtime.faults.full_disk import FillableDisk, Fullness
from raftwerk.runtime.faults.network_faults import NetworkFaults

TIMEOUT_S = 20
DELAY_S = 0.1


class Received(asyncio.Protocol):
    """What came in, and when the last byte came."""

    def __init__(self) -> None:
        self.data = b""
        self.at_s = 0.0
        self.changed = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self.data += data
        self.at_s = asyncio.get_running_loop().time()
        self.changed.set()

    async def has(self, data: bytes) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while self.data != data:
                self.changed.clear()
                await self.changed.wait()


def test_what_is_written_to_a_slow_address_comes_later_and_in_order() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        received = Received()
        server = await loop.create_server(lambda: received, "127.0.0.1", 0)
        address = server.sockets[0].getsockname()
        faults = NetworkFaults()
        faults.slow({address: DELAY_S})
        transport, _ = await loop.create_connection(Received, *address)
        began_s = loop.time()
        transport.write(b"a")
        faults.slow({})
        transport.write(b"b")  # not before what was written earlier
        await received.has(b"ab")
        assert received.at_s - began_s >= DELAY_S * 0.9
        faults.cut([address])
        transport.write(b"c")
        transport.close()
        faults.cut([])
        await received.has(b"abc")
        server.close()

    asyncio.run(main())


def test_a_full_disk_has_no_space_and_takes_what_needs_none(tmp_path: Path) -> None:
    async def main() -> None:
        fullness = Fullness()
        disk = FillableDisk(fullness)
        file = disk.open(str(tmp_path / "a"), create=True)
        file.append([b"abc"])
        assert disk.free_bytes(str(tmp_path)) > 0
        fullness.is_full = True
        assert disk.free_bytes(str(tmp_path)) == 0
        file.pwrite(0, b"xy")
        path = str(tmp_path / "b")
        with pytest.raises(OSError) as append:
            file.append([b"d"])
        with pytest.raises(OSError) as replaced:
            await disk.write_atomic_soon(path, b"d")
        assert append.value.errno == replaced.value.errno == errno.ENOSPC
        file.truncate(1)
        assert disk.free_bytes(str(tmp_path)) == 2, "what was given back can be written again"
        disk.write_atomic(path, b"de")
        disk.remove(path)
        file.append([b"f"])
        fullness.is_full = False
        file.append([b"gh"])
        assert (tmp_path / "a").read_bytes() == b"xfgh"
        assert disk.free_bytes(str(tmp_path)) > 2

    asyncio.run(main())


def test_faults_hold_as_long_as_their_connection() -> None:
    async def main() -> None:
        listener = FaultListener()
        listener.listen()
        disk = listener.new_disk()
        first = await asyncio.to_thread(FaultConnection, os.getpid())
        second = await asyncio.to_thread(FaultConnection, os.getpid())
        await asyncio.to_thread(first.inject, NodeFaults(is_disk_full=True))
        await asyncio.to_thread(second.inject, NodeFaults(cut=("127.0.0.1:1",), delays_ms={"[::1]:2": 5}))
        assert disk.free_bytes("/") == 0, "the faults of both hold"
        first.close()
        async with asyncio.timeout(TIMEOUT_S):
            while not disk.free_bytes("/"):  # noqa: ASYNC110
                await asyncio.sleep(0)
        second.close()

    asyncio.run(main())


def test_a_process_that_takes_no_faults_says_what_is_missing() -> None:
    with pytest.raises(FaultSocketError, match=r"fault\.injection\.enable=true"):
        FaultConnection(os.getppid())
