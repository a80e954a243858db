"""CreateAcls and DeleteAcls: Kafka's answers, and the records that they make."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.controller.controller_harness import decided, decoded
from support.controller.snapshots import restored_from_snapshot

from raftwerk.controller.metadata.metadata_image import MetadataDelta, MetadataImage
from raftwerk.controller.metadata.metadata_records import (
    AccessControlEntryRecord,
    FeatureLevelRecord,
    Record,
    RemoveAccessControlEntryRecord,
    decode_record,
    encode_record,
)
from raftwerk.controller.metadata.metadata_snapshot import difference
from raftwerk.controller.result import ControllerResult, Decision
from raftwerk.controller.security import acls
from raftwerk.controller.security.acls import create_acls, delete_acls
from raftwerk.runtime.incremental_work import ITEMS_PER_STEP, Step
from raftwerk.security.authorizer.acl_binding import AclBinding, AclBindingFilter
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.errors import ErrorCode, ProtocolError

NONE, INVALID_REQUEST = ErrorCode.NONE, ErrorCode.INVALID_REQUEST
DENY, ALLOW = 2, 3
READ, WRITE = 3, 4


def image_of(level: int = 2) -> MetadataImage:
    image = MetadataImage("c")
    image.replay(FeatureLevelRecord("raftwerk.record.version", level), 0, MetadataDelta())
    return image


def acl(name: str = "t", operation: int = READ, permission: int = ALLOW, **other: Any) -> AclBinding:
    return AclBinding(2, name, 3, "User:alice", "*", operation, permission)._replace(**other)


def replay(image: MetadataImage, records: Sequence[Record]) -> None:
    for record in records:
        assert decode_record(encode_record(record, 2)) == record
        image.replay(record, image.offset + 1, MetadataDelta())


def result_of(image: MetadataImage, decision: Decision) -> tuple[ControllerResult, list[Record]]:
    """The result of a decision in parts, whose records are replayed, and all records."""
    records: list[Record] = []
    while True:
        try:
            part = next(decision)
        except StopIteration as end:
            result: ControllerResult = end.value
            replay(image, result.records)
            return result, records + result.records
        if not isinstance(part, Step):
            replay(image, part)
            records += part


def creations(bindings: Sequence[AclBinding]) -> Any:
    rows = []
    for one in bindings:
        row = one._asdict()
        rows.append({**row, "resource_pattern_type": row.pop("pattern_type")})
    return decoded(ApiKey.CREATE_ACLS, creations=rows)


def create(image: MetadataImage, *bindings: AclBinding) -> list[tuple[ErrorCode, str | None]]:
    result, _ = result_of(image, create_acls(image, creations(bindings), random.Random(1)))
    return [(ErrorCode(row["error_code"]), row["error_message"]) for row in result.response["results"]]


def filters(wanted: Sequence[AclBindingFilter]) -> Any:
    rows = [
        {
            "resource_type_filter": one.resource_type,
            "resource_name_filter": one.resource_name,
            "pattern_type_filter": one.pattern_type,
            "principal_filter": one.principal,
            "host_filter": one.host,
            "operation": one.operation,
            "permission_type": one.permission_type,
        }
        for one in wanted
    ]
    return decoded(ApiKey.DELETE_ACLS, filters=rows)


def delete(image: MetadataImage, *wanted: AclBindingFilter) -> list[list[AclBinding] | tuple[ErrorCode, str]]:
    result, _ = result_of(image, delete_acls(image, filters(wanted)))
    rows: list[list[AclBinding] | tuple[ErrorCode, str]] = []
    for row in result.response["filter_results"]:
        found = [AclBinding(*(one[field] for field in AclBinding._fields)) for one in row["matching_acls"]]
        rows.append((ErrorCode(row["error_code"]), row["error_message"]) if row["error_code"] else found)
    return rows


def test_entries_are_created_once() -> None:
    image = image_of()
    assert create(image, acl(), acl(), acl(operation=WRITE)) == [(NONE, "")] * 3
    assert create(image, acl(operation=WRITE)) == [(NONE, "")]
    assert sorted(image.acls.values()) == [acl(), acl(operation=WRITE)]
    assert len(set(image.acls)) == 2


CLUSTER_TEXT = "The only valid name for the CLUSTER resource is kafka-cluster"
COLON_TEXT = (
    "Could not parse principal from `alice` (no colon is present separating the principal type from the principal name)"
)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"resource_type": 0}, "Invalid resourceType UNKNOWN"),
        ({"resource_type": 1}, "Invalid resourceType ANY"),
        ({"resource_type": 99}, "Invalid resourceType UNKNOWN"),
        ({"resource_type": 4}, CLUSTER_TEXT),
        ({"resource_name": ""}, "Invalid empty resource name"),
        ({"pattern_type": 0}, "Invalid patternType UNKNOWN"),
        ({"pattern_type": 1}, "Invalid patternType ANY"),
        ({"pattern_type": 2}, "Invalid patternType MATCH"),
        ({"pattern_type": -5}, "Invalid patternType UNKNOWN"),
        ({"operation": 0}, "Invalid operation UNKNOWN"),
        ({"operation": 1}, "Invalid operation ANY"),
        ({"operation": 77}, "Invalid operation UNKNOWN"),
        ({"permission_type": 1}, "Invalid permissionType ANY"),
        ({"permission_type": 9}, "Invalid permissionType UNKNOWN"),
        ({"principal": "alice"}, COLON_TEXT),
    ],
)
def test_what_is_no_entry_is_refused_alone(wrong: dict[str, Any], text: str) -> None:
    image = image_of()
    assert create(image, acl(**wrong), acl("u")) == [(INVALID_REQUEST, text), (NONE, "")]
    assert list(image.acls.values()) == [acl("u")]


def test_older_software_must_be_gone_first() -> None:
    image = image_of(level=1)
    for decision in (create_acls(image, creations([acl()]), random.Random(1)), delete_acls(image, filters([]))):
        with pytest.raises(ProtocolError) as refused:
            decided(decision)
        assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_each_filter_says_what_it_matched_and_nothing_is_removed_twice() -> None:
    image = image_of()
    create(image, acl("a"), acl("ab"), acl("b", permission=DENY))
    rows = delete(image, AclBindingFilter(resource_name="a"), AclBindingFilter(operation=READ, permission_type=ALLOW))
    assert rows == [[acl("a")], [acl("a"), acl("ab")]]
    assert list(image.acls.values()) == [acl("b", permission=DENY)]
    assert delete(image, AclBindingFilter(resource_name="a")) == [[]]


def test_removing_one_entry_of_a_resource_leaves_the_others() -> None:
    """CVE-2024-27309, on the controller's side: only what the filter matches is removed."""
    image = image_of()
    others = [acl(operation=WRITE), acl(permission=DENY, principal="User:bob"), acl(pattern_type=4), acl(host="h")]
    create(image, acl(), *others)
    exact = AclBindingFilter(*acl())
    assert delete(image, exact) == [[acl()]]
    assert sorted(image.acls.values()) == sorted(others)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"resource_type": 0}, "Unknown patternFilter."),
        ({"pattern_type": 0}, "Unknown patternFilter."),
        ({"pattern_type": 55}, "Unknown patternFilter."),
        ({"operation": 0}, "Unknown entryFilter."),
        ({"permission_type": -1}, "Unknown entryFilter."),
    ],
)
def test_a_filter_of_unknown_kinds_removes_nothing(wrong: dict[str, Any], text: str) -> None:
    image = image_of()
    create(image, acl())
    assert delete(image, AclBindingFilter(**wrong), AclBindingFilter(resource_name="x")) == [
        (INVALID_REQUEST, text),
        [],
    ]
    assert list(image.acls.values()) == [acl()]


