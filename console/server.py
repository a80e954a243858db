"""Runs a console until it is stopped."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable
from ipaddress import ip_address

from ..cluster.client.cluster_client import ClusterClient
from ..registry.data.schema_client import client_of
from ..runtime.http.asgi_server import listen, serve, url_of
from ..runtime.ports import Runtime
from .cluster_watch import TIMEOUT_S
from .http_app import ConsoleApp
from .rehearsal import LocalCluster
from .service import ConsoleService

_CLIENT_ID = "raftwerk-console"
_TIMEOUT_S = 10.0
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})


async def serve_console(
    bootstrap: str,
    runtime: Runtime,
    *,
    host: str,
    port: int,
    directory: str | None,
    is_read_only: bool,
    on_ready: Callable[[str], object],
    allowed_hosts: frozenset[str] = frozenset(),
    registry_url: str | None = None,
    stop_at_eof: bool = False,
) -> None:
    """Serve until SIGINT or SIGTERM; `on_ready` gets the URL. `directory` is that of a local cluster.
    `allowed_hosts` are the names by which browsers may address it; without any they follow from `host`.
    Records are decoded by the schemas of the registry at `registry_url`.

    With `stop_at_eof` the end of standard input is as good as SIGTERM.

    Raises `OSError` for a port that is taken.
    """
    # The page shows who does not answer.
    logging.getLogger("raftwerk.cluster.client").setLevel(logging.ERROR)
    with listen(host, port) as listening:
        async with (
            ClusterClient(bootstrap, client_id=_CLIENT_ID, timeout_s=_TIMEOUT_S) as client,
            ClusterClient(bootstrap, client_id=_CLIENT_ID, timeout_s=TIMEOUT_S) as watching,
        ):
            local = None if directory is None else LocalCluster(directory)
            service = ConsoleService(
                client,
                watching,
                runtime,
                bootstrap=bootstrap,
                local=local,
                is_read_only=is_read_only,
                schemas=None if registry_url is None else client_of(registry_url),
            )
            on_ready(url_of(host, listening))
            if stop_at_eof:
                asyncio.get_running_loop().add_reader(sys.stdin.fileno(), _on_stdin)
            try:
                await serve(ConsoleApp(service, allowed_hosts or _hosts_of(host)), listening, service.stop)
            finally:
                service.stop()


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
