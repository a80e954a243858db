"""Reassigns partitions to other brokers and log directories: starts, throttles, follows and cancels moves.

A throttle (KIP-73) is what kafka-reassign-partitions sets and removes: two rates on each broker that sends or receives
a replica, and on each topic two lists of replicas, those that are copied from and those that are copied to. It stays
until it is removed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ...wire.api_keys import ApiKey
from ...wire.errors import ErrorCode
from ..command_line.plural import counted, size_text
from .access.needed_rights import Asked
from .admin_client import APPEND, BROKER, DELETE, SET, SUBTRACT, TOPIC, AdminClient, LogDir
from .client_errors import ClientError, RefusedError, raise_if_refused, refused_in_part
from .cluster_client import NO_ANSWER, ClusterClient, ClusterView, Gathered
from .peer_protocol import silent_broker
from .requests.attempts import Attempts

_TIMEOUT_MS = 30_000
_LOOK_AGAIN_S = 0.2
ANY_DIR = "any"
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
_EVERY_REPLICA = "*"
_Changes = Mapping[tuple[int, str], Sequence[tuple[str, int, str | None]]]
_Replica = tuple[int, str, int]
"""A broker, and a topic and partition of which it has a replica."""


@dataclass(frozen=True, slots=True)
class Move:
    """The new replicas of a partition; None cancels the move that is under way.

    `log_dirs` names a directory for each replica on its broker; "any" leaves the choice to the broker.
    """

    topic: str
    partition: int
    replicas: tuple[int, ...] | None
    log_dirs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OngoingMove:
    """A move that is under way."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DirectoryMove:
    """A replica that its broker copies from one of its log directories to another."""

    topic: str
    partition: int
    broker: int
    source: str
    target: str
    copied_bytes: int
    total_bytes: int

    @property
    def left_bytes(self) -> int:
        """What is to be copied yet."""
        return self.total_bytes - self.copied_bytes


async def alter_replica_log_dirs(client: ClusterClient, moves: Sequence[Move]) -> None:
    """Tell the brokers in which directories to keep replicas, including those that they do not have yet."""
    wanted: dict[int, dict[str, dict[str, list[int]]]] = {}
    for move in moves:
        for broker, path in zip(move.replicas or (), move.log_dirs):
            if path != ANY_DIR:
                topics = wanted.setdefault(broker, {}).setdefault(path, {})
                topics.setdefault(move.topic, []).append(move.partition)
    await AdminClient(client).find(list(wanted))
    for broker, dirs in wanted.items():
        rows = [
            {"path": path, "topics": [{"name": name, "partitions": parts} for name, parts in topics.items()]}
            for path, topics in dirs.items()
        ]
        try:
            answer = await client.request_node(broker, ApiKey.ALTER_REPLICA_LOG_DIRS, 2, {"dirs": rows})
        except NO_ANSWER as error:
            raise silent_broker(client.broker_text(broker), error) from error
        for topic in answer.results:
            for row in topic.partitions:
                if row.error_code != ErrorCode.REPLICA_NOT_AVAILABLE:  # the broker will create it there
                    what = f"{topic.topic_name}-{row.partition_index} on broker {broker}"
                    raise_if_refused(row.error_code, what, asked=Asked(ApiKey.ALTER_REPLICA_LOG_DIRS))


