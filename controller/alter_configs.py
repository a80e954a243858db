"""IncrementalAlterConfigs (KIP-339), and what DescribeConfigs says of a topic."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from ..wire.errors import ErrorCode, ProtocolError
from .configs import (
    TOPIC_CONFIG_BY_BROKER_SETTING,
    TOPIC_CONFIGS,
    ConfigSource,
    ConfigType,
    TopicConfig,
    parse_value,
    resolve,
    validate_topic_configs,
)
from .image import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataImage
from .records import ConfigRecord, Record
from .replication import clear_elr
from .result import ControllerResult, Response


class Operation(IntEnum):
    """What to do with a value."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def incremental_alter_configs(image: MetadataImage, request: Any) -> ControllerResult:
    """IncrementalAlterConfigs 0-1 for topics and brokers; each resource succeeds or fails whole."""
    records: list[Record] = []
    results: list[Response] = []
    keys = [(resource.resource_type, resource.resource_name) for resource in request.resources]
    for resource, key in zip(request.resources, keys, strict=True):
        try:
            if keys.count(key) > 1:
                raise ProtocolError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            records += _alter_resource(image, key, resource.configs)
        except ProtocolError as error:
            results.append(_result(key, error.code, error.message))
        else:
            results.append(_result(key, ErrorCode.NONE, None))
    validate_only = request.get("validate_only", False)
    return ControllerResult([] if validate_only else records, {"responses": results})


def _result(key: tuple[int, str], code: ErrorCode, message: str | None) -> Response:
    return {"error_code": int(code), "error_message": message, "resource_type": key[0], "resource_name": key[1]}


def _alter_resource(image: MetadataImage, key: tuple[int, str], changes: Any) -> list[Record]:
    _check_resource(image, key)
    names = [change.name for change in changes]
    if len(set(names)) < len(names):
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "Each configuration must appear at most once.")
    old = image.configs.get(key, {})
    new = dict(old)
    for change in changes:
        _apply(new, key[0], change)
    if key[0] == TOPIC_RESOURCE:
        validate_topic_configs(new)
    else:
        _validate_broker_configs(key[1], new)
    names = list(dict.fromkeys(names))
    records: list[Record] = [
        ConfigRecord(key[0], key[1], name, new.get(name)) for name in names if new.get(name) != old.get(name)
    ]
    if new.get("min.insync.replicas") != old.get("min.insync.replicas"):
        records += _elr_after_min_isr_change(image, key)
    return records


def _check_resource(image: MetadataImage, key: tuple[int, str]) -> None:
    resource_type, name = key
    if resource_type == TOPIC_RESOURCE:
        if name not in image.topics_by_name:
            raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    elif resource_type != BROKER_RESOURCE:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"Unexpected resource type {resource_type}.")
    elif name and not name.isdigit():
        complaint = f"Node id must be an integer, but it is: {name}"
        raise ProtocolError(ErrorCode.INVALID_REQUEST, complaint)


def _declared(resource_type: int, name: str) -> TopicConfig | None:
    return (TOPIC_CONFIGS if resource_type == TOPIC_RESOURCE else TOPIC_CONFIG_BY_BROKER_SETTING).get(name)


def _apply(values: dict[str, str], resource_type: int, change: Any) -> None:
    config = _declared(resource_type, change.name)
    if config is None:
        kind = "topic config name" if resource_type == TOPIC_RESOURCE else "dynamic broker config"
        raise ProtocolError(ErrorCode.INVALID_CONFIG, f"Unknown {kind}: {change.name}")
    if change.config_operation == Operation.DELETE:
        values.pop(change.name, None)
        return
    if change.config_operation not in list(Operation):
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"Unknown operation {change.config_operation}.")
    if change.value is None:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {change.name}")
    if change.config_operation == Operation.SET:
        values[change.name] = change.value
        return
    verb = Operation(change.config_operation).name
    if config.type is not ConfigType.LIST:
        complaint = f"Can't {verb} to key {change.name} because its type is not LIST."
        raise ProtocolError(ErrorCode.INVALID_CONFIG, complaint)
    items = [item for item in values.get(change.name, config.default).split(",") if item]
    given = [item.strip() for item in change.value.split(",") if item.strip()]
    if change.config_operation == Operation.APPEND:
        items += [item for item in given if item not in items]
    else:
        items = [item for item in items if item not in given]
    values[change.name] = ",".join(items)


def _validate_broker_configs(broker: str, values: Mapping[str, str]) -> None:
    for name, value in values.items():
        config = TOPIC_CONFIG_BY_BROKER_SETTING.get(name)
        if config is not None:
            parse_value(config, value)
    if broker and "min.insync.replicas" in values:
        complaint = "Broker-level min.insync.replicas cannot be altered while ELR is enabled."
        raise ProtocolError(ErrorCode.INVALID_CONFIG, complaint)


def _elr_after_min_isr_change(image: MetadataImage, key: tuple[int, str]) -> list[Record]:
    if key[0] == TOPIC_RESOURCE:
        return clear_elr([image.topics_by_name[key[1]]])
    return clear_elr(image.topics_by_id.values())


def describe_topic_configs(
    image: MetadataImage,
    topic: str,
    static_defaults: Mapping[str, str],
    keys: list[str] | None,
    *,
    synonyms: bool = False,
) -> list[Response]:
    """The rows of DescribeConfigs for a topic; `keys` None means all."""
    names = TOPIC_CONFIGS if keys is None else [key for key in keys if key in TOPIC_CONFIGS]
    return [_describe(image, topic, static_defaults, name, synonyms) for name in names]


def _describe(
    image: MetadataImage, topic: str, static_defaults: Mapping[str, str], name: str, synonyms: bool
) -> Response:
    value, source = resolve(image, topic, name, static_defaults)
    return {
        "name": name,
        "value": value,
        "read_only": False,
        "is_default": source is ConfigSource.DEFAULT,
        "config_source": int(source),
        "is_sensitive": False,
        "synonyms": _synonyms(image, topic, static_defaults, name) if synonyms else [],
        "config_type": int(TOPIC_CONFIGS[name].type),
        "documentation": None,
    }


def _synonyms(image: MetadataImage, topic: str, static_defaults: Mapping[str, str], name: str) -> list[Response]:
    config = TOPIC_CONFIGS[name]
    setting = config.broker_setting
    cluster = image.configs.get((BROKER_RESOURCE, ""), {})
    found = [
        (name, image.configs.get((TOPIC_RESOURCE, topic), {}).get(name), ConfigSource.TOPIC),
        (setting, cluster.get(setting), ConfigSource.DYNAMIC_DEFAULT_BROKER),
        (setting, static_defaults.get(name), ConfigSource.STATIC_BROKER),
        (setting, config.default if setting else None, ConfigSource.DEFAULT),
    ]
    return [{"name": key, "value": value, "source": int(source)} for key, value, source in found if value is not None]
