"""Throttles of moves between brokers (KIP-73), as kafka-reassign-partitions sets and takes them off; how far moves are.

A throttle is two rates of each broker that gives or gets a replica, and two lists of replicas of each topic: the ones
that replicas are copied from, and the ones that they are copied to. It stays until it is taken off.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...wire.api_keys import ApiKey
from .client_errors import ClientError, RefusedError
from .cluster_client import ClusterClient
from .reassignment import APPEND, BROKER, DELETE, SET, TOPIC, Move, Moving, describe_configs, log_dirs, reassignments

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
_Changes = Mapping[tuple[int, str], Sequence[tuple[str, int, str | None]]]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far moves are: partitions and bytes."""

    moved: int
    partitions: int
    copied_bytes: int
    total_bytes: int

    def __str__(self) -> str:
        return (
            f"{self.moved} of {self.partitions} partitions moved, "
            f"{self.copied_bytes / 1e6:.1f} of {self.total_bytes / 1e6:.1f} MB copied"
        )


async def throttle(client: ClusterClient, moves: Sequence[Move], bytes_per_s: int) -> None:
    """Before the moves begin. What is throttled already stays so; the rates of the brokers are the new ones."""
    view = await client.metadata(dict.fromkeys(move.topic for move in moves))
    changes: dict[tuple[int, str], list[tuple[str, int, str | None]]] = {}
    brokers: dict[int, None] = {}
    for move in moves:
        topic = view.topic(move.topic)
        now = next((one.replicas for one in topic.partitions if one.partition == move.partition), None)
        if now is None:
            raise ClientError(f"there is no partition {move.topic}-{move.partition}")
        new = [broker for broker in move.replicas or () if broker not in now]
        brokers |= dict.fromkeys([*now, *new])
        for key, replicas in ((LEADER_REPLICAS, now), (FOLLOWER_REPLICAS, new)):
            if replicas:
                pairs = ",".join(f"{move.partition}:{broker}" for broker in replicas)
                changes.setdefault((TOPIC, move.topic), []).append((key, APPEND, pairs))
    for broker in sorted(brokers):
        changes[(BROKER, str(broker))] = [(key, SET, str(bytes_per_s)) for key in RATES]
    await _alter(client, {resource: _joined(rows) for resource, rows in changes.items()})


async def unthrottle(client: ClusterClient) -> list[str]:
    """Take off all throttles; the names of what had one."""
    view = await client.metadata()
    resources = [(TOPIC, topic.name, (LEADER_REPLICAS, FOLLOWER_REPLICAS)) for topic in view.topics]
    resources += [(BROKER, str(broker.node_id), RATES) for broker in view.brokers]
    resources.append((BROKER, "", RATES))
    changes: dict[tuple[int, str], list[tuple[str, int, str | None]]] = {}
    for kind, name, keys in resources:
        found = [one.name for one in await describe_configs(client, kind, name) if one.name in keys]
        if found:
            changes[(kind, name)] = [(key, DELETE, None) for key in found]
    await _alter(client, changes)
    return [name if kind == TOPIC else f"broker {name}" if name else "all brokers" for kind, name in changes]


class Meter:
    """Measures the replicas that are being added, against the largest there is of each partition."""

    def __init__(self, moves: Iterable[Move]) -> None:
        self._keys = {(move.topic, move.partition): None for move in moves}
        self._totals: dict[tuple[str, int], int] = {}
        """Bytes to copy, as they were last seen."""

    async def look(self, client: ClusterClient) -> Progress:
        under_way = {(one.topic, one.partition): one for one in await reassignments(client)}
        moving = [under_way[key] for key in self._keys if key in under_way]
        sizes = await _sizes(client, moving)
        copied = 0
        for one in moving:
            key = (one.topic, one.partition)
            full = max((sizes.get((*key, broker), 0) for broker in one.replicas), default=0)
            self._totals[key] = full * len(one.adding)
            copied += sum(min(sizes.get((*key, broker), 0), full) for broker in one.adding)
        copied += sum(total for key, total in self._totals.items() if key not in under_way)
        return Progress(len(self._keys) - len(moving), len(self._keys), copied, sum(self._totals.values()))


async def _sizes(client: ClusterClient, moving: Sequence[Moving]) -> dict[tuple[str, int, int], int]:
    """Bytes by topic, partition and broker; a broker that is down has none to tell."""
    alive = [one.node_id for one in (await client.metadata(())).brokers]
    wanted = dict.fromkeys(broker for one in moving for broker in one.replicas)
    found: dict[tuple[str, int, int], int] = {}
    for broker in wanted:
        if broker not in alive:
            continue
        try:
            rows = await log_dirs(client, [broker])
        except ClientError:
            continue
        for row in rows:
            for one in row.replicas:
                if not one["moving_here"]:
                    found[(one["topic"], one["partition"], broker)] = one["size_bytes"]
    return found


def _joined(rows: list[tuple[str, int, str | None]]) -> list[tuple[str, int, str | None]]:
    """One row a key, as a request may name each once."""
    by_key: dict[str, list[str]] = {}
    for key, _, value in rows:
        by_key.setdefault(key, []).append(value or "")
    return [(key, rows[0][1], ",".join(values)) for key, values in by_key.items()]


async def _alter(client: ClusterClient, changes: _Changes) -> None:
    """Topics at any broker, and each broker's settings too: they are forwarded. `RefusedError`."""
    if not changes:
        return
    resources = [
        {
            "resource_type": kind,
            "resource_name": name,
            "configs": [{"name": key, "config_operation": how, "value": value} for key, how, value in rows],
        }
        for (kind, name), rows in changes.items()
    ]
    fields = {"resources": resources, "validate_only": False}
    answer = await client.request(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, fields)
    for row in answer.responses:
        if row.error_code:
            raise RefusedError(row.error_code, row.resource_name or "all brokers", row.error_message)
