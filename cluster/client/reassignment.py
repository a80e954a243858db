"""What operators ask of the controller, over `ClusterClient`: move partitions, elect leaders, set values."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...wire.api_keys import ApiKey
from ...wire.codec import Struct
from ...wire.errors import ErrorCode
from .client_errors import ClientError, RefusedError
from .cluster_client import LOST, ClusterClient

TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8
SET, DELETE, APPEND, SUBTRACT = range(4)
_TIMEOUT_MS = 30_000
_LOOK_AGAIN_S = 0.2
_BROKER_SOURCES = (2, 3)
ANY_DIR = "any"
_OWN_SOURCES = {TOPIC: (1,), BROKER: (2,), BROKER_LOGGER: (6,), 16: (7,), 32: (8,)}
"""What was set at run time, by type of resource."""


@dataclass(frozen=True, slots=True)
class Move:
    """Where a partition shall go; None calls off the move it is on.

    `log_dirs`, one a replica, are directories on their brokers; "any" leaves the choice to the broker.
    """

    topic: str
    partition: int
    replicas: tuple[int, ...] | None
    log_dirs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Moving:
    """A partition on its way."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Value:
    """A setting as DescribeConfigs tells it."""

    name: str
    value: str | None
    source: int
    read_only: bool
    documentation: str | None


@dataclass(frozen=True, slots=True)
class LogDir:
    """A log directory of a broker; sizes in bytes, -1 when it has failed. `replicas` has a row for each log in it."""

    broker: int
    path: str
    error_code: int
    total_bytes: int
    usable_bytes: int
    replicas: tuple[dict[str, Any], ...]


