"""Authorization: it follows the image, denies when its authorizer fails, and says what it denied."""

from __future__ import annotations

import logging
from typing import Any, NoReturn
from uuid import UUID

import pytest
from support.broker.broker_harness import run

from raftwerk.broker.authorization import Authorization
from raftwerk.controller.metadata.metadata_image import MetadataDelta, MetadataImage
from raftwerk.controller.metadata.metadata_records import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from raftwerk.security.authorizer.acl_binding import AclOperation, ResourceType
from raftwerk.security.authorizer.standard_authorizer import StandardAuthorizer
from raftwerk.security.principals import KafkaPrincipal
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.errors import ErrorCode, ProtocolError

TOPIC = ResourceType.TOPIC
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE


class Sink:
    peer = "10.0.0.7"

    def __init__(self, name: str) -> None:
        self.principal = KafkaPrincipal("User", name)
        self.writable_topics: dict[str, object] = {}


class Asked:
    api_key = ApiKey.FETCH

    def __init__(self, name: str = "alice") -> None:
        self.sink = Sink(name)


def request(name: str = "alice") -> Any:
    return Asked(name)


def record(number: int, name: str, operation: int = READ, permission: int = 3) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(UUID(int=number), TOPIC, name, 3, "User:alice", "*", operation, permission)


class Node:
    """An image, and an authorization that follows it."""

    def __init__(self, authorization: Authorization) -> None:
        self.image = MetadataImage("c")
        self.authorization = authorization

    def replay(self, *records: AccessControlEntryRecord | RemoveAccessControlEntryRecord) -> None:
        delta = MetadataDelta()
        for one in records:
            self.image.replay(one, self.image.offset + 1, delta)
        self.authorization.on_metadata(self.image, delta)


def test_without_an_authorizer_everybody_may_do_everything() -> None:
    async def scenario() -> None:
        authorization = Authorization()
        assert not authorization.is_on
        assert authorization.is_allowed(request(), READ, TOPIC, "t")
        assert authorization.is_allowed_by_type(request(), WRITE, TOPIC)
        assert authorization.allowed(request(), READ, TOPIC, ["a", "b"]) == {"a", "b"}
        assert authorization.operations(request(), TOPIC, "t") == sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 10, 11))
        authorization.check_cluster(request(), AclOperation.ALTER)

    run(scenario())


def test_it_follows_the_image_from_where_the_node_has_caught_up() -> None:
    async def scenario() -> None:
        node = Node(Authorization(StandardAuthorizer()))
        authorization = node.authorization
        node.replay(record(1, "t"))
        assert not authorization.is_allowed(request(), READ, TOPIC, "t")
        authorization.begin(node.image)
        assert authorization.is_allowed(request(), READ, TOPIC, "t")
        node.replay(record(2, "t", WRITE), record(3, "t", DESCRIBE, permission=2))
        assert authorization.allowed(request(), WRITE, TOPIC, ["t", "u"]) == {"t"}
        assert authorization.operations(request(), TOPIC, "t") == 1 << READ | 1 << WRITE
        node.replay(
            RemoveAccessControlEntryRecord(UUID(int=1)), record(4, "t"), RemoveAccessControlEntryRecord(UUID(int=4))
        )
        assert not authorization.is_allowed(request(), READ, TOPIC, "t")
        assert authorization.is_allowed(request(), WRITE, TOPIC, "t")
        assert not authorization.is_allowed(request("bob"), WRITE, TOPIC, "t")
        with pytest.raises(ProtocolError) as refused:
            authorization.check_cluster(request(), AclOperation.ALTER)
        assert refused.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    run(scenario())


class Failing:
    """A class of the operator with a bug."""

    def authorize(self, *question: object) -> NoReturn:
        raise RuntimeError("bug")

    authorize_by_resource_type = authorize

    def replace(self, bindings: object) -> None: ...

    def change(self, added: object, removed: object) -> NoReturn:
        raise RuntimeError("bug")


class Talkative(Failing):
    """It answers with what is no bool."""

    def authorize(self, *question: object) -> Any:
        return "DENIED"

    authorize_by_resource_type = authorize


