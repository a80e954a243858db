"""Values for the fields of drawn requests: limits of every type, and names and ids that the cluster knows.

A plain client may delete topics, change settings and, on the controller's listener, speak as a node of the cluster;
that is no fault of the broker. So no value here names what a run relies on in a request that may change it: the
client's topic is never named, the internal topic only where a request cannot delete or alter it, and ids of nodes are
unknown ones except in lists of replicas and of brokers to describe.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from ...wire.api_keys import ApiKey

GROUPS = ("fuzz-group-1", "fuzz-group-2", "fuzz-group-3", "", "g" * 300)
NEW_TOPICS = tuple(f"fuzz-new-{number}" for number in range(10))
INTERNAL_TOPIC = "__consumer_offsets"
NAMES_INTERNAL_TOPIC = (
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.METADATA,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.DELETE_RECORDS,
    ApiKey.DESCRIBE_PRODUCERS,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
)
"""APIs that cannot take the internal topic away from its coordinators."""

_ODD_TEXTS = ("", ".", "..", "a b", "ä€𝄞", "\0", "x" * 250, "y" * 32_767, "%s%n{}", "../../etc", "null", "2147483648")
_CONFIG_NAMES = ("retention.ms", "cleanup.policy", "max.message.bytes", "segment.bytes", "unknown.key", "")
_CONFIG_VALUES = ("1", "-1", "1_000", "9" * 40, "compact", "delete,compact", "", "true", "2147483648", "٣")
_UNKNOWN_NODES = (1000, -1, -2, 2**31 - 1, -(2**31))
_NODE_FIELDS = ("broker_id", "replica_id", "leader_id", "voter_id", "candidate_id", "node_id", "controller_id")
_LISTS_OF_NODES = ("replicas", "broker_ids", "isr", "new_isr")
_TIMES_MS = (0, 1, 100, 100, 100, -1, 2**31 - 1)
_COUNTS = (-1, 0, 1, 2, 3, -5, 2**31 - 1)
_SMALL = (0, 0, 1, 1, 2, 3, 5, -1, -2)
_LIMITS: Mapping[str, Sequence[int]] = {
    kind: (low, high, low + 1, high - 1, high // 2, high // 2 + 1)
    for kind, low, high in (
        ("b", -(2**7), 2**7 - 1),
        ("h", -(2**15), 2**15 - 1),
        ("H", 0, 2**16 - 1),
        ("i", -(2**31), 2**31 - 1),
        ("I", 0, 2**32 - 1),
        ("q", -(2**63), 2**63 - 1),
    )
}


@dataclass(frozen=True, slots=True)
class KnownNames:
    """The topics that requests may name and change, with their ids."""

    topics: Sequence[str]
    topic_ids: Sequence[UUID]


class ValueDrawer:
    """Draws values of fields from one random generator."""

    def __init__(self, rng: random.Random, known: KnownNames) -> None:
        self._rng = rng
        self._known = known

    def number(self, field: str, fmt: str, *, in_array: bool) -> int | float | bool:
        """A number that fits the format letter of `struct`."""
        rng = self._rng
        if fmt == "?":
            return rng.random() < 0.5
        if fmt == "d":
            return rng.choice((0.0, -1.0, 1e308, float("nan"), float("inf"), 0.5))
        chosen = rng.choice(self._numbers(field, in_array) or (_LIMITS[fmt] if rng.random() < 0.25 else _SMALL))
        return chosen if _fits(fmt, chosen) else 0

    @staticmethod
    def _numbers(field: str, in_array: bool) -> Sequence[int]:
        if in_array and field in _LISTS_OF_NODES:
            return (1, 2, 3, 3, *_UNKNOWN_NODES)
        if field.endswith(_NODE_FIELDS):
            return _UNKNOWN_NODES
        if "timeout" in field or "wait" in field:
            return _TIMES_MS
        if field in ("num_partitions", "count", "replication_factor"):
            return _COUNTS
        return (0, 1, 2, 4, 16, 32, 127, -1) if field == "resource_type" else ()

    def text(self, api: ApiKey, struct_name: str, field: str) -> str:
        """A string, by the names of its struct and of the field."""
        rng = self._rng
        if rng.random() < 0.15:
            return rng.choice(_ODD_TEXTS)
        if "Config" in struct_name:
            return self._config_text(struct_name, field)
        if "group" in field or (api is ApiKey.FIND_COORDINATOR and "key" in field):
            return rng.choice(GROUPS)
        if "member" in field or "instance" in field:
            return rng.choice(("", "member-1", "member-2"))
        if field in ("name", "topic", "topic_name", "names", "topics", "topic_names", "resource_name"):
            return rng.choice(self._topics(api))
        if "protocol" in field or "assignor" in field:
            return rng.choice(("consumer", "range", "uniform", "connect", ""))
        return rng.choice(("", "fuzz", "127.0.0.1", "PLAINTEXT", "CONTROLLER", "(", "fuzz-.*"))

    def _config_text(self, struct_name: str, field: str) -> str:
        if "Resource" in struct_name and field == "resource_name":
            return self._rng.choice(self._known.topics)
        return self._rng.choice(_CONFIG_VALUES if "value" in field else _CONFIG_NAMES)

    def _topics(self, api: ApiKey) -> Sequence[str]:
        more = (INTERNAL_TOPIC,) if api in NAMES_INTERNAL_TOPIC else ()
        if api in (ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS):
            return NEW_TOPICS
        return (*self._known.topics, *more, *NEW_TOPICS[:2], "fuzz-missing")

    def uuid(self, api: ApiKey) -> bytes:
        """The 16 bytes of a UUID: a topic's, one of Kafka's reserved ones, or a random one."""
        rng = self._rng
        reserved = [UUID(int=number) for number in (0, 1, 2, 3, 100, 2**128 - 1)]
        known = [] if api is ApiKey.DELETE_TOPICS else list(self._known.topic_ids)
        return rng.choice([*reserved, *known, *known, UUID(int=rng.getrandbits(128))]).bytes

    def raw(self) -> bytes:
        """Bytes of a length that is mostly small."""
        return self._rng.randbytes(self._rng.choice((0, 1, 4, 16, 100, 3000)))


def _fits(fmt: str, number: int) -> bool:
    try:
        struct.pack(">" + fmt, number)
    except struct.error:
        return False
    return True
