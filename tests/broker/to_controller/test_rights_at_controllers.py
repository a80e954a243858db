"""What the APIs of a controller listener ask the authorizer, and what they answer to who may not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from support.broker.broker_harness import decode_answer, run, until
from support.controller.controller_listener import ControllerListener, topic_id, topic_name
from support.security.right_mutants import leave_out_check

from raftwerk.broker.api import ApiSpec
from raftwerk.broker.apis.api_table import API_TABLE, controller_registry
from raftwerk.broker.authorization import Authorization
from raftwerk.security.authorizer.acl_binding import AclBinding, AclOperation, ResourceType
from raftwerk.security.authorizer.standard_authorizer import StandardAuthorizer
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.codec import Struct
from raftwerk.wire.errors import ErrorCode

CLUSTER, TOPIC, GROUP = (4, "kafka-cluster"), 2, 3
TOPIC_DENIED, CLUSTER_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED
ME = "User:ANONYMOUS"


def allow(resource: tuple[int, str], *operations: AclOperation) -> list[AclBinding]:
    return [AclBinding(*resource, 3, ME, "*", operation, 3) for operation in operations]


def topic(number: int) -> tuple[int, str]:
    return TOPIC, topic_name(number)


class Asker:
    """A client without a login, at a controller with three topics."""

    def __init__(self, bindings: Sequence[AclBinding] = (), super_users: Sequence[str] = ()) -> None:
        self.listener = ControllerListener(topics=3)
        authorizer = StandardAuthorizer(super_users)
        authorizer.replace(bindings)
        self.listener.services.authorization = Authorization(authorizer)

    async def ask(self, key: ApiKey, version: int, fields: dict[str, Any]) -> Struct:
        transport = self.listener.connect()
        transport.deliver(self.listener.frame(key, version, fields))
        await until(lambda: transport.written)
        (frame,) = transport.frames()
        return decode_answer(key, version, frame)

    @property
    def topics(self) -> list[str]:
        return sorted(self.listener.services.controller.image.topics_by_name)


SAMPLES: dict[ApiKey, dict[str, Any]] = {
    ApiKey.FETCH: {"max_wait": 1, "topics": []},
    ApiKey.FETCH_SNAPSHOT: {"topics": []},
    ApiKey.VOTE: {"topics": []},
    ApiKey.BEGIN_QUORUM_EPOCH: {"topics": []},
    ApiKey.END_QUORUM_EPOCH: {"topics": []},
    ApiKey.DESCRIBE_QUORUM: {"topics": []},
}
TOLD_BY_ROWS: dict[ApiKey, dict[str, Any]] = {
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: {"deletions": [{"name": "alice", "mechanism": 1}], "upsertions": []},
    ApiKey.ALTER_CLIENT_QUOTAS: {
        "entries": [{"entity": [{"entity_type": "user", "entity_name": "u"}], "ops": []}],
        "validate_only": False,
    },
    ApiKey.CREATE_ACLS: {"creations": [{**AclBinding(2, "t", 3, ME, "*", 3, 3)._asdict(), "resource_pattern_type": 3}]},
    ApiKey.DELETE_ACLS: {"filters": [{"resource_type_filter": 1, "pattern_type_filter": 1}]},
}
NOT_WITHOUT_LOGIN = (
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
)
EVERYTHING = {
    **dict.fromkeys(("resource_type_filter", "pattern_type_filter", "operation", "permission_type"), 1),
    **dict.fromkeys(("resource_name_filter", "principal_filter", "host_filter")),
}
BY_RESOURCE = (
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.DESCRIBE_CONFIGS,
)
OPEN = (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.DESCRIBE_CLUSTER)


@pytest.mark.parametrize(
    "key", [api.key for api in controller_registry() if api.key not in (*BY_RESOURCE, *OPEN)], ids=lambda key: key.name
)
def test_who_has_no_right_is_refused_and_nothing_happens(key: ApiKey) -> None:
    async def main() -> None:
        asker = Asker()
        image = asker.listener.services.controller.image
        offset = image.offset
        registered = asker.listener.services.dispatcher
        assert registered is not None
        api = registered.registry.get(key)
        assert api is not None
        answer = (await asker.ask(key, api.versions[1], {**SAMPLES, **TOLD_BY_ROWS}.get(key, {}))).to_dict()
        if key in TOLD_BY_ROWS:
            (rows,) = [value for value in answer.values() if isinstance(value, list)]
            assert [row["error_code"] for row in rows] == [CLUSTER_DENIED]
        elif key in NOT_WITHOUT_LOGIN:
            assert answer["error_code"] == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        else:
            assert answer["error_code"] == CLUSTER_DENIED
        assert image.offset == offset
        assert asker.listener.fatal == []

    run(main())


@pytest.mark.parametrize(
    "spec", [spec for spec in API_TABLE if spec.broker is None], ids=lambda spec: f"without {spec.key.name}"
)
def test_a_check_that_is_left_out_is_noticed(spec: ApiSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    (right,) = ((one.operation, one.resource_type) for one in spec.checks)
    leave_out_check(monkeypatch, spec.key, right)
    with pytest.raises((AssertionError, KeyError)):
        test_who_has_no_right_is_refused_and_nothing_happens(spec.key)


def created(*names: str) -> dict[str, Any]:
    return {"topics": [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in names], "timeout": 1000}


def test_topics_are_created_by_name_or_by_the_right_to_all() -> None:
    async def main() -> None:
        asker = Asker(allow((TOPIC, "a"), AclOperation.CREATE) + allow((TOPIC, "b"), AclOperation.DESCRIBE_CONFIGS))
        answer = await asker.ask(ApiKey.CREATE_TOPICS, 7, created("a", "b"))
        first, second = answer.topics
        assert (first.error_code, first.topic_config_error_code, first.num_partitions, first.replication_factor) == (
            *(0, TOPIC_DENIED),
            *(-1, -1),
        )
        assert not first.configs
        assert second.error_code == TOPIC_DENIED
        assert asker.topics == ["a", "topic-0", "topic-1", "topic-2"]
        asker = Asker(allow(CLUSTER, AclOperation.CREATE) + allow((TOPIC, "b"), AclOperation.DESCRIBE_CONFIGS))
        answer = await asker.ask(ApiKey.CREATE_TOPICS, 7, created("a", "b"))
        assert [(one.error_code, one.topic_config_error_code, one.num_partitions) for one in answer.topics] == [
            (0, TOPIC_DENIED, -1),
            (0, 0, 1),
        ]

    run(main())


def test_a_topic_that_may_not_be_described_is_not_told_from_one_that_is_not_there() -> None:
    async def main() -> None:
        rights = [
            *allow(topic(0), AclOperation.DELETE),
            *allow(topic(1), AclOperation.DESCRIBE),
            *allow((TOPIC, "absent"), AclOperation.DESCRIBE),
        ]
        names = [topic_name(0), topic_name(1), topic_name(2), "absent", "hidden"]
        asker = Asker(rights)
        fields = {"topics": [{"name": name, "topic_id": None} for name in names], "timeout": 1000}
        answer = await asker.ask(ApiKey.DELETE_TOPICS, 6, fields)
        assert {one.name: one.error_code for one in answer.responses} == {
            topic_name(0): 0,
            topic_name(1): TOPIC_DENIED,
            topic_name(2): TOPIC_DENIED,
            "absent": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "hidden": TOPIC_DENIED,
        }
        assert asker.topics == [topic_name(1), topic_name(2)]
        ids = [topic_id(1), topic_id(2), topic_id(9)]
        fields = {"topics": [{"name": None, "topic_id": one} for one in ids], "timeout": 1000}
        answer = await asker.ask(ApiKey.DELETE_TOPICS, 6, fields)
        assert [(one.name, one.topic_id, one.error_code) for one in answer.responses] == [
            (topic_name(1), ids[0], TOPIC_DENIED),
            (None, ids[1], TOPIC_DENIED),
            (None, ids[2], ErrorCode.UNKNOWN_TOPIC_ID),
        ]
        assert asker.topics == [topic_name(1), topic_name(2)]
        every = Asker(allow(CLUSTER, AclOperation.DELETE))
        fields = {"topics": [{"name": topic_name(0), "topic_id": None}, {"name": None, "topic_id": topic_id(1)}]}
        answer = await every.ask(ApiKey.DELETE_TOPICS, 6, {**fields, "timeout": 1000})
        assert [one.error_code for one in answer.responses] == [0, 0]

    run(main())


def test_a_deletion_without_the_right_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out_check(monkeypatch, ApiKey.DELETE_TOPICS, (AclOperation.DELETE, ResourceType.TOPIC))
    with pytest.raises(AssertionError):
        test_a_topic_that_may_not_be_described_is_not_told_from_one_that_is_not_there()


def test_partitions_are_added_to_topics_that_may_be_altered() -> None:
    async def main() -> None:
        asker = Asker(allow(topic(0), AclOperation.ALTER))
        rows = [{"name": topic_name(number), "count": 2, "assignments": None} for number in (0, 1, 9)]
        answer = await asker.ask(ApiKey.CREATE_PARTITIONS, 3, {"topics": rows, "timeout": 1000})
        assert [one.error_code for one in answer.results] == [0, TOPIC_DENIED, TOPIC_DENIED]

    run(main())


@pytest.mark.parametrize("key", [ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.ALTER_CONFIGS], ids=lambda key: key.name)
def test_configurations_are_altered_by_the_right_of_their_resource(key: ApiKey) -> None:
    resources = {
        (2, topic_name(0)): ("retention.ms", TOPIC_DENIED, topic(0)),
        (4, "1"): ("log.cleaner.threads", CLUSTER_DENIED, CLUSTER),
        (16, "m"): ("interval.ms", CLUSTER_DENIED, CLUSTER),
        (32, "g"): ("consumer.session.timeout.ms", ErrorCode.GROUP_AUTHORIZATION_FAILED, (GROUP, "g")),
        (99, "x"): ("y", ErrorCode.INVALID_REQUEST, None),
    }

    async def main() -> None:
        rows = [
            {"resource_type": kind, "resource_name": name, "configs": [{"name": config, "value": "45000"}]}
            for (kind, name), (config, _, _) in resources.items()
        ]
        asker = Asker()
        answer = await asker.ask(key, 1, {"resources": rows, "validate_only": True})
        assert [one.error_code for one in answer.responses] == [code for _, code, _ in resources.values()]
        rights = [
            one for _, _, right in resources.values() if right for one in allow(right, AclOperation.ALTER_CONFIGS)
        ]
        answer = await Asker(rights).ask(key, 1, {"resources": rows, "validate_only": True})
        denied = (TOPIC_DENIED, CLUSTER_DENIED, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        assert not [one for one in answer.responses if one.error_code in denied]

    run(main())


def test_operations_on_the_cluster_are_told_to_who_may_describe_it() -> None:
    async def main() -> None:
        fields = {"endpoint_type": 2, "include_cluster_authorized_operations": True}
        for rights, operations in (
            ([], 0),
            (allow(CLUSTER, AclOperation.DESCRIBE), 1 << AclOperation.DESCRIBE),
            (
                allow(CLUSTER, AclOperation.ALTER_CONFIGS, AclOperation.ALTER),
                sum(1 << bit for bit in (AclOperation.ALTER_CONFIGS, 10, AclOperation.ALTER, AclOperation.DESCRIBE)),
            ),
        ):
            answer = await Asker(rights).ask(ApiKey.DESCRIBE_CLUSTER, 1, fields)
            assert (answer.error_code, answer.cluster_authorized_operations) == (0, operations)

    run(main())


def test_a_super_user_makes_and_sees_access_control_entries() -> None:
    async def main() -> None:
        asker = Asker(super_users=[ME])
        answer = await asker.ask(ApiKey.CREATE_ACLS, 3, TOLD_BY_ROWS[ApiKey.CREATE_ACLS])
        assert [one.error_code for one in answer.results] == [0]
        described = await asker.ask(ApiKey.DESCRIBE_ACLS, 3, EVERYTHING)
        (resource,) = described.resources
        assert (resource.resource_type, resource.resource_name, resource.pattern_type) == (2, "t", 3)
        assert [(one.principal, one.host, one.operation) for one in resource.acls] == [(ME, "*", 3)]
        unknown = await asker.ask(ApiKey.DESCRIBE_ACLS, 3, {**EVERYTHING, "pattern_type_filter": 0})
        assert unknown.error_code == ErrorCode.INVALID_REQUEST
        deleted = await asker.ask(ApiKey.DELETE_ACLS, 3, {"filters": [EVERYTHING]})
        (result,) = deleted.filter_results
        assert [(one.resource_name, one.principal) for one in result.matching_acls] == [("t", ME)]
        assert asker.listener.services.controller.image.acls == {}

    run(main())


def test_without_an_authorizer_there_are_no_access_control_entries() -> None:
    async def main() -> None:
        asker = Asker()
        asker.listener.services.authorization = Authorization()
        created = await asker.ask(ApiKey.CREATE_ACLS, 3, TOLD_BY_ROWS[ApiKey.CREATE_ACLS])
        assert [(one.error_code, one.error_message) for one in created.results] == [
            (ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
        ]
        deleted = await asker.ask(ApiKey.DELETE_ACLS, 3, {"filters": [EVERYTHING]})
        assert [one.error_code for one in deleted.filter_results] == [ErrorCode.SECURITY_DISABLED]
        described = await asker.ask(ApiKey.DESCRIBE_ACLS, 3, EVERYTHING)
        assert described.error_code == ErrorCode.SECURITY_DISABLED
        assert described.error_message == "No Authorizer is configured on the broker"

    run(main())
