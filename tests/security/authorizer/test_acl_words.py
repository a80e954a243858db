"""The words of access control entries."""

from __future__ import annotations

import pytest

from raftwerk.security.authorizer.acl_binding import AclBinding, AclOperation, ResourceType
from raftwerk.security.authorizer.acl_words import AclWordError, operations_of, principal_of, row_of


def test_words_stand_for_operations_of_a_resource() -> None:
    topic = ResourceType.TOPIC
    assert operations_of(["Describe_Configs", "all"], topic) == [AclOperation.DESCRIBE_CONFIGS, AclOperation.ALL]
    assert operations_of(["consume", "read"], topic) == [AclOperation.READ, AclOperation.DESCRIBE]
    assert operations_of(["consume"], ResourceType.CLUSTER) == []
    for names, kind, told in (
        (["fly"], topic, "'fly' is no operation"),
        (["cluster-action"], topic, "nobody can cluster-action a topic"),
        (["produce"], ResourceType.ANY, "name them"),
    ):
        with pytest.raises(AclWordError, match=told):
            operations_of(names, kind)


def test_an_entry_in_words() -> None:
    entry = AclBinding(2, "team-", 4, principal_of("alice"), "*", 3, 2)
    assert row_of(entry) == {
        "permission": "deny",
        "principal": "User:alice",
        "operation": "read",
        "resource_type": "topic",
        "resource_name": "team-",
        "pattern": "prefix",
        "host": "*",
    }
    assert row_of(entry._replace(operation=99, resource_type=98))["operation"] == "99"
    assert principal_of("Group:x") == "Group:x"
