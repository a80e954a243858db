"""One access control entry and the resource that it is for, with Kafka's numbers."""

from __future__ import annotations

from typing import NamedTuple


class AclBinding(NamedTuple):
    """Kafka's AclBinding. `principal` is a text such as `User:alice`, `host` an address or `*`."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int
