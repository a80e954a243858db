"""DescribeClientQuotas: what a filter matches, and what Kafka refuses."""

from __future__ import annotations

import pytest
from support.broker.broker_harness import Harness, run

from raftwerk.controller.metadata.metadata_image import MetadataDelta
from raftwerk.controller.metadata.metadata_records import ClientQuotaRecord
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.codec import Struct
from raftwerk.wire.errors import ErrorCode

EXACT, DEFAULT, ANY = 0, 1, 2
KEY = "producer_byte_rate"
QUOTAS = {
    "user a": (("user", "a"),),
    "user default": (("user", None),),
    "user a, client c": (("client-id", "c"), ("user", "a")),
    "user a, client default": (("client-id", None), ("user", "a")),
    "client c": (("client-id", "c"),),
    "ip ::1": (("ip", "::1"),),
}


def describe(components: list[tuple[str, int, str | None]], *, strict: bool = False, version: int = 1) -> Struct:
    async def main() -> Struct:
        harness = Harness()
        for entity in QUOTAS.values():
            key = "connection_creation_rate" if entity[0][0] == "ip" else KEY
            harness.image.replay(ClientQuotaRecord(entity, key, 5.0), harness.image.offset + 1, MetadataDelta())
        rows = [{"entity_type": kind, "match_type": match, "match": name} for kind, match, name in components]
        fields = {"components": rows, "strict": strict}
        return await harness.call(ApiKey.DESCRIBE_CLIENT_QUOTAS, version, fields)

    return run(main())


def names(answer: Struct) -> list[str]:
    found = [tuple((one.entity_type, one.entity_name) for one in entry.entity) for entry in answer.entries]
    return [name for name, entity in QUOTAS.items() if entity in found]


@pytest.mark.parametrize("version", [0, 1])
def test_no_filter_is_all(version: int) -> None:
    answer = describe([], version=version)
    assert (answer.error_code, names(answer)) == (0, list(QUOTAS))
    values = {(value.key, value.value) for entry in answer.entries for value in entry.values}
    assert values == {(KEY, 5.0), ("connection_creation_rate", 5.0)}


@pytest.mark.parametrize(
    ("components", "strict", "expected"),
    [
        ([("user", EXACT, "a")], False, ["user a", "user a, client c", "user a, client default"]),
        ([("user", EXACT, "a")], True, ["user a"]),
        ([("user", DEFAULT, None)], False, ["user default"]),
        ([("user", ANY, None)], True, ["user a", "user default"]),
        ([("user", ANY, None), ("client-id", DEFAULT, None)], True, ["user a, client default"]),
        ([("user", EXACT, "a"), ("client-id", ANY, None)], False, ["user a, client c", "user a, client default"]),
        ([("client-id", EXACT, "c")], False, ["user a, client c", "client c"]),
        ([("client-id", EXACT, "c")], True, ["client c"]),
        ([("ip", ANY, None)], True, ["ip ::1"]),
        ([("ip", EXACT, "0::1")], False, ["ip ::1"]),
        ([("ip", EXACT, "nowhere")], False, []),
        ([], True, []),
    ],
)
def test_filters(components: list[tuple[str, int, str | None]], strict: bool, expected: list[str]) -> None:
    assert names(describe(components, strict=strict)) == expected


@pytest.mark.parametrize(
    ("components", "text"),
    [
        ([("", ANY, None)], "Invalid empty entity type."),
        ([("user", ANY, None), ("user", EXACT, "a")], "Entity type user cannot appear more than once in the filter."),
        ([("user", EXACT, None)], "Request specified MATCH_TYPE_EXACT, but set match string to null."),
        ([("user", DEFAULT, "a")], "Request specified MATCH_TYPE_DEFAULT, but also specified a match string."),
        ([("user", ANY, "a")], "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string."),
        ([("user", 3, None)], "Unknown match type 3"),
        ([("user", ANY, None), ("ip", ANY, None)], "Invalid entity filter component combination."),
        ([("group", ANY, None)], "Unsupported entity type group"),
    ],
)
def test_filters_that_are_refused(components: list[tuple[str, int, str | None]], text: str) -> None:
    answer = describe(components)
    code = ErrorCode.UNSUPPORTED_VERSION if "Unsupported" in text else ErrorCode.INVALID_REQUEST
    assert answer.error_code == code
    assert text in answer.error_message
    assert answer.entries is None
