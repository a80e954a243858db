"""Filters of access control lists: what each kind of pattern matches."""

from __future__ import annotations

import pytest

from raftwerk.security.authorizer.acl_binding import AclBinding, AclBindingFilter, PatternType

LITERAL, PREFIXED, ANY, MATCH = PatternType.LITERAL, PatternType.PREFIXED, PatternType.ANY, PatternType.MATCH
TOPIC, GROUP = 2, 3


def binding(name: str, pattern: PatternType = LITERAL) -> AclBinding:
    return AclBinding(TOPIC, name, pattern, "User:alice", "*", 3, 3)


@pytest.mark.parametrize(
    ("pattern", "name", "matched"),
    [
        (ANY, None, {"test", "te+", "*", "*+"}),
        (MATCH, None, {"test", "te+", "*", "*+"}),
        (LITERAL, None, {"test", "*"}),
        (PREFIXED, None, {"te+", "*+"}),
        (LITERAL, "test", {"test"}),
        (LITERAL, "*", {"*"}),
        (PREFIXED, "te", {"te+"}),
        (PREFIXED, "test", set()),
        (ANY, "te", {"te+"}),
        (ANY, "*", {"*", "*+"}),
        (MATCH, "test", {"test", "te+", "*"}),
        (MATCH, "te", {"te+", "*"}),
        (MATCH, "x", {"*"}),
        (MATCH, "*x", {"*", "*+"}),
    ],
)
def test_patterns(pattern: PatternType, name: str | None, matched: set[str]) -> None:
    known = {
        "test": binding("test"),
        "te+": binding("te", PREFIXED),
        "*": binding("*"),
        "*+": binding("*", PREFIXED),
    }
    wanted = AclBindingFilter(TOPIC, name, pattern)
    assert {key for key, one in known.items() if wanted.matches(one)} == matched


def test_each_field_narrows_the_filter() -> None:
    one = binding("test")
    assert AclBindingFilter().matches(one)
    exact = AclBindingFilter(TOPIC, "test", LITERAL, "User:alice", "*", 3, 3)
    assert exact.matches(one)
    for other in (
        {"resource_type": GROUP},
        {"resource_name": "tes"},
        {"pattern_type": PREFIXED},
        {"principal": "User:*"},
        {"host": "10.0.0.1"},
        {"operation": 4},
        {"permission_type": 2},
    ):
        assert not exact._replace(**other).matches(one), other
