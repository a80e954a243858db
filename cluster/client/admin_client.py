"""Topics, settings, directories, ACLs, quotas, users, elections, brokers: what Kafka's `Admin` asks of a cluster."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...security.authorizer.acl_binding import AclBinding, AclBindingFilter
from ...security.sasl.scram_credential import MECHANISM_NUMBERS, SCRAM_MECHANISMS, salted
from ...wire.api_keys import ApiKey
from ...wire.codec import Struct
from ...wire.errors import ErrorCode
from ...wire.types import by_topic
from .access.needed_rights import Asked
from .client_errors import ClientError, RefusedError, is_retriable, raise_if_refused, refused_in_part
from .cluster_client import NO_ANSWER, BrokerView, ClusterClient, ClusterView, Gathered, silence_of
from .peer_protocol import no_answer_reason, silent_broker
from .requests.attempts import Attempts

TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8
SET, DELETE, APPEND, SUBTRACT = range(4)
_CREATE_TOPICS_VERSION = 7
_DELETE_TOPICS_VERSION = 6
_CREATE_PARTITIONS_VERSION = 3
_DELETE_RECORDS_VERSION = 2
_ACLS_VERSION = 3
_CLIENT_QUOTAS_VERSION = 1
_SCRAM_CREDENTIALS_VERSION = 0
_SALT_BYTES = 24
_DESCRIBE_CLUSTER_VERSION = 2
_TIMEOUT_MS = 30_000
_RETRY_PAUSE_S = 0.1
_BROKER_SOURCES = (2, 3)
_GROUP = 32
_NOT_FINITE = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}
_RESOURCE_NOUNS = {TOPIC: "topic", 16: "client metrics", _GROUP: "group"}
_SETTINGS_ARE_LISTED = (TOPIC, BROKER, _GROUP)
"""Of these kinds a description with everything has all settings that there are."""
_OF_LISTENERS = "listener.name."
_TOMBSTONES = "a record of a compacted topic is deleted by a later one with its key and no value (a tombstone)"
_OWN_SOURCES = {TOPIC: (1,), BROKER: (2,), BROKER_LOGGER: (6,), 16: (7,), 32: (8,)}
"""The config sources (DescribeConfigs) of values that were set at run time, by type of resource."""


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; -1 stands for the cluster's default."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A setting, as DescribeConfigs reports it."""

    name: str
    value: str | None
    source: int
    read_only: bool
    documentation: str | None


@dataclass(frozen=True, slots=True)
class BrokerState:
    """A registered broker. `why_silent` is why it does not answer; None if it does, or was not asked."""

    node_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool
    why_silent: str | None = None

    @property
    def state(self) -> str:
        """`up`, `fenced` if it answers and may not lead, or `down`."""
        if self.why_silent is not None:
            return "down"
        return "fenced" if self.is_fenced else "up"

    @property
    def why_down(self) -> str | None:
        """What keeps it from serving, in words that follow its name; None if nothing does."""
        if self.is_fenced:
            return "is fenced" if self.why_silent is None else f"is fenced and {self.why_silent}"
        return self.why_silent


@dataclass(frozen=True, slots=True)
class LogDir:
    """A log directory of a broker.

    Sizes are in bytes, -1 when it has failed. `replicas` has a row for each log in it.
    """

    broker: int
    path: str
    error_code: int
    total_bytes: int
    usable_bytes: int
    replicas: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class EntityQuotas:
    """The quotas of an entity: names by type (`user`, `client-id`, `ip`), None for the default of that type."""

    entity: Mapping[str, str | None]
    quotas: Mapping[str, float]

    @property
    def json_quotas(self) -> dict[str, float | str]:
        """The quotas for JSON, which has no infinity: that is a text. Other clients may set it, as with Kafka."""
        return {key: value if math.isfinite(value) else _NOT_FINITE[str(value)] for key, value in self.quotas.items()}