def test_a_request_removes_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acls, "MATCHES_MAX", 3)
    image = image_of()
    create(image, *(acl(name) for name in "abcd"))
    text = "Cannot remove more than 3 acls in a single delete operation."
    assert delete(image, AclBindingFilter(), AclBindingFilter(resource_name="a")) == [
        (INVALID_REQUEST, text),
        [acl("a")],
    ]
    assert len(image.acls) == 3


def test_filters_that_name_resources_do_not_look_at_all_entries() -> None:
    image = image_of()
    create(image, *(acl(f"t{number}") for number in range(2_000)))
    wanted = [AclBindingFilter(2, f"t{number}") for number in range(2_000)]
    steps = 0
    decision = delete_acls(image, filters(wanted))
    for part in decision:
        steps += isinstance(part, Step)
        replay(image, [] if isinstance(part, Step) else part)
    assert steps <= 5 * 2_000 // ITEMS_PER_STEP


NAMES = st.sampled_from(["*", "t", "ta", "tab", "u"])
SOME_FILTERS = st.builds(
    AclBindingFilter,
    st.sampled_from([1, 2, 3]),
    st.none() | NAMES,
    st.sampled_from([1, 2, 3, 4]),
    st.none() | st.just("User:alice"),
    st.none() | st.just("*"),
    st.sampled_from([1, READ, WRITE]),
    permission_type=st.sampled_from([1, 2, 3]),
)
SOME_ENTRIES = st.builds(
    acl, NAMES, st.sampled_from([READ, WRITE]), st.sampled_from([ALLOW, DENY]), pattern_type=st.sampled_from([3, 4])
)


