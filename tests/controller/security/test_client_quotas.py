"""AlterClientQuotas: Kafka's answers, and the records that they make."""

from __future__ import annotations

import math
from typing import Any

import pytest
from support.controller.controller_harness import decided, decoded

from raftwerk.controller.metadata.metadata_image import MetadataDelta, MetadataImage
from raftwerk.controller.metadata.metadata_records import FeatureLevelRecord, decode_record, encode_record
from raftwerk.controller.security.client_quotas import alter_client_quotas
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.errors import ErrorCode, ProtocolError

USER: dict[str, str | None] = {"user": "u"}


def image_of(level: int = 2) -> MetadataImage:
    image = MetadataImage("c")
    image.replay(FeatureLevelRecord("raftwerk.record.version", level), 0, MetadataDelta())
    return image


def entry_of(entity: dict[str, str | None], **values: float | None) -> dict[str, Any]:
    ops = [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in values.items()]
    return {"entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()], "ops": ops}


def alter(image: MetadataImage, *entries: dict[str, Any], validate_only: bool = False) -> list[tuple[int, str | None]]:
    """Decide, and replay the records; returns the outcome of each entity."""
    request = decoded(ApiKey.ALTER_CLIENT_QUOTAS, entries=list(entries), validate_only=validate_only)
    result = decided(alter_client_quotas(image, request))
    for record in result.records:
        assert decode_record(encode_record(record, 2)) == record
        image.replay(record, image.offset + 1, MetadataDelta())
    return [(row["error_code"], row["error_message"]) for row in result.response["entries"]]


def test_quotas_are_set_changed_and_removed() -> None:
    image = image_of()
    both = {"user": "u", "client-id": None}
    entity = (("client-id", None), ("user", "u"))
    assert alter(image, entry_of(both, producer_byte_rate=1000.0, request_percentage=0.5)) == [(0, None)]
    assert image.client_quotas == {entity: {"producer_byte_rate": 1000.0, "request_percentage": 0.5}}
    change = entry_of(both, producer_byte_rate=2000.0, request_percentage=None, consumer_byte_rate=None)
    assert alter(image, change, validate_only=True) == [(0, None)]
    assert image.client_quotas[entity]["producer_byte_rate"] == 1000.0
    assert alter(image, change, entry_of({"ip": "::0001"}, connection_creation_rate=5.0)) == [(0, None)] * 2
    assert image.client_quotas == {
        entity: {"producer_byte_rate": 2000.0},
        (("ip", "::1"),): {"connection_creation_rate": 5.0},
    }
    assert alter(image, entry_of(both, producer_byte_rate=None)) == [(0, None)]
    assert list(image.client_quotas) == [(("ip", "::1"),)]


@pytest.mark.parametrize(
    ("entity", "values", "text"),
    [
        ({}, {}, "Invalid empty client quota entity"),
        ({"group": "g"}, {}, "Unhandled client quota entity type: group"),
        ({"user": ""}, {}, "Empty user not supported"),
        ({"user": "u", "ip": "::1"}, {}, "Invalid quota entity combination"),
        ({"ip": "example.org"}, {}, "example.org is not a valid IP"),
        (USER, {"connection_creation_rate": 1.0}, "Invalid configuration key connection_creation_rate"),
        ({"ip": "::1"}, {"producer_byte_rate": 1.0}, "Invalid configuration key producer_byte_rate"),
        ({"ip": "::1"}, {"connection_creation_rate": 2.0**31}, "too large for an INT"),
        (USER, {"producer_byte_rate": -1.0}, "Quota producer_byte_rate must be greater than 0"),
        (USER, {"producer_byte_rate": math.nan}, "Quota producer_byte_rate must be greater than 0"),
        (USER, {"producer_byte_rate": math.inf}, "too large for a LONG"),
        (USER, {"producer_byte_rate": 1.5}, "producer_byte_rate cannot be a fractional value."),
    ],
)
def test_what_is_refused(entity: dict[str, str | None], values: dict[str, float], text: str) -> None:
    """All of the entity's changes, and no other entity's."""
    image = image_of()
    more = {} if "ip" in entity else {"controller_mutation_rate": 1.0}
    refused, accepted = alter(image, entry_of(entity, **more, **values), entry_of({"user": "v"}, **more))
    assert refused[0] == ErrorCode.INVALID_REQUEST
    assert text in str(refused[1])
    assert accepted == (0, None)
    assert [entity for entity in image.client_quotas if entity != (("user", "v"),)] == []


def test_entities_and_keys_that_come_twice() -> None:
    image = image_of()
    entry = entry_of(USER, request_percentage=1.0)
    ((code, text),) = alter(image, entry, entry)
    assert (code, text) == (ErrorCode.INVALID_REQUEST, "Ignoring duplicate entity {'user': 'u'}")
    ((code, text),) = alter(image, {**entry, "ops": entry["ops"] * 2})
    assert code == ErrorCode.INVALID_REQUEST
    assert "Duplicate quota key request_percentage" in str(text)
    twice = {"entity": entry["entity"] * 2, "ops": []}
    assert "duplicate entity entry user" in str(alter(image, twice)[0][1])
    assert image.client_quotas == {}


def test_older_software_in_the_cluster() -> None:
    with pytest.raises(ProtocolError, match="users, ACLs, quotas and tokens need 2"):
        alter(image_of(1), entry_of(USER, request_percentage=1.0))
