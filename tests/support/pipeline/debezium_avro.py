"""Records as Debezium's connectors write them with Connect's AvroConverter, and the registry that has their schemas."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from fastavro import parse_schema, schemaless_writer

from raftwerk.registry.data.frame import framed

KEY = {"type": "record", "name": "Key", "namespace": "shop.orders", "fields": [{"name": "id", "type": "long"}]}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2, "connect.name": "...Decimal"}
ROW = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "price", "type": ["null", DECIMAL]},
        {
            "name": "day",
            "type": ["null", {"type": "int", "connect.version": 1, "connect.name": "io.debezium.time.Date"}],
        },
        {"name": "at", "type": ["null", {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}]},
        {"name": "seen", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
        {"name": "small", "type": ["null", {"type": "int", "connect.type": "int16"}]},
        {"name": "note", "type": ["null", "string"]},
        {"name": "raw", "type": ["null", "bytes"]},
        {"name": "tags", "type": ["null", {"type": "array", "items": ["null", "string"]}]},
    ],
}
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "namespace": "shop.orders",
    "fields": [
        {"name": "before", "type": ["null", ROW], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {
            "name": "source",
            "type": {"type": "record", "name": "Source", "fields": [{"name": "lsn", "type": ["null", "long"]}]},
        },
        {"name": "op", "type": "string"},
    ],
}
SCHEMAS: dict[int, dict[str, Any]] = {1: KEY, 2: ENVELOPE}


def encoded(schema_id: int, value: dict[str, Any]) -> bytes:
    """The value behind the id of its schema."""
    data = io.BytesIO()
    schemaless_writer(data, parse_schema(SCHEMAS[schema_id]), value)
    return framed(schema_id, data.getvalue())


def event(op: str, after: dict[str, Any] | None) -> bytes:
    """The value of a record at position 5."""
    return encoded(2, {"before": None, "after": after, "source": {"lsn": 5}, "op": op})


@contextmanager
def serving_schemas() -> Iterator[str]:
    """The URL of a registry that knows these schemas."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"schema": json.dumps(SCHEMAS[int(self.path.rpartition("/")[2])])}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
