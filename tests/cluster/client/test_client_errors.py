"""The sentences of errors: about several addresses, and about rights that are missing."""

from __future__ import annotations

import pytest

from raftwerk.broker.apis.api_table import API_TABLE
from raftwerk.cluster.client.access.current_login import CURRENT_LOGIN
from raftwerk.cluster.client.access.needed_rights import NEEDED_OPERATIONS, Asked
from raftwerk.cluster.client.client_errors import RefusedError, UnreachableError
from raftwerk.security.client_login import ClientLogin
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.errors import ErrorCode


def test_what_several_addresses_did_is_told_once() -> None:
    silent, refused = "did not answer in time", "refuses the connection"
    assert str(UnreachableError({("a", 1): refused})) == "no broker answers: a:1 refuses the connection"
    two = {("a", 1): refused, ("b", 2): refused}
    assert str(UnreachableError(two)) == "no broker answers: a:1 refuses the connection; likewise b:2"
    four = {("a", 1): refused, ("b", 2): silent, ("c", 3): refused, ("d", 4): refused}
    told = "a:1 refuses the connection; likewise c:3, d:4; b:2 did not answer in time"
    assert str(UnreachableError(four)) == f"no broker answers: {told}"


@pytest.mark.parametrize(
    ("code", "asked", "right", "command"),
    [
        (
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            Asked(ApiKey.FETCH, "orders"),
            "Read on topic orders",
            "read --topic orders",
        ),
        (
            ErrorCode.GROUP_AUTHORIZATION_FAILED,
            Asked(ApiKey.OFFSET_COMMIT, "orders", "my group"),
            "Read on group my group",
            "read --group 'my group'",
        ),
        (
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            Asked(ApiKey.INIT_PRODUCER_ID, transactional_id="tx"),
            "Write on transactional id tx",
            "write --transactional-id tx",
        ),
        (
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            Asked(ApiKey.DESCRIBE_CONFIGS),
            "DescribeConfigs on the cluster",
            "describe-configs --cluster",
        ),
    ],
)
def test_a_refusal_names_the_missing_right_and_the_command_that_gives_it(
    code: ErrorCode, asked: Asked, right: str, command: str
) -> None:
    error = RefusedError(code, "it", asked=asked)
    assert str(error.missing_right) == right
    told = f"the right {right} is missing, which an administrator gives by raftwerk acls allow"
    assert str(error).endswith(f"; {told} PRINCIPAL {command}, where no ACL denies it")
    token = CURRENT_LOGIN.set(ClientLogin(scram_user=("SCRAM-SHA-512", "alice")))
    try:
        assert str(RefusedError(code, "it", asked=asked)).endswith(f"; {told} alice {command}, where no ACL denies it")
    finally:
        CURRENT_LOGIN.reset(token)


def test_a_refusal_that_is_no_matter_of_rights_keeps_its_way_out() -> None:
    error = RefusedError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "orders-0", asked=Asked(ApiKey.FETCH, "orders"))
    assert error.missing_right is None
    assert str(error) == str(RefusedError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "orders-0"))


def test_the_rights_that_refusals_name_are_those_that_brokers_check() -> None:
    checked = {spec.key: set(spec.checks) for spec in API_TABLE}
    for api, operations in NEEDED_OPERATIONS.items():
        assert {(operation, kind) for kind, operation in operations.items()} <= checked[api], api