async def log_dirs(client: ClusterClient, brokers: Sequence[int] = ()) -> list[LogDir]:
    """The directories of some brokers, or of all that are alive. `ClientError` when one does not answer."""
    view = await client.metadata(())
    found = []
    for broker in brokers or [one.node_id for one in view.brokers]:
        try:
            answer = await client.request_node(broker, ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": None})
        except LOST as error:
            raise ClientError(f"broker {broker} does not answer: {error}") from error
        for row in answer.results:
            replicas = tuple(
                {
                    "topic": topic.name,
                    "partition": one.partition_index,
                    "size_bytes": one.partition_size,
                    "lag": one.offset_lag,
                    "moving_here": one.is_future_key,
                }
                for topic in row.topics
                for one in topic.partitions
            )
            found.append(LogDir(broker, row.log_dir, row.error_code, row.total_bytes, row.usable_bytes, replicas))
    return found


async def choose_dirs(client: ClusterClient, moves: Sequence[Move]) -> None:
    """Tell the brokers in which directories they shall have replicas, those that they get later too. `RefusedError`."""
    await client.metadata(())
    wanted: dict[int, dict[str, dict[str, list[int]]]] = {}
    for move in moves:
        for broker, path in zip(move.replicas or (), move.log_dirs):
            if path != ANY_DIR:
                topics = wanted.setdefault(broker, {}).setdefault(path, {})
                topics.setdefault(move.topic, []).append(move.partition)
    for broker, dirs in wanted.items():
        rows = [
            {"path": path, "topics": [{"name": name, "partitions": parts} for name, parts in topics.items()]}
            for path, topics in dirs.items()
        ]
        try:
            answer = await client.request_node(broker, ApiKey.ALTER_REPLICA_LOG_DIRS, 2, {"dirs": rows})
        except LOST as error:
            raise ClientError(f"broker {broker} does not answer: {error}") from error
        for topic in answer.results:
            for row in topic.partitions:
                if row.error_code != ErrorCode.REPLICA_NOT_AVAILABLE:  # it will be made there when it comes
                    _check_code(row.error_code, f"{topic.topic_name}-{row.partition_index} on broker {broker}")


async def reassign(client: ClusterClient, moves: Sequence[Move]) -> None:
    """Begin (or call off) the moves; `RefusedError` for the first that is refused, the others begin."""
    topics: dict[str, list[dict[str, Any]]] = {}
    for move in moves:
        replicas = None if move.replicas is None else list(move.replicas)
        topics.setdefault(move.topic, []).append({"partition_index": move.partition, "replicas": replicas})
    fields = {"timeout": _TIMEOUT_MS, "topics": [{"name": name, "partitions": p} for name, p in topics.items()]}
    answer = await client.request(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, fields)
    _check(answer, "the reassignment")
    for topic in answer.responses:
        for row in topic.partitions:
            _check(row, f"{topic.name}-{row.partition_index}")


async def reassignments(client: ClusterClient) -> list[Moving]:
    """The moves under way."""
    answer = await client.request(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, {"timeout": _TIMEOUT_MS, "topics": None})
    _check(answer, "the reassignments")
    return [
        Moving(
            topic.name,
            row.partition_index,
            tuple(row.replicas),
            tuple(row.adding_replicas),
            tuple(row.removing_replicas),
        )
        for topic in answer.topics
        for row in topic.partitions
    ]


async def wait_for_moves(
    client: ClusterClient,
    moves: Iterable[Move],
    timeout_s: float,
    on_wait: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Return when none of the moves is under way; `ClientError` when some still are after `timeout_s`.

    `on_wait` is called each time that some are.
    """
    moves = list(moves)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while left := [*await _between_brokers(client, moves), *await _between_dirs(client, moves)]:
        if loop.time() > deadline:
            names = ", ".join(dict.fromkeys(f"{topic}-{partition}" for topic, partition in left))
            raise ClientError(f"still moving after {timeout_s:g} s: {names}; it goes on, look with: reassignments")
        if on_wait is not None:
            await on_wait()
        await asyncio.sleep(_LOOK_AGAIN_S)


async def _between_brokers(client: ClusterClient, moves: Sequence[Move]) -> list[tuple[str, int]]:
    wanted = {(move.topic, move.partition): None for move in moves}
    under_way = [(one.topic, one.partition) for one in await reassignments(client)]
    return [key for key in under_way if key in wanted]


async def _between_dirs(client: ClusterClient, moves: Sequence[Move]) -> list[tuple[str, int]]:
    """Replicas that are not, or not only, in the directory that was chosen for them."""
    chosen = {
        (broker, move.topic, move.partition): path
        for move in moves
        for broker, path in zip(move.replicas or (), move.log_dirs)
        if path != ANY_DIR
    }
    if not chosen:
        return []
    found = {
        (row.broker, one["topic"], one["partition"]): row.path
        for row in await log_dirs(client, list(dict.fromkeys(broker for broker, _, _ in chosen)))
        for one in row.replicas
        if not one["moving_here"]
    }
    return [key[1:] for key, path in chosen.items() if found.get(key) != path]


async def elect(client: ClusterClient, partitions: Sequence[tuple[str, int]] | None, *, unclean: bool) -> list[str]:
    """Elect preferred, or with `unclean` any, leaders of some partitions or all; one line a partition that changed.

    `RefusedError` when a partition that was named cannot have such a leader.
    """
    named: dict[str, list[int]] = {}
    for topic, index in partitions or ():
        named.setdefault(topic, []).append(index)
    topics = None if partitions is None else [{"topic": t, "partitions": p} for t, p in named.items()]
    fields = {"election_type": int(unclean), "topic_partitions": topics, "timeout": _TIMEOUT_MS}
    answer = await client.request(ApiKey.ELECT_LEADERS, 2, fields)
    _check(answer, "the election")
    lines = []
    for topic in answer.replica_election_results:
        for row in topic.partition_result:
            name = f"{topic.topic}-{row.partition_id}"
            if row.error_code == ErrorCode.ELECTION_NOT_NEEDED:
                lines.append(f"{name} has its leader already")
            elif row.error_code and partitions is None:
                lines.append(f"{name} not elected: {ErrorCode(row.error_code).name}")
            else:
                _check(row, name)
                lines.append(f"{name} elected")
    return lines


async def unregister_broker(client: ClusterClient, broker_id: int) -> None:
    """Forget a broker that will not come back; its replicas stay assigned. `RefusedError`."""
    _check(await client.request(ApiKey.UNREGISTER_BROKER, 0, {"broker_id": broker_id}), f"broker {broker_id}")


async def describe_configs(
    client: ClusterClient, resource_type: int, name: str, *, everything: bool = False
) -> list[Value]:
    """The values of a topic or broker: those set at run time, or `everything`."""
    resource = {"resource_type": resource_type, "resource_name": name, "configuration_keys": None}
    fields = {"resources": [resource], "include_synonyms": False, "include_documentation": True}
    answer = await _request_of(client, resource_type, name, ApiKey.DESCRIBE_CONFIGS, 4, fields)
    _check(answer.results[0], _in_words(resource_type, name))
    rows = [Value(c.name, c.value, c.config_source, c.read_only, c.documentation) for c in answer.results[0].configs]
    own = _BROKER_SOURCES if not name else _OWN_SOURCES[resource_type]
    return rows if everything else [row for row in rows if row.source in own]


async def alter_configs(
    client: ClusterClient, resource_type: int, name: str, values: Mapping[str, str], deleted: Sequence[str]
) -> None:
    """Set `values` and take `deleted` back. `RefusedError` with what is wrong."""
    changes = [{"name": key, "config_operation": SET, "value": value} for key, value in values.items()]
    changes += [{"name": key, "config_operation": DELETE, "value": None} for key in deleted]
    resource = {"resource_type": resource_type, "resource_name": name, "configs": changes}
    fields = {"resources": [resource], "validate_only": False}
    node = name if resource_type == BROKER_LOGGER else ""
    answer = await _request_of(client, resource_type, node, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, fields)
    _check(answer.responses[0], _in_words(resource_type, name))


def _in_words(resource_type: int, name: str) -> str:
    if resource_type in (BROKER, BROKER_LOGGER):
        return f"broker {name}" if name else "all brokers"
    return f"{'topic' if resource_type == TOPIC else 'group'} {name}"


async def _request_of(
    client: ClusterClient, resource_type: int, name: str, key: ApiKey, version: int, fields: Mapping[str, Any]
) -> Struct:
    """Ask the broker that the resource belongs to, or any where it belongs to none."""
    if resource_type not in (BROKER, BROKER_LOGGER) or not name:
        return await client.request(key, version, fields)
    await client.metadata(())
    try:
        return await client.request_node(int(name), key, version, fields)
    except LOST as error:
        raise ClientError(f"broker {name} does not answer: {error}") from error


def _check_code(code: int, what: str) -> None:
    if code:
        raise RefusedError(code, what)


def _check(row: Struct, what: str) -> None:
    if row.error_code:
        raise RefusedError(row.error_code, what, row.error_message)
