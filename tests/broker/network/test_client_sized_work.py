"""Every API of brokers with every array of its requests made very long: nothing holds the loop, and nobody waits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from support.broker.broker_harness import TOPIC, TOPIC_ID, settle
from support.broker.group_harness import GroupHarness
from support.broker.large_requests import Attack, only_requests_count

from raftwerk.broker.api import ApiSpec, Forwarded, Raw
from raftwerk.broker.apis.api_table import API_TABLE
from raftwerk.broker.network.frame_reader import SMALL_FRAME_BYTES
from raftwerk.controller.metadata.metadata_image import BROKER_LOGGER_RESOURCE
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.schemas import Field, Schema, load_api_schema

ITEMS = 10_000
TOPIC_FIELDS = ("name", "topic", "topic_name", "topic_names")


@pytest.fixture(autouse=True)
def _only_requests_count() -> Iterator[None]:
    with only_requests_count():
        yield


def arrays(schema: Schema, outer: tuple[Field, ...] = ()) -> Iterator[tuple[Field, ...]]:
    """The path of each array in a request."""
    for field in schema.fields:
        if field.array:
            yield (*outer, field)
            if field.schema is not None:
                yield from arrays(field.schema, (*outer, field))


def value(field: Field, number: int, *, is_known: bool) -> Any:
    if field.schema is not None:
        return {one.name: [] if one.array else value(one, number, is_known=is_known) for one in field.schema.fields}
    if field.kind == "string":
        return TOPIC if is_known and field.name in TOPIC_FIELDS else f"{field.name}-{number}"
    if field.kind == "uuid":
        return TOPIC_ID if is_known else UUID(int=number + 1)
    return b"" if field.kind in ("bytes", "records") else 0


def long_request(schema: Schema, path: tuple[Field, ...], *, is_known: bool) -> dict[str, Any]:
    """A request whose array at `path` is long, and all others as short as that allows."""
    fields = {one.name: [] if one.array else value(one, 0, is_known=is_known) for one in schema.fields}
    first, *inner = path
    if inner and first.schema is not None:
        fields[first.name] = [long_request(first.schema, tuple(inner), is_known=is_known)]
    else:
        fields[first.name] = [value(first, number, is_known=is_known) for number in range(ITEMS)]
    return fields


CASES = [
    pytest.param(spec, path, id=f"{spec.key.name}-{'.'.join(field.name for field in path)}")
    for spec in API_TABLE
    if spec.broker is not None and not isinstance(spec.broker, (Raw, Forwarded))
    for path in arrays(load_api_schema(spec.key, spec.versions[1], "request"))
]


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize(("spec", "path"), CASES)
def test_a_long_array_is_handled_in_steps(spec: ApiSpec, path: tuple[Field, ...], is_known: bool) -> None:
    async def main() -> None:
        harness = GroupHarness()
        version = spec.versions[1]
        schema = load_api_schema(spec.key, version, "request")
        fields = long_request(schema, path, is_known=is_known)
        await Attack(harness, spec.key, version, fields).run()
        assert not harness.fatal

    asyncio.run(asyncio.wait_for(main(), 120))


def test_many_commits_of_one_partition_write_the_last_one() -> None:
    async def main() -> None:
        harness = GroupHarness()
        rows = [{"partition_index": 0, "committed_offset": offset} for offset in range(ITEMS)]
        fields = {
            "group_id": "g",
            "generation_id_or_member_epoch": -1,
            "topics": [{"name": TOPIC, "partitions": rows}],
        }
        answer = await Attack(harness, ApiKey.OFFSET_COMMIT, 8, fields).run()
        assert {row.error_code for row in answer.topics[0].partitions} == {0}
        assert len(harness.records()) == 1
        asked = {"group_id": "g", "topics": [{"name": TOPIC, "partition_indexes": [0]}]}
        fetched = await harness.call(ApiKey.OFFSET_FETCH, 7, asked)
        assert fetched.topics[0].partitions[0].committed_offset == ITEMS - 1

    asyncio.run(asyncio.wait_for(main(), 120))


def test_many_groups_are_deleted_in_steps() -> None:
    async def main() -> None:
        harness = GroupHarness()
        names = [f"g{number}" for number in range(2_000)]
        for name in names:
            fields = {"group_id": name, "generation_id_or_member_epoch": -1}
            rows = [{"partition_index": 0, "committed_offset": 1}]
            await harness.call(ApiKey.OFFSET_COMMIT, 8, {**fields, "topics": [{"name": TOPIC, "partitions": rows}]})
        answer = await Attack(harness, ApiKey.DELETE_GROUPS, 2, {"groups_names": [*names, "nobody"]}).run()
        codes = [row.error_code for row in answer.results]
        assert codes == [0] * len(names) + [ErrorCode.GROUP_ID_NOT_FOUND]

    asyncio.run(asyncio.wait_for(main(), 120))


def test_a_large_request_is_forwarded_as_it_came() -> None:
    """The memory of its frame is used again before it is forwarded."""

    async def main() -> None:
        harness = GroupHarness()
        forwarded: list[bytes] = []

        async def forward(request: Any, body: bytes) -> bytes:
            forwarded.append(body)
            return bytes(4) + b"\x01\0"

        harness.controller.forward = forward  # type: ignore[method-assign]
        sent = []
        for name in ("first", "second"):
            rows = [{"resource_type": 2, "resource_name": f"{name}-{number}", "configs": []} for number in range(400)]
            sent.append(harness.frame(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": rows, "validate_only": False}))
            assert 4_096 < len(sent[-1]) < SMALL_FRAME_BYTES
            harness.connect().deliver(sent[-1])
        await settle(200)
        assert [frame.endswith(body) for frame, body in zip(sent, forwarded, strict=True)] == [True, True]

    asyncio.run(asyncio.wait_for(main(), 120))


def test_loggers_among_many_resources_are_altered_here() -> None:
    async def main() -> None:
        harness = GroupHarness()
        rows = [{"resource_type": BROKER_LOGGER_RESOURCE, "resource_name": "1", "configs": []} for _ in range(ITEMS)]
        fields = {"resources": rows, "validate_only": True}
        answer = await Attack(harness, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, fields).run()
        assert [row.error_code for row in answer.responses] == [0] * len(rows)

    asyncio.run(asyncio.wait_for(main(), 120))
