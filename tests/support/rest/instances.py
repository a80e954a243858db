"""Consumer instances of version 2."""

from __future__ import annotations

import time
from typing import Any

from support.rest.proxy import JSON_V2, Proxy


def instance(proxy: Proxy, group: str, **options: Any) -> str:
    """A new consumer instance that begins at the first record; its path."""
    body = {"auto.offset.reset": "earliest", "format": "json", **options}
    status, found = proxy.v2("POST", f"/consumers/{group}", body)
    assert status == 200, found
    assert found["base_uri"] == f"{proxy.url}/consumers/{group}/instances/{found['instance_id']}"
    return f"/consumers/{group}/instances/{found['instance_id']}"


def read(proxy: Proxy, path: str, count: int, accept: str = JSON_V2) -> list[Any]:
    """The next records, so many of them; the first answers may be empty, while the group is formed."""
    found: list[Any] = []
    deadline = time.monotonic() + 60
    while len(found) < count:
        assert time.monotonic() < deadline, found
        status, rows = proxy.v2("GET", f"{path}/records?timeout=2000", accept=accept)
        assert status == 200, rows
        found += rows
    return found
