"""The coordinator's shell: durable before visible, failover in every state, markers for every partition."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from support.broker.broker_harness import TOPIC_ID, settle
from support.broker.group_harness import on_virtual_time
from support.broker.transaction_harness import PARTITIONS, A, B, TransactionHarness, play, played

from raftwerk.broker.coordinators.partition_for import partition_for
from raftwerk.broker.transactions.transaction_config import TRANSACTION_TOPIC
from raftwerk.broker.transactions.transaction_coordinator_shard import IDS_PER_STEP
from raftwerk.broker.transactions.transaction_metadata import TransactionMetadata
from raftwerk.broker.transactions.transaction_records import transaction_record
from raftwerk.controller.metadata.metadata_records import PartitionChangeRecord, RemoveTopicRecord
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.records import NewRecord, encode_batch
from raftwerk.wire.types import TopicPartition

BUSY, LOADING = int(ErrorCode.CONCURRENT_TRANSACTIONS), int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
NOT_COORDINATOR, UNAVAILABLE = int(ErrorCode.NOT_COORDINATOR), int(ErrorCode.COORDINATOR_NOT_AVAILABLE)
KEY = TopicPartition(TRANSACTION_TOPIC, partition_for("t", PARTITIONS))


async def open_transaction(harness: TransactionHarness, *partitions: TopicPartition) -> tuple[int, int]:
    """A producer with an open transaction."""
    _, producer_id, epoch = await harness.init()
    assert set(await harness.add((producer_id, epoch), *partitions, version=5)) == {0}
    return producer_id, epoch


async def end_later(harness: TransactionHarness, producer: tuple[int, int]) -> Callable[[], Any]:
    """Ask for a commit whose answer may wait."""
    fields = {"transactional_id": "t", "producer_id": producer[0], "producer_epoch": producer[1], "committed": True}
    answer = harness.parked(ApiKey.END_TXN, 5, fields)
    await settle()
    return answer


# -- answers from memory


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("is_confirmed", [True, False])
def test_what_is_told_from_memory_is_confirmed_first(version: int, is_confirmed: bool) -> None:
    """Another coordinator may have ended this transaction, and a client with version 1 may be in the next one."""

    expected = 0 if is_confirmed else NOT_COORDINATOR

    async def code_from_memory(harness: TransactionHarness, request: Awaitable[Any]) -> int:
        harness.holds_reads = True
        answer = asyncio.ensure_future(request)
        await settle()
        assert not answer.done()
        (done,) = harness.held_reads.pop(KEY)
        done(is_confirmed)
        harness.holds_reads = False
        return int((await answer)[0])

    async def ask_again(harness: TransactionHarness) -> None:
        producer, end_version = await open_transaction(harness, A), 5 if version == 2 else 3
        assert await code_from_memory(harness, harness.add(producer, A)) == expected
        assert (await harness.end(producer, version=end_version))[0] == 0
        await settle()
        assert await code_from_memory(harness, harness.end(producer, version=end_version)) == expected

    play(ask_again, version)


# -- durable before visible


@played
async def test_nothing_is_answered_or_sent_before_it_is_durable(harness: TransactionHarness) -> None:
    producer = await open_transaction(harness, A)
    harness.hold = True
    answer = await end_later(harness, producer)
    assert answer() is None
    assert harness.markers == []
    assert (await harness.describe()).transaction_state == "Ongoing"
    assert (await harness.end(producer))[0] == BUSY
    assert (await harness.init())[0] == BUSY
    harness.release()
    await settle()
    assert answer().error_code == 0
    assert len(harness.markers) == 1
    assert (await harness.describe()).transaction_state == "CompleteCommit"


@pytest.mark.parametrize(
    ("refusal", "expected"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_write_that_fails_changes_nothing(refusal: ErrorCode, expected: ErrorCode) -> None:
    async def test(harness: TransactionHarness) -> None:
        harness.append_error = refusal
        assert await harness.init() == (expected, -1, -1)
        assert (await harness.describe()).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        harness.append_error = 0
        producer = await open_transaction(harness, A)
        harness.append_error = refusal
        assert await harness.add(producer, B, version=5) == [expected]
        assert await harness.end(producer) == (expected, -1, -1)
        assert harness.markers == []
        harness.append_error = 0
        assert (await harness.describe()).transaction_state == "Ongoing"
        assert (await harness.end(producer))[0] == 0

    play(test)


@played
async def test_an_end_that_cannot_be_recorded_is_recorded_later(harness: TransactionHarness) -> None:
    producer = await open_transaction(harness, A)
    harness.marker_gate = asyncio.Event()
    assert (await harness.end(producer))[0] == 0
    harness.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    harness.marker_gate.set()
    await asyncio.sleep(1)
    assert (await harness.describe()).transaction_state == "PrepareCommit"
    harness.append_error = 0
    await asyncio.sleep(0.2)
    assert (await harness.describe()).transaction_state == "CompleteCommit"
    assert len(harness.markers) == 1


# -- failover


def in_state(state: str) -> Callable[[TransactionHarness], Awaitable[tuple[int, int]]]:
    """Brings the id into a state; returns its producer."""

    async def arrange(harness: TransactionHarness) -> tuple[int, int]:
        if state == "Empty":
            return (await harness.init())[1:]
        producer = await open_transaction(harness, A, B)
        if state == "Ongoing":
            return producer
        if state.startswith("Prepare"):
            harness.marker_gate = asyncio.Event()
        code, *bumped = await harness.end(producer, commit=state.endswith("Commit"))
        assert code == 0
        return bumped[0], bumped[1]

    return arrange


STATES = ["Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"]


@pytest.mark.parametrize("state", STATES)
def test_the_next_coordinator_goes_on_from_every_state(state: str) -> None:
    async def main() -> None:
        former = TransactionHarness()
        producer_id, epoch = await in_state(state)(former)
        assert (await former.describe()).transaction_state == state
        former.transactions.stop()
        harness = TransactionHarness(transaction_logs=former.transaction_logs, starts=False)
        harness.lead_transactions(1)
        harness.transactions.start()
        await settle()
        after = state.replace("Prepare", "Complete")
        row = await harness.describe()
        assert (row.transaction_state, row.producer_id, row.producer_epoch) == (after, producer_id, epoch)
        is_commit = state == "PrepareCommit"
        expected = [(1, (producer_id, epoch, is_commit, 1, (A,))), (2, (producer_id, epoch, is_commit, 1, (B,)))]
        assert sorted(harness.markers) == (expected if state.startswith("Prepare") else [])
        if state == "Ongoing":
            assert (await harness.end((producer_id, epoch)))[0] == 0
            epoch += 1
        elif state.startswith("Prepare"):
            again = await harness.end((producer_id, epoch - 1), commit=is_commit)
            assert again == (0, producer_id, epoch), "the client had no answer, and asks the next coordinator"
        assert await harness.add((producer_id, epoch), A, version=5) == [0]
        harness.transactions.stop()

    on_virtual_time(main)


@played
async def test_a_coordinator_acts_only_on_what_is_committed(harness: TransactionHarness) -> None:
    """Its log may end with records that a later leader does not have."""
    harness.marker_gate = asyncio.Event()
    producer = await open_transaction(harness, A)
    await harness.end(producer)
    harness.markers.clear()
    waiting: list[Callable[[bool], None]] = []

    def when_committed(key: TopicPartition, offset: int, timeout_ms: int, done: Callable[[bool], None]) -> None:
        if key == KEY:
            assert offset == harness.transaction_logs[KEY].log_end_offset
            waiting.append(done)
        else:
            done(True)

    harness.replicas.when_committed = when_committed  # type: ignore[method-assign]
    harness.lead_transactions(1)
    await settle()
    assert (await harness.init())[0] == LOADING
    assert (await harness.describe()).error_code == LOADING
    answer = await harness.call(
        ApiKey.LIST_TRANSACTIONS, 2, {"state_filters": [], "producer_id_filters": [], "duration_filter": -1}
    )
    assert answer.error_code == LOADING
    waiting.pop()(False)
    await asyncio.sleep(0.2)
    assert harness.markers == []
    waiting.pop()(True)
    await settle()
    assert harness.markers == [(1, (producer[0], producer[1] + 1, True, 1, (A,)))]


@played
async def test_a_coordinator_that_is_replaced_says_so_to_all_that_wait(harness: TransactionHarness) -> None:
    producer = await open_transaction(harness, A)
    harness.hold = True
    answer = await end_later(harness, producer)
    harness.lead_transactions(2)
    await settle()
    assert answer().error_code == NOT_COORDINATOR
    harness.release()
    await settle()
    assert harness.markers == []


@played
async def test_a_replaced_coordinator_sends_no_more_markers(harness: TransactionHarness) -> None:
    harness.marker_answers = lambda broker, one: ErrorCode.NOT_LEADER_OR_FOLLOWER
    producer = await open_transaction(harness, A)
    await harness.end(producer)
    await asyncio.sleep(0.55)
    sent = len(harness.markers)
    assert sent > 1
    harness.lead_transactions(2)
    await asyncio.sleep(1)
    assert len(harness.markers) == sent


@played
async def test_records_that_cannot_be_read_are_passed_over(harness: TransactionHarness) -> None:
    """Kafka's tools may write to the topic; what they write is anything."""
    producer = await open_transaction(harness, A)
    log = harness.transaction_logs[KEY]
    hostile = [NewRecord(None, b"x"), NewRecord(b"\x00", b""), NewRecord(b"\x00\x00\x00\x01u", b"\x00\x09")]
    for record in hostile:
        log.append(memoryview(encode_batch([record])))
    harness.lead_transactions(1)
    await settle()
    assert await harness.add(producer, B, version=5) == [0]
    assert harness.transactions.partitions.passed_over == 3


