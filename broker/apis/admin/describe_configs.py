"""DescribeConfigs: each value with its source, its synonyms and its documentation.

A topic's value is its own, else the dynamic value of this broker, else the dynamic value of all brokers, else the value
in this node's server.properties, else the default. A broker's settings are those of the broker that gets the request.
The broker resource with an empty name stands for the dynamic values of all brokers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ....controller.configs.broker_configs import BROKER_CONFIGS
from ....controller.configs.client_metrics import CLIENT_METRICS_CONFIGS
from ....controller.configs.group_configs import GROUP_CONFIGS
from ....controller.configs.security_configs import listener_config
from ....controller.metadata.metadata_image import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    MetadataImage,
)
from ....controller.metadata.metadata_loader import MetadataLoader
from ....controller.topics.topic_names import is_legal_topic_name
from ....log.topic_configs import TOPIC_CONFIGS
from ....runtime.incremental_work import PLAIN_STEP, Work
from ....security.authorizer.acl_binding import CLUSTER_NAME, AclOperation, ResourceType
from ....security.authorizer.authorizer import DENIED
from ....wire.codec import Rows
from ....wire.config_def import ConfigKey, ConfigSource, ConfigType, SecretText, UpdateMode, is_secret
from ....wire.errors import ErrorCode
from ...api import Fields
from ...authorization import Authorization
from ...config import BrokerConfig
from ...loggers import logger_levels
from ...network.request import Request
from ...services import BrokerServices

if TYPE_CHECKING:
    from ....wire.message_types.configs import DescribeConfigsRequest


class ConfiguredNode(Protocol):
    """The context of a handler: a broker listener's or a controller listener's."""

    @property
    def metadata(self) -> MetadataLoader:
        """The committed metadata."""
        ...

    @property
    def config(self) -> BrokerConfig:
        """The node's settings."""
        ...

    @property
    def authorization(self) -> Authorization:
        """What clients may do."""
        ...


class _Level(NamedTuple):
    """The value of a setting at one level, with its name there."""

    name: str
    value: str | None
    source: ConfigSource


class _Query(NamedTuple):
    """What the request asks of one resource."""

    keys: frozenset[str]
    synonyms: bool
    documentation: bool

    def wants(self, name: str) -> bool:
        return not self.keys or name in self.keys


def _topic_rows(services: ConfiguredNode, topic: str, query: _Query) -> list[dict[str, Any]]:
    image, config = services.metadata.image, services.config
    own = image.configs.get((TOPIC_RESOURCE, topic), {})
    rows = []
    for name, row in TOPIC_CONFIGS.items():
        if query.wants(name):
            levels = [_Level(name, own.get(name), ConfigSource.TOPIC)]
            if row.broker_name:
                levels += _dynamic_levels(image, str(config.node_id), row.broker_name)
            below = row.broker_name or name
            levels.append(_Level(below, config.topics.configs.get(name), ConfigSource.STATIC_BROKER))
            levels.append(_Level(below, row.default, ConfigSource.DEFAULT))
            rows.append(_row(row, levels, query))
    return rows


def _dynamic_levels(image: MetadataImage, broker: str, name: str) -> list[_Level]:
    alone = image.configs.get((BROKER_RESOURCE, broker), {}) if broker else {}
    everywhere = image.configs.get((BROKER_RESOURCE, ""), {})
    return [
        _Level(name, alone.get(name), ConfigSource.DYNAMIC_BROKER),
        _Level(name, everywhere.get(name), ConfigSource.DYNAMIC_DEFAULT_BROKER),
    ]