@dataclass(frozen=True, slots=True)
class Elections:
    """What became of elections: a line for each partition that has its leader, an error for each that does not."""

    done: list[str]
    failed: list[RefusedError]


class AdminClient:
    """Describes and changes a cluster. Every method raises `RefusedError` when the cluster answers with an error."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client

    async def create_topic(
        self, topic: NewTopic, *, wait: bool = True, validate_only: bool = False, attempts: Attempts | None = None
    ) -> None:
        """Create a topic. With `wait`, return when every partition has a leader, as far as one may see that.

        With `validate_only`, only find out whether it would be refused. A topic that exists is no error where one of
        the `attempts`, in this call or before, may have created it.
        """
        known = attempts or Attempts()
        configs = [{"name": name, "value": value} for name, value in (topic.configs or {}).items()]
        fields = {
            "topics": [
                {
                    "name": topic.name,
                    "num_partitions": topic.partitions,
                    "replication_factor": topic.replication_factor,
                    "assignments": [],
                    "configs": configs,
                }
            ],
            "timeout": int(self._client.timeout_s * 1000),
            "validate_only": validate_only,
        }
        answer = await known.final_row(self._client, ApiKey.CREATE_TOPICS, _CREATE_TOPICS_VERSION, fields, "topics")
        exists = ErrorCode.TOPIC_ALREADY_EXISTS
        code = answer.error_code if validate_only else known.error_of(answer.error_code, exists)
        asked = Asked(ApiKey.CREATE_TOPICS, topic=topic.name)
        raise_if_refused(code, f"topic {topic.name}", answer.error_message, asked)
        if wait and not validate_only:
            await self._until(lambda view: has_leaders(view, topic.name), topic.name)

    async def delete_topic(self, name: str, *, wait: bool = True, attempts: Attempts | None = None) -> None:
        """Delete a topic. With `wait`, return when the broker that is asked no longer shows it.

        A topic that does not exist is no error where one of the `attempts`, in this call or before, may have deleted
        it.
        """
        known = attempts or Attempts()
        fields = {"topics": [{"name": name, "topic_id": None}], "timeout": int(self._client.timeout_s * 1000)}
        answer = await known.final_row(self._client, ApiKey.DELETE_TOPICS, _DELETE_TOPICS_VERSION, fields, "responses")
        code = known.error_of(answer.error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        raise_if_refused(code, f"topic {name}", answer.error_message, Asked(ApiKey.DELETE_TOPICS, topic=name))
        if wait:
            await self._until(lambda view: all(topic.name != name for topic in view.topics), name)

    async def create_partitions(self, name: str, count: int) -> None:
        """Add partitions to a topic until it has `count`; returns when every partition has a leader.

        A topic that has as many is no error where an attempt without an answer may have added them.
        """
        known = Attempts()
        fields = {
            "topics": [{"name": name, "count": count, "assignments": None}],
            "timeout": int(self._client.timeout_s * 1000),
            "validate_only": False,
        }
        answer = await known.final_row(
            self._client, ApiKey.CREATE_PARTITIONS, _CREATE_PARTITIONS_VERSION, fields, "results"
        )
        code = known.error_of(answer.error_code, ErrorCode.INVALID_PARTITIONS)
        raise_if_refused(code, f"topic {name}", answer.error_message, Asked(ApiKey.CREATE_PARTITIONS, topic=name))
        view = await self._until(
            lambda view: len(view.topic(name).partitions) >= count and has_leaders(view, name), name
        )
        if answer.error_code and (view is None or len(view.topic(name).partitions) != count):
            raise RefusedError(answer.error_code, f"topic {name}", answer.error_message)

    async def delete_records(self, topic: str, before: Mapping[int, int]) -> dict[int, int]:
        """Delete the records below an offset in each of these partitions; -1 stands for the high watermark.

        Returns the offset at which each log begins afterwards. Raises `RefusedError` for the first partition that is
        refused, as for an offset beyond the end, which names those whose records are deleted.
        """
        deadline = self._client.throttling.unthrottled_time() + self._client.timeout_s
        begins: dict[int, int] = {}
        while missing := [partition for partition in before if partition not in begins]:
            leaders = {
                one.partition: one.leader for one in (await self._client.metadata([topic])).topic(topic).partitions
            }
            refusals: list[RefusedError] = []
            for partition in missing:
                leader = leaders.get(partition, -1)
                code, begin, silence = await self._delete_records(leader, topic, partition, before[partition])
                if not code:
                    begins[partition] = begin
                elif not is_retriable(code) or self._client.throttling.unthrottled_time() > deadline:
                    asked, message, way_out = Asked(ApiKey.DELETE_RECORDS, topic=topic), silence, None
                    if code == ErrorCode.OFFSET_OUT_OF_RANGE:
                        message = f"offset {before[partition]} is beyond the end of the log"
                    elif code == ErrorCode.POLICY_VIOLATION:
                        message, way_out = "its cleanup.policy is compact alone", _TOMBSTONES
                    refusals.append(RefusedError(code, f"{topic}-{partition}", message, way_out=way_out, asked=asked))
            if refusals:
                deleted = [f"{topic}-{partition}" for partition in sorted(begins)]
                raise refused_in_part(refusals, {"deleted the records of": deleted})
            await asyncio.sleep(_RETRY_PAUSE_S if len(begins) < len(before) else 0)
        return dict(sorted(begins.items()))

    async def _delete_records(
        self, leader: int, topic: str, partition: int, offset: int
    ) -> tuple[int, int, str | None]:
        """The error code and the new beginning of one partition, and why its leader gives no answer."""
        if leader < 0:
            return ErrorCode.LEADER_NOT_AVAILABLE, -1, None
        row = {"name": topic, "partitions": [{"partition_index": partition, "offset": offset}]}
        fields = {"topics": [row], "timeout": int(self._client.timeout_s * 1000)}
        try:
            answer = await self._client.request_node(leader, ApiKey.DELETE_RECORDS, _DELETE_RECORDS_VERSION, fields)
        except NO_ANSWER as error:
            silence = f"its leader, {self._client.broker_text(leader)}, {no_answer_reason(error)}"
            return ErrorCode.LEADER_NOT_AVAILABLE, -1, silence
        (result,) = answer.topics[0].partitions
        return result.error_code, result.low_watermark, None

    async def describe_configs(self, resource_type: int, name: str, *, everything: bool = False) -> list[ConfigEntry]:
        """The settings of a resource: those that were set at run time, or with `everything` all of them."""
        resource = {"resource_type": resource_type, "resource_name": name, "configuration_keys": None}
        fields = {"resources": [resource], "include_synonyms": False, "include_documentation": True}
        answer = await self._request_of(resource_type, name, ApiKey.DESCRIBE_CONFIGS, 4, fields)
        asked = Asked(ApiKey.DESCRIBE_CONFIGS, topic=name, group=name)
        _check(answer.results[0], resource_name(resource_type, name), asked)
        rows = [
            ConfigEntry(c.name, c.value, c.config_source, c.read_only, c.documentation)
            for c in answer.results[0].configs
        ]
        own = _BROKER_SOURCES if not name else _OWN_SOURCES[resource_type]
        return rows if everything else [row for row in rows if row.source in own]

    async def alter_configs(
        self, resource_type: int, name: str, values: Mapping[str, str], deleted: Sequence[str]
    ) -> None:
        """Set `values`, and reset the keys in `deleted` to their defaults.

        Keys to reset that are no settings are refused here: a cluster takes a change that changes nothing.
        """
        if deleted and resource_type in _SETTINGS_ARE_LISTED:
            await self._check_settings(resource_type, name, deleted)
        changes = [{"name": key, "config_operation": SET, "value": value} for key, value in values.items()]
        changes += [{"name": key, "config_operation": DELETE, "value": None} for key in deleted]
        resource = {"resource_type": resource_type, "resource_name": name, "configs": changes}
        fields = {"resources": [resource], "validate_only": False}
        # Only the broker itself has its loggers, and can try the certificates of its listeners.
        is_of_listener = any(key.startswith(_OF_LISTENERS) for key in (*values, *deleted))
        node = name if resource_type == BROKER_LOGGER or is_of_listener else ""
        answer = await self._request_of(resource_type, node, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, fields)
        asked = Asked(ApiKey.INCREMENTAL_ALTER_CONFIGS, topic=name, group=name)
        _check(answer.responses[0], resource_name(resource_type, name), asked)

    async def _check_settings(self, resource_type: int, name: str, keys: Sequence[str]) -> None:
        known = {row.name for row in await self._all_settings(resource_type, name)}
        wrong = [key for key in keys if key not in known and not key.startswith(_OF_LISTENERS)]
        if wrong:
            what = f"there is no setting {' and no setting '.join(wrong)}"
            raise RefusedError(ErrorCode.INVALID_CONFIG, resource_name(resource_type, name), what)

    async def _all_settings(self, resource_type: int, name: str) -> list[ConfigEntry]:
        """The settings that there are. Those of a broker are told by any other one while it is down."""
        if resource_type != BROKER:
            return await self.describe_configs(resource_type, name, everything=True)
        # Of what holds for all brokers only what is set is described.
        live = [one.node_id for one in (await self._client.metadata(())).brokers]
        *others, last = sorted(map(str, live or await self.find()), key=lambda one: one != name)
        for broker in others:
            try:
                return await self.describe_configs(BROKER, broker, everything=True)
            except RefusedError:
                raise
            except ClientError:
                continue
        return await self.describe_configs(BROKER, last, everything=True)

    async def describe_log_dirs(
        self, brokers: Sequence[int] = (), what: str = "its log directories"
    ) -> Gathered[LogDir]:
        """The log directories of these brokers, or of all that are registered; `what` names what else is missing."""
        return await self._client.gather(await self.find(brokers), self._log_dirs_of, what)

    async def find(self, brokers: Sequence[int] = ()) -> list[int]:
        """These brokers, or all that are registered, so that each can be asked.

        Metadata leaves the fenced ones out, and of those some answer, such as one whose disk is full.
        """
        live = {one.node_id for one in (await self._client.metadata(())).brokers}
        if brokers and live.issuperset(brokers):
            return list(brokers)
        fenced = [one for one in await self.registered_brokers() if one.node_id not in live]
        self._client.add_brokers([BrokerView(one.node_id, one.host, one.port, one.rack) for one in fenced])
        return list(brokers) or sorted(live.union(one.node_id for one in fenced))

    async def _log_dirs_of(self, broker: int) -> list[LogDir]:
        answer = await self._client.request_node(broker, ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": None})
        _check(answer, f"the log directories of broker {broker}", Asked(ApiKey.DESCRIBE_LOG_DIRS))
        found = []
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

    async def elect_leaders(self, partitions: Sequence[tuple[str, int]] | None, *, unclean: bool) -> Elections:
        """Elect the preferred leaders of these partitions, or of all; with `unclean`, any live replica if none leads.

        A partition that has such a leader needs no election, and that is no failure.
        """
        topics = None
        if partitions is not None:
            topics = [{"topic": topic, "partitions": indexes} for topic, indexes in by_topic(partitions).items()]
        fields = {"election_type": int(unclean), "topic_partitions": topics, "timeout": _TIMEOUT_MS}
        answer = await self._client.request(ApiKey.ELECT_LEADERS, 2, fields)
        _check(answer, "the election", Asked(ApiKey.ELECT_LEADERS))
        done, failed = [], []
        for topic in answer.replica_election_results:
            for row in topic.partition_result:
                name = f"{topic.topic}-{row.partition_id}"
                way_out = None
                if unclean and row.error_code == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE:
                    way_out = await self._brokers_to_start(topic.topic, row.partition_id)
                if row.error_code == ErrorCode.ELECTION_NOT_NEEDED:
                    done.append(f"{name} has its leader already")
                elif row.error_code:
                    failed.append(RefusedError(row.error_code, f"{name} not elected", row.error_message, way_out))
                else:
                    done.append(f"{name} elected")
        return Elections(done, failed)

    async def _brokers_to_start(self, topic: str, partition: int) -> str:
        """The way out where no replica of a partition is alive: one of its brokers is to be started, by their ids."""
        rows = (await self._client.metadata([topic])).topic(topic).partitions
        replicas = [str(one) for row in rows if row.partition == partition for one in row.replicas]
        if len(replicas) == 1:
            return f"start broker {replicas[0]}, which has its only replica"
        return f"start one of the brokers {', '.join(replicas)}, which have its replicas, and then elect again"

    async def broker_states(self) -> list[BrokerState]:
        """All registered brokers, in the order of their ids.

        Each is asked, because the cluster notices only at the end of its session that one is gone.
        """
        found = await self.registered_brokers()
        reasons = await asyncio.gather(*(silence_of(one.host, one.port) for one in found))
        return [replace(one, why_silent=reason) for one, reason in zip(found, reasons, strict=True)]

    async def registered_brokers(self) -> list[BrokerState]:
        """All registered brokers, in the order of their ids, as the cluster knows them; none is asked."""
        fields = {"include_cluster_authorized_operations": False, "endpoint_type": 1, "include_fenced_brokers": True}
        answer = await self._client.request(ApiKey.DESCRIBE_CLUSTER, _DESCRIBE_CLUSTER_VERSION, fields)
        return [
            BrokerState(one.broker_id, one.host, one.port, one.rack, one.is_fenced)
            for one in sorted(answer.brokers, key=lambda one: one.broker_id)
        ]

    async def unregister_broker(self, broker_id: int) -> None:
        """Remove the registration of a broker that will not come back. Its replicas stay assigned to it.

        Raises `ClientError` for a broker that answers, since it would register again.
        """
        if any(one.node_id == broker_id for one in (await self._client.metadata(())).brokers):
            try:  # the broker that gave the metadata may not know yet that this one has just stopped
                await self._client.request_node(broker_id, ApiKey.API_VERSIONS, 0, {})
            except (ClientError, *NO_ANSWER):
                pass
            else:
                raise ClientError(f"broker {broker_id} is alive, and would register again: stop it first")
        attempts = Attempts()
        answer = await attempts.request(self._client, ApiKey.UNREGISTER_BROKER, 0, {"broker_id": broker_id})
        code = attempts.error_of(answer.error_code, ErrorCode.BROKER_ID_NOT_REGISTERED)
        raise_if_refused(code, f"broker {broker_id}", answer.error_message, Asked(ApiKey.UNREGISTER_BROKER))

    async def _request_of(
        self, resource_type: int, name: str, key: ApiKey, version: int, fields: Mapping[str, Any]
    ) -> Struct:
        """Ask the broker to which the resource belongs, or any broker if it belongs to none."""
        if resource_type not in (BROKER, BROKER_LOGGER) or not name:
            return await self._client.request(key, version, fields)
        await self.find([int(name)])
        try:
            return await self._client.request_node(int(name), key, version, fields)
        except NO_ANSWER as error:
            raise silent_broker(self._client.broker_text(int(name)), error) from error

    async def list_acls(self, wanted: AclBindingFilter) -> list[AclBinding]:
        """The entries that the filter matches, sorted. Raises `RefusedError`."""
        answer = await self._client.request(ApiKey.DESCRIBE_ACLS, _ACLS_VERSION, _filter_fields(wanted))
        if answer.error_code:
            raise RefusedError(answer.error_code, "ACLs", answer.error_message, asked=Asked(ApiKey.DESCRIBE_ACLS))
        found = [
            AclBinding(
                resource.resource_type,
                resource.resource_name,
                resource.pattern_type,
                entry.principal,
                entry.host,
                entry.operation,
                entry.permission_type,
            )
            for resource in answer.resources
            for entry in resource.acls
        ]
        return sorted(found)

    async def create_acls(self, bindings: Sequence[AclBinding]) -> None:
        """Create entries; those that are there already stay. Raises `RefusedError` for the first that is refused."""
        creations = []
        for binding in bindings:
            fields = binding._asdict()
            creations.append({**fields, "resource_pattern_type": fields.pop("pattern_type")})
        answer = await self._client.request(ApiKey.CREATE_ACLS, _ACLS_VERSION, {"creations": creations})
        for binding, result in zip(bindings, answer.results, strict=True):
            if result.error_code:
                what, asked = f"ACL of {binding.principal}", Asked(ApiKey.CREATE_ACLS)
                raise RefusedError(result.error_code, what, result.error_message, asked=asked)

    async def delete_acls(self, filters: Sequence[AclBindingFilter]) -> list[AclBinding]:
        """Remove the entries that any of the filters matches, and return them, sorted. Raises `RefusedError`.

        Raises `ClientError` where the answer that names those that were removed may be lost.
        """
        attempts = Attempts()
        fields = {"filters": [_filter_fields(one) for one in filters]}
        answer = await attempts.request(self._client, ApiKey.DELETE_ACLS, _ACLS_VERSION, fields)
        removed: dict[AclBinding, None] = {}
        for result in answer.filter_results:
            if result.error_code:
                raise RefusedError(result.error_code, "ACLs", result.error_message, asked=Asked(ApiKey.DELETE_ACLS))
            for row in result.matching_acls:
                removed[AclBinding(*(getattr(row, name) for name in AclBinding._fields))] = None
        if attempts.may_have_succeeded and not removed:
            raise ClientError("no such ACLs are left; a broker that gave no answer may have removed some just now")
        return sorted(removed)

    async def describe_quotas(self, entity: Mapping[str, str | None]) -> list[EntityQuotas]:
        """The quotas of the entities with at least these names; of all, if none is given. Raises `RefusedError`."""
        components = [
            {"entity_type": kind, "match_type": int(name is None), "match": name} for kind, name in entity.items()
        ]
        fields = {"components": components, "strict": False}
        answer = await self._client.request(ApiKey.DESCRIBE_CLIENT_QUOTAS, _CLIENT_QUOTAS_VERSION, fields)
        if answer.error_code:
            asked = Asked(ApiKey.DESCRIBE_CLIENT_QUOTAS)
            raise RefusedError(answer.error_code, "quotas", answer.error_message, asked=asked)
        return [
            EntityQuotas(
                {one.entity_type: one.entity_name for one in row.entity}, {one.key: one.value for one in row.values}
            )
            for row in answer.entries
        ]

    async def alter_quotas(self, entity: Mapping[str, str | None], quotas: Mapping[str, float | None]) -> None:
        """Set quotas of an entity, and remove those that are None: all of them, or none. Raises `RefusedError`."""
        rows = [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()]
        ops = [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in quotas.items()]
        fields = {"entries": [{"entity": rows, "ops": ops}], "validate_only": False}
        answer = await self._client.request(ApiKey.ALTER_CLIENT_QUOTAS, _CLIENT_QUOTAS_VERSION, fields)
        for entry in answer.entries:
            if entry.error_code:
                asked = Asked(ApiKey.ALTER_CLIENT_QUOTAS)
                raise RefusedError(entry.error_code, "quotas", entry.error_message, asked=asked)

    async def list_scram_users(self, names: Sequence[str] = ()) -> dict[str, dict[str, int]]:
        """The iterations by mechanism of each user that has a SCRAM password (KIP-554); of all, if none is named.

        Raises `RefusedError`, also for a name that has none.
        """
        fields = {"users": [{"name": name} for name in names] or None}
        api = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS
        answer = await self._client.request(api, _SCRAM_CREDENTIALS_VERSION, fields)
        raise_if_refused(answer.error_code, "users", answer.error_message, Asked(api))
        for row in answer.results:
            raise_if_refused(row.error_code, f"user {row.user}", row.error_message, Asked(api))
        return {
            row.user: {SCRAM_MECHANISMS[one.mechanism]: one.iterations for one in row.credential_infos}
            for row in answer.results
        }

    async def set_scram_password(
        self, user: str, password: str, iterations: Mapping[str, int], secret_bytes: Callable[[int], bytes]
    ) -> None:
        """Set a user's password for each mechanism, with so many iterations: all of them, or none.

        `secret_bytes` makes the salt. The password itself is not sent. Raises `RefusedError`.
        """
        upsertions = []
        for mechanism, count in iterations.items():
            salt = secret_bytes(_SALT_BYTES)
            key = salted(mechanism, password, salt, count)
            number = MECHANISM_NUMBERS[mechanism]
            row = {"name": user, "mechanism": number, "iterations": count, "salt": salt, "salted_password": key}
            upsertions.append(row)
        answer = await self._alter_scram_credentials(Attempts(), {"deletions": [], "upsertions": upsertions})
        _check(answer, f"user {user}", Asked(ApiKey.ALTER_USER_SCRAM_CREDENTIALS))

    async def remove_scram_password(self, user: str, mechanisms: Sequence[str]) -> None:
        """Remove a user's password for these mechanisms: all of them, or none. Raises `RefusedError`."""
        attempts = Attempts()
        deletions = [{"name": user, "mechanism": MECHANISM_NUMBERS[one]} for one in mechanisms]
        row = await self._alter_scram_credentials(attempts, {"deletions": deletions, "upsertions": []})
        code = attempts.error_of(row.error_code, ErrorCode.RESOURCE_NOT_FOUND)
        raise_if_refused(code, f"user {user}", row.error_message, Asked(ApiKey.ALTER_USER_SCRAM_CREDENTIALS))

    async def _alter_scram_credentials(self, attempts: Attempts, fields: Mapping[str, Any]) -> Struct:
        """The row of the one user whose credentials are changed."""
        api = ApiKey.ALTER_USER_SCRAM_CREDENTIALS
        return await attempts.final_row(self._client, api, _SCRAM_CREDENTIALS_VERSION, fields, "results")

    async def _until(self, holds: Callable[[ClusterView], bool], name: str) -> ClusterView | None:
        """The view of this topic once that holds; None for who may change the topic and not describe it."""
        deadline = self._client.throttling.unthrottled_time() + self._client.timeout_s
        while True:
            try:
                view = await self._client.metadata([name])
            except RefusedError as error:
                if error.code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    raise
                return None
            if holds(view):
                return view
            if self._client.throttling.unthrottled_time() > deadline:
                raise ClientError(
                    f"topic {name}: the change was accepted, and is not visible after {self._client.timeout_s:g} s"
                )
            await asyncio.sleep(_RETRY_PAUSE_S / 4)


def resource_name(resource_type: int, name: str) -> str:
    """What has configurations, in words: "topic flights", "broker 2", "all brokers"."""
    if resource_type in (BROKER, BROKER_LOGGER):
        return f"broker {name}" if name else "all brokers"
    return f"{_RESOURCE_NOUNS[resource_type]} {name}"


def has_leaders(view: ClusterView, name: str) -> bool:
    """Whether the topic is there, and each of its partitions has a leader."""
    topics = [topic for topic in view.topics if topic.name == name]
    return bool(topics and topics[0].partitions) and all(one.leader >= 0 for one in topics[0].partitions)


def _check(row: Struct, what: str, asked: Asked) -> None:
    raise_if_refused(row.error_code, what, row.get("error_message"), asked)  # not every answer has a message


def _filter_fields(wanted: AclBindingFilter) -> dict[str, object]:
    return {
        "resource_type_filter": wanted.resource_type,
        "resource_name_filter": wanted.resource_name,
        "pattern_type_filter": wanted.pattern_type,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission_type,
    }
