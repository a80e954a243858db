"""IncrementalAlterConfigs (KIP-339), and AlterConfigs, which replaces all configurations of a resource."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import IntEnum
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias, TypeVar

from ...log.topic_configs import MIN_ISR_KEY, TOPIC_CONFIGS, validate_topic_configs
from ...runtime.incremental_work import Pace, count_in_steps
from ...security.authorizer.acl_binding import CLUSTER_NAME, AclOperation, ResourceType
from ...security.authorizer.authorizer import DENIED
from ...wire.config_def import LIST, ConfigKey, UpdateMode
from ...wire.errors import ErrorCode, ProtocolError
from ...wire.types import STRING_BYTES_MAX
from ..metadata.metadata_image import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    MetadataImage,
)
from ..metadata.metadata_records import ConfigRecord, Record
from ..partitions.eligible_leader_replicas import ELRS_PER_BATCH, clear_elr
from ..policies import Policies
from ..result import ControllerResult, Decision, Response
from ..security.rights import IsAllowed, allows_all
from .broker_configs import DYNAMIC_BROKER_CONFIGS
from .client_metrics import CLIENT_METRICS_CONFIGS, check_client_metrics
from .group_configs import GROUP_CONFIGS, GroupLimits
from .security_configs import CERTIFICATE_CONFIGS, certificate_config

if TYPE_CHECKING:
    from ...wire.message_types.configs import AlterConfigsRequest, IncrementalAlterConfigsRequest

_TABLES: Mapping[int, Mapping[str, ConfigKey]] = {
    TOPIC_RESOURCE: TOPIC_CONFIGS,
    BROKER_RESOURCE: DYNAMIC_BROKER_CONFIGS,
    GROUP_RESOURCE: GROUP_CONFIGS,
    CLIENT_METRICS_RESOURCE: CLIENT_METRICS_CONFIGS,
}
_NODE_ID_MAX = 2**31 - 1
_NODE_ID_DIGITS_MAX = 10


class Operation(IntEnum):
    """The operations of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigRules(NamedTuple):
    """The limits and policies of this node's server.properties."""

    group_limits: GroupLimits = GroupLimits()
    policies: Policies = Policies()


_NO_RULES = ConfigRules()

_Config = TypeVar("_Config", bound="AlterConfigsRequest.AlterableConfig")
_Configs = TypeVar("_Configs", covariant=True)
_Change: TypeAlias = Callable[[int, Mapping[str, str], Sequence[_Config]], dict[str, str]]


def incremental_alter_configs(
    image: MetadataImage,
    request: IncrementalAlterConfigsRequest,
    rules: ConfigRules = _NO_RULES,
    is_allowed: IsAllowed = allows_all,
) -> Decision:
    """IncrementalAlterConfigs 0-1. Each resource succeeds or fails as a whole."""
    return _alter(image, request.resources, _incremented, rules, is_allowed, validate_only=request.validate_only)


def alter_configs(
    image: MetadataImage,
    request: AlterConfigsRequest,
    rules: ConfigRules = _NO_RULES,
    is_allowed: IsAllowed = allows_all,
) -> Decision:
    """AlterConfigs 0-2. A configuration that is not named goes back to its default."""
    return _alter(image, request.resources, _replaced, rules, is_allowed, validate_only=request.validate_only)


class _Resource(Protocol[_Configs]):
    """A resource of either request."""

    @property
    def resource_type(self) -> int: ...

    @property
    def resource_name(self) -> str: ...

    @property
    def configs(self) -> _Configs: ...


def _alter(
    image: MetadataImage,
    resources: Sequence[_Resource[Sequence[_Config]]],
    change: _Change[_Config],
    rules: ConfigRules,
    is_allowed: IsAllowed,
    *,
    validate_only: bool,
) -> Decision:
    pace = Pace()
    times = yield from count_in_steps(((one.resource_type, one.resource_name) for one in resources), pace)
    records: list[Record] = []
    results: list[Response] = []
    for resource in resources:
        key = (resource.resource_type, resource.resource_name)
        try:
            if times[key] > 1:
                raise ProtocolError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            _check_right(key, is_allowed)
            altered = _alter_resource(image, key, resource.configs, change, rules)
            while not validate_only:
                # While very many ELRs are emptied, other requests may alter the same resource.
                cleared = list(islice(_elr_after(image, altered), ELRS_PER_BATCH))
                if len(cleared) < ELRS_PER_BATCH:
                    records += [*altered, *cleared]
                    break
                yield [*records, *cleared]
                records = []
                altered = _alter_resource(image, key, resource.configs, change, rules)
        except ProtocolError as error:
            results.append(_result(key, error.code, error.message))
        else:
            results.append(_result(key, ErrorCode.NONE, None))
        if pace.ends_step(1 + len(resource.configs)):
            yield records
            records = []
    return ControllerResult(records, {"responses": results})


