"""StandardAuthorizer: its rules one by one, and all of them against a naive model."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.security.naive_authorizer import NaiveAuthorizer

from raftwerk.security.authorizer import standard_authorizer
from raftwerk.security.authorizer.acl_binding import AclBinding, AclOperation, AclPermissionType, ResourceType
from raftwerk.security.authorizer.standard_authorizer import DECISIONS_MAX, StandardAuthorizer
from raftwerk.security.principals import KafkaPrincipal

ALICE = KafkaPrincipal("User", "alice")
BOB = KafkaPrincipal("User", "bob")
HOST = "10.0.0.7"
TOPIC, CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
DENY, ALLOW = 2, 3
LITERAL, PREFIXED = 3, 4


def acl(
    name: str,
    operation: int,
    permission: int = ALLOW,
    principal: str = "User:alice",
    host: str = "*",
    pattern: int = LITERAL,
    resource_type: int = TOPIC,
) -> AclBinding:
    return AclBinding(resource_type, name, pattern, principal, host, operation, permission)


def authorizer(*bindings: AclBinding, open_by_default: bool = False) -> StandardAuthorizer:
    made = StandardAuthorizer(["User:root"], allow_everyone_if_no_acl_found=open_by_default)
    made.replace(bindings)
    return made


def test_without_an_entry_only_super_users_may_do_anything() -> None:
    one = authorizer()
    assert not one.authorize(ALICE, HOST, READ, TOPIC, "t")
    assert one.authorize(KafkaPrincipal("User", "root"), HOST, READ, TOPIC, "t")
    assert not one.authorize(KafkaPrincipal("Group", "root"), HOST, READ, TOPIC, "t")


def test_allow_everyone_holds_only_for_resources_without_any_entry() -> None:
    one = authorizer(acl("t", READ), open_by_default=True)
    assert one.authorize(BOB, HOST, WRITE, TOPIC, "other")
    assert not one.authorize(BOB, HOST, READ, TOPIC, "t")
    assert not one.authorize(ALICE, HOST, WRITE, TOPIC, "t")


def test_nobody_but_super_users_is_allowed_before_the_entries_are_known() -> None:
    one = StandardAuthorizer(["User:root"], allow_everyone_if_no_acl_found=True)
    assert not one.authorize(ALICE, HOST, READ, TOPIC, "t")
    assert not one.authorize_by_resource_type(ALICE, HOST, READ, TOPIC)
    assert one.authorize(KafkaPrincipal("User", "root"), HOST, READ, TOPIC, "t")
    one.replace([])
    assert one.authorize(ALICE, HOST, READ, TOPIC, "t")


@pytest.mark.parametrize("allowed_first", [True, False])
def test_deny_wins_over_allow(allowed_first: bool) -> None:
    both = acl("t", READ), acl("t", READ, DENY, principal="User:*")
    assert not authorizer(*both[:: 1 if allowed_first else -1]).authorize(ALICE, HOST, READ, TOPIC, "t")


def test_a_deny_of_a_prefix_or_of_all_topics_wins_over_an_allow_of_the_name() -> None:
    for deny in (acl("te", READ, DENY, pattern=PREFIXED), acl("*", READ, DENY), acl("test", AclOperation.ALL, DENY)):
        one = authorizer(acl("test", READ), deny)
        assert not one.authorize(ALICE, HOST, READ, TOPIC, "test")


def test_implied_operations_are_allowed_and_not_denied() -> None:
    for operation in (READ, WRITE, AclOperation.DELETE, AclOperation.ALTER):
        assert authorizer(acl("t", operation)).authorize(ALICE, HOST, DESCRIBE, TOPIC, "t")
        denied = authorizer(acl("t", DESCRIBE), acl("t", operation, DENY))
        assert denied.authorize(ALICE, HOST, DESCRIBE, TOPIC, "t")
    alter_configs = authorizer(acl("t", AclOperation.ALTER_CONFIGS))
    assert alter_configs.authorize(ALICE, HOST, AclOperation.DESCRIBE_CONFIGS, TOPIC, "t")
    assert not alter_configs.authorize(ALICE, HOST, DESCRIBE, TOPIC, "t")


def test_hosts_and_all_forms_of_an_ipv6_address() -> None:
    one = authorizer(acl("t", READ, host="0:0:0:0:0:0:0:1"), acl("t", WRITE, host=HOST))
    assert one.authorize(ALICE, "::1", READ, TOPIC, "t")
    assert not one.authorize(ALICE, "::2", READ, TOPIC, "t")
    assert one.authorize(ALICE, f"::ffff:{HOST}", WRITE, TOPIC, "t")
    assert not one.authorize(ALICE, "10.0.0.8", WRITE, TOPIC, "t")


def test_a_prefix_of_a_star_is_no_wildcard() -> None:
    one = authorizer(acl("*", READ, pattern=PREFIXED))
    assert not one.authorize(ALICE, HOST, READ, TOPIC, "t")
    assert one.authorize(ALICE, HOST, READ, TOPIC, "*t")


def test_removing_one_entry_of_a_resource_leaves_the_others() -> None:
    """CVE-2024-27309: after a removal, the other entries of the resource were not all enforced."""
    one = authorizer(acl("t", READ), acl("t", WRITE), acl("t", READ, DENY, principal="User:bob"), acl("t", READ))
    one.change((), [acl("t", READ)])
    assert one.authorize(ALICE, HOST, READ, TOPIC, "t")  # its twin is there
    one.change((), [acl("t", READ)])
    assert one.authorize(ALICE, HOST, WRITE, TOPIC, "t")
    assert not one.authorize(ALICE, HOST, READ, TOPIC, "t")
    one.change([acl("t", READ, principal="User:*")], [acl("t", WRITE)])
    assert one.authorize(ALICE, HOST, READ, TOPIC, "t")
    assert not one.authorize(BOB, HOST, READ, TOPIC, "t")


def test_a_snapshot_takes_the_place_of_all_entries() -> None:
    one = authorizer(acl("t", READ), acl("te", READ, pattern=PREFIXED))
    assert one.authorize(ALICE, HOST, READ, TOPIC, "t")
    assert one.authorize(ALICE, HOST, READ, TOPIC, "test")
    one.replace([acl("other", READ)])
    assert not one.authorize(ALICE, HOST, READ, TOPIC, "t")
    assert not one.authorize(ALICE, HOST, READ, TOPIC, "test")
    assert one.authorize(ALICE, HOST, READ, TOPIC, "other")


def test_a_removal_of_what_is_not_there_changes_nothing() -> None:
    one = authorizer(acl("t", READ))
    one.change((), [acl("t", WRITE), acl("u", READ), acl("t", READ, resource_type=CLUSTER), acl("t", READ, pattern=4)])
    assert one.authorize(ALICE, HOST, READ, TOPIC, "t")


def test_the_decision_for_any_resource_is_not_that_for_an_empty_name() -> None:
    one = authorizer(acl("t", WRITE))
    assert one.authorize_by_resource_type(ALICE, HOST, WRITE, TOPIC)
    assert not one.authorize(ALICE, HOST, WRITE, TOPIC, "")
    assert one.authorize_by_resource_type(ALICE, HOST, WRITE, TOPIC)


def test_what_clients_choose_does_not_make_the_kept_decisions_grow() -> None:
    one = authorizer(acl("t", READ))
    for number in range(DECISIONS_MAX + 10):
        assert not one.authorize(ALICE, HOST, READ, TOPIC, f"n{number}")
    assert not one.authorize(ALICE, HOST, READ, TOPIC, "x" * 30_000)
    assert len(one._decisions) <= DECISIONS_MAX
    assert sum(len(key[3]) for key in one._decisions) < 1_000


names = st.text("ab*", max_size=3)
principals = st.sampled_from(["User:alice", "User:bob", "User:*", "Group:alice", "User:root"])
hosts = st.sampled_from(["*", "h1", "h2"])
operations = st.sampled_from([2, 3, 4, 6, 8, 10, 11])
bindings = st.builds(
    AclBinding,
    st.sampled_from([2, 3]),
    names.filter(bool),
    st.sampled_from([LITERAL, LITERAL, PREFIXED]),
    principals,
    hosts,
    operations,
    st.sampled_from([DENY, ALLOW, ALLOW]),
)
questions = st.tuples(
    st.sampled_from([ALICE, BOB, KafkaPrincipal("User", "root"), KafkaPrincipal("User", "*")]),
    st.sampled_from(["h1", "h2"]),
    operations.filter(lambda operation: operation > 2).map(AclOperation),
    st.sampled_from([TOPIC, ResourceType.GROUP]),
    names,
)


@given(
    st.lists(bindings, max_size=8),
    st.lists(st.tuples(st.lists(bindings, max_size=3), st.lists(st.integers(0, 20), max_size=3)), max_size=3),
    st.lists(questions, min_size=1, max_size=8),
    st.booleans(),
)
def test_decisions_are_those_of_a_walk_over_all_entries(
    first: list[AclBinding],
    changes: list[tuple[list[AclBinding], list[int]]],
    asked: list[tuple[KafkaPrincipal, str, AclOperation, ResourceType, str]],
    open_by_default: bool,
) -> None:
    one = authorizer(*first, open_by_default=open_by_default)
    model = NaiveAuthorizer({"User:root"}, open_by_default)
    model.bindings = list(first)
    for added, removed in [([], []), *changes]:
        gone = [model.bindings.pop(index % len(model.bindings)) for index in removed if model.bindings]
        model.bindings += added
        one.change(added, gone)
        for principal, host, operation, resource_type, name in asked * 2:
            expected = model.authorize(str(principal), host, operation, resource_type, name)
            assert one.authorize(principal, host, operation, resource_type, name) == expected
            by_type = model.authorize_by_resource_type(str(principal), host, operation, resource_type)
            assert one.authorize_by_resource_type(principal, host, operation, resource_type) == by_type
    one.change((), model.bindings)
    assert not any(any(vars(patterns).values()) for patterns in one._patterns.values()), (
        "nothing is kept of what is gone"
    )


def removal_of_one_removes_both(monkeypatch: pytest.MonkeyPatch) -> None:
    """CVE-2024-27309: with one of two entries of a resource the other one was gone, too."""
    remove = standard_authorizer._Patterns.remove

    def remove_all(self: standard_authorizer._Patterns, binding: AclBinding) -> None:
        for principal, entries in list(self._of(binding).get(binding.resource_name, {}).items()):
            for entry in list(entries):
                remove(
                    self,
                    binding._replace(
                        principal=principal,
                        host=entry.host,
                        operation=entry.operation,
                        permission_type=entry.permission_type,
                    ),
                )

    monkeypatch.setattr(standard_authorizer._Patterns, "remove", remove_all)


def allow_before_deny(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first entry that holds decides, and ALLOW entries come first."""
    held = standard_authorizer._held

    def only_allow_if_any(entries: standard_authorizer._Entries, principal: str, host: str) -> Iterable[object]:
        found = list(held(entries, principal, host))
        allowed = [entry for entry in found if entry.permission_type == AclPermissionType.ALLOW]
        return allowed or found

    monkeypatch.setattr(standard_authorizer, "_held", only_allow_if_any)


