"""What a controller answers is judged by the records that were there when it read the request."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from support.controller.metadata_states import registered_broker

from raftwerk.chaos.sim.invariants.answers.answered_requests import watch_answers
from raftwerk.chaos.sim.invariants.answers.controller_answers import ControllerAnswers
from raftwerk.chaos.sim.invariants.invariant_broken import InvariantBroken
from raftwerk.raft.types import CommittedBatch
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.codec import encode_request, encode_response
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.frames import RequestHeader
from raftwerk.wire.frames import encode_request as request_frame
from raftwerk.wire.frames import encode_response as response_frame

NOT_COMMITTED = "what a controller has answered rests on committed metadata"
_BEAT, _VERSION = ApiKey.BROKER_HEARTBEAT, 0
_NOT_CONTROLLER = {"error_code": int(ErrorCode.NOT_CONTROLLER)}
METADATA = registered_broker(1, fenced=True)
"""A broker that is fenced, as the answers to its heartbeats say."""


class _Pipe:
    """One direction of a connection."""

    on_sent: Any = None
    on_read: Any = None


class _MetadataLog:
    """A log of batches of one record each, or of one that Raft has written for itself."""

    def __init__(self) -> None:
        self.start = SimpleNamespace(end_offset=0)
        self.batches: list[CommittedBatch] = []

    @property
    def end_offset(self) -> int:
        return len(self.batches)

    def append(self, epoch: int, records: list[bytes]) -> None:
        self.batches.append(CommittedBatch(self.end_offset, self.end_offset, epoch, 0, records))

    def read_batches(self, offset: int, end_offset: int, max_bytes: int) -> list[CommittedBatch]:
        return self.batches[offset : min(end_offset, offset + 1)]


class Controller:
    """A controller whose requests and answers are watched; also `CommittedMetadata`."""

    def __init__(self) -> None:
        self.log = _MetadataLog()
        self.committed_end = 0
        self.committed: dict[int, CommittedBatch] = {}
        self._answers = ControllerAnswers(self, lambda _: [METADATA.parts()])
        self._there, self._back = _Pipe(), _Pipe()
        watched = self._answers.requests(lambda: self.log)  # type: ignore[arg-type, return-value]
        watch_answers(self._there, self._back, [watched])  # type: ignore[arg-type]
        self._number = 0

    def append(self, epoch: int = 1, *records: bytes) -> None:
        self.log.append(epoch, list(records or (b"record",)))

    def append_control(self) -> None:
        self.log.append(1, [])

    def commit(self, epoch: int = 1) -> None:
        """The next offset is committed, with a batch of this epoch."""
        batch = self.log.batches[self.committed_end]
        self.committed[self.committed_end] = replace(batch, epoch=epoch)
        self.committed_end += 1

    def reads(self, api: ApiKey = _BEAT, version: int = _VERSION, fields: dict[str, Any] | None = None) -> int:
        """Read a request, in two pieces; returns its number."""
        self._number += 1
        header = RequestHeader(api, version, self._number, "c")
        body = encode_request(api, version, {"broker_id": 1, "broker_epoch": 0} if fields is None else fields)
        frame = b"".join(bytes(part) for part in request_frame(header, body))
        self._there.on_read(frame[:9])
        self._there.on_read(frame[9:])
        return self._number

    def answers(self, number: int, fields: dict[str, Any], api: ApiKey = _BEAT, version: int = _VERSION) -> None:
        """Answer a request, which is judged at once. Raises `InvariantBroken`."""
        parts = response_frame(api, version, number, encode_response(api, version, fields))
        self._back.on_sent(b"".join(bytes(part) for part in parts))
        self._answers.check()


def test_an_answer_waits_for_the_records_that_were_there() -> None:
    controller = Controller()
    controller.append()
    controller.append()
    asked = controller.reads()
    controller.commit()
    with pytest.raises(InvariantBroken, match=NOT_COMMITTED):
        controller.answers(asked, {"error_code": 0})
    asked = controller.reads()
    controller.commit()
    controller.answers(asked, {"error_code": 0})


def test_an_error_that_was_decided_waits_as_well() -> None:
    controller = Controller()
    controller.append()
    with pytest.raises(InvariantBroken, match=NOT_COMMITTED):
        controller.answers(controller.reads(), {"error_code": int(ErrorCode.STALE_BROKER_EPOCH)})


def test_what_came_after_the_request_is_not_waited_for() -> None:
    controller = Controller()
    controller.append()
    controller.commit()
    asked = controller.reads()
    controller.append()
    controller.answers(asked, {"error_code": 0})


def test_records_that_raft_has_written_for_itself_are_not_waited_for() -> None:
    controller = Controller()
    controller.append_control()
    controller.answers(controller.reads(), {"error_code": 0})


def test_a_former_controller_decides_nothing() -> None:
    """Its records were replaced by those of the next one, which are committed."""
    controller = Controller()
    controller.append(1)
    asked, other = controller.reads(), controller.reads()
    controller.commit(epoch=2)
    controller.answers(asked, _NOT_CONTROLLER)
    with pytest.raises(InvariantBroken, match=NOT_COMMITTED):
        controller.answers(other, {"error_code": 0})


def test_what_a_broker_forwards_is_judged_by_the_answer_inside() -> None:
    controller = Controller()
    controller.append()
    create, create_version = ApiKey.CREATE_TOPICS, 7
    inner = RequestHeader(create, create_version, 5, "someone")
    body = encode_request(create, create_version, {"topics": [], "timeout_ms": 1000})
    fields = {
        "request_data": b"".join(bytes(part) for part in request_frame(inner, body))[4:],
        "request_principal": b"",
        "client_host_address": bytes(4),
    }

    def answer(code: int) -> dict[str, Any]:
        rows = [{"name": "t", "error_code": code}]
        parts = response_frame(create, create_version, 5, encode_response(create, create_version, {"topics": rows}))
        return {"error_code": 0, "response_data": b"".join(bytes(part) for part in parts)[4:]}

    def envelope() -> int:
        return controller.reads(ApiKey.ENVELOPE, 0, fields)

    controller.answers(envelope(), {**_NOT_CONTROLLER, "response_data": None}, ApiKey.ENVELOPE, 0)
    controller.answers(envelope(), answer(int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)), ApiKey.ENVELOPE, 0)
    with pytest.raises(InvariantBroken, match="CREATE_TOPICS"):
        controller.answers(envelope(), answer(int(ErrorCode.TOPIC_ALREADY_EXISTS)), ApiKey.ENVELOPE, 0)


def test_requests_that_nobody_decides_are_not_judged() -> None:
    controller = Controller()
    controller.append()
    api = ApiKey.DESCRIBE_CLUSTER
    controller.answers(controller.reads(api, 1, {}), {"error_code": 0, "cluster_id": "c"}, api, 1)


def test_what_is_confirmed_is_there() -> None:
    controller = Controller()
    with pytest.raises(InvariantBroken, match="committed metadata: BROKER_HEARTBEAT: broker 1 not fenced"):
        controller.answers(controller.reads(), {"error_code": 0, "is_fenced": False})
