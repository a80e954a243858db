"""Errors on the way of ISR proposals to the controller: none of them ends the proposals that come after it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from support.isr.replicas import TOPIC_ID

from raftwerk.chaos.sim.kernel.event_loop import ProcessLoop, Scheduler
from raftwerk.isr.leader.alter_partition_manager import AlterPartitionManager
from raftwerk.isr.leader.isr_state import CommittedIsr, PendingShrinkIsr
from raftwerk.isr.leader.leader_state import AlterPartitionResult, IsrProposal
from raftwerk.isr.ports import AlterPartitionItem
from raftwerk.wire.errors import ErrorCode, ProtocolError
from raftwerk.wire.types import TopicPartition

DONE = AlterPartitionResult(0, 1, 5, (1,), 11)


def item(partition: int) -> AlterPartitionItem:
    """A proposal to remove broker 2 from the ISR of that partition of `t`."""
    state = PendingShrinkIsr(CommittedIsr((1, 2)), (2,))
    return AlterPartitionItem(TOPIC_ID, TopicPartition("t", partition), IsrProposal(5, 10, ((1, 101),), state))


class Controller:
    """Raises the errors that stand ready, one for each request, then accepts all."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.asked: list[list[int]] = []

    async def send(self, items: Sequence[AlterPartitionItem]) -> Sequence[AlterPartitionResult]:
        self.asked.append([one.topic_partition.partition for one in items])
        await asyncio.sleep(0.001)
        if self.errors:
            raise self.errors.pop(0)
        return [DONE] * len(items)


class Leaders:
    """Takes the answers; sends again what got none, and cannot process the answers for `broken`."""

    def __init__(self, broken: int | None = None) -> None:
        self.broken = broken
        self.answered: list[tuple[int, int]] = []

    def on_result(self, one: AlterPartitionItem, result: AlterPartitionResult) -> bool:
        partition = one.topic_partition.partition
        if partition == self.broken:
            raise RuntimeError("what nobody expects")
        self.answered.append((partition, result.error_code))
        return result.error_code != ErrorCode.NONE


def propose(controller: Controller, leaders: Leaders, *partitions: int) -> list[str]:
    """Propose shrinks one after the other, with a second in between; returns the errors that were reported."""
    scheduler = Scheduler()

    async def body() -> None:
        manager = AlterPartitionManager(controller.send, 50)
        for partition in partitions:
            manager.submit(item(partition), leaders.on_result)
            await asyncio.sleep(1)
        await manager.stop()

    ProcessLoop(scheduler, "test").run_until_complete(body(), 60.0)
    return [str(error) for error in scheduler.errors]


@pytest.mark.parametrize("error", [OSError("gone"), ProtocolError(ErrorCode.REQUEST_TIMED_OUT, "")])
def test_a_proposal_without_an_answer_is_sent_again(error: Exception) -> None:
    controller, leaders = Controller(error), Leaders()
    assert propose(controller, leaders, 0) == []
    assert controller.asked == [[0], [0]]
    assert leaders.answered == [(0, ErrorCode.NETWORK_EXCEPTION), (0, ErrorCode.NONE)]


def test_an_unexpected_error_is_reported_and_the_proposal_sent_again() -> None:
    """A dead replica would stay in the ISR for as long as the broker runs, and acks=all would time out."""
    controller, leaders = Controller(ValueError("what nobody expects")), Leaders()
    reported = propose(controller, leaders, 0, 1)
    assert len(reported) == 1 and "1 proposals of ISRs could not be sent" in reported[0]
    assert controller.asked == [[0], [0], [1]]
    assert leaders.answered[1:] == [(0, ErrorCode.NONE), (1, ErrorCode.NONE)]


def test_an_answer_that_cannot_be_processed_is_reported_and_concerns_no_other_proposal() -> None:
    controller, leaders = Controller(), Leaders(broken=0)
    reported = propose(controller, leaders, 0, 1)
    assert len(reported) == 1 and "the ISR proposal of" in reported[0]
    assert leaders.answered == [(1, ErrorCode.NONE)]
