"""What a broker answers to users with different rights, as a text in which two brokers can be compared."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4

from support.security.authorization_calls import Call, Ids
from support.security.authorization_users import (
    HIDDEN,
    NOBODY,
    RESOURCES,
    SUPER_USER,
    TOKEN_OWNERS,
    UNKNOWN_ID,
    USERS,
)

from raftwerk.security.authorizer.acl_binding import AclOperation, AclPermissionType, PatternType
from raftwerk.security.client_login import ClientLogin
from raftwerk.security.sasl.plain import PlainClient
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.client import Connection, ConnectionLostError, connect
from raftwerk.wire.codec import Struct
from raftwerk.wire.errors import error_name

PASSWORD = "pw"
DEADLINE_S = 60.0
SHORT_LIVED = frozenset(
    {
        "CONCURRENT_TRANSACTIONS",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE",
        "LEADER_NOT_AVAILABLE",
        "NOT_COORDINATOR",
    }
)
"""Errors that say to ask again."""
SHORT_LIVED_S = 2.0
NAMES = frozenset(
    {
        *(name for names in RESOURCES.values() for name in names),
        *HIDDEN,
        *TOKEN_OWNERS,
        "__consumer_offsets",
        "__transaction_state",
    }
)
NO_OPERATIONS = -(2**31)

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": " ".join(
        [
            f'{PLAIN} username="{SUPER_USER}" password="{PASSWORD}"',
            *(f'user_{user}="{PASSWORD}"' for user in USERS),
        ]
    )
    + ";",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:{SUPER_USER};User:ANONYMOUS",
    "inter.broker.listener.name": "PLAINTEXT",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.max.timeout.ms": "900000",
    "group.consumer.session.timeout.ms": "600000",
    "group.consumer.max.session.timeout.ms": "600000",
    "delegation.token.secret.key": "sesame",
}
"""The settings of the node that is asked: its clients log in, and its controller trusts everybody."""


class Users:
    """A connection for each user to one broker."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connections: dict[str, Connection] = {}

    async def call(self, user: str, key: ApiKey, version: int, fields: Any) -> Struct:
        """Ask as this user."""
        connection = self._connections.get(user)
        if connection is None or connection.is_closed:
            login = ClientLogin(new_exchange=lambda _: PlainClient(user, PASSWORD))
            connection = await connect("127.0.0.1", self._port, login=login)
            self._connections[user] = connection
        return await connection.request(key, version, fields, timeout_s=20)

    async def insist(self, key: ApiKey, version: int, fields: Any, user: str = SUPER_USER) -> Struct:
        """Ask until the answer has no error."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            answer = await self.call(user, key, version, fields)
            codes = set(_codes(answer))
            if codes <= {"NONE"}:
                return answer
            assert time.monotonic() < deadline, (key, codes, answer)
            await asyncio.sleep(0.05)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()


async def make_resources(users: Users) -> Ids:
    """Make the topics, groups and transactions of the calls, and the access control lists of the users."""
    topics = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in ("seen", "hidden")]
    made = await users.insist(ApiKey.CREATE_TOPICS, 7, {"topics": topics, "timeout": 10_000})
    ids = {row.name: row.topic_id for row in made.topics}
    await users.insist(ApiKey.CREATE_ACLS, 3, {"creations": list(_creations())})
    for group in ("seen-group", "hidden-group"):
        await users.insist(ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": [group]})
        rows = [
            {"name": name, "partitions": [{"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}]}
            for name in ("seen", "hidden")
        ]
        fields = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "topics": rows}
        await users.insist(ApiKey.OFFSET_COMMIT, 9, fields)
    for group, names in {"seen-consumers": ["seen"], "mixed-consumers": ["seen", "hidden"]}.items():
        member = {"member_id": str(uuid4()), "member_epoch": 0, "rebalance_timeout": 300_000, "topic_partitions": []}
        joining: dict[str, Any] = {"group_id": group, **member, "subscribed_topic_names": names}
        await users.insist(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, joining)
    await _open_transactions(users)
    await _make_tokens(users)
    last = list(USERS)[-1]
    await users.insist(ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": ["seen-open"]}, last)
    return Ids(ids["seen"], ids["hidden"])


async def _open_transactions(users: Users) -> None:
    for name, topics in {"seen-open": ["seen", "hidden"], "hidden-open": ["hidden"], "seen-idle": []}.items():
        await users.insist(ApiKey.FIND_COORDINATOR, 4, {"key_type": 1, "coordinator_keys": [name]})
        asked = {"transactional_id": name, "transaction_timeout": 800_000, "producer_id": -1, "producer_epoch": -1}
        producer = await users.insist(ApiKey.INIT_PRODUCER_ID, 4, asked)
        if topics:
            fields = {
                "v3_and_below_transactional_id": name,
                "v3_and_below_producer_id": producer.producer_id,
                "v3_and_below_producer_epoch": producer.producer_epoch,
                "v3_and_below_topics": [{"name": topic, "partitions": [0]} for topic in topics],
            }
            await users.insist(ApiKey.ADD_PARTITIONS_TO_TXN, 3, fields)


async def _make_tokens(users: Users) -> None:
    for owner in TOKEN_OWNERS:
        fields = {"owner_principal_type": "User", "owner_principal_name": owner, "renewers": [], "max_lifetime": -1}
        await users.insist(ApiKey.CREATE_DELEGATION_TOKEN, 3, fields)
    deadline = time.monotonic() + DEADLINE_S
    while len((await users.insist(ApiKey.DESCRIBE_DELEGATION_TOKEN, 3, {"owners": None})).tokens) < len(TOKEN_OWNERS):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


def _creations() -> Iterator[dict[str, Any]]:
    for user, rights in USERS.items():
        for operation, resource_type in sorted(rights):
            for name in RESOURCES[resource_type]:
                yield {
                    "resource_type": resource_type,
                    "resource_name": name,
                    "resource_pattern_type": PatternType.LITERAL,
                    "principal": f"User:{user}",
                    "host": "*",
                    "operation": operation,
                    "permission_type": AclPermissionType.ALLOW,
                }


class Resources:
    """The resources of the calls on one broker, and what it answers about them."""

    def __init__(self, users: Users, ids: Ids) -> None:
        self._users = users
        self._ids = ids
        self._names = {ids.seen: "id of seen", ids.hidden: "id of hidden", UNKNOWN_ID: "unknown id"}

    async def answer(self, user: str, call: Call) -> str:
        """What the user is told, as a text."""
        return await _answer(self._users, user, call, self._ids, self._names)


async def record(port: int, calls: Sequence[Call]) -> str:
    """Make every call as every user. Returns for each call who gets which answer."""
    users = Users(port)
    try:
        resources = Resources(users, await make_resources(users))
        sections = []
        for call in calls:
            by_answer: dict[str, list[str]] = {}
            for user in USERS:
                by_answer.setdefault(await resources.answer(user, call), []).append(user)
            sections.append(_section(call, by_answer))
        return "\n".join(sections)
    finally:
        users.close()


async def _answer(users: Users, user: str, call: Call, ids: Ids, names: Mapping[UUID, str]) -> str:
    deadline = time.monotonic() + SHORT_LIVED_S
    while True:
        try:
            answer = await users.call(user, call.key, call.version, call.fields(ids))
        except ConnectionLostError:
            return "the connection is closed"
        if not SHORT_LIVED & set(_codes(answer)) or time.monotonic() > deadline:
            return " ".join(_tokens(answer, names))
        await asyncio.sleep(0.02)


def _section(call: Call, by_answer: Mapping[str, Sequence[str]]) -> str:
    """The answer to most users with rights stands last, as `others`."""
    common = next(answer for answer, users in by_answer.items() if NOBODY in users)
    lines = [f"{call.name}: {call.key.name} {call.version}"]
    lines += [f"    {', '.join(users)}: {answer}" for answer, users in by_answer.items() if answer != common]
    lines.append(f"    others: {common}")
    return "\n".join(lines) + "\n"


def _codes(answer: Struct) -> Iterator[str]:
    for name, value in answer.to_dict().items():
        yield from _codes_of(name, value)


def _codes_of(name: str, value: Any) -> Iterator[str]:
    if name.endswith("error_code"):
        yield error_name(value)
    elif isinstance(value, dict):
        for inner, field in value.items():
            yield from _codes_of(inner, field)
    elif isinstance(value, list):
        for item in value:
            yield from _codes_of(name, item)


def _tokens(answer: Struct, names: Mapping[UUID, str]) -> list[str]:
    return list(_shown("", answer.to_dict(), names))


def _shown(field: str, value: Any, names: Mapping[UUID, str]) -> Iterable[str]:
    """The error codes, known names and operations in a part of an answer."""
    if isinstance(value, dict):
        for inner, item in value.items():
            yield from _shown(inner, item, names)
    elif isinstance(value, list):
        rows = [list(_shown(field, item, names)) for item in value]
        for row in sorted(rows):
            yield from row
    elif field.endswith("error_code"):
        yield error_name(value)
    elif field.endswith("authorized_operations"):
        if value != NO_OPERATIONS:
            yield f"[{' '.join(one.name for one in AclOperation if value >> one & 1)}]"
    elif isinstance(value, UUID):
        if value in names:
            yield f"({names[value]})"
    elif isinstance(value, str) and value in NAMES:
        yield f"{value}:"