def _broker_rows(services: ConfiguredNode, broker: str, query: _Query) -> list[dict[str, Any]]:
    """All settings of this broker; for the empty name, the dynamic values of all brokers."""
    image, config = services.metadata.image, services.config
    if not broker:
        names = dict.fromkeys(image.configs.get((BROKER_RESOURCE, ""), {}))
    else:
        own = image.configs.get((BROKER_RESOURCE, broker), {})
        names = dict.fromkeys((*BROKER_CONFIGS, *config.values, *own))
    rows = []
    for name in sorted(name for name in names if query.wants(name)):
        levels = _dynamic_levels(image, broker, name)
        if broker:
            levels.append(_Level(name, config.values.get(name), ConfigSource.STATIC_BROKER))
        row = BROKER_CONFIGS.get(name) or listener_config(name) or ConfigKey(name, ConfigType.UNKNOWN, None, "")
        levels.append(_Level(name, row.default, ConfigSource.DEFAULT))
        rows.append(_row(row, levels, query, read_only=row.update_mode is UpdateMode.READ_ONLY))
    return rows


def _group_rows(services: ConfiguredNode, group: str, query: _Query) -> list[dict[str, Any]]:
    """A group's own values, else those of this broker."""
    own = services.metadata.image.configs.get((GROUP_RESOURCE, group), {})
    rows = []
    for name, row in GROUP_CONFIGS.items():
        if query.wants(name):
            below = services.config.values.get(row.broker_name, row.default)
            levels = [_Level(name, own.get(name), ConfigSource.GROUP), _Level(name, below, ConfigSource.DEFAULT)]
            rows.append(_row(row, levels, query))
    return rows


def _client_metrics_rows(services: ConfiguredNode, name: str, query: _Query) -> list[dict[str, Any]]:
    """A subscription's own values, else the defaults."""
    own = services.metadata.image.configs.get((CLIENT_METRICS_RESOURCE, name), {})
    return [
        _row(
            row,
            [_Level(key, own.get(key), ConfigSource.CLIENT_METRICS), _Level(key, row.default, ConfigSource.DEFAULT)],
            query,
        )
        for key, row in CLIENT_METRICS_CONFIGS.items()
        if query.wants(key)
    ]


def _row(key: ConfigKey, levels: list[_Level], query: _Query, *, read_only: bool = False) -> dict[str, Any]:
    """One row of the response. The first of `levels` with a value wins.

    A value of an unknown type is a secret, as in Apache Kafka: a policy or an authorizer may log in elsewhere by it.
    """
    there = [level for level in levels if level.value is not None]
    secret = key.type is ConfigType.UNKNOWN or is_secret(key.name)
    secret = secret or any(isinstance(level.value, SecretText) for level in there)
    source = there[0].source if there else ConfigSource.DEFAULT
    row: dict[str, Any] = {
        "name": key.name,
        "value": None if secret or not there else there[0].value,
        "read_only": read_only,
        "config_source": int(source),
        "is_default": source is ConfigSource.DEFAULT,
        "is_sensitive": secret,
        "config_type": int(key.type),
        "documentation": key.doc if query.documentation else None,
    }
    if query.synonyms:
        row["synonyms"] = [
            {"name": level.name, "value": None if secret else level.value, "source": int(level.source)}
            for level in there
        ]
    return row


_RESOURCE_TYPES = {
    TOPIC_RESOURCE: ResourceType.TOPIC,
    GROUP_RESOURCE: ResourceType.GROUP,
    BROKER_RESOURCE: ResourceType.CLUSTER,
    BROKER_LOGGER_RESOURCE: ResourceType.CLUSTER,
    CLIENT_METRICS_RESOURCE: ResourceType.CLUSTER,
}
"""The type of the resource on which DESCRIBE_CONFIGS is needed, by the type of what is configured."""


def _is_denied(
    services: ConfiguredNode, request: Request, wanted: DescribeConfigsRequest.DescribeConfigsResource
) -> bool:
    resource_type = _RESOURCE_TYPES.get(wanted.resource_type)
    if resource_type is None:
        return False
    name = CLUSTER_NAME if resource_type is ResourceType.CLUSTER else wanted.resource_name
    return not services.authorization.is_allowed(request, AclOperation.DESCRIBE_CONFIGS, resource_type, name)


