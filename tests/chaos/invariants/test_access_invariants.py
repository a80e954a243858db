"""What the simulator checks of access control lists and quotas: the oracle, and the history of applied entries."""

from __future__ import annotations

import pytest

from raftwerk.chaos.sim.invariants.access_oracle import Question, QuotaEntry, is_allowed, limit_of
from raftwerk.chaos.sim.invariants.applied_entries import AppliedEntries
from raftwerk.chaos.sim.invariants.invariant_broken import InvariantBroken
from raftwerk.controller.metadata.metadata_image import MetadataImage
from raftwerk.controller.metadata.metadata_loader import MetadataLoader
from raftwerk.security.authorizer.acl_binding import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)

READ, WRITE, DESCRIBE, ALL = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.ALL
ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY


def entry(name: str, operation: int = READ, permission: int = ALLOW, *, is_prefix: bool = False) -> AclBinding:
    pattern = PatternType.PREFIXED if is_prefix else PatternType.LITERAL
    return AclBinding(ResourceType.TOPIC, name, pattern, "User:alice", "*", operation, permission)


def may(operation: AclOperation, *acls: AclBinding, name: str = "vault-a", without_acl: bool = False) -> bool:
    asked = Question("User:alice", "client", operation, ResourceType.TOPIC, name)
    return is_allowed(acls, asked, without_acl=without_acl)


def test_a_deny_decides_whatever_allows() -> None:
    assert may(READ, entry("vault-", is_prefix=True))
    assert not may(READ, entry("vault-", is_prefix=True), entry("vault-a", ALL, DENY))
    assert not may(READ, entry("*"), entry("v", READ, DENY, is_prefix=True))


def test_reading_allows_describing_and_no_deny_of_it_denies_that() -> None:
    assert may(DESCRIBE, entry("vault-a"))
    assert may(DESCRIBE, entry("vault-a"), entry("vault-a", WRITE, DENY))
    assert not may(READ, entry("vault-a", DESCRIBE))


def test_without_any_entry_the_setting_decides() -> None:
    assert may(READ, without_acl=True)
    assert may(READ, entry("vault-a"), name="vault-ab", without_acl=True)
    assert not may(WRITE, entry("vault-a"), without_acl=True)
    elsewhere = entry("vault-a")._replace(host="elsewhere")
    assert not may(READ, elsewhere, without_acl=True)


def test_the_quota_that_names_most_holds() -> None:
    quotas = [
        QuotaEntry("alice", "c", "k", 1.0),
        QuotaEntry("alice", None, "k", 2.0),
        QuotaEntry(None, "c", "k", 3.0),
    ]
    assert [limit_of(quotas[n:], "k", "alice", "c") for n in range(4)] == [1.0, 2.0, 3.0, None]
    assert limit_of(quotas, "other", "alice", "c") is None


class History:
    """Nodes that apply sets of texts at offsets and times."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.entries: dict[int, frozenset[str]] = {}
        self.images: dict[int, MetadataImage] = {}
        self.applied: AppliedEntries[str] = AppliedEntries("texts", self._of, lambda: self.now_s)

    def _of(self, image: MetadataImage) -> frozenset[str]:
        return self.entries[id(image)]

    def apply(self, node_id: int, offset: int, *entries: str) -> None:
        self.now_s += 1
        loader = MetadataLoader("cluster")
        loader.image.advance(offset, 0)
        self.images[len(self.images)] = loader.image  # so that no later image has its id
        self.entries[id(loader.image)] = frozenset(entries)
        self.applied.after_event(node_id, loader)


def nothing(entry: str) -> bool:
    return False


def test_an_answer_may_be_as_old_as_its_request_and_no_older() -> None:
    history = History()
    history.applied.begin(frozenset("ab"), lambda each: each == "a")
    history.apply(1, 5, "a", "b")  # at 1 s
    history.apply(1, 6, "b")  # at 2 s
    assert history.applied.since(1, 1.5) == [frozenset("ab"), frozenset("b")]
    assert history.applied.since(1, 2.5) == [frozenset("b")]
    assert history.applied.since(2, 0.0) == []


def test_what_nobody_asked_for_is_found() -> None:
    history = History()
    with pytest.raises(InvariantBroken, match="entries come as they were asked for"):
        history.apply(1, 5, "a")
    history = History()
    change = history.applied.begin(frozenset("a"), nothing)
    history.apply(1, 5, "a")
    history.applied.end(change, is_acknowledged=True)
    with pytest.raises(InvariantBroken, match="entries go as they were asked to"):
        history.apply(1, 6)


def test_a_change_that_is_half_made_is_found() -> None:
    history = History()
    history.applied.begin(frozenset("ab"), nothing)
    with pytest.raises(InvariantBroken, match="none alone"):
        history.apply(1, 5, "a")
    history = History()
    change = history.applied.begin(frozenset("ab"), nothing)
    history.apply(1, 5, "a", "b")
    history.applied.end(change, is_acknowledged=True)
    history.applied.begin(frozenset(), lambda each: True)
    with pytest.raises(InvariantBroken, match="none alone"):
        history.apply(1, 6, "b")


def test_an_acknowledged_change_that_is_lost_is_found() -> None:
    history = History()
    change = history.applied.begin(frozenset("a"), nothing)
    with pytest.raises(InvariantBroken, match="what is acknowledged is committed"):
        history.applied.end(change, is_acknowledged=True)


def test_nodes_that_differ_are_found() -> None:
    history = History()
    history.applied.begin(frozenset("a"), nothing)
    history.apply(1, 5, "a")
    history.apply(2, 4)
    assert history.applied.why_nodes_differ() == "node 2 differs in the texts a"
    with pytest.raises(InvariantBroken, match="the same entries at the same offset"):
        history.apply(2, 5)