def _result(key: tuple[int, str], code: ErrorCode, message: str | None) -> Response:
    return {"error_code": int(code), "error_message": message, "resource_type": key[0], "resource_name": key[1]}


def _alter_resource(
    image: MetadataImage, key: tuple[int, str], given: Sequence[_Config], change: _Change[_Config], rules: ConfigRules
) -> list[ConfigRecord]:
    _check_name(key)
    names = [one.name for one in given]
    if len(set(names)) < len(names):
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "Each configuration must appear at most once.")
    old = image.configs.get(key, {})
    new = change(key[0], old, given)
    _validate(image, key, old, new, rules)
    _check_exists(image, key)
    records = [
        ConfigRecord(key[0], key[1], name, new.get(name))
        for name in dict.fromkeys((*old, *new))
        if new.get(name) != old.get(name)
    ]
    # AlterConfigs also removes what it does not name; policies do not see that (KAFKA-14195).
    requested = {name: new.get(name) for name in names if new.get(name) != old.get(name)}
    rules.policies.check_config(*key, requested)
    return records


def _validate(
    image: MetadataImage, key: tuple[int, str], old: Mapping[str, str], new: Mapping[str, str], rules: ConfigRules
) -> None:
    """Check the values that the resource would have.

    Names that this build does not know are in `new` only as another build has recorded them: nobody uses their values.
    """
    table = _TABLES[key[0]]
    known = {name: value for name, value in new.items() if name in table}
    if key[0] == TOPIC_RESOURCE:
        validate_topic_configs(known)
    elif key[0] == BROKER_RESOURCE:
        _validate_broker_configs(image, key[1], old, new)
    else:
        for name, value in known.items():
            table[name].parse_for_client(value)
        check_client_metrics(known) if key[0] == CLIENT_METRICS_RESOURCE else rules.group_limits.check(known)


def _incremented(
    resource_type: int, old: Mapping[str, str], changes: Sequence[IncrementalAlterConfigsRequest.AlterableConfig]
) -> dict[str, str]:
    new = dict(old)
    for change in changes:
        _apply(new, resource_type, change)
    return new


def _replaced(
    resource_type: int, old: Mapping[str, str], values: Sequence[AlterConfigsRequest.AlterableConfig]
) -> dict[str, str]:
    new: dict[str, str] = {}
    for config in values:
        _declared(resource_type, config.name)
        if config.value is None:
            raise ProtocolError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {config.name}")
        new[config.name] = config.value
    return new


def _check_right(key: tuple[int, str], is_allowed: IsAllowed) -> None:
    resource_type, name = key
    if resource_type == TOPIC_RESOURCE:
        kind, what = ResourceType.TOPIC, "Topic"
    elif resource_type == GROUP_RESOURCE:
        kind, what = ResourceType.GROUP, "Group"
    elif resource_type not in _TABLES:
        return
    else:
        kind, what, name = ResourceType.CLUSTER, "Cluster", CLUSTER_NAME
    if not is_allowed(AclOperation.ALTER_CONFIGS, kind, name):
        raise ProtocolError(DENIED[kind], f"{what} authorization failed.")


def _check_name(key: tuple[int, str]) -> None:
    resource_type, name = key
    if resource_type in (GROUP_RESOURCE, CLIENT_METRICS_RESOURCE):
        if not name:
            complaint = "Default group resources are not allowed."
            if resource_type == CLIENT_METRICS_RESOURCE:
                complaint = "Subscription name can't be empty"
            raise ProtocolError(ErrorCode.INVALID_REQUEST, complaint)
    elif resource_type == BROKER_RESOURCE:
        if name:
            parse_node_id(name)
    elif resource_type != TOPIC_RESOURCE:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource_type}")