# -- markers


@played
async def test_markers_go_to_the_leaders_of_that_time(harness: TransactionHarness) -> None:
    harness.marker_answers = lambda broker, one: (
        None if broker == 1 and one == A else ErrorCode.NOT_LEADER_OR_FOLLOWER if broker == 2 else ErrorCode.NONE
    )
    producer = await open_transaction(harness, A, B)
    assert (await harness.end(producer))[0] == 0
    await asyncio.sleep(0.35)
    assert (await harness.describe()).transaction_state == "PrepareCommit"
    for partition in (0, 1):
        delta = harness.replay(PartitionChangeRecord(TOPIC_ID, partition, leader=3))
        harness.transactions.on_metadata(harness.image, delta)
    await asyncio.sleep(0.35)
    assert (await harness.describe()).transaction_state == "CompleteCommit"
    assert harness.markers[-1] == (3, (producer[0], producer[1] + 1, True, 0, (A, B)))


@played
async def test_markers_wait_for_a_leader(harness: TransactionHarness) -> None:
    producer = await open_transaction(harness, A)
    harness.transactions.on_metadata(harness.image, harness.replay(PartitionChangeRecord(TOPIC_ID, 0, leader=-1)))
    assert (await harness.end(producer))[0] == 0
    await asyncio.sleep(1)
    assert harness.markers == []
    harness.transactions.on_metadata(harness.image, harness.replay(PartitionChangeRecord(TOPIC_ID, 0, leader=2)))
    await settle()
    assert [broker for broker, _ in harness.markers] == [2]
    assert (await harness.describe()).transaction_state == "CompleteCommit"


