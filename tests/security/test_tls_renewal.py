"""Certificates that are exchanged in their files while a listener runs and connections are open."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import ssl
from pathlib import Path

import pytest
import uvloop
from support.security.certificates import Authority

from raftwerk.runtime.tls_contexts import (
    REQUIRED,
    TlsContext,
    TlsError,
    TlsMaterial,
    TlsOptions,
    choose_for_each_client,
    client_context,
    server_context,
)
from raftwerk.security.tls import renewal
from raftwerk.security.tls.renewal import RenewedContext


class Listener:
    """A listener with TLS that asks for client certificates and sends back what it gets."""

    def __init__(self, directory: Path) -> None:
        self.key_store, self.trust_store = directory / "node.pem", directory / "trusted.pem"
        self._server: asyncio.Server | None = None

    def _make(self) -> TlsContext:
        pem = self.key_store.read_bytes()
        return server_context(
            TlsMaterial(pem, pem, None, self.trust_store.read_bytes()), TlsOptions(client_auth=REQUIRED)
        )

    async def start(self) -> None:
        context = self._make()
        files = (self.key_store, self.trust_store)
        renewed = RenewedContext("listener", lambda: [path.read_bytes() for path in files], self._make)
        choose_for_each_client(context, renewed.current)
        self._server = await asyncio.start_server(self._echo, "127.0.0.1", 0, ssl=context)

    async def _echo(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.CancelledError, OSError):
            while data := await reader.read(100):
                writer.write(data)
        writer.close()

    async def connect(self, own: Path, trusted: Authority) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        context = context_of(own, trusted)
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        return await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost")

    async def is_served(self, own: Path, trusted: Authority) -> bool:
        try:
            return await echoed(await self.connect(own, trusted))
        except (ssl.SSLError, ConnectionError, asyncio.IncompleteReadError):
            return False


def context_of(own: Path, trusted: Authority) -> TlsContext:
    pem = own.read_bytes()
    return client_context(TlsMaterial(pem, pem, None, trusted.file.read_bytes()), TlsOptions())


async def echoed(connection: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> bool:
    connection[1].write(b"hello")
    return await connection[0].readexactly(5) == b"hello"


@pytest.fixture(params=["asyncio", "uvloop"])
def runner(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> asyncio.Runner:
    monkeypatch.setattr(renewal, "CHECK_INTERVAL_S", 0.0)
    return asyncio.Runner(loop_factory=uvloop.new_event_loop if request.param == "uvloop" else None)


def test_keys_and_authorities_are_exchanged_while_connections_go_on(
    tmp_path: Path, runner: asyncio.Runner, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    old, new = Authority(tmp_path / "old"), Authority(tmp_path / "new")
    old_client, new_client = old.issue("client"), new.issue("client")
    listener = Listener(tmp_path)
    listener.key_store.write_bytes(old.issue("node", "localhost").read_bytes())
    listener.trust_store.write_bytes(old.file.read_bytes())

    async def run() -> None:
        await listener.start()
        in_flight = await listener.connect(old_client, old)
        assert await echoed(in_flight)
        assert not await listener.is_served(new_client, old)

        listener.key_store.write_bytes(new.issue("node", "localhost").read_bytes())
        assert await listener.is_served(old_client, new)
        assert not await listener.is_served(old_client, old)
        assert await echoed(in_flight)

        listener.trust_store.write_bytes(new.file.read_bytes())
        assert await listener.is_served(new_client, new)
        assert not await listener.is_served(old_client, new)
        assert await echoed(in_flight)
        assert "listener uses its new certificates for new connections" in caplog.messages
        caplog.clear()

        good = listener.key_store.read_bytes()
        for bad in (b"", b"nonsense", good[: len(good) // 2], old.issue("n").read_bytes().split(b"-----BEGIN CERT")[0]):
            listener.key_store.write_bytes(bad)
            for _ in range(3):
                assert await listener.is_served(new_client, new)
        listener.key_store.unlink()
        assert await listener.is_served(new_client, new)
        assert len(caplog.messages) == 5
        assert all(told.startswith("listener keeps its former certificates, since") for told in caplog.messages)
        assert await echoed(in_flight)

        listener.key_store.write_bytes(new.issue("other", "localhost").read_bytes())
        assert await listener.is_served(new_client, new)
        assert caplog.messages[-1] == "listener uses its new certificates for new connections"

    with runner:
        runner.run(asyncio.wait_for(run(), 30))


def test_files_are_looked_at_once_a_second_at_most(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    reads: list[int] = []

    def make() -> TlsContext:
        return client_context(TlsMaterial(authorities=authority.file.read_bytes()), TlsOptions())

    def read() -> list[bytes]:
        reads.append(1)
        return [b"same"]

    renewed = RenewedContext("link", read, make)

    async def run() -> None:
        assert len({id(renewed.current()) for _ in range(100)}) == 1

    asyncio.run(run())
    assert len(reads) == 2


def test_files_that_could_not_be_used_for_a_passing_cause_are_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Too many open files, say. It is told once."""
    monkeypatch.setattr(renewal, "CHECK_INTERVAL_S", 0)
    monkeypatch.setattr(renewal, "RETRY_INTERVAL_S", 0)
    authority = Authority(tmp_path)
    content = [b"old"]
    fails = False

    def make() -> TlsContext:
        if fails:
            raise OSError(errno.EMFILE, "Too many open files")
        return client_context(TlsMaterial(authorities=authority.file.read_bytes()), TlsOptions())

    renewed = RenewedContext("link", lambda: list(content), make)

    async def run() -> None:
        nonlocal fails
        former = renewed.current()
        content[0], fails = b"new", True
        for _ in range(3):
            assert renewed.current() is former
        fails = False
        assert renewed.current() is not former

    with caplog.at_level(logging.INFO):
        asyncio.run(run())
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]


def test_without_usable_files_there_is_no_context() -> None:
    def make() -> TlsContext:
        raise TlsError("cannot read /nowhere")

    def read() -> list[bytes]:
        raise FileNotFoundError

    with pytest.raises(TlsError):
        RenewedContext("link", read, make)
