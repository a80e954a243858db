"""Access control lists and quotas in the simulator that change under clients who have logged in.

An administrator creates and removes entries, allowing and denying, for names and for prefixes, and sets and removes
quotas. Two users produce, fetch and ask meanwhile, and each answer is judged by what its broker had applied
(`principal_client.py`). In the end all nodes have the same entries, every acked record is there, and none that was
refused. A super user creates and deletes topics within `controller_mutation_rate`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from .....cluster.client.admin_client import NewTopic
from .....cluster.client.cluster_client import NO_ANSWER, ClusterClient
from .....security.authorizer.acl_binding import AclBinding, AclOperation, AclPermissionType, PatternType, ResourceType
from .....wire.api_keys import ApiKey
from .....wire.codec import Struct
from .....wire.errors import ErrorCode
from ...invariants.access_oracle import QuotaEntry, acls_of, limit_of, quotas_of
from ...invariants.applied_entries import AppliedEntries
from ...invariants.client_invariants import History
from ...invariants.invariant_broken import InvariantBroken
from ...simulated_cluster import SimulatedCluster
from ..clients import ClientContext, TopicClient, TopicConsumer
from ..workload import create_topic_until_done
from .login_settings import GUARDED_USERS
from .principal_client import (
    CLIENT_HOST,
    FETCHED,
    GROUP,
    PRODUCED,
    Entries,
    LoggedInConnections,
    PrincipalClient,
    WrittenRecords,
)

E = TypeVar("E")

_TOPICS = ("vault-a", "vault-b", "safe")
_TOPIC_CONFIGS = {"flush.messages": "1"}
_OPERATIONS = {
    ResourceType.TOPIC: (AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.ALL),
    ResourceType.GROUP: (AclOperation.READ, AclOperation.DESCRIBE, AclOperation.ALL),
}
_NAMES = {ResourceType.TOPIC: (*_TOPICS, "*"), ResourceType.GROUP: (GROUP, "*")}
_PREFIXES = {ResourceType.TOPIC: ("v", "vault-", "vault-a", "s"), ResourceType.GROUP: ("vault", GROUP)}
_PRINCIPALS = (*(f"User:{user}" for user in GUARDED_USERS), "User:*")
_HOSTS = ("*", "*", CLIENT_HOST, "elsewhere")
_ENTRIES_MAX = 14
_PAUSE_S = 0.1
_RETRY_S = 0.1
_ACLS, _QUOTAS, _CREATE_TOPICS, _DELETE_TOPICS = 3, 1, 7, 6
_BYTES_MIN, _BYTES_MAX = 300, 6_000
"""Bytes a second, about what a client here uses."""
_REQUESTS, _MUTATIONS = "request_percentage", "controller_mutation_rate"
_MAKER = "carol"
_MADE_PARTITIONS = 2
_ANY = {"resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": PatternType.ANY}
_ANYBODY = {"principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1}


class AccessChanges:
    """The administrator and the clients that are judged. A `Workload`."""

    name = "access"

    def __init__(self, context: ClientContext, cluster: SimulatedCluster, *, without_acl: bool) -> None:
        """`without_acl`: whether the nodes have `allow.everyone.if.no.acl.found`."""
        now_s = lambda: cluster.world.now_s  # noqa: E731
        self._acls: AppliedEntries[AclBinding] = AppliedEntries("access control lists", acls_of, now_s)
        self._quotas: AppliedEntries[QuotaEntry] = AppliedEntries("quotas", quotas_of, now_s)
        for applied in (self._acls, self._quotas):
            cluster.watch_metadata(applied.after_event)
        self._context = context
        self._brokers = cluster.brokers
        self._contexts = {topic: replace(context, topic=topic, history=History()) for topic in _TOPICS}
        self._consumers = {topic: TopicConsumer(each, f"{topic} reader") for topic, each in self._contexts.items()}
        self._records = {topic: WrittenRecords() for topic in _TOPICS}
        leaders = {topic: TopicClient(each, f"{topic} leaders") for topic, each in self._contexts.items()}
        self._leaders = leaders
        entries = Entries(self._acls, self._quotas, without_acl)
        self._clients = [
            PrincipalClient(user, context, self._brokers, leaders, self._records, entries) for user in GUARDED_USERS
        ]
        self._administrator = LoggedInConnections("root", "root-client")
        self._maker = LoggedInConnections(_MAKER, f"{_MAKER}-client")
        self._made = 0
        self._stopping = False
        self._waits_for = "it still acts"

    async def run(self) -> None:
        """See `Workload`."""
        cluster = ClusterClient(self._context.bootstrap, client_id=self.name, timeout_s=3.0, probe_timeout_s=None)
        for topic in _TOPICS:
            await create_topic_until_done(cluster, NewTopic(topic, 1, -1, _TOPIC_CONFIGS))
            await self._leaders[topic].until_known()
        loop = asyncio.get_running_loop()
        readers = [loop.create_task(each.run(), name=each.name) for each in self._consumers.values()]
        await asyncio.gather(self._administer(), self._make_topics(), *(each.run() for each in self._clients))
        await self._finish()
        self._waits_for = ""
        await asyncio.gather(*readers)

    def stop(self) -> None:
        """See `Workload`."""
        self._stopping = True
        for each in self._clients:
            each.stop()

    def why_not_settled(self) -> str | None:
        """See `Workload`."""
        behind = [each for each in self._consumers.values() if not each.caught_up()]
        differ = self._acls.why_nodes_differ() or self._quotas.why_nodes_differ()
        return self._waits_for or differ or (f"{behind[0].name} reads: {behind[0].describe()}" if behind else None)

    def check(self) -> None:
        """Every acked record is there, and none that was refused."""
        for topic, records in self._records.items():
            read = self._contexts[topic].history.consumed.get(0, {})
            for value, offset in records.acked.items():
                if read.get(offset) != value:
                    detail = f"{value.rstrip('.')} acked at {topic} {offset}, there is {read.get(offset)}"
                    raise InvariantBroken("every acked record is read", detail)
            wrong = records.refused & {*read.values()}
            if wrong:
                raise InvariantBroken("no record is there that was refused", f"{topic}: {min(wrong).rstrip('.')}")

    # -- the administrator

    async def _administer(self) -> None:
        rng = self._context.rng
        while not self._stopping:
            await asyncio.sleep(rng.expovariate(1 / _PAUSE_S))
            is_full = len(self._acls.committed) >= _ENTRIES_MAX
            changes = [self._create_acls, self._delete_acls, self._alter_quota, self._describe_acls]
            (change,) = rng.choices(changes, weights=(0 if is_full else 6, 3, 4, 1))
            await change()

    async def _finish(self) -> None:
        """Remove all quotas and set one last list; once all nodes have them, ask for everything again."""
        for user in (*GUARDED_USERS, _MAKER):
            for entity in _entities(user):
                for key in (PRODUCED, FETCHED, _REQUESTS, _MUTATIONS):
                    await self._set_quota(*entity, key, None)
        await self._create_acls()
        self._waits_for = "the nodes differ"
        await self._until_nodes_agree()
        self._waits_for = "its clients still ask"
        await self._make_one()
        for each in self._clients:
            await each.ask_for_all()

    async def _until_nodes_agree(self) -> None:
        while True:
            if self._acls.why_nodes_differ() is None and self._quotas.why_nodes_differ() is None:
                return
            await asyncio.sleep(_RETRY_S)

    async def _create_acls(self) -> None:
        rng = self._context.rng
        bindings = list(dict.fromkeys(self._draw_binding() for _ in range(rng.randrange(1, 4))))
        fields = {"creations": [_creation(each) for each in bindings]}
        await self._change(
            *(self._acls, frozenset(bindings), _nothing, ApiKey.CREATE_ACLS, _ACLS, fields),
            lambda answer: max(row.error_code for row in answer.results),
        )

    async def _delete_acls(self) -> None:
        """One entry, or all of a principal, or all that are for a topic."""
        rng = self._context.rng
        kind = rng.random()
        if kind < 0.6 and self._acls.committed:
            one = rng.choice(sorted(self._acls.committed))
            await self._delete_where(lambda each: each == one, _exact_filter(one))
        elif kind < 0.8:
            who = rng.choice(_PRINCIPALS)
            await self._delete_where(lambda each: each.principal == who, {**_ANY, **_ANYBODY, "principal_filter": who})
        else:
            topic = rng.choice(_TOPICS)
            match = {"resource_type_filter": 2, "resource_name_filter": topic, "pattern_type_filter": PatternType.MATCH}
            await self._delete_where(lambda each: _is_for_topic(each, topic), {**match, **_ANYBODY})

    async def _delete_where(self, is_removed: Callable[[AclBinding], bool], wanted: Mapping[str, Any]) -> None:
        await self._change(
            *(self._acls, frozenset(), is_removed, ApiKey.DELETE_ACLS, _ACLS, {"filters": [wanted]}),
            lambda answer: answer.filter_results[0].error_code,
        )

    async def _describe_acls(self) -> None:
        """Any broker names the entries that it has."""
        node_id, begun_s = self._context.rng.choice(self._brokers), asyncio.get_running_loop().time()
        try:
            fields = {**_ANY, **_ANYBODY}
            answer = await self._administrator.request(node_id, ApiKey.DESCRIBE_ACLS, _ACLS, fields)
        except NO_ANSWER:
            return
        named = frozenset(
            AclBinding(
                *(row.resource_type, row.resource_name, row.pattern_type),
                *(each.principal, each.host, each.operation, each.permission_type),
            )
            for row in answer.resources
            for each in row.acls
        )
        if answer.error_code or named not in self._acls.since(node_id, begun_s):
            raise InvariantBroken("a broker names the entries that it has applied", f"node {node_id}: {answer}")

    def _draw_binding(self) -> AclBinding:
        rng = self._context.rng
        resource_type = rng.choice((ResourceType.TOPIC, ResourceType.TOPIC, ResourceType.GROUP))
        pattern = rng.choice((PatternType.LITERAL, PatternType.PREFIXED))
        names = _NAMES if pattern is PatternType.LITERAL else _PREFIXES
        permission = AclPermissionType.DENY if rng.random() < 0.25 else AclPermissionType.ALLOW
        return AclBinding(
            *(int(resource_type), rng.choice(names[resource_type]), int(pattern), rng.choice(_PRINCIPALS)),
            *(rng.choice(_HOSTS), int(rng.choice(_OPERATIONS[resource_type])), int(permission)),
        )

    async def _alter_quota(self) -> None:
        rng = self._context.rng
        is_removed = rng.random() < 0.35
        if rng.random() < 0.2:
            user, key, rate = _MAKER, _MUTATIONS, rng.choice((0.5, 1.0, 4.0))
        else:
            user, key = rng.choice(GUARDED_USERS), rng.choice((PRODUCED, PRODUCED, FETCHED, FETCHED, _REQUESTS))
            rate = float(round(_BYTES_MIN * (_BYTES_MAX / _BYTES_MIN) ** rng.random()))
        await self._set_quota(*rng.choice(_entities(user)), key, None if is_removed else rate)

    async def _set_quota(self, user: str | None, client_id: str | None, key: str, value: float | None) -> None:
        names = {"user": user, "client-id": client_id}
        entity = [{"entity_type": kind, "entity_name": name} for kind, name in names.items() if name is not None]
        op = {"key": key, "value": value or 0.0, "remove": value is None}
        added = frozenset(() if value is None else (QuotaEntry(user, client_id, key, value),))
        await self._change(
            *(self._quotas, added, lambda each: each[:3] == (user, client_id, key) and each not in added),
            *(ApiKey.ALTER_CLIENT_QUOTAS, _QUOTAS, {"entries": [{"entity": entity, "ops": [op]}]}),
            lambda answer: answer.entries[0].error_code,
        )

    async def _change(
        self,
        applied: AppliedEntries[E],
        added: frozenset[E],
        is_removed: Callable[[E], bool],
        api: ApiKey,
        version: int,
        fields: Mapping[str, Any],
        code_of: Callable[[Struct], int],
    ) -> None:
        """Ask any broker until the change is acknowledged. An attempt without an answer may be carried out later."""
        while True:
            attempt = applied.begin(added, is_removed)
            try:
                answer = await self._administrator.request(
                    self._context.rng.choice(self._brokers), api, version, {**fields, "validate_only": False}
                )
            except NO_ANSWER:
                code = ErrorCode.NETWORK_EXCEPTION
            else:
                code = ErrorCode(code_of(answer))
            if code == ErrorCode.NONE:
                applied.end(attempt, is_acknowledged=True)
                return
            if code not in _MAY_BE_DONE:
                raise InvariantBroken("a change that is right is made", f"{api.name}: {code.name}")
            await asyncio.sleep(_RETRY_S)

    # -- topics that come and go

    async def _make_topics(self) -> None:
        """Create topics and delete them, as one user with a quota for that."""
        rng = self._context.rng
        names: list[str] = []
        while not self._stopping:
            await asyncio.sleep(rng.expovariate(1 / (3 * _PAUSE_S)))
            if len(names) >= 2:
                topics: dict[str, Any] = {"topics": [{"name": names.pop(0), "topic_id": None}], "timeout": 2000}
                await self._make(ApiKey.DELETE_TOPICS, _DELETE_TOPICS, topics)
                continue
            names.append(await self._make_one())

    async def _make_one(self) -> str:
        self._made += 1
        name = f"made-{self._made}"
        row = {"name": name, "num_partitions": _MADE_PARTITIONS, "replication_factor": -1}
        fields = {"topics": [{**row, "assignments": [], "configs": []}], "timeout": 2000, "validate_only": False}
        await self._make(ApiKey.CREATE_TOPICS, _CREATE_TOPICS, fields)
        return name

    async def _make(self, api: ApiKey, version: int, fields: Mapping[str, Any]) -> None:
        begun_s = asyncio.get_running_loop().time()
        try:
            answer = await self._maker.request(self._context.rng.choice(self._brokers), api, version, fields)
        except NO_ANSWER:
            return
        row = (answer.topics if api is ApiKey.CREATE_TOPICS else answer.responses)[0]
        limits = [
            limit_of(quotas, _MUTATIONS, _MAKER, f"{_MAKER}-client") for quotas in self._quotas.since_anywhere(begun_s)
        ]
        known = [each for each in limits if each is not None]
        most_ms = _MADE_PARTITIONS * 1000 / min(known) if known else 0
        if answer.throttle_time > most_ms + 2 or (row.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED and not known):
            detail = f"{api.name}: code {row.error_code}, {answer.throttle_time} ms, limits {limits}"
            raise InvariantBroken("nobody is throttled for longer than a quota says", detail)


_MAY_BE_DONE = (
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.UNKNOWN_SERVER_ERROR,
)
"""After these answers the change may be made, or not."""


def _nothing(entry: object) -> bool:
    return False


def _entities(user: str) -> tuple[tuple[str | None, str | None], ...]:
    """The user, the client id, and both."""
    return (user, None), (None, f"{user}-client"), (user, f"{user}-client")


def _creation(binding: AclBinding) -> dict[str, Any]:
    fields = binding._asdict()
    return {**fields, "resource_pattern_type": fields.pop("pattern_type")}


def _exact_filter(binding: AclBinding) -> dict[str, Any]:
    return {
        "resource_type_filter": binding.resource_type,
        "resource_name_filter": binding.resource_name,
        "pattern_type_filter": binding.pattern_type,
        "principal_filter": binding.principal,
        "host_filter": binding.host,
        "operation": binding.operation,
        "permission_type": binding.permission_type,
    }


def _is_for_topic(binding: AclBinding, topic: str) -> bool:
    if binding.resource_type != ResourceType.TOPIC:
        return False
    if binding.pattern_type == PatternType.PREFIXED:
        return topic.startswith(binding.resource_name)
    return binding.resource_name in (topic, "*")
