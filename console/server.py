"""Runs a console until it is stopped."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from ipaddress import ip_address

from ..cluster.client.cluster_client import ClusterClient
from ..cluster.http_logins.user_login import UserLogins
from ..registry.data.schema_client import client_of
from ..runtime.http.asgi_server import listen, serve, url_of
from ..runtime.http.client import fetch
from ..runtime.ports import Runtime
from .http_app import ConsoleApp
from .logins.access import OpenAccess, UserAccess
from .logins.sessions import SessionLimits, Sessions, open_service
from .metrics.metrics_watch import MetricsWatch
from .records.record_decoding import RecordDecoder
from .rehearsal.rehearsal import Rehearsal
from .service import ConsoleService, SharedParts

_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """How a console is reached, and what it shows. `directory` is that of a local cluster.

    `allowed_hosts` are the names by which browsers may address it; without any they follow from `host`. Records are
    decoded by the schemas of the registry at `registry_url`. With `logins` each user logs in, and has its own rights;
    without, all have those of the running command's login. With `stop_at_eof` the end of standard input is as good as
    SIGTERM. `proxies` are the addresses from which a request's headers X-Forwarded-For and X-Forwarded-Proto are
    believed: another client that sends them could choose for whom its wrong passwords count.
    """

    bootstrap: str
    host: str
    port: int
    directory: str | None
    is_read_only: bool
    allowed_hosts: frozenset[str] = frozenset()
    registry_url: str | None = None
    logins: UserLogins | None = None
    stop_at_eof: bool = False
    proxies: tuple[str, ...] = ()


async def serve_console(settings: ConsoleSettings, runtime: Runtime, on_ready: Callable[[str], object]) -> None:
    """Serve until SIGINT or SIGTERM; `on_ready` gets the URL. Raises `OSError` for a port that is taken."""
    # The page shows who does not answer.
    logging.getLogger("raftwerk.cluster.client").setLevel(logging.ERROR)
    with listen(settings.host, settings.port) as listening:
        shared = _shared_parts(settings, runtime)
        async with AsyncExitStack() as stack:
            if shared.rehearsal is not None:
                stack.push_async_callback(shared.rehearsal.close)
            access = await stack.enter_async_context(_access(settings, shared, runtime, listening.getsockname()[1]))
            on_ready(url_of(settings.host, listening))
            if settings.stop_at_eof:
                asyncio.get_running_loop().add_reader(sys.stdin.fileno(), _on_stdin)
            app = ConsoleApp(access, settings.allowed_hosts or _hosts_of(settings.host), settings.is_read_only)
            proxies = list(settings.proxies)
            await serve(app, listening, access.stop, proxy_headers=bool(proxies), forwarded_allow_ips=proxies)


def _shared_parts(settings: ConsoleSettings, runtime: Runtime) -> SharedParts:
    rehearsal = None if settings.directory is None else Rehearsal(settings.directory, runtime.clock)
    return SharedParts(
        settings.bootstrap,
        runtime,
        RecordDecoder(None if settings.registry_url is None else client_of(settings.registry_url)),
        MetricsWatch(None if rehearsal is None else rehearsal.cluster.metrics_addresses, fetch, runtime.clock),
        rehearsal,
        settings.is_read_only,
    )


@asynccontextmanager
async def _access(
    settings: ConsoleSettings, shared: SharedParts, runtime: Runtime, port: int
) -> AsyncIterator[OpenAccess | UserAccess]:
    """Whose service answers a request: that of its user, or the one of all."""

    def new_service(client: ClusterClient, watching: ClusterClient, user: str | None) -> ConsoleService:
        return ConsoleService(client, watching, shared, user)

    if settings.logins is None:
        async with open_service(settings.bootstrap, None, new_service, None) as service:
            yield OpenAccess(service)
        return
    limits = SessionLimits()
    async with Sessions(settings.bootstrap, settings.logins, new_service, runtime.secret_bytes, limits) as sessions:
        yield UserAccess(sessions, port)


def _on_stdin() -> None:
    if not os.read(sys.stdin.fileno(), 4096):
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        signal.raise_signal(signal.SIGTERM)


def _hosts_of(host: str) -> frozenset[str] | None:
    """The names by which browsers may address a console that listens on `host`; None for all."""
    if host == "localhost" or (":" not in host and host.startswith("127.")) or host == "::1":
        return _LOOPBACK_NAMES | {host}
    try:
        is_any = ip_address(host).is_unspecified
    except ValueError:
        is_any = False
    return None if is_any else frozenset({host.lower(), f"[{host}]"})