def parse_node_id(name: str) -> int:
    """The node that the name of a resource names. Raises `ProtocolError(INVALID_REQUEST)` when it is no node id."""
    if name.isdecimal() and len(name) <= _NODE_ID_DIGITS_MAX and int(name) <= _NODE_ID_MAX:
        return int(name)
    raise ProtocolError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")


def _check_exists(image: MetadataImage, key: tuple[int, str]) -> None:
    """Topics and nodes must exist, also where a value is deleted. Apache Kafka looks at the values first."""
    resource_type, name = key
    if resource_type == TOPIC_RESOURCE and name not in image.topics_by_name:
        raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    if resource_type == BROKER_RESOURCE and name:
        node_id = parse_node_id(name)
        if node_id not in image.brokers and node_id not in image.controllers:
            raise ProtocolError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No node with id {node_id} found.")


def _declared(resource_type: int, name: str) -> ConfigKey:
    config = _TABLES[resource_type].get(name)
    if config is None and resource_type == BROKER_RESOURCE:
        config = certificate_config(name)
    if config is not None:
        return config
    if resource_type == TOPIC_RESOURCE:
        raise ProtocolError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
    if resource_type == GROUP_RESOURCE:
        raise ProtocolError(ErrorCode.INVALID_CONFIG, f"Unknown group config name: {name}")
    if resource_type == CLIENT_METRICS_RESOURCE:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {name}")
    raise ProtocolError(ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: {name}")


def _apply(values: dict[str, str], resource_type: int, change: IncrementalAlterConfigsRequest.AlterableConfig) -> None:
    if change.config_operation == Operation.DELETE:
        values.pop(change.name, None)
        return
    config = _declared(resource_type, change.name)
    if change.config_operation not in list(Operation):
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"Unknown operation {change.config_operation}.")
    if change.value is None:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {change.name}")
    if change.config_operation == Operation.SET:
        values[change.name] = change.value
        return
    verb = Operation(change.config_operation).name
    if config.type is not LIST:
        complaint = f"Can't {verb} to key {change.name} because its type is not LIST."
        raise ProtocolError(ErrorCode.INVALID_CONFIG, complaint)
    items = [item for item in values.get(change.name, config.default or "").split(",") if item]
    given = [item.strip() for item in change.value.split(",") if item.strip()]
    if change.config_operation == Operation.APPEND:
        items += [item for item in given if item not in items]
    else:
        items = [item for item in items if item not in given]
    value = ",".join(items)
    if len(value.encode()) > STRING_BYTES_MAX:
        complaint = f"The value of {change.name} would exceed {STRING_BYTES_MAX} bytes, and no client could read it."
        raise ProtocolError(ErrorCode.INVALID_CONFIG, complaint)
    values[change.name] = value


def _validate_broker_configs(
    image: MetadataImage, broker: str, old: Mapping[str, str], values: Mapping[str, str]
) -> None:
    for name, value in values.items():
        if name in CERTIFICATE_CONFIGS:
            complaint = "These security configs can be dynamically updated only per-listener using the listener prefix"
            raise ProtocolError(ErrorCode.INVALID_REQUEST, f"{complaint}: {name}")
        config = DYNAMIC_BROKER_CONFIGS.get(name) or certificate_config(name)
        if config is not None:
            config.parse_for_client(value)
            if not broker and config.update_mode is UpdateMode.PER_BROKER:
                complaint = "Cannot update these configs at default cluster level, broker configs must be specified"
                raise ProtocolError(ErrorCode.INVALID_REQUEST, f"{complaint}: {name}")
    # With ELR, what a leader commits and what the controller takes for committed must follow from one value.
    if image.elr_enabled and values.get(MIN_ISR_KEY) != old.get(MIN_ISR_KEY):
        if broker:
            complaint = "Broker-level min.insync.replicas cannot be altered while ELR is enabled."
            raise ProtocolError(ErrorCode.INVALID_CONFIG, complaint)
        if MIN_ISR_KEY not in values:
            complaint = "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
            raise ProtocolError(ErrorCode.INVALID_CONFIG, complaint)


def _elr_after(image: MetadataImage, altered: Sequence[ConfigRecord]) -> Iterator[Record]:
    """What empties the ELRs that another `min.insync.replicas` makes wrong."""
    for record in altered:
        if record.name == MIN_ISR_KEY:
            is_topic = record.resource_type == TOPIC_RESOURCE
            yield from clear_elr(
                [image.topics_by_name[record.resource_name]] if is_topic else image.topics_by_id.values()
            )
