"""Every API of the transaction coordinator in every version, with the error codes of Apache Kafka 4.2."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.broker.broker_harness import settle
from support.broker.transaction_harness import A, B, TransactionHarness, play, played

from raftwerk.broker.groups.group_config import OFFSETS_TOPIC
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.types import TopicPartition

OK, FENCED, OLD_EPOCH = 0, int(ErrorCode.PRODUCER_FENCED), int(ErrorCode.INVALID_PRODUCER_EPOCH)
BUSY, WRONG_STATE = int(ErrorCode.CONCURRENT_TRANSACTIONS), int(ErrorCode.INVALID_TXN_STATE)
UNKNOWN_ID, ABORTABLE = int(ErrorCode.INVALID_PRODUCER_ID_MAPPING), int(ErrorCode.TRANSACTION_ABORTABLE)
NOT_COORDINATOR = int(ErrorCode.NOT_COORDINATOR)


@pytest.mark.parametrize("version", range(7))
def test_each_initialization_fences_the_producer_before(version: int) -> None:
    async def test(harness: TransactionHarness) -> None:
        code, producer_id, epoch = await harness.init(version)
        assert (code, epoch) == (OK, 0)
        assert await harness.init(version) == (OK, producer_id, 1)
        fenced = FENCED if version >= 4 else OLD_EPOCH
        if version >= 3:
            assert await harness.init(version, producer_id=producer_id, producer_epoch=0) == (fenced, -1, -1)
            assert await harness.init(version, producer_id=producer_id, producer_epoch=1) == (OK, producer_id, 2)
            again = await harness.init(version, producer_id=producer_id, producer_epoch=1)
            assert again == (OK, producer_id, 2), "the answer was lost, and the client asks again"
            assert await harness.init(version, producer_id=9, producer_epoch=1) == (fenced, -1, -1)
            assert (await harness.init(version, producer_id=9))[0] == ErrorCode.INVALID_REQUEST

    play(test)


@pytest.mark.parametrize("version", range(7))
def test_refused_initializations(version: int) -> None:
    async def test(harness: TransactionHarness) -> None:
        for timeout_ms in (0, -1, 900_001):
            code = (await harness.init(version, transaction_timeout=timeout_ms))[0]
            assert code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
        assert (await harness.init(version, transactional_id=""))[0] == ErrorCode.INVALID_REQUEST
        assert (await harness.init(version, transactional_id=None))[0] == OK
        if version >= 6:
            code = (await harness.init(version, enable2_pc=True))[0]
            assert code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            assert (await harness.init(version, keep_prepared_txn=True))[0] == ErrorCode.UNSUPPORTED_VERSION
        harness.lead_transactions(2)
        assert (await harness.init(version))[0] == NOT_COORDINATOR

    play(test)


@pytest.mark.parametrize("version", range(6))
def test_partitions_are_added(version: int) -> None:
    async def test(harness: TransactionHarness) -> None:
        _, producer_id, epoch = await harness.init()
        me = producer_id, epoch
        assert await harness.add(me, A, B, version=version) == [OK, OK]
        assert await harness.add(me, A, version=version) == [OK]
        assert harness.states() == ["Empty", "Ongoing"]
        fenced = FENCED if version >= 2 else OLD_EPOCH
        assert await harness.add((producer_id, epoch + 1), A, version=version) == [fenced]
        assert await harness.add((producer_id + 1, epoch), A, version=version) == [UNKNOWN_ID]
        assert await harness.add(me, A, version=version, transactional_id="other") == [UNKNOWN_ID]
        assert await harness.add(me, A, version=version, transactional_id="") == [int(ErrorCode.INVALID_REQUEST)]
        missing = TopicPartition("nothing", 0)
        expected = [int(ErrorCode.OPERATION_NOT_ATTEMPTED), int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
        assert sorted(await harness.add(me, A, missing, version=version)) == sorted(expected)
        harness.lead_transactions(2)
        assert await harness.add(me, A, version=version) == [NOT_COORDINATOR]

    play(test)


@pytest.mark.parametrize("version", [4, 5])
def test_brokers_verify_partitions(version: int) -> None:
    async def test(harness: TransactionHarness) -> None:
        _, producer_id, epoch = await harness.init()
        me = producer_id, epoch

        async def verify(producer: tuple[int, int], *partitions: TopicPartition, **more: Any) -> list[int]:
            return await harness.add(producer, *partitions, version=version, verify_only=True, **more)

        assert await verify(me, A) == [ABORTABLE]
        await harness.add(me, A)
        assert await verify(me, A, B) == [OK, ABORTABLE]
        assert await verify((producer_id, epoch + 1), A) == [FENCED]
        assert await verify((producer_id + 1, epoch), A) == [UNKNOWN_ID]
        assert await verify(me, A, transactional_id="other") == [UNKNOWN_ID]
        assert harness.states() == ["Empty", "Ongoing"], "to verify writes nothing"
        harness.marker_gate = asyncio.Event()
        await harness.end(me, version=4)
        assert await verify(me, A) == [BUSY]
        harness.marker_gate.set()
        await settle()
        assert await verify(me, A) == [ABORTABLE]

    play(test)


@pytest.mark.parametrize("version", [4, 5])
def test_one_request_asks_for_many_transactions(version: int) -> None:
    async def test(harness: TransactionHarness) -> None:
        producers = {name: (await harness.init(transactional_id=name))[1:] for name in "abc"}
        transactions = [
            {
                "transactional_id": name,
                "producer_id": producer_id,
                "producer_epoch": epoch,
                "verify_only": name == "b",
                "topics": [{"name": A.topic, "partitions": [0, 1]}],
            }
            for name, (producer_id, epoch) in producers.items()
        ]
        answer = await harness.call(ApiKey.ADD_PARTITIONS_TO_TXN, version, {"transactions": transactions})
        found = {
            one.transactional_id: [
                row.partition_error_code for topic in one.topic_results for row in topic.results_by_partition
            ]
            for one in answer.results_by_transaction
        }
        assert found == {"a": [OK, OK], "b": [ABORTABLE, ABORTABLE], "c": [OK, OK]}

    play(test)


@pytest.mark.parametrize("version", range(5))
def test_offsets_are_added(version: int) -> None:
    async def test(harness: TransactionHarness) -> None:
        _, producer_id, epoch = await harness.init()
        fields = {"transactional_id": "t", "producer_id": producer_id, "producer_epoch": epoch, "group_id": "g"}

        async def add(**more: Any) -> int:
            return int((await harness.call(ApiKey.ADD_OFFSETS_TO_TXN, version, {**fields, **more})).error_code)

        assert await add() == OK
        partition = TopicPartition(OFFSETS_TOPIC, harness.groups.partition_of("g"))
        last = harness.recorded("t")[-1]
        assert last is not None
        assert last.partitions == {partition}
        assert await add(producer_epoch=epoch + 1) == (FENCED if version >= 2 else OLD_EPOCH)
        assert await add(producer_id=producer_id + 1) == UNKNOWN_ID
        assert await add(transactional_id="") == ErrorCode.INVALID_REQUEST
        harness.lead_transactions(2)
        assert await add() == NOT_COORDINATOR

    play(test)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", range(5))
def test_a_client_that_keeps_its_epoch_ends_transactions(version: int, commit: bool) -> None:
    async def test(harness: TransactionHarness) -> None:
        _, producer_id, epoch = await harness.init()
        me = producer_id, epoch
        assert (await harness.end(me, commit=commit, version=version))[0] == WRONG_STATE, "nothing was begun"
        await harness.add(me, A, B)
        assert (await harness.end((producer_id + 1, epoch), version=version))[0] == UNKNOWN_ID
        fenced = FENCED if version >= 2 else OLD_EPOCH
        assert (await harness.end((producer_id, epoch + 1), version=version))[0] == fenced
        harness.marker_gate = asyncio.Event()
        assert await harness.end(me, commit=commit, version=version) == (OK, -1, -1)
        for again in (True, False):
            assert (await harness.end(me, commit=again, version=version))[0] == BUSY
        assert await harness.add(me, A, version=4) == [BUSY]
        assert (await harness.init())[0] == BUSY
        harness.marker_gate.set()
        await settle()
        assert (await harness.end(me, commit=commit, version=version))[0] == OK, "the client asks again"
        assert (await harness.end(me, commit=not commit, version=version))[0] == WRONG_STATE
        word = "Commit" if commit else "Abort"
        assert harness.states() == ["Empty", "Ongoing", f"Prepare{word}", f"Complete{word}"]
        assert sorted(harness.markers) == [
            (1, (producer_id, epoch, commit, 0, (A,))),
            (2, (producer_id, epoch, commit, 0, (B,))),
        ]
        assert await harness.add(me, A, version=3) == [OK]

    play(test)


@pytest.mark.parametrize("commit", [True, False])
def test_with_version_2_each_end_bumps_the_epoch(commit: bool) -> None:
    async def test(harness: TransactionHarness) -> None:
        _, producer_id, epoch = await harness.init()
        me, bumped = (producer_id, epoch), (producer_id, epoch + 1)
        await harness.add(me, A, version=5)
        harness.marker_gate = asyncio.Event()
        assert await harness.end(me, commit=commit) == (OK, *bumped)
        assert (await harness.end(me, commit=commit))[0] == BUSY
        harness.marker_gate.set()
        await settle()
        assert await harness.end(me, commit=commit) == (OK, *bumped), "the client asks again"
        assert (await harness.end(me, commit=not commit))[0] == WRONG_STATE
        assert harness.markers == [(1, (*bumped, commit, 0, (A,)))]
        assert await harness.add(me, A, version=5) == [FENCED]
        assert await harness.add(bumped, A, version=5) == [OK]
        assert (await harness.end(me, commit=commit))[0] == FENCED, "it is another transaction now"

    play(test)


@played
async def test_an_abort_of_nothing_bumps_the_epoch(harness: TransactionHarness) -> None:
    _, producer_id, epoch = await harness.init()
    assert (await harness.end((producer_id, epoch), commit=True))[0] == WRONG_STATE
    assert await harness.end((producer_id, epoch), commit=False) == (OK, producer_id, epoch + 1)
    assert harness.states() == ["Empty", "PrepareAbort", "CompleteAbort"]
    assert await harness.end((producer_id, epoch + 1), commit=False) == (OK, producer_id, epoch + 2)
    assert (await harness.end((producer_id, epoch + 2), commit=True))[0] == WRONG_STATE
    assert harness.markers == []


@pytest.mark.parametrize("level", [0, 1, 2])
def test_an_open_transaction_is_aborted_by_the_next_producer(level: int) -> None:
    async def test(harness: TransactionHarness) -> None:
        _, producer_id, epoch = await harness.init()
        await harness.add((producer_id, epoch), A)
        assert await harness.init() == (BUSY, -1, -1)
        await settle()
        assert harness.states()[-2:] == ["PrepareAbort", "CompleteAbort"]
        assert harness.markers == [(1, (producer_id, epoch + 1, False, 0, (A,)))]
        assert await harness.add((producer_id, epoch), A) == [FENCED]
        assert await harness.init() == (OK, producer_id, epoch + 2)

    play(test, level)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_transaction_that_is_open_for_too_long_is_aborted(level: int) -> None:
    async def test(harness: TransactionHarness) -> None:
        _, producer_id, epoch = await harness.init()
        me = producer_id, epoch
        await harness.add(me, A)
        harness.wall_ms += 60_000
        await asyncio.sleep(10.1)
        assert (await harness.describe()).transaction_state == "Ongoing"
        harness.wall_ms += 1
        await asyncio.sleep(10.1)
        assert harness.states()[-2:] == ["PrepareAbort", "CompleteAbort"]
        version = 5 if level == 2 else 4
        expected = (WRONG_STATE, -1, -1) if level == 2 else (FENCED, -1, -1)
        assert await harness.end(me, commit=True, version=version) == expected
        if level == 2:
            assert await harness.end(me, commit=False) == (OK, producer_id, epoch + 1)
            assert await harness.init(producer_id=producer_id, producer_epoch=epoch) == (OK, producer_id, epoch + 1)

    play(test, level)


@played
async def test_ids_that_are_not_used_expire(harness: TransactionHarness) -> None:
    for name in ("idle", "busy", "open"):
        await harness.init(transactional_id=name)
    _, producer_id, epoch = await harness.init(transactional_id="open", transaction_timeout=900_000)
    harness.wall_ms += 7 * 24 * 3_600_000
    await harness.init(transactional_id="busy")
    await harness.add((producer_id, epoch), A, transactional_id="open")
    await asyncio.sleep(3_601)
    assert harness.states("idle") == ["Empty", "tombstone"]
    assert "tombstone" not in harness.states("busy") + harness.states("open")
    assert (await harness.describe("idle")).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert (await harness.init(transactional_id="idle"))[0] == OK


@played
async def test_a_coordinator_that_has_loaded_its_ids_watches_them_before_any_request(
    harness: TransactionHarness,
) -> None:
    """Their clients may be gone: nobody else would end their transactions."""
    _, producer_id, epoch = await harness.init(transactional_id="open")
    await harness.add((producer_id, epoch), A, transactional_id="open")
    await harness.init(transactional_id="idle")
    successor = TransactionHarness(2, harness.transaction_logs)
    await settle(30)
    successor.wall_ms += 60_001
    await asyncio.sleep(10.1)
    assert successor.states("open")[-2:] == ["PrepareAbort", "CompleteAbort"]
    successor.wall_ms += 7 * 24 * 3_600_000
    await asyncio.sleep(3_590)
    assert successor.states("idle")[-1] == successor.states("open")[-1] == "tombstone"
    successor.transactions.stop()


@pytest.mark.parametrize("version", range(3))
def test_transactions_are_listed_and_described(version: int) -> None:
    async def test(harness: TransactionHarness) -> None:
        one = await harness.init(transactional_id="flights-1")
        two = await harness.init(transactional_id="flights-2")
        harness.wall_ms += 100
        await harness.add(one[1:], A, B, transactional_id="flights-1")
        harness.wall_ms += 500

        async def listed(**filters: Any) -> list[str]:
            fields = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1, **filters}
            answer = await harness.call(ApiKey.LIST_TRANSACTIONS, version, fields)
            assert answer.error_code == 0
            return sorted(row.transactional_id for row in answer.transaction_states)

        assert await listed() == ["flights-1", "flights-2"]
        assert await listed(state_filters=["Ongoing", "Odd"]) == ["flights-1"]
        assert await listed(producer_id_filters=[two[1]]) == ["flights-2"]
        if version >= 1:
            assert await listed(state_filters=["Ongoing"], duration_filter=499) == ["flights-1"]
            assert await listed(state_filters=["Ongoing"], duration_filter=500) == []
        if version >= 2:
            assert await listed(transactional_id_pattern=".*-2") == ["flights-2"]
            assert await listed(transactional_id_pattern="") == ["flights-1", "flights-2"]
            fields = {"state_filters": [], "producer_id_filters": [], "transactional_id_pattern": "("}
            refused = await harness.call(ApiKey.LIST_TRANSACTIONS, version, fields)
            assert refused.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
        row = await harness.describe("flights-1")
        assert (row.error_code, row.transaction_state, row.transaction_timeout) == (0, "Ongoing", 60_000)
        assert (row.producer_id, row.producer_epoch, row.transaction_start_time) == (one[1], 0, 1_000_100)
        assert [(topic.topic, list(topic.partitions)) for topic in row.topics] == [(A.topic, [0, 1])]
        assert (await harness.describe("")).error_code == ErrorCode.INVALID_REQUEST
        assert (await harness.describe("x")).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        harness.lead_transactions(2)
        assert (await harness.describe("x")).error_code == NOT_COORDINATOR
        assert await listed() == []

    play(test)


@played
async def test_a_client_that_goes_on_at_once_waits_for_the_end_of_its_former_transaction(
    harness: TransactionHarness,
) -> None:
    _, producer_id, epoch = await harness.init()
    await harness.add((producer_id, epoch), A)
    harness.marker_gate = asyncio.Event()
    assert (await harness.end((producer_id, epoch), version=3))[0] == OK
    add = {
        "v3_and_below_transactional_id": "t",
        "v3_and_below_producer_id": producer_id,
        "v3_and_below_producer_epoch": epoch,
        "v3_and_below_topics": [{"name": A.topic, "partitions": [A.partition]}],
    }
    offsets = {"transactional_id": "t", "producer_id": producer_id, "producer_epoch": epoch, "group_id": "g"}
    impatient = harness.parked(ApiKey.ADD_PARTITIONS_TO_TXN, 3, add)
    await asyncio.sleep(0.04)
    assert impatient() is None
    await asyncio.sleep(0.02)
    refused = impatient()
    assert refused is not None
    assert refused.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == BUSY
    added = [
        harness.parked(ApiKey.ADD_PARTITIONS_TO_TXN, 3, add),
        harness.parked(ApiKey.ADD_OFFSETS_TO_TXN, 3, offsets),
    ]
    await asyncio.sleep(0.01)
    harness.marker_gate.set()
    await settle(50)
    first, second = added[0](), added[1]()
    assert first is not None
    assert second is not None
    codes = [first.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code, second.error_code]
    assert sorted(codes) == [OK, OK]
    assert harness.states()[-2:] == ["Ongoing", "Ongoing"]


@played
async def test_two_requests_that_wait_for_the_same_end_do_not_wake_each_other(harness: TransactionHarness) -> None:
    """They asked by turns, for as long as they waited, and nothing else of the broker ran meanwhile."""
    _, producer_id, epoch = await harness.init()
    producer = (producer_id, epoch)
    await harness.add(producer, A)
    harness.marker_gate = asyncio.Event()
    harness.hold = True
    end = {"transactional_id": "t", "producer_id": producer_id, "producer_epoch": epoch, "committed": True}
    harness.parked(ApiKey.END_TXN, 3, end)
    await settle()
    coordinator, asked = harness.transactions, 0
    add_partitions = coordinator.add_partitions

    def counted(*arguments: Any, **named: Any) -> Any:
        nonlocal asked
        asked += 1
        return add_partitions(*arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coordinator, "add_partitions", counted)
        add = {
            "v3_and_below_transactional_id": "t",
            "v3_and_below_producer_id": producer_id,
            "v3_and_below_producer_epoch": epoch,
            "v3_and_below_topics": [{"name": B.topic, "partitions": [B.partition]}],
        }
        answers = [harness.parked(ApiKey.ADD_PARTITIONS_TO_TXN, 3, add) for _ in range(2)]
        await settle()
        assert asked == 2
        harness.release()  # the decision is durable, and its markers are not written yet
        await settle(50)
        assert asked == 4
        harness.marker_gate.set()
        await settle(50)
        assert all(answer() is not None for answer in answers)
        assert asked == 6


@played
async def test_a_client_that_adds_its_partitions_itself_does_not_bump_its_epoch(harness: TransactionHarness) -> None:
    """So the record says that its `transaction.version` is 0, whatever the cluster's is, as Apache Kafka writes it."""
    producer = (await harness.init())[1:]
    assert await harness.add(producer, A, version=3) == [OK]
    assert [one.client_version for one in harness.recorded("t") if one is not None] == [0, 0]