@pytest.mark.parametrize("is_early", [True, False])
def test_a_topic_that_is_deleted_holds_no_transaction_up(is_early: bool) -> None:
    async def test(harness: TransactionHarness) -> None:
        harness.marker_answers = lambda broker, one: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        producer = await open_transaction(harness, A, B)
        if is_early:
            harness.transactions.on_metadata(harness.image, harness.replay(RemoveTopicRecord(TOPIC_ID)))
        assert (await harness.end(producer))[0] == 0
        if not is_early:
            await asyncio.sleep(0.3)
            harness.transactions.on_metadata(harness.image, harness.replay(RemoveTopicRecord(TOPIC_ID)))
        await asyncio.sleep(0.3)
        assert (await harness.describe()).transaction_state == "CompleteCommit"

    play(test)


@pytest.mark.parametrize(
    ("code", "is_written"),
    [
        (ErrorCode.INVALID_PRODUCER_EPOCH, True),
        (ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, True),
        (ErrorCode.TRANSACTION_COORDINATOR_FENCED, False),
        (ErrorCode.NOT_ENOUGH_REPLICAS, False),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, False),
        (ErrorCode.KAFKA_STORAGE_ERROR, False),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, False),
        (ErrorCode.UNKNOWN_SERVER_ERROR, False),
    ],
)
def test_what_leaders_answer_to_markers(code: ErrorCode, is_written: bool) -> None:
    async def test(harness: TransactionHarness) -> None:
        answers = [code]
        harness.marker_answers = lambda broker, one: answers.pop() if answers else ErrorCode.NONE
        producer = await open_transaction(harness, A)
        assert (await harness.end(producer))[0] == 0
        await settle()
        expected = "CompleteCommit" if is_written else "PrepareCommit"
        assert (await harness.describe()).transaction_state == expected
        await asyncio.sleep(0.3)
        assert (await harness.describe()).transaction_state == "CompleteCommit"
        assert len(harness.markers) == (1 if is_written else 2)

    play(test)


@played
async def test_markers_of_many_transactions_share_a_request(harness: TransactionHarness) -> None:
    producers = {}
    for index in range(40):
        name = f"t{index}"
        producers[name] = (await harness.init(transactional_id=name))[1:]
        await harness.add(producers[name], A, version=5, transactional_id=name)
    requests = 0
    answer = harness.answer_markers

    async def counted(*arguments: Any, **more: Any) -> Any:
        nonlocal requests
        requests += 1
        return await answer(*arguments, **more)

    harness.transactions._markers._channels.request = counted  # type: ignore[method-assign]
    harness.marker_gate = asyncio.Event()
    for name, producer in producers.items():
        await harness.end(producer, transactional_id=name)
    assert requests == 5
    harness.marker_gate.set()
    await settle()
    assert requests == 6
    for name in producers:
        assert (await harness.describe(name)).transaction_state == "CompleteCommit"


@played
async def test_many_ids_expire_in_steps(harness: TransactionHarness) -> None:
    log = harness.transaction_logs[KEY]
    value = TransactionMetadata(7, 0, 60_000, last_update_ms=0)
    for first in range(0, 2 * IDS_PER_STEP, 100):
        records = [transaction_record(f"{first + index}", value, 1) for index in range(100)]
        log.append(memoryview(encode_batch([NewRecord(*record) for record in records])))
    harness.lead_transactions(1)
    await settle()
    await harness.init()
    harness.wall_ms += 8 * 24 * 3_600_000
    await harness.init()
    await asyncio.sleep(3_601)
    assert [list(shard.entries) for shard in harness.transactions.loaded_shards() if shard.entries] == [["t"]]