def _describe(
    services: ConfiguredNode,
    request: Request,
    wanted: DescribeConfigsRequest.DescribeConfigsResource,
    options: Mapping[str, bool],
) -> dict[str, Any]:
    kind, name = wanted.resource_type, wanted.resource_name
    if services.authorization.is_on and _is_denied(services, request, wanted):
        return _result(wanted, int(DENIED[_RESOURCE_TYPES[kind]]), None)
    query = _Query(frozenset(wanted.configuration_keys or ()), **options)
    if kind == TOPIC_RESOURCE:
        if not is_legal_topic_name(name):
            return _result(wanted, int(ErrorCode.INVALID_TOPIC_EXCEPTION), f"Topic name is illegal: {name!r}")
        if name not in services.metadata.image.topics_by_name:
            return _result(wanted, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), "")
        return _result(wanted, 0, None) | {"configs": _topic_rows(services, name, query)}
    if kind == BROKER_RESOURCE:
        if name not in ("", str(services.config.node_id)):
            text = f"Unexpected broker id, expected {services.config.node_id} or empty string, but received {name}"
            return _result(wanted, int(ErrorCode.INVALID_REQUEST), text)
        return _result(wanted, 0, None) | {"configs": _broker_rows(services, name, query)}
    if kind == BROKER_LOGGER_RESOURCE:
        return _describe_loggers(services, wanted, query)
    if kind in (GROUP_RESOURCE, CLIENT_METRICS_RESOURCE):
        if not name:
            what = "Group name" if kind == GROUP_RESOURCE else "Client metrics subscription name"
            return _result(wanted, int(ErrorCode.INVALID_REQUEST), f"{what} must not be empty")
        rows = _group_rows if kind == GROUP_RESOURCE else _client_metrics_rows
        return _result(wanted, 0, None) | {"configs": rows(services, name, query)}
    return _result(wanted, int(ErrorCode.INVALID_REQUEST), f"Unsupported resource type: {kind}")


def _describe_loggers(
    services: ConfiguredNode, wanted: DescribeConfigsRequest.DescribeConfigsResource, query: _Query
) -> dict[str, Any]:
    name, own = wanted.resource_name, services.config.node_id
    if name != str(own):
        text = f"Unexpected broker id, expected {own} but received {name}" if name else "Broker id must not be empty"
        return _result(wanted, int(ErrorCode.INVALID_REQUEST), text)
    rows = [
        {
            "name": logger,
            "value": level,
            "read_only": False,
            "config_source": int(ConfigSource.BROKER_LOGGER),
            "is_default": False,
            "is_sensitive": False,
            "documentation": None,
        }
        for logger, level in logger_levels().items()
        if query.wants(logger)
    ]
    return _result(wanted, 0, None) | {"configs": rows}


def _result(wanted: DescribeConfigsRequest.DescribeConfigsResource, code: int, text: str | None) -> dict[str, Any]:
    name = {"resource_type": wanted.resource_type, "resource_name": wanted.resource_name}
    return {"error_code": code, "error_message": text, "configs": [], **name}


def describe(node: ConfiguredNode, request: Request, message: DescribeConfigsRequest) -> Work[Fields]:
    """The response of a broker, or of a controller that is asked itself (KIP-919)."""
    options = {"synonyms": message.include_synonyms, "documentation": message.get("include_documentation", False)}
    yield PLAIN_STEP
    return {"results": Rows(lambda wanted: _describe(node, request, wanted, options), message.resources)}


def handle(services: BrokerServices, request: Request, message: DescribeConfigsRequest) -> Work[Fields]:
    """The settings as this broker has them."""
    return describe(services, request, message)


def error(message: DescribeConfigsRequest, code: int, text: str) -> Fields:
    """Every resource asked for gets the error."""
    return {"results": Rows(lambda wanted: _result(wanted, code, text), message.resources)}