@given(st.lists(SOME_ENTRIES, unique=True), st.lists(SOME_FILTERS))
def test_each_filter_finds_what_it_matches_in_the_order_of_the_entries(
    entries: list[AclBinding], wanted: list[AclBindingFilter]
) -> None:
    image = image_of()
    create(image, *entries)
    known = list(image.acls.values())
    assert delete(image, *wanted) == [[one for one in known if each.matches(one)] for each in wanted]


def test_in_between_nobody_may_do_more_than_before_and_after() -> None:
    image = image_of()
    many = [acl(f"t{number}", permission=DENY if number % 2 else ALLOW) for number in range(1_000)]
    _, created = result_of(image, create_acls(image, creations(many), random.Random(1)))
    permissions = [record.permission_type for record in created if isinstance(record, AccessControlEntryRecord)]
    assert permissions == [DENY] * 500 + [ALLOW] * 500
    before = dict(image.acls)
    _, removed = result_of(image, delete_acls(image, filters([AclBindingFilter()])))
    permissions = [
        before[record.acl_id][-1] for record in removed if isinstance(record, RemoveAccessControlEntryRecord)
    ]
    assert permissions == [ALLOW] * 500 + [DENY] * 500
    assert not image.acls


def test_requests_decided_in_between_are_seen() -> None:
    image = image_of()
    many = [acl(f"t{number}") for number in range(1_000)]
    first = create_acls(image, creations(many), random.Random(1))
    second = create_acls(image, creations(many), random.Random(2))
    going = [first, second]
    while going:
        for decision in list(going):
            try:
                part = next(decision)
            except StopIteration as end:
                part = end.value.records
                going.remove(decision)
            if not isinstance(part, Step):
                replay(image, part)
    assert sorted(image.acls.values()) == sorted(many)
    deletions = [delete_acls(image, filters([AclBindingFilter()])) for _ in range(2)]
    while deletions:
        for decision in list(deletions):
            try:
                part = next(decision)
            except StopIteration as end:
                part = end.value.records
                deletions.remove(decision)
            if not isinstance(part, Step):
                replay(image, part)
    assert not image.acls


bindings = st.builds(
    acl,
    st.sampled_from(["a", "ab", "*", "b"]),
    st.sampled_from([READ, WRITE, 2]),
    st.sampled_from([DENY, ALLOW]),
    pattern_type=st.sampled_from([3, 4]),
    principal=st.sampled_from(["User:alice", "User:*"]),
)
wanted_filters = st.builds(
    AclBindingFilter,
    st.sampled_from([1, 2, 3]),
    st.sampled_from([None, "a", "ab", "*"]),
    st.sampled_from([1, 2, 3, 4]),
    st.sampled_from([None, "User:alice"]),
    st.none(),
    st.sampled_from([1, READ]),
    st.sampled_from([1, DENY, ALLOW]),
)


@given(st.lists(st.one_of(bindings, wanted_filters), max_size=15))
def test_the_image_has_what_was_created_and_not_deleted(steps: list[AclBinding | AclBindingFilter]) -> None:
    image, model = image_of(), set[AclBinding]()
    for step in steps:
        if isinstance(step, AclBinding):
            create(image, step)
            model.add(step)
        else:
            (gone,) = delete(image, step)
            assert set(gone) == {one for one in model if step.matches(one)}
            model -= set(gone)
        assert sorted(image.acls.values()) == sorted(model)
        assert all(image.has_acl(one) for one in model)
    restored = restored_from_snapshot(image)
    assert not difference(image, restored).changed_acls
    assert all(restored.has_acl(one) for one in model)
    assert not restored.has_acl(acl("never"))
    assert all(isinstance(one, UUID) for one in restored.acls)
