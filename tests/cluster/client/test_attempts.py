"""Topics are created and deleted although the answer of a broker is lost, after which another one is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from raftwerk.cluster.client.admin_client import AdminClient, NewTopic
from raftwerk.cluster.client.attempts import Attempts
from raftwerk.cluster.client.client_errors import RefusedError, UnreachableError
from raftwerk.cluster.client.cluster_client import ClusterClient
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.errors import ErrorCode

LOST = -2
"""A broker got the request and closed the connection."""
EXISTS, UNKNOWN = ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class Brokers:
    """A `ClusterClient` of brokers that answer with these codes, one after the other."""

    timeout_s = 10.0

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)

    async def request(
        self, _api: ApiKey, _version: int, _fields: Mapping[str, Any], on_no_answer: Callable[[], None]
    ) -> Any:
        while self.codes and self.codes[0] == LOST:
            del self.codes[0]
            on_no_answer()
        if not self.codes:
            raise UnreachableError({("b", 9092): "closes the connection"})
        row = SimpleNamespace(error_code=self.codes.pop(0), error_message=None)
        return SimpleNamespace(topics=[row], responses=[row])


def create(codes: Sequence[int], attempts: Attempts | None = None, *, validate_only: bool = False) -> None:
    admin = AdminClient(cast(ClusterClient, Brokers(*codes)))
    asyncio.run(admin.create_topic(NewTopic("t"), wait=False, attempts=attempts, validate_only=validate_only))


def delete(codes: Sequence[int], attempts: Attempts | None = None) -> None:
    asyncio.run(AdminClient(cast(ClusterClient, Brokers(*codes))).delete_topic("t", wait=False, attempts=attempts))


@pytest.mark.parametrize(
    "before", [[LOST], [ErrorCode.REQUEST_TIMED_OUT], [LOST, ErrorCode.NOT_CONTROLLER], [LOST, LOST]]
)
def test_what_an_attempt_without_an_answer_may_have_done_is_no_error_of_the_next(before: list[int]) -> None:
    create([*before, EXISTS])
    delete([*before, UNKNOWN])


@pytest.mark.parametrize("before", [[], [ErrorCode.NOT_CONTROLLER]])
def test_what_was_so_before_is_refused(before: list[int]) -> None:
    for change, code in ((create, EXISTS), (delete, UNKNOWN)):
        with pytest.raises(RefusedError) as refused:
            change([*before, code])
        assert refused.value.code == code


def test_other_errors_are_told_after_a_lost_answer() -> None:
    for change, code in ((create, UNKNOWN), (delete, EXISTS)):
        with pytest.raises(RefusedError) as refused:
            change([LOST, code])
        assert refused.value.code == code


def test_a_later_call_knows_of_the_attempts_before() -> None:
    for change, code in ((create, EXISTS), (delete, UNKNOWN)):
        for first in ([LOST], [ErrorCode.NONE]):
            attempts = Attempts()
            if first == [LOST]:
                with pytest.raises(UnreachableError):
                    change(first, attempts)
            else:
                change(first, attempts)
            change([code], attempts)


def test_a_question_whether_a_topic_can_be_created_has_created_none() -> None:
    with pytest.raises(RefusedError):
        create([LOST, EXISTS], validate_only=True)
