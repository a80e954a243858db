"""How proposals of ISRs get to the controller: few requests, one at a time, and none is lost or sent when it is old."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any
from uuid import UUID

import pytest

from raftwerk.chaos.sim.kernel.event_loop import ProcessLoop, Scheduler
from raftwerk.isr.leader.alter_partition_manager import AlterPartitionManager
from raftwerk.isr.leader.leader_state import AlterPartitionResult
from raftwerk.isr.ports import AlterPartitionItem
from raftwerk.wire.errors import ErrorCode, ProtocolError, WireFormatError
from raftwerk.wire.types import TopicPartition

TOPIC = UUID(int=7)
ACCEPTED = AlterPartitionResult(0)


class Controller:
    """Answers after a millisecond with the results, or the error, that stand ready, then by accepting everything."""

    def __init__(self, *answers: Sequence[AlterPartitionResult] | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[list[tuple[int, Any]]] = []
        self.asked_at: list[float] = []
        self.under_way = 0

    async def send(self, items: Sequence[AlterPartitionItem]) -> Sequence[AlterPartitionResult]:
        self.under_way += 1
        assert self.under_way == 1, "one request at a time"
        self.asked.append([(item.topic_partition.partition, item.proposal) for item in items])
        self.asked_at.append(asyncio.get_running_loop().time())
        await asyncio.sleep(0.001)
        self.under_way -= 1
        answer = self.answers.pop(0) if self.answers else [ACCEPTED] * len(items)
        if isinstance(answer, Exception):
            raise answer
        return answer


class Leaders:
    """Those who propose; each wants its proposal to be sent again after an error."""

    def __init__(self) -> None:
        self.results: list[tuple[int, int]] = []

    def __call__(self, item: AlterPartitionItem, result: AlterPartitionResult) -> bool:
        self.results.append((item.topic_partition.partition, result.error_code))
        return result.error_code != 0


def item(index: int, proposal: object = "an ISR") -> AlterPartitionItem:
    wanted: Any = proposal
    return AlterPartitionItem(TOPIC, TopicPartition("t", index), wanted)


def run(body: Coroutine[Any, Any, None]) -> None:
    scheduler = Scheduler()
    ProcessLoop(scheduler, "leader").run_until_complete(body, 60.0)
    assert not scheduler.errors


def test_proposals_that_are_made_together_go_in_one_request_and_those_made_meanwhile_in_the_next() -> None:
    async def body() -> None:
        controller, leaders = Controller(), Leaders()
        manager = AlterPartitionManager(controller.send, 50)
        for index in range(3):
            manager.submit(item(index), leaders)
        await asyncio.sleep(0.0005)
        for index in (3, 4):
            manager.submit(item(index), leaders)
        await asyncio.sleep(0.01)
        assert [[index for index, _ in request] for request in controller.asked] == [[0, 1, 2], [3, 4]]
        assert leaders.results == [(index, 0) for index in range(5)]
        manager.submit(item(5), leaders)
        await asyncio.sleep(0.01)
        assert controller.asked[2:] == [[(5, "an ISR")]], "also when there was nothing to send for a while"

    run(body())


def test_only_the_newest_proposal_of_a_partition_is_sent() -> None:
    """The controller would refuse the former one, since the partition epoch has changed by the first."""

    async def body() -> None:
        controller, leaders = Controller(), Leaders()
        manager = AlterPartitionManager(controller.send, 50)
        manager.submit(item(0, "former"), leaders)
        manager.submit(item(1, "other"), leaders)
        manager.submit(item(0, "newest"), leaders)
        await asyncio.sleep(0.01)
        assert controller.asked == [[(0, "newest"), (1, "other")]]

    run(body())


def test_no_request_has_more_proposals_than_the_controller_decides_at_once() -> None:
    async def body() -> None:
        controller, leaders = Controller(), Leaders()
        manager = AlterPartitionManager(controller.send, 50)
        for index in range(401):
            manager.submit(item(index), leaders)
        await asyncio.sleep(0.1)
        assert [len(request) for request in controller.asked] == [200, 200, 1]
        assert [index for request in controller.asked for index, _ in request] == list(range(401))

    run(body())


@pytest.mark.parametrize(
    "trouble",
    [
        OSError("the connection is lost"),
        TimeoutError(),
        ProtocolError(ErrorCode.NOT_CONTROLLER, ""),
        WireFormatError("not an answer"),
        [ACCEPTED],
        [ACCEPTED] * 3,
    ],
    ids=["lost", "late", "refused", "garbled", "too short", "too long"],
)
def test_without_an_answer_to_each_proposal_all_are_sent_again_after_a_pause(
    trouble: Sequence[AlterPartitionResult] | Exception,
) -> None:
    """The controller may have carried them out: only its metadata tells."""

    async def body() -> None:
        controller, leaders = Controller(trouble), Leaders()
        manager = AlterPartitionManager(controller.send, 50)
        for index in range(2):
            manager.submit(item(index), leaders)
        await asyncio.sleep(1.0)
        lost = int(ErrorCode.NETWORK_EXCEPTION)
        assert leaders.results == [(0, lost), (1, lost), (0, 0), (1, 0)]
        assert round(controller.asked_at[1] - controller.asked_at[0], 3) == 0.051

    run(body())


def test_what_was_refused_for_now_is_sent_again_unless_there_is_a_newer_proposal() -> None:
    async def body() -> None:
        refused = AlterPartitionResult(int(ErrorCode.NOT_CONTROLLER))
        controller, leaders = Controller([refused, ACCEPTED, refused]), Leaders()
        manager = AlterPartitionManager(controller.send, 50)
        for index in range(3):
            manager.submit(item(index, "first"), leaders)
        await asyncio.sleep(0.0005)
        manager.submit(item(0, "newer"), leaders)
        await asyncio.sleep(1.0)
        assert [sorted(request) for request in controller.asked[1:]] == [[(0, "newer"), (2, "first")]]

    run(body())


def test_nothing_is_sent_after_a_stop() -> None:
    async def body() -> None:
        controller, leaders = Controller(OSError("gone")), Leaders()
        manager = AlterPartitionManager(controller.send, 50)
        manager.submit(item(0), leaders)
        await asyncio.sleep(0.01)
        await manager.stop()
        manager.submit(item(1), leaders)
        await asyncio.sleep(1.0)
        assert len(controller.asked) == 1

    run(body())