async def reassign(client: ClusterClient, moves: Sequence[Move]) -> None:
    """Start or cancel the moves. Raises `RefusedError` for the first that is refused; it names those that are not.

    A move that is not under way is no error where an attempt without an answer may have cancelled it.
    """
    attempts = Attempts()
    topics: dict[str, list[dict[str, Any]]] = {}
    for move in moves:
        replicas = None if move.replicas is None else list(move.replicas)
        topics.setdefault(move.topic, []).append({"partition_index": move.partition, "replicas": replicas})
    fields = {"timeout": _TIMEOUT_MS, "topics": [{"name": name, "partitions": p} for name, p in topics.items()]}
    answer = await attempts.request(client, ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, fields)
    asked = Asked(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
    raise_if_refused(answer.error_code, "the reassignment", answer.error_message, asked)
    rows = {(topic.name, row.partition_index): row for topic in answer.responses for row in topic.partitions}
    not_moving = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    refused = [key for key, row in rows.items() if attempts.error_of(row.error_code, not_moving)]
    if refused:
        errors = [
            RefusedError(rows[key].error_code, f"{key[0]}-{key[1]}", rows[key].error_message, asked=asked)
            for key in refused
        ]
        done: dict[str, list[str]] = {"cancelled": [], "started": []}
        for move in moves:
            if (move.topic, move.partition) not in refused:
                done["cancelled" if move.replicas is None else "started"].append(f"{move.topic}-{move.partition}")
        raise refused_in_part(errors, done)


async def reassignments(client: ClusterClient) -> list[OngoingMove]:
    """The moves that are under way."""
    answer = await client.request(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, {"timeout": _TIMEOUT_MS, "topics": None})
    asked = Asked(ApiKey.LIST_PARTITION_REASSIGNMENTS)
    raise_if_refused(answer.error_code, "the reassignments", answer.error_message, asked)
    return [
        OngoingMove(
            topic.name,
            row.partition_index,
            tuple(row.replicas),
            tuple(row.adding_replicas),
            tuple(row.removing_replicas),
        )
        for topic in answer.topics
        for row in topic.partitions
    ]


async def moves_between_directories(client: ClusterClient) -> Gathered[DirectoryMove]:
    """The replicas of all brokers that are on their way to another log directory, in the order of their partitions."""
    found = await AdminClient(client).describe_log_dirs(what="the moves between its log directories")
    return Gathered(directory_moves(found.rows), found.missing)


def directory_moves(log_dirs: Sequence[LogDir]) -> list[DirectoryMove]:
    """The moves between these directories.

    A copy without a replica is none: its move has just ended, or stands still since the disk of the replica failed.
    """
    places = _places(log_dirs)
    found = []
    for row in log_dirs:
        for one in row.replicas:
            place = places.get((row.broker, one["topic"], one["partition"]))
            if one["moving_here"] and place is not None:
                copied = min(one["size_bytes"], place.size_bytes)
                where = (one["topic"], one["partition"], row.broker, place.path, row.path)
                found.append(DirectoryMove(*where, copied, place.size_bytes))
    return sorted(found, key=lambda one: (one.topic, one.partition, one.broker))


class _Place(NamedTuple):
    path: str
    size_bytes: int


def _places(log_dirs: Iterable[LogDir]) -> dict[_Replica, _Place]:
    """The directory of each replica; copies on their way to another directory are not counted."""
    return {
        (row.broker, one["topic"], one["partition"]): _Place(row.path, one["size_bytes"])
        for row in log_dirs
        for one in row.replicas
        if not one["moving_here"]
    }


async def with_reassignments(client: ClusterClient, view: ClusterView) -> ClusterView:
    """The view with the replicas that reassignments are adding.

    The controller is asked only where a partition would else be under-replicated. Without an answer the view stays as
    it is.
    """
    if not any(one.is_under_replicated for topic in view.topics for one in topic.partitions):
        return view
    try:
        adding = {(one.topic, one.partition): one.adding for one in await reassignments(client)}
    except (ClientError, *NO_ANSWER):
        return view
    topics = [
        replace(
            topic,
            partitions=tuple(
                replace(one, adding=adding.get((topic.name, one.partition), ())) for one in topic.partitions
            ),
        )
        for topic in view.topics
    ]
    return replace(view, topics=tuple(topics))


async def wait_for_moves(
    client: ClusterClient,
    moves: Iterable[Move],
    timeout_s: float,
    on_wait: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Return when none of the moves is under way. Raises `ClientError` when some still are after `timeout_s`.

    Calls `on_wait` before each wait.
    """
    moves = list(moves)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while True:
        between_dirs = await _between_dirs(client, moves)
        left = [*await moving_of(client, moves), *between_dirs.rows]
        if not left:
            return
        if loop.time() > deadline:
            names = ", ".join(dict.fromkeys(f"{topic}-{partition}" for topic, partition in left))
            told = [f"still moving after {timeout_s:g} s: {names}", *between_dirs.missing]
            told += await held_up(client, moves)
            told.append("they go on, see: raftwerk partitions reassignments")
            raise ClientError("; ".join(told))
        if on_wait is not None:
            await on_wait()
        await asyncio.sleep(_LOOK_AGAIN_S)


async def held_up(client: ClusterClient, moves: Iterable[Move]) -> list[str]:
    """A sentence on the brokers for which those of the moves wait that are under way, and which fetch nothing now."""
    wanted = {(move.topic, move.partition): None for move in moves}
    moving = [one for one in await reassignments(client) if (one.topic, one.partition) in wanted]
    adding = {broker for one in moving for broker in one.adding}
    brokers = await AdminClient(client).registered_brokers() if adding else []
    away = sorted(adding - {one.node_id for one in brokers if not one.is_fenced})
    if not away:
        return []
    which = f"broker{'s' if len(away) > 1 else ''} {', '.join(map(str, away))}"
    return [f"they wait for {which}, down or fenced: raftwerk doctor shows why"]


async def moving_of(client: ClusterClient, moves: Sequence[Move]) -> list[tuple[str, int]]:
    """The topics and partitions of these moves that are under way between brokers."""
    wanted = {(move.topic, move.partition): None for move in moves}
    under_way = [(one.topic, one.partition) for one in await reassignments(client)]
    return [key for key in under_way if key in wanted]


async def _between_dirs(client: ClusterClient, moves: Sequence[Move]) -> Gathered[tuple[str, int]]:
    """The partitions with a replica that is not known to be in the directory that was chosen for it.

    That of a broker that does not answer, as while it is started again, is none of those that have moved.
    """
    chosen = _chosen_dirs(moves)
    if not chosen:
        return Gathered([], [])
    found = await AdminClient(client).describe_log_dirs(_brokers(chosen))
    return Gathered([key[1:] for key in _elsewhere(_places(found.rows), chosen)], found.missing)


def _chosen_dirs(moves: Iterable[Move]) -> dict[_Replica, str]:
    return {
        (broker, move.topic, move.partition): path
        for move in moves
        for broker, path in zip(move.replicas or (), move.log_dirs)
        if path != ANY_DIR
    }


def _brokers(chosen: Iterable[_Replica]) -> list[int]:
    return list(dict.fromkeys(broker for broker, _, _ in chosen))


def _elsewhere(places: Mapping[_Replica, _Place], chosen: Mapping[_Replica, str]) -> list[_Replica]:
    """The replicas that are not where they were chosen to be."""
    return [key for key, path in chosen.items() if key not in places or places[key].path != path]


# ---- throttles and progress


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of moves, in partitions and bytes; of moves that ended unseen no bytes are known."""

    moved: int
    partitions: int
    copied_bytes: int
    total_bytes: int

    def __str__(self) -> str:
        moved = f"{self.moved} of {counted(self.partitions, 'partition')} moved"
        if not self.total_bytes:
            return moved
        return f"{moved}, {size_text(self.copied_bytes)} of {size_text(self.total_bytes)} copied"


async def throttle(client: ClusterClient, moves: Sequence[Move], bytes_per_s: int) -> Throttle:
    """Throttle moves before they start. Earlier throttled replicas stay throttled; the brokers' rates are replaced.

    Raises `RefusedError` where a part is refused; then the rest is removed again.
    """
    view = await client.metadata(dict.fromkeys(move.topic for move in moves))
    throttled_whole = await _throttled_whole(client, dict.fromkeys(move.topic for move in moves))
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
            if replicas and (move.topic, key) not in throttled_whole:
                pairs = ",".join(f"{move.partition}:{broker}" for broker in replicas)
                changes.setdefault((TOPIC, move.topic), []).append((key, APPEND, pairs))
    for broker in sorted(brokers):
        changes[(BROKER, str(broker))] = [(key, SET, str(bytes_per_s)) for key in RATES]
    throttle = Throttle({resource: _joined(rows) for resource, rows in changes.items()})
    refused = await _altered(client, throttle.changes)
    if refused:
        await Throttle({one: rows for one, rows in throttle.changes.items() if one not in refused}).remove(client)
        raise next(iter(refused.values()))
    return throttle


async def _throttled_whole(client: ClusterClient, topics: Iterable[str]) -> set[tuple[str, str]]:
    """The topics and settings that throttle every replica: `*` stands alone, and takes no pairs beside it."""
    admin = AdminClient(client)
    return {
        (topic, row.name)
        for topic in topics
        for row in await admin.describe_configs(TOPIC, topic)
        if row.name in (LEADER_REPLICAS, FOLLOWER_REPLICAS) and row.value == _EVERY_REPLICA
    }


@dataclass(frozen=True, slots=True)
class Throttle:
    """The changes of settings by which moves were throttled."""

    changes: _Changes

    async def remove(self, client: ClusterClient) -> None:
        """Take the changes back, for moves that did not start. The brokers' former rates are not known any more."""
        await _alter(
            client,
            {
                resource: [(key, SUBTRACT, value) if how == APPEND else (key, DELETE, None) for key, how, value in rows]
                for resource, rows in self.changes.items()
            },
        )

    async def remove_unless_moving(self, client: ClusterClient, moves: Sequence[Move]) -> bool:
        """Take the changes back, unless one of these moves is under way; whether that was done."""
        if await moving_of(client, moves):
            return False
        await self.remove(client)
        return True


@dataclass(frozen=True, slots=True)
class Unthrottled:
    """The names of the topics and brokers that had a throttle, and those that do not answer, which may have had one."""

    names: list[str]
    unasked: list[str]


async def unthrottle(client: ClusterClient) -> Unthrottled:
    """Remove all throttles. Brokers that are down have none either, when they start again."""
    view = await client.metadata()
    admin = AdminClient(client)
    brokers = {*(one.node_id for one in view.brokers), *(one.node_id for one in await admin.registered_brokers())}
    resources = [(TOPIC, topic.name, (LEADER_REPLICAS, FOLLOWER_REPLICAS)) for topic in view.topics]
    resources += [(BROKER, str(broker), RATES) for broker in sorted(brokers)]
    resources.append((BROKER, "", RATES))
    changes: dict[tuple[int, str], list[tuple[str, int, str | None]]] = {}
    unasked = []
    for kind, name, keys in resources:
        try:
            rows = await admin.describe_configs(kind, name)
            found = [one.name for one in rows if one.name in keys and one.value]
        except RefusedError:
            raise
        except ClientError:
            if kind != BROKER:
                raise
            found = list(keys)  # only it can tell, but its settings are the controller's
            unasked.append((kind, name))
        if found:
            changes[(kind, name)] = [(key, DELETE, None) for key in found]
    await _alter(client, changes)
    names = {one: _resource_text(*one) for one in changes}
    return Unthrottled([text for one, text in names.items() if one not in unasked], [names[one] for one in unasked])


def _resource_text(kind: int, name: str) -> str:
    return name if kind == TOPIC else f"broker {name}" if name else "all brokers"


class Copied(NamedTuple):
    """The bytes that a move has copied to the replicas that it adds, of all that it has to copy."""

    copied: int
    total: int


async def copied_bytes(client: ClusterClient, moving: Sequence[OngoingMove]) -> dict[tuple[str, int], Copied]:
    """What the moves of these topics and partitions have copied, compared with the largest replica of each."""
    sizes = await _sizes(client, moving)
    found = {}
    for one in moving:
        key = (one.topic, one.partition)
        full = max((sizes.get((*key, broker), 0) for broker in one.replicas), default=0)
        copied = sum(min(sizes.get((*key, broker), 0), full) for broker in one.adding)
        found[key] = Copied(copied, full * len(one.adding))
    return found


class ProgressMeter:
    """Measures how much of the added replicas is copied, compared with the largest replica of each partition.

    What is copied between the log directories of a broker is compared with the replica that is moved there.
    """

    def __init__(self, moves: Sequence[Move]) -> None:
        self._keys = {(move.topic, move.partition): None for move in moves}
        self._chosen = _chosen_dirs(moves)
        self._totals: dict[tuple[str, int], int] = {}
        """Bytes to copy to other brokers for each partition, as last measured."""
        self._between_dirs: dict[_Replica, Copied] = {}
        """For each replica that was seen in another directory than the chosen one."""

    async def look_ahead(self, client: ClusterClient) -> None:
        """Before the moves start, see which replicas are to change their directory: some do it in no time."""
        await self._measure_dirs(client)

    async def measure(self, client: ClusterClient) -> Progress:
        """Ask the brokers for the sizes of their replicas."""
        under_way = {(one.topic, one.partition): one for one in await reassignments(client)}
        moving = [under_way[key] for key in self._keys if key in under_way]
        found = await copied_bytes(client, moving)
        self._totals |= {key: one.total for key, one in found.items()}
        unfinished = {*found, *await self._measure_dirs(client)}
        ended = sum(total for key, total in self._totals.items() if key not in under_way)
        between_dirs = self._between_dirs.values()
        return Progress(
            len(self._keys) - len(unfinished),
            len(self._keys),
            ended + sum(one.copied for one in (*found.values(), *between_dirs)),
            sum(self._totals.values()) + sum(one.total for one in between_dirs),
        )

    async def _measure_dirs(self, client: ClusterClient) -> list[tuple[str, int]]:
        """The partitions with a replica that is not in its chosen directory. Brokers that are down are left out."""
        if not self._chosen:
            return []
        found = (await AdminClient(client).describe_log_dirs(_brokers(self._chosen))).rows
        places = _places(found)
        copied = {(one.broker, one.topic, one.partition): one.copied_bytes for one in directory_moves(found)}
        elsewhere = _elsewhere(places, self._chosen)
        for key in elsewhere:
            if key in places:
                self._between_dirs[key] = Copied(copied.get(key, 0), places[key].size_bytes)
        for key, one in self._between_dirs.items():
            if key not in elsewhere:
                self._between_dirs[key] = Copied(one.total, one.total)
        return [key[1:] for key in elsewhere]


async def _sizes(client: ClusterClient, moving: Sequence[OngoingMove]) -> dict[tuple[str, int, int], int]:
    """Bytes by topic, partition and broker; brokers that are down are left out."""
    if not moving:
        return {}
    alive = [one.node_id for one in (await client.metadata(())).brokers]
    wanted = dict.fromkeys(broker for one in moving for broker in one.replicas)
    found: dict[tuple[str, int, int], int] = {}
    for broker in wanted:
        if broker not in alive:
            continue
        for row in (await AdminClient(client).describe_log_dirs([broker])).rows:
            for one in row.replicas:
                if not one["moving_here"]:
                    found[(one["topic"], one["partition"], broker)] = one["size_bytes"]
    return found


def _joined(rows: list[tuple[str, int, str | None]]) -> list[tuple[str, int, str | None]]:
    """The rows with one row for each key, since a request may name each key once."""
    by_key: dict[str, list[str]] = {}
    for key, _, value in rows:
        by_key.setdefault(key, []).append(value or "")
    return [(key, rows[0][1], ",".join(values)) for key, values in by_key.items()]


async def _alter(client: ClusterClient, changes: _Changes) -> None:
    """Change settings of topics and brokers. Raises `RefusedError` for the first that is refused."""
    for error in (await _altered(client, changes)).values():
        raise error


async def _altered(client: ClusterClient, changes: _Changes) -> dict[tuple[int, str], RefusedError]:
    """Change settings of topics and brokers through any broker, which forwards them; returns the refusals."""
    if not changes:
        return {}
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
    return {
        (row.resource_type, row.resource_name): RefusedError(
            row.error_code,
            _resource_text(row.resource_type, row.resource_name),
            row.error_message,
            asked=Asked(ApiKey.INCREMENTAL_ALTER_CONFIGS, topic=row.resource_name),
        )
        for row in answer.responses
        if row.error_code
    }
