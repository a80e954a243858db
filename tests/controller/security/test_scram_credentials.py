"""AlterUserScramCredentials: Kafka's answers, and the records that they make."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.controller.controller_harness import decided, decoded
from support.controller.snapshots import restored_from_snapshot

from raftwerk.controller.metadata.metadata_image import MetadataDelta, MetadataImage
from raftwerk.controller.metadata.metadata_records import (
    FeatureLevelRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
    decode_record,
    encode_record,
)
from raftwerk.controller.metadata.metadata_snapshot import difference
from raftwerk.controller.security.scram_credentials import alter_scram_credentials
from raftwerk.security.sasl.scram_credential import SCRAM_SHA_256, credential_of, salted
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.errors import ErrorCode, ProtocolError

SALT = b"0123456789abcdef"


def image_of(level: int = 2) -> MetadataImage:
    image = MetadataImage("c")
    image.replay(FeatureLevelRecord("raftwerk.record.version", level), 0, MetadataDelta())
    return image


def set_to(name: str, mechanism: int = 1, iterations: int = 4096, password: str = "wonder") -> dict[str, Any]:
    kept = salted(SCRAM_SHA_256, password, SALT, iterations) if iterations > 0 else b"x"
    fields = {"salt": SALT, "salted_password": kept, "iterations": iterations}
    return {"name": name, "mechanism": mechanism, **fields}


def alter(
    image: MetadataImage, upsertions: list[dict[str, Any]], deletions: Sequence[tuple[str, int]] = ()
) -> dict[str, tuple[ErrorCode, str | None]]:
    """Decide, and replay the records; returns the outcome of each user."""
    gone = [{"name": name, "mechanism": mechanism} for name, mechanism in deletions]
    request = decoded(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, deletions=gone, upsertions=upsertions)
    result = decided(alter_scram_credentials(image, request))
    for record in result.records:
        assert decode_record(encode_record(record, 2)) == record
        image.replay(record, image.offset + 1, MetadataDelta())
    return {row["user"]: (ErrorCode(row["error_code"]), row["error_message"]) for row in result.response["results"]}


def test_a_credential_is_kept_without_what_logs_in() -> None:
    image = image_of()
    assert alter(image, [set_to("alice")]) == {"alice": (ErrorCode.NONE, None)}
    kept = image.scram_credentials[1, "alice"]
    password = salted(SCRAM_SHA_256, "wonder", SALT, 4096)
    assert kept == credential_of(SCRAM_SHA_256, password, SALT, 4096)
    assert password not in kept
    assert "stored_key" not in repr(kept)


@pytest.mark.parametrize(
    ("upsertions", "deletions", "error", "words"),
    [
        ([set_to("")], [], ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        ([set_to("a", 3)], [], ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        ([set_to("a", 0)], [], ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        ([set_to("a", iterations=4095)], [], ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
        ([set_to("a", iterations=-1)], [], ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
        ([set_to("a", iterations=16385)], [], ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"),
        ([], [("a", 1)], ErrorCode.RESOURCE_NOT_FOUND, "delete a user credential that does not exist"),
        ([set_to("a"), set_to("a")], [], ErrorCode.DUPLICATE_RESOURCE, "altered twice"),
        ([set_to("a")], [("a", 1)], ErrorCode.DUPLICATE_RESOURCE, "altered twice"),
    ],
)
def test_refused(
    upsertions: list[dict[str, Any]], deletions: list[tuple[str, int]], error: ErrorCode, words: str
) -> None:
    image = image_of()
    ((code, message),) = alter(image, upsertions, deletions).values()
    assert code is error
    assert words in (message or "")
    assert not image.scram_credentials


def test_all_changes_of_a_user_or_none_of_them() -> None:
    image = image_of()
    outcome = alter(image, [set_to("alice"), set_to("alice", 2, iterations=1), set_to("bob")])
    assert (outcome["alice"][0], outcome["bob"][0]) == (ErrorCode.UNACCEPTABLE_CREDENTIAL, ErrorCode.NONE)
    assert list(image.scram_credentials) == [(1, "bob")]


def test_a_password_is_changed_and_removed() -> None:
    image = image_of()
    alter(image, [set_to("alice"), set_to("alice", 2)])
    before = image.scram_credentials[1, "alice"]
    alter(image, [set_to("alice", password="other")])
    assert image.scram_credentials[1, "alice"] != before
    assert alter(image, [], [("alice", 1)]) == {"alice": (ErrorCode.NONE, None)}
    assert list(image.scram_credentials) == [(2, "alice")]


def test_no_record_that_older_software_cannot_read() -> None:
    with pytest.raises(ProtocolError, match=r"raftwerk\.record\.version=2") as caught:
        alter(image_of(1), [set_to("alice")])
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


names = st.sampled_from(["a", "b", "c"])


@given(st.lists(st.tuples(names, st.sampled_from([1, 2]), st.booleans()), max_size=12))
def test_a_snapshot_restores_the_credentials(changes: list[tuple[str, int, bool]]) -> None:
    image = image_of()
    for name, mechanism, is_set in changes:
        record = UserScramCredentialRecord(name, mechanism, b"s", b"k", name.encode(), 4096)
        if is_set:
            image.replay(record, image.offset + 1, MetadataDelta())
        elif (mechanism, name) in image.scram_credentials:
            image.replay(RemoveUserScramCredentialRecord(name, mechanism), image.offset + 1, MetadataDelta())
    restored = restored_from_snapshot(image)
    assert restored == image
    assert list(restored.scram_credentials) == list(image.scram_credentials)
    assert difference(MetadataImage("c"), image).changed_credentials.keys() == image.scram_credentials.keys()


@pytest.mark.parametrize("iterations", [4096, 16384])
def test_the_least_and_the_most_iterations_are_taken(iterations: int) -> None:
    image = image_of()
    assert alter(image, [set_to("alice", iterations=iterations)]) == {"alice": (ErrorCode.NONE, None)}
    assert image.scram_credentials[1, "alice"].iterations == iterations
