"""DescribeConfigs for topics and brokers: each value with where it comes from."""

from __future__ import annotations

from typing import Any

from ...controller.configs import TOPIC_CONFIGS, ConfigSource, resolve
from ...controller.image import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataImage
from ...wire.apis import ApiKey
from ...wire.codec import Struct
from ...wire.errors import ErrorCode
from ..api import Api, Fields
from ..request import Request
from ..services import BrokerServices
from ..topic_view import is_legal_topic_name

DYNAMIC_BROKER = 2
STRING = 2


def _topic_rows(
    services: BrokerServices, name: str, keys: list[str] | None, with_synonyms: bool
) -> list[dict[str, Any]]:
    image, defaults = services.metadata.image, services.config.topics.configs
    rows = []
    for key, config in TOPIC_CONFIGS.items():
        if keys and key not in keys:
            continue
        value, source = resolve(image, name, key, defaults)
        row = {
            "name": key,
            "value": value,
            "read_only": False,
            "config_source": int(source),
            "is_default": source is ConfigSource.DEFAULT,
            "is_sensitive": False,
            "config_type": int(config.type),
        }
        if with_synonyms:
            row["synonyms"] = _synonyms(image, name, key, defaults)
        rows.append(row)
    return rows


def _synonyms(image: MetadataImage, topic: str, key: str, defaults: Any) -> list[dict[str, Any]]:
    """Every level that has a value, the one that holds first."""
    config = TOPIC_CONFIGS[key]
    own = image.configs.get((TOPIC_RESOURCE, topic), {})
    cluster = image.configs.get((BROKER_RESOURCE, ""), {})
    levels = (
        (key, own.get(key), ConfigSource.TOPIC),
        (config.broker_setting, cluster.get(config.broker_setting), ConfigSource.DYNAMIC_DEFAULT_BROKER),
        (config.broker_setting or key, defaults.get(key), ConfigSource.STATIC_BROKER),
        (config.broker_setting or key, config.default, ConfigSource.DEFAULT),
    )
    return [
        {"name": name, "value": value, "source": int(source)} for name, value, source in levels if value is not None
    ]


def _broker_rows(services: BrokerServices, name: str, keys: list[str] | None) -> list[dict[str, Any]]:
    image = services.metadata.image
    found: dict[str, tuple[str, int]] = {}
    if name:
        found |= {key: (value, int(ConfigSource.STATIC_BROKER)) for key, value in services.config.values.items()}
    shared = image.configs.get((BROKER_RESOURCE, ""), {})
    found |= {key: (value, int(ConfigSource.DYNAMIC_DEFAULT_BROKER)) for key, value in shared.items()}
    if name:
        own = image.configs.get((BROKER_RESOURCE, name), {})
        found |= {key: (value, DYNAMIC_BROKER) for key, value in own.items()}
    return [
        {
            "name": key,
            "value": None if _is_secret(key) else value,
            "read_only": source == ConfigSource.STATIC_BROKER,
            "config_source": source,
            "is_sensitive": _is_secret(key),
            "config_type": STRING,
        }
        for key, (value, source) in sorted(found.items())
        if not keys or key in keys
    ]


def _is_secret(key: str) -> bool:
    return "password" in key or "secret" in key or key.endswith("jaas.config")


def _describe(services: BrokerServices, wanted: Struct, with_synonyms: bool) -> dict[str, Any]:
    kind, name = wanted.resource_type, wanted.resource_name
    keys = wanted.configuration_keys
    if kind == TOPIC_RESOURCE:
        if not is_legal_topic_name(name):
            return _row(wanted, int(ErrorCode.INVALID_TOPIC_EXCEPTION), f"Topic name is illegal: {name!r}")
        if name not in services.metadata.image.topics_by_name:
            return _row(wanted, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), "")
        return _row(wanted, 0, None) | {"configs": _topic_rows(services, name, keys, with_synonyms)}
    if kind == BROKER_RESOURCE:
        if name not in ("", str(services.config.node_id)):
            text = f"Unexpected broker id, expected {services.config.node_id} or empty string, but received {name}"
            return _row(wanted, int(ErrorCode.INVALID_REQUEST), text)
        return _row(wanted, 0, None) | {"configs": _broker_rows(services, name, keys)}
    return _row(wanted, int(ErrorCode.INVALID_REQUEST), f"Unsupported resource type: {kind}")


def _row(wanted: Struct, code: int, text: str | None) -> dict[str, Any]:
    name = {"resource_type": wanted.resource_type, "resource_name": wanted.resource_name}
    return {"error_code": code, "error_message": text, "configs": [], **name}


def handle(services: BrokerServices, request: Request, message: Struct) -> Fields:
    with_synonyms = message.include_synonyms
    return {"results": [_describe(services, wanted, with_synonyms) for wanted in message.resources]}


def error(message: Struct, code: int, text: str) -> Fields:
    """Every resource asked for gets the error."""
    return {"results": [_row(wanted, code, text) for wanted in message.resources]}


API = Api(ApiKey.DESCRIBE_CONFIGS, (1, 4), handle=handle, error=error)
