"""Transactions that an outside coordinator ends (KIP-939): no time-out, kept for a recovered producer, ended by it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from support.broker.transaction_harness import A, B, TransactionHarness, play, settle
from support.security.right_mutants import leave_out_check

from raftwerk.broker.transactions.transaction_metadata import (
    EPOCH_MAX,
    NO_TIMEOUT_MS,
    TransactionMetadata,
    TransactionState,
)
from raftwerk.broker.transactions.transaction_records import decode_value, transaction_record
from raftwerk.security.authorizer.acl_binding import AclBinding, AclOperation, ResourceType
from raftwerk.security.authorizer.standard_authorizer import StandardAuthorizer
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.errors import ErrorCode

Test = Callable[[TransactionHarness], Awaitable[None]]
NOBODY = (-1, -1)


def enabled(test: Test) -> Callable[[], None]:
    """The test with `transaction.two.phase.commit.enable`."""

    async def with_setting(harness: TransactionHarness) -> None:
        allow(harness)
        await test(harness)

    def run() -> None:
        play(with_setting)

    run.__name__ = test.__name__
    return run


def allow(harness: TransactionHarness) -> None:
    harness.transactions.config = replace(harness.transactions.config, is_two_phase_commit_enabled=True)


async def recover(
    harness: TransactionHarness, producer: tuple[int, int] = NOBODY, *, has_timeout: bool = False
) -> tuple[int, tuple[int, int], tuple[int, int]]:
    """InitProducerId that keeps what is open: the code, the producer, and the producer of what is open."""
    fields = {
        "transactional_id": "t",
        "transaction_timeout": 60_000,
        "producer_id": producer[0],
        "producer_epoch": producer[1],
        "enable2_pc": not has_timeout,
        "keep_prepared_txn": True,
    }
    answer = await harness.call(ApiKey.INIT_PRODUCER_ID, 6, fields)
    ongoing = answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch
    return answer.error_code, (answer.producer_id, answer.producer_epoch), ongoing


async def prepared(harness: TransactionHarness) -> tuple[int, int]:
    """A producer that has written everything of its transaction, and dies."""
    code, *producer = await harness.init(enable2_pc=True)
    assert code == 0
    assert await harness.add((producer[0], producer[1]), A, B, version=5) == [0, 0]
    return producer[0], producer[1]


@pytest.mark.parametrize("is_commit", [True, False])
def test_the_recovered_producer_ends_what_was_prepared(is_commit: bool) -> None:
    async def test(harness: TransactionHarness) -> None:
        allow(harness)
        producer_id, epoch = await prepared(harness)
        code, recovered, ongoing = await recover(harness)
        assert (code, recovered, ongoing) == (0, (producer_id, epoch + 1), (producer_id, epoch))
        assert (await harness.describe()).producer_epoch == epoch
        ended = await harness.end(recovered, commit=is_commit)
        assert ended == (0, producer_id, epoch + 2)
        assert {marker[:3] for _, marker in harness.markers} == {(producer_id, epoch + 1, is_commit)}
        assert await harness.end(recovered, commit=is_commit) == ended, "the answer was lost"
        assert (await harness.end(recovered, commit=not is_commit))[0] == ErrorCode.INVALID_TXN_STATE
        assert await harness.add((producer_id, epoch + 2), A, version=5) == [0]

    play(test)


@enabled
async def test_the_producer_before_can_do_nothing_more(harness: TransactionHarness) -> None:
    former = await prepared(harness)
    _, recovered, _ = await recover(harness)
    assert (await harness.end(former))[0] == ErrorCode.PRODUCER_FENCED
    assert (await harness.end(former, version=3))[0] == ErrorCode.PRODUCER_FENCED
    assert await harness.add(former, A, version=5) == [ErrorCode.PRODUCER_FENCED]
    assert await harness.add(former, A, version=5, verify_only=True) == [ErrorCode.PRODUCER_FENCED]
    assert (await recover(harness, former))[0] == ErrorCode.PRODUCER_FENCED
    assert (await harness.end(recovered))[0] == 0


@enabled
async def test_a_recovered_producer_only_ends_the_transaction(harness: TransactionHarness) -> None:
    await prepared(harness)
    _, recovered, _ = await recover(harness)
    for verify_only in (True, False):
        codes = await harness.add(recovered, A, version=5, verify_only=verify_only)
        assert codes == [ErrorCode.INVALID_TXN_STATE]


@enabled
async def test_it_may_crash_and_recover_again_and_again(harness: TransactionHarness) -> None:
    producer_id, epoch = await prepared(harness)
    for number in range(1, 4):
        assert await recover(harness) == (0, (producer_id, epoch + number), (producer_id, epoch))
    assert (await recover(harness, (producer_id, epoch + 3)))[1] == (producer_id, epoch + 4)
    assert (await harness.end((producer_id, epoch + 3)))[0] == ErrorCode.PRODUCER_FENCED
    assert await harness.end((producer_id, epoch + 4)) == (0, producer_id, epoch + 5)
    assert {marker[:2] for _, marker in harness.markers} == {(producer_id, epoch + 1)}


@enabled
async def test_nothing_is_open(harness: TransactionHarness) -> None:
    code, recovered, ongoing = await recover(harness)
    assert (code, recovered[1], ongoing) == (0, 0, NOBODY)
    assert await recover(harness) == (0, (recovered[0], 1), NOBODY)


@enabled
async def test_who_does_not_keep_it_aborts_it(harness: TransactionHarness) -> None:
    producer_id, epoch = await prepared(harness)
    await recover(harness)
    assert (await harness.init())[0] == ErrorCode.CONCURRENT_TRANSACTIONS
    await settle()
    assert {marker[:3] for _, marker in harness.markers} == {(producer_id, epoch + 1, False)}
    assert await harness.init() == (0, producer_id, epoch + 3)


@enabled
async def test_the_next_coordinator_knows_both_producers(harness: TransactionHarness) -> None:
    producer_id, epoch = await prepared(harness)
    _, recovered, ongoing = await recover(harness)
    harness.transactions.stop()
    other = TransactionHarness(2, harness.transaction_logs)
    allow(other)
    await settle(30)
    assert (await other.end(ongoing))[0] == ErrorCode.PRODUCER_FENCED
    assert await other.end(recovered) == (0, producer_id, epoch + 2)
    assert {marker[:3] for _, marker in other.markers} == {(producer_id, epoch + 1, True)}
    other.transactions.stop()


@enabled
async def test_it_never_times_out(harness: TransactionHarness) -> None:
    await prepared(harness)
    shard = harness.transactions.shard_of("t")
    value = shard.current("t")
    assert value is not None
    assert value.timeout_ms == 2_147_483_647, "the record says so as in Apache Kafka: the largest number"
    now_ms = value.start_ms
    assert shard.abort_timed_out(now_ms + NO_TIMEOUT_MS * 2) == []
    assert (await recover(harness, has_timeout=True))[0] == 0
    assert shard.abort_timed_out(now_ms + 120_000) == ["t"], "the client gives it a time-out again"


@pytest.mark.parametrize("epoch", [EPOCH_MAX - 2, EPOCH_MAX - 1])
def test_a_recovered_producer_gets_another_id_when_the_epochs_are_used_up(epoch: int) -> None:
    """Either at once, or when it ends the transaction."""

    async def test(harness: TransactionHarness) -> None:
        allow(harness)
        producer_id, _ = await prepared(harness)
        entry = harness.transactions.shard_of("t").entries["t"]
        assert entry.value is not None
        entry.value = entry.value._replace(producer_epoch=epoch)
        _, recovered, ongoing = await recover(harness)
        assert ongoing == (producer_id, epoch)
        code, *following = await harness.end(recovered)
        assert code == 0
        assert {marker[:2] for _, marker in harness.markers} == {(producer_id, epoch + 1)}
        if epoch == EPOCH_MAX - 1:
            assert recovered[0] != producer_id
            assert (recovered[1], following) == (0, [recovered[0], 1])
        else:
            assert recovered == (producer_id, EPOCH_MAX - 1)
            assert following[0] != producer_id
            assert following[1] == 0
        await settle()
        assert await harness.end(recovered) == (0, *following), "the answer was lost"
        assert await harness.add((following[0], following[1]), A, version=5) == [0]

    play(test)


@pytest.mark.parametrize("level", [0, 1])
def test_it_takes_transaction_version_2_to_keep_a_transaction(level: int) -> None:
    async def test(harness: TransactionHarness) -> None:
        allow(harness)
        assert (await recover(harness))[0] == ErrorCode.UNSUPPORTED_VERSION

    play(test, level)


def test_without_the_setting_nobody_may() -> None:
    async def test(harness: TransactionHarness) -> None:
        assert (await recover(harness))[0] == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert (await recover(harness, has_timeout=True))[0] == ErrorCode.UNSUPPORTED_VERSION

    play(test)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_the_record_has_both_producers_at_every_level(level: int) -> None:
    """The level may be lowered while the transaction is kept."""
    value = TransactionMetadata(7, 3, 1000, TransactionState.ONGOING, frozenset({A}), 5, 6).kept(8, 0, NO_TIMEOUT_MS, 9)
    record = transaction_record("t", value, level)
    assert record.value is not None
    assert decode_value(record.value) == value
    ended = value.ending(TransactionState.PREPARE_ABORT, level, 10)
    assert ended.client == (8, int(level == 2))
    record = transaction_record("t", ended, level)
    assert record.value is not None
    assert decode_value(record.value).completed(11).client == ended.client


def rights_of_a_producer(harness: TransactionHarness) -> None:
    """Everybody may write with the transactional id, and nobody leave its transactions to another coordinator."""
    authorizer = StandardAuthorizer()
    authorizer.replace([AclBinding(ResourceType.TRANSACTIONAL_ID, "t", 3, "User:*", "*", AclOperation.WRITE, 3)])
    authorization = harness.services.authorization
    authorization._authorizer, authorization.is_on = authorizer, True


@enabled
async def test_a_producer_without_the_right_has_a_time_out(harness: TransactionHarness) -> None:
    rights_of_a_producer(harness)
    assert (await harness.init())[0] == ErrorCode.NONE
    assert (await harness.init(enable2_pc=True))[0] == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_the_right_left_out_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = AclOperation.TWO_PHASE_COMMIT, ResourceType.TRANSACTIONAL_ID
    leave_out_check(monkeypatch, ApiKey.INIT_PRODUCER_ID, right)
    with pytest.raises(AssertionError):
        test_a_producer_without_the_right_has_a_time_out()
