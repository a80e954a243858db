"""Envelopes: the request inside is its client's, and only nodes of the cluster may send one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.broker.broker_harness import decode_answer, run, until
from support.controller.controller_listener import ControllerListener

from raftwerk.broker.authorization import Authorization
from raftwerk.broker.network.request import Request
from raftwerk.broker.to_controller.controller_channel import address_bytes
from raftwerk.security.authorizer.acl_binding import AclOperation, ResourceType
from raftwerk.security.authorizer.standard_authorizer import StandardAuthorizer
from raftwerk.security.principal_serde import deserialize, serialize
from raftwerk.security.principals import ANONYMOUS, KafkaPrincipal
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.codec import Struct, decode_response, encode_request
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.frames import RequestHeader, parse_response_header
from raftwerk.wire.frames import encode_request as encode_frame

ALICE = KafkaPrincipal("User", "alice")
CREATE = {"topics": [{"name": "t", "num_partitions": 1, "replication_factor": 1}], "timeout": 2000}


def envelope(principal: bytes | None = serialize(ALICE), address: bytes = address_bytes("192.0.2.7")) -> dict[str, Any]:
    body = encode_request(ApiKey.CREATE_TOPICS, 7, CREATE)
    inner = b"".join(encode_frame(RequestHeader(ApiKey.CREATE_TOPICS, 7, 5, "c"), body))[4:]
    return {"request_data": inner, "request_principal": principal, "client_host_address": address}


class Recording(Authorization):
    """Allows all that `allows` does, and notes who asked."""

    def __init__(self, allows: Callable[[KafkaPrincipal], bool]) -> None:
        super().__init__(StandardAuthorizer())
        self.allows = allows
        self.asked: list[tuple[str, str, str]] = []

    def is_allowed(
        self,
        request: Request,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        logs_denial: bool = True,
    ) -> bool:
        self.asked.append((str(request.sink.principal), request.sink.peer, operation.name))
        return self.allows(request.sink.principal)


async def answer_to(listener: ControllerListener, fields: dict[str, Any]) -> Struct:
    transport = listener.connect()
    transport.deliver(listener.frame(ApiKey.ENVELOPE, 0, fields))
    await until(lambda: transport.written)
    (frame,) = transport.frames()
    return decode_answer(ApiKey.ENVELOPE, 0, frame)


async def listener_that(allows: Callable[[KafkaPrincipal], bool]) -> tuple[ControllerListener, Recording]:
    listener = ControllerListener()
    authorization = listener.services.authorization = Recording(allows)
    return listener, authorization


def test_who_has_no_cluster_action_may_send_no_envelope() -> None:
    async def main() -> None:
        listener, authorization = await listener_that(lambda principal: False)
        answer = await answer_to(listener, envelope(serialize(KafkaPrincipal("User", "root"))))
        assert (answer.error_code, answer.response_data) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None)
        assert authorization.asked == [("User:ANONYMOUS", "192.0.2.1", "CLUSTER_ACTION")]
        assert listener.services.controller.image.topics_by_name == {}

    run(main())


def test_the_request_inside_is_that_of_its_client() -> None:
    async def main() -> None:
        listener, authorization = await listener_that(lambda principal: principal == ANONYMOUS)
        answer = await answer_to(listener, envelope())
        assert answer.error_code == 0
        inner = memoryview(answer.response_data)
        _, position = parse_response_header(ApiKey.CREATE_TOPICS, 7, inner)
        (topic,) = decode_response(ApiKey.CREATE_TOPICS, 7, inner, position).topics
        assert topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert authorization.asked[0] == ("User:ANONYMOUS", "192.0.2.1", "CLUSTER_ACTION")
        assert {asked[:2] for asked in authorization.asked[1:]} == {("User:alice", "192.0.2.7")}
        assert listener.services.controller.image.topics_by_name == {}

    run(main())


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        (envelope(None), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (envelope(b""), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (envelope(b"\0"), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (envelope(b"\0\1" + serialize(ALICE)[2:]), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (envelope(serialize(ALICE)[:-3]), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (envelope(address=b""), ErrorCode.INVALID_REQUEST),
        (envelope(address=b"\1\2\3"), ErrorCode.INVALID_REQUEST),
        (envelope(address=b"\1" * 5), ErrorCode.INVALID_REQUEST),
    ],
)
def test_an_envelope_without_a_client_is_refused(fields: dict[str, Any], code: ErrorCode) -> None:
    async def main() -> None:
        listener, _ = await listener_that(lambda principal: True)
        assert (await answer_to(listener, fields)).error_code == code
        assert listener.services.controller.image.topics_by_name == {}

    run(main())


@given(st.builds(KafkaPrincipal, st.text(max_size=20), st.text(max_size=300)))
def test_principals_arrive_as_they_were_sent(principal: KafkaPrincipal) -> None:
    assert deserialize(serialize(principal)) == principal


@given(st.binary(max_size=40))
def test_no_bytes_of_a_principal_break_the_reader(data: bytes) -> None:
    try:
        deserialize(data)
    except ValueError:
        pass
