"""Configurations of topics, of single brokers, and of all brokers: the same requests under three paths."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...cluster.client.admin_client import BROKER, DELETE, SET, TOPIC
from ...cluster.client.cluster_client import NO_ANSWER
from ...cluster.client.peer_protocol import silent_broker
from ...wire.api_keys import ApiKey
from ...wire.errors import ErrorCode
from ..errors import KAFKA_BAD_REQUEST, RestError, refused
from ..json_text import json_bytes
from ..request import Request
from ..routes import Answer, Route
from ..services import Services
from .clusters import broker_of
from .resources import Links, links_of

_DESCRIBE_CONFIGS_VERSION = 4
_ALTER_CONFIGS_VERSION = 1
_SOURCES = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
}
_DEFAULT_SOURCE = 5
_TOPICS_AT_A_TIME, _TOPICS_CHECKED_AT_A_TIME = 20, 500
_ANY_CONFIG = "cleanup.policy"


@dataclass(frozen=True, slots=True)
class _Kind:
    """What has configurations: the kind of its resources, its path, and the word for it in names."""

    kind: str
    path: str
    resource_type: int
    word: str
    schema: str


_OF_TOPIC = _Kind("KafkaTopicConfig", "topics/{topic_name}/configs", TOPIC, "topic", "TopicConfigData")
_OF_BROKER = _Kind("KafkaBrokerConfig", "brokers/{broker_id}/configs", BROKER, "broker", "BrokerConfigData")
_OF_CLUSTER = _Kind("KafkaClusterConfig", "broker-configs", BROKER, "", "ClusterConfigData")


async def _name_of(kind: _Kind, services: Services, request: Request) -> str:
    """The name of the resource, which is there. Raises `RestError`."""
    if kind is _OF_TOPIC:
        return (await services.cluster.topic(request.parameters["topic_name"])).name
    return str((await broker_of(services, request)).node_id) if kind is _OF_BROKER else ""


def _parts(kind: _Kind, name: str) -> list[object]:
    return ["broker-configs"] if kind is _OF_CLUSTER else [f"{kind.word}s", name, "configs"]


def _resource(links: Links, kind: _Kind, name: str, row: Any) -> Any:
    own: dict[str, Any] = {"config_type": "BROKER"}
    names: list[tuple[str, object]] = [("broker-config", row.name)]
    if kind is not _OF_CLUSTER:
        own = {"topic_name": name} if kind is _OF_TOPIC else {"broker_id": int(name)}
        names = [(kind.word, name), ("config", row.name)]
    synonyms = [
        {"name": one.name, "value": one.value, "source": _SOURCES.get(one.source, "UNKNOWN")} for one in row.synonyms
    ]
    return links.resource(
        kind.kind,
        [*_parts(kind, name), row.name],
        names,
        **own,
        name=row.name,
        value=row.value,
        is_default=row.config_source == _DEFAULT_SOURCE,
        is_read_only=row.read_only,
        is_sensitive=row.is_sensitive,
        source=_SOURCES.get(row.config_source, "UNKNOWN"),
        synonyms=synonyms,
    )


async def _described(services: Services, kind: _Kind, name: str) -> list[Any]:
    resource = {"resource_type": kind.resource_type, "resource_name": name, "configuration_keys": None}
    fields = {"resources": [resource], "include_synonyms": True, "include_documentation": False}
    client = services.cluster.client
    if kind is _OF_BROKER:  # it alone knows its server.properties
        try:
            answer = await client.request_node(int(name), ApiKey.DESCRIBE_CONFIGS, _DESCRIBE_CONFIGS_VERSION, fields)
        except NO_ANSWER as error:
            raise silent_broker(client.broker_text(int(name)), error) from None
    else:
        answer = await client.request(ApiKey.DESCRIBE_CONFIGS, _DESCRIBE_CONFIGS_VERSION, fields)
    row = answer.results[0]
    if row.error_code:
        raise refused(row.error_code, f"{kind.word or 'cluster'} {name}".strip(), row.error_message)
    return sorted(row.configs, key=lambda one: str(one.name))


async def _list_of_brokers(services: Services, request: Request) -> Answer:
    links = await links_of(services, request)
    rows: list[Any] = []
    for broker in (await services.cluster.view()).brokers:
        name = str(broker.node_id)
        rows += [_resource(links, _OF_BROKER, name, one) for one in await _described(services, _OF_BROKER, name)]
    return links.listed("KafkaBrokerConfigList", ["brokers", "-", "configs"], rows)


async def _list_of_topics(services: Services, request: Request) -> Answer:
    """All topics may have too many configurations for one list in memory, so the answer is sent in parts."""
    links = await links_of(services, request)
    names = sorted(one.name for one in (await services.cluster.view(None)).topics)
    await _check_rights(services, names)
    head = {"kind": "KafkaTopicConfigList", "metadata": {"self": links.url("topics", "-", "configs"), "next": None}}

    async def parts() -> AsyncIterator[bytes]:
        yield json_bytes(head)[:-1] + b',"data":['
        separator = b""
        for begin in range(0, len(names), _TOPICS_AT_A_TIME):
            described = await _described_topics(services, names[begin : begin + _TOPICS_AT_A_TIME], None)
            rows = [
                json_bytes(_resource(links, _OF_TOPIC, topic.resource_name, one))
                for topic in described
                for one in sorted(topic.configs, key=lambda one: str(one.name))
            ]
            if rows:
                yield separator + b",".join(rows)
                separator = b","
        yield b"]}\n"

    return Answer(stream=parts())


async def _check_rights(services: Services, names: Sequence[str]) -> None:
    """Raise `RestError` for a topic whose configuration may not be seen, while the answer can still say so."""
    for begin in range(0, len(names), _TOPICS_CHECKED_AT_A_TIME):
        await _described_topics(services, names[begin : begin + _TOPICS_CHECKED_AT_A_TIME], [_ANY_CONFIG])


async def _described_topics(services: Services, names: Sequence[str], keys: list[str] | None) -> list[Any]:
    """The rows of these topics; one that was deleted meanwhile is left out. Raises `RestError`."""
    resources = [{"resource_type": TOPIC, "resource_name": one, "configuration_keys": keys} for one in names]
    fields = {"resources": resources, "include_synonyms": True, "include_documentation": False}
    client = services.cluster.client
    answer = await client.request(ApiKey.DESCRIBE_CONFIGS, _DESCRIBE_CONFIGS_VERSION, fields)
    for row in answer.results:
        if row.error_code and row.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise refused(row.error_code, f"topic {row.resource_name}", row.error_message)
    return [row for row in answer.results if not row.error_code]


async def _list_configs(kind: _Kind, services: Services, request: Request) -> Answer:
    links = await links_of(services, request)
    name = await _name_of(kind, services, request)
    rows = [_resource(links, kind, name, one) for one in await _described(services, kind, name)]
    return links.listed(f"{kind.kind}List", _parts(kind, name), rows)


async def _row(kind: _Kind, services: Services, request: Request, name: str) -> Any:
    wanted = request.parameters["name"]
    for one in await _described(services, kind, name):
        if one.name == wanted:
            return one
    raise RestError(404, f"Config {wanted} cannot be found.")


async def _get_config(kind: _Kind, services: Services, request: Request) -> Answer:
    links = await links_of(services, request)
    name = await _name_of(kind, services, request)
    return Answer(_resource(links, kind, name, await _row(kind, services, request, name)))


async def _alter(
    kind: _Kind,
    services: Services,
    name: str,
    changes: Sequence[tuple[str, int, str | None]],
    *,
    is_trial: bool = False,
) -> Answer:
    configs = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in changes]
    resource = {"resource_type": kind.resource_type, "resource_name": name, "configs": configs}
    fields = {"resources": [resource], "validate_only": is_trial}
    row = await services.cluster.change(ApiKey.INCREMENTAL_ALTER_CONFIGS, _ALTER_CONFIGS_VERSION, fields, "responses")
    if row.error_code:
        raise refused(row.error_code, f"{kind.word or 'cluster'} {name}".strip(), row.error_message)
    return Answer(status=204)


async def _update_config(kind: _Kind, services: Services, request: Request) -> Answer:
    await links_of(services, request)
    name = await _name_of(kind, services, request)
    value = (await request.fields("UpdateConfigRequestData")).get("value")
    key = request.parameters["name"]
    return await _alter(kind, services, name, [(key, DELETE if value is None else SET, value)])


async def _delete_config(kind: _Kind, services: Services, request: Request) -> Answer:
    await links_of(services, request)
    name = await _name_of(kind, services, request)
    if kind is not _OF_CLUSTER:  # where only those that are set can be described
        await _row(kind, services, request, name)
    return await _alter(kind, services, name, [(request.parameters["name"], DELETE, None)])


async def _alter_batch(kind: _Kind, services: Services, request: Request) -> Answer:
    await links_of(services, request)
    name = await _name_of(kind, services, request)
    body = await request.fields("AlterConfigBatchRequestData")
    changes = []
    for one in body["data"]:
        is_deleted = one.get("operation") == "DELETE"
        if not is_deleted and one.get("value") is None:
            raise RestError(KAFKA_BAD_REQUEST, f"config {one['name']} has no value: give one, or the operation DELETE")
        changes.append((one["name"], DELETE if is_deleted else SET, None if is_deleted else one["value"]))
    return await _alter(kind, services, name, changes, is_trial=bool(body.get("validate_only")))


def _routes_of(kind: _Kind, what: str) -> tuple[Route, ...]:
    path = f"/v3/clusters/{{cluster_id}}/{kind.path}"
    one, change = f"{path}/{{name}}", "UpdateConfigRequestData"
    where = "topic" if kind is _OF_TOPIC else "cluster"
    seeing, altering = f"DescribeConfigs on the {where}", f"AlterConfigs on the {where}"
    return (
        Route(
            "GET",
            path,
            partial(_list_configs, kind),
            f"The configuration of {what}.",
            f"{kind.schema}List",
            right=seeing,
        ),
        Route(
            "POST",
            f"{path}:alter",
            partial(_alter_batch, kind),
            f"Change several configurations of {what}: all or none.",
            status=204,
            body="AlterConfigBatchRequestData",
            right=altering,
        ),
        Route("GET", one, partial(_get_config, kind), f"One configuration of {what}.", kind.schema, right=seeing),
        Route(
            "PUT",
            one,
            partial(_update_config, kind),
            f"Set one configuration of {what}.",
            None,
            204,
            change,
            right=altering,
        ),
        Route(
            "DELETE",
            one,
            partial(_delete_config, kind),
            f"Reset one configuration of {what} to its default.",
            None,
            204,
            right=altering,
        ),
    )


_OF_ALL = "/v3/clusters/{cluster_id}"
ROUTES = (
    Route(
        "GET",
        f"{_OF_ALL}/topics/-/configs",
        _list_of_topics,
        "The configurations of all topics.",
        "TopicConfigDataList",
        right="DescribeConfigs on the topics",
    ),
    Route(
        "GET",
        f"{_OF_ALL}/brokers/-/configs",
        _list_of_brokers,
        "The configurations of all brokers that are alive.",
        "BrokerConfigDataList",
        right="DescribeConfigs on the cluster",
    ),
    *_routes_of(_OF_TOPIC, "a topic"),
    *_routes_of(_OF_BROKER, "a broker"),
    *_routes_of(_OF_CLUSTER, "all brokers"),
)
