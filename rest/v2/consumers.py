"""The consumer instances of version 2 under their paths."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from ..errors import RestError
from ..request import Request
from ..routes import Answer, Query, Route
from ..serialization.schema_types import NO_REGISTRY, SCHEMA_TYPES
from ..services import Services
from .consumer_instance import ConsumerInstance, timestamp_ms
from .consumer_instances import instance_options
from .content_types import FORMATS, negotiated, wanted_type
from .shown_records import shown_by

_GROUP = "/consumers/{group}"
_INSTANCE = f"{_GROUP}/instances/{{instance}}"
_MILLISECONDS = {"type": "integer", "minimum": 0}


def _key(request: Request) -> tuple[str, str]:
    return request.parameters["group"], request.parameters["instance"]


def _partitions(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, int]]:
    return [(one["topic"], one["partition"]) for one in rows]


@negotiated
async def _create(services: Services, request: Request) -> Answer:
    group = request.parameters["group"]
    body = await request.fields("CreateConsumerInstanceRequest", needs_body=False) or {}
    embedded_format = str(body.get("format")).lower()
    if embedded_format in SCHEMA_TYPES and services.schemas is None:
        raise RestError(42204, f"Invalid consumer configuration: {embedded_format} needs schemas, and {NO_REGISTRY}")
    options = instance_options(body, (*FORMATS, *SCHEMA_TYPES))
    show = shown_by(options.embedded_format, services.schemas)
    name = await services.consumers.create(group, body.get("name") or body.get("id"), options, show)
    base = f"{request.base_url}/consumers/{quote(group, safe='')}/instances/{quote(name, safe='')}"
    return Answer({"instance_id": name, "base_uri": base})


@negotiated
async def _delete(services: Services, request: Request) -> Answer:
    await services.consumers.delete(*_key(request))
    return Answer(status=204)


@negotiated
async def _subscribe(services: Services, request: Request) -> Answer:
    body = await request.fields("ConsumerSubscriptionRequest")
    topics, pattern = body.get("topics"), body.get("topic_pattern")
    if (topics is None) == (pattern is None):
        raise RestError(422, "A subscription has either topics or a topic_pattern")
    await services.consumers.use(*_key(request), lambda one: one.subscribe(topics or (), pattern))
    return Answer(status=204)


@negotiated
async def _unsubscribe(services: Services, request: Request) -> Answer:
    await services.consumers.use(*_key(request), ConsumerInstance.unsubscribe)
    return Answer(status=204)


@negotiated
async def _subscription(services: Services, request: Request) -> Answer:
    return Answer({"topics": await services.consumers.use(*_key(request), ConsumerInstance.subscription)})


@negotiated
async def _assign(services: Services, request: Request) -> Answer:
    rows = (await request.fields("ConsumerPartitionsRequest"))["partitions"]
    await services.consumers.use(*_key(request), lambda one: one.assign(_partitions(rows)))
    return Answer(status=204)


@negotiated
async def _assignment(services: Services, request: Request) -> Answer:
    found = await services.consumers.use(*_key(request), ConsumerInstance.assignment)
    return Answer({"partitions": [{"topic": topic, "partition": one} for topic, one in found]})


async def _records(services: Services, request: Request) -> Answer:
    key, limits = _key(request), services.consumers.limits
    answer_type = wanted_type(request, services.consumers.embedded_format(*key))
    wait_ms = request.query_number("timeout", services.consumers.wait_ms(*key))
    max_bytes = request.query_number("max_bytes", limits.read_bytes)
    timeout_s = min(wait_ms, limits.read_timeout_ms) / 1000

    def read(one: ConsumerInstance) -> tuple[bytes, bool]:
        found = one.read(timeout_s, min(max_bytes, limits.read_bytes))
        was_lost, one.lost_brokers = one.lost_brokers, False
        return found, was_lost

    found, was_lost = await services.consumers.use(*key, read)
    if was_lost and found == b"[]\n":
        await services.cluster.view()  # it says so if no broker answers

    async def body() -> AsyncIterator[bytes]:
        yield found

    return Answer(content_type=answer_type, headers={"content-length": str(len(found))}, stream=body())


@negotiated
async def _commit(services: Services, request: Request) -> Answer:
    body = await request.fields("ConsumerOffsetCommitRequest", needs_body=False)
    offsets = body and [
        (one["topic"], one["partition"], one["offset"], one.get("metadata") or "") for one in body["offsets"]
    ]
    await services.consumers.use(*_key(request), lambda one: one.commit(offsets))
    return Answer([])


@negotiated
async def _committed(services: Services, request: Request) -> Answer:
    rows = (await request.fields("ConsumerPartitionsRequest"))["partitions"]
    return Answer(
        {"offsets": await services.consumers.use(*_key(request), lambda one: one.committed(_partitions(rows)))}
    )


@negotiated
async def _seek(services: Services, request: Request) -> Answer:
    body = await request.fields("ConsumerSeekRequest")
    offsets = {(one["topic"], one["partition"]): one["offset"] for one in body.get("offsets") or ()}
    times = {(one["topic"], one["partition"]): timestamp_ms(one["timestamp"]) for one in body.get("timestamps") or ()}

    def seek(one: ConsumerInstance) -> None:
        one.seek(offsets)
        one.seek_to_times(times)

    await services.consumers.use(*_key(request), seek)
    return Answer(status=204)


@negotiated
async def _seek_to_beginning(services: Services, request: Request) -> Answer:
    rows = (await request.fields("ConsumerPartitionsRequest"))["partitions"]
    await services.consumers.use(*_key(request), lambda one: one.seek_to(_partitions(rows), is_end=False))
    return Answer(status=204)


@negotiated
async def _seek_to_end(services: Services, request: Request) -> Answer:
    rows = (await request.fields("ConsumerPartitionsRequest"))["partitions"]
    await services.consumers.use(*_key(request), lambda one: one.seek_to(_partitions(rows), is_end=True))
    return Answer(status=204)


_PARTITIONS = "ConsumerPartitionsRequest"
ROUTES = (
    Route(
        "POST",
        _GROUP,
        _create,
        "Create a consumer instance in a group.",
        "ConsumerInstance",
        body="CreateConsumerInstanceRequest",
        needs_body=False,
    ),
    Route("DELETE", _INSTANCE, _delete, "Close a consumer instance.", status=204),
    Route(
        "POST",
        f"{_INSTANCE}/subscription",
        _subscribe,
        "Subscribe to topics, or to a pattern.",
        None,
        204,
        "ConsumerSubscriptionRequest",
    ),
    Route("GET", f"{_INSTANCE}/subscription", _subscription, "The topics of a subscription.", "ConsumerSubscription"),
    Route("DELETE", f"{_INSTANCE}/subscription", _unsubscribe, "End a subscription.", status=204),
    Route("POST", f"{_INSTANCE}/assignments", _assign, "Read these partitions.", None, 204, _PARTITIONS),
    Route("GET", f"{_INSTANCE}/assignments", _assignment, "The partitions that are read.", "ConsumerPartitions"),
    Route(
        "GET",
        f"{_INSTANCE}/records",
        _records,
        "The next records.",
        "ConsumerRecords",
        query=(
            Query("timeout", "How long to wait for records, in milliseconds.", _MILLISECONDS),
            Query("max_bytes", "How many bytes of keys and values to return at most.", _MILLISECONDS),
        ),
    ),
    Route(
        "POST",
        f"{_INSTANCE}/offsets",
        _commit,
        "Commit offsets; without a body those of all records that were read.",
        "CommittedOffsets",
        body="ConsumerOffsetCommitRequest",
        needs_body=False,
    ),
    Route("GET", f"{_INSTANCE}/offsets", _committed, "Committed offsets.", "ConsumerOffsets", body=_PARTITIONS),
    Route("POST", f"{_INSTANCE}/positions", _seek, "Read on from offsets or times.", None, 204, "ConsumerSeekRequest"),
    Route(
        "POST",
        f"{_INSTANCE}/positions/beginning",
        _seek_to_beginning,
        "Read on from the beginning of partitions.",
        None,
        204,
        _PARTITIONS,
    ),
    Route(
        "POST",
        f"{_INSTANCE}/positions/end",
        _seek_to_end,
        "Read on from the end of partitions.",
        None,
        204,
        _PARTITIONS,
    ),
)