@pytest.mark.parametrize("kind", [Failing, Talkative])
def test_an_authorizer_that_fails_denies(kind: type[Failing]) -> None:
    async def scenario() -> None:
        made: Any = kind()
        node = Node(Authorization(made))
        node.authorization.begin(node.image)
        assert not node.authorization.is_allowed(request(), READ, TOPIC, "t")
        assert not node.authorization.is_allowed_by_type(request(), READ, TOPIC)
        node.replay(record(1, "t"))
        assert not node.authorization.is_allowed(request(), READ, TOPIC, "t")

    run(scenario())


def test_a_denial_is_one_line_and_a_flood_of_them_is_few(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        caplog.set_level(logging.INFO, "kafka.authorizer.logger")
        authorization = Authorization(StandardAuthorizer())
        for _ in range(3):
            authorization.is_allowed(request(), READ, TOPIC, "t\nPrincipal = User:root is Allowed")
            authorization.is_allowed(request(), READ, TOPIC, "quiet", logs_denial=False)
        (line,) = caplog.messages
        assert line == (
            "Principal = User:alice is Denied operation = READ from host = 10.0.0.7 "
            "on resource = Topic:LITERAL:t\\nPrincipal = User:root is Allowed for request = Fetch"
        )
        for number in range(3_000):
            authorization.is_allowed(request(), READ, TOPIC, f"t{number}")
        assert len(caplog.messages) <= 1_000

    run(scenario())


def test_the_right_to_write_is_kept_with_the_connection_until_an_entry_changes() -> None:
    async def scenario() -> None:
        node = Node(Authorization(StandardAuthorizer()))
        node.authorization.begin(node.image)
        alice = request()
        assert not node.authorization.may_write(alice, "t")
        node.replay(record(1, "t", WRITE), record(2, "u", WRITE))
        assert node.authorization.may_write(alice, "t") and node.authorization.may_write(alice, "u")
        assert list(alice.sink.writable_topics) == ["t", "u"]
        assert node.authorization.may_write(alice, "t") and not node.authorization.may_write(alice, "other")
        assert not node.authorization.may_write(request("bob"), "t")
        node.replay(record(3, "t", WRITE, permission=2))
        assert not node.authorization.may_write(alice, "t") and node.authorization.may_write(alice, "u")
        node.replay(RemoveAccessControlEntryRecord(UUID(int=3)), RemoveAccessControlEntryRecord(UUID(int=2)))
        assert node.authorization.may_write(alice, "t") and not node.authorization.may_write(alice, "u")

    run(scenario())


def test_what_is_kept_with_a_connection_is_bounded() -> None:
    async def scenario() -> None:
        authorization = Authorization(StandardAuthorizer(["User:alice"]))
        alice = request()
        for number in range(3_000):
            assert authorization.may_write(alice, f"t{number}") and authorization.may_write(alice, f"{number:0999}")
        assert 0 < len(alice.sink.writable_topics) <= 1_000
        assert max(map(len, alice.sink.writable_topics)) < 250

    run(scenario())


class Changeable(Failing):
    """What it allows depends on more than access control lists."""

    allows = True

    def authorize(self, *question: object) -> Any:
        return self.allows


def test_an_authorizer_of_the_operator_is_asked_each_time() -> None:
    async def scenario() -> None:
        made: Any = Changeable()
        authorization, alice = Authorization(made), request()
        assert authorization.may_write(alice, "t")
        made.allows = False
        assert not authorization.may_write(alice, "t")

    run(scenario())


def test_each_write_that_is_allowed_is_logged_where_that_is_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        authorization, alice = Authorization(StandardAuthorizer(["User:alice"])), request()
        for _ in range(2):
            assert authorization.may_write(alice, "t")
        caplog.set_level(logging.DEBUG, "kafka.authorizer.logger")
        for _ in range(2):
            assert authorization.may_write(alice, "t")
        assert len(caplog.messages) == 2 and "is Allowed operation = WRITE" in caplog.messages[0]

    run(scenario())