def stale_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decisions are kept although an entry has changed."""
    change = StandardAuthorizer.change

    def change_only(self: StandardAuthorizer, added: Iterable[AclBinding], removed: Iterable[AclBinding]) -> None:
        kept = dict(self._decisions)
        change(self, added, removed)
        self._decisions.update(kept)

    monkeypatch.setattr(StandardAuthorizer, "change", change_only)


def stale_after_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a snapshot no longer has stays."""

    def replace(self: StandardAuthorizer, bindings: Iterable[AclBinding]) -> None:
        self._is_loaded = True
        self.change(bindings, ())

    monkeypatch.setattr(StandardAuthorizer, "replace", replace)


def prefixes_match_nothing_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A prefix holds only for the name that equals it."""

    def matching(self: standard_authorizer._Patterns, name: str) -> Iterable[standard_authorizer._Entries]:
        for patterns, key in ((self.literal, name), (self.literal, "*"), (self.prefixed, name)):
            if key in patterns:
                yield patterns[key]

    monkeypatch.setattr(standard_authorizer._Patterns, "matching", matching)


@pytest.mark.parametrize(
    ("bug", "test"),
    [
        (removal_of_one_removes_both, test_removing_one_entry_of_a_resource_leaves_the_others),
        (allow_before_deny, lambda: test_deny_wins_over_allow(True)),
        (stale_decisions, test_removing_one_entry_of_a_resource_leaves_the_others),
        (stale_after_a_snapshot, test_a_snapshot_takes_the_place_of_all_entries),
        (prefixes_match_nothing_longer, test_a_deny_of_a_prefix_or_of_all_topics_wins_over_an_allow_of_the_name),
    ],
)
def test_a_bug_that_authorizers_had_is_noticed(
    bug: Callable[[pytest.MonkeyPatch], None], test: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    test()
    bug(monkeypatch)
    with pytest.raises(AssertionError):
        test()
