"""The questions of leaders to transaction coordinators: batched, answered in the client's codes, retried."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from support.broker.broker_harness import settle
from support.broker.group_harness import on_virtual_time

from raftwerk.broker.transactions.partition_verifier import (
    Operation,
    PartitionVerifier,
    TransactionalProducer,
    Verified,
    VerifierConfig,
    offset_commit_operation,
    produce_operation,
)
from raftwerk.broker.transactions.transactional_appends import AppendRequest, TransactionalAppends
from raftwerk.log.state.transaction_verification import VerificationGuard
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.codec import Struct, decode_request, decode_response, encode_request, encode_response
from raftwerk.wire.errors import ErrorCode, ProtocolError
from raftwerk.wire.produce import ProducePartitionResponse
from raftwerk.wire.records import BATCH_HEADER_SIZE, NewRecord, encode_batch
from raftwerk.wire.types import TopicPartition

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
ELSEWHERE = TopicPartition("flights", 9)
ADD, VERIFY, OLD = produce_operation(12), produce_operation(11), produce_operation(10)
COORDINATOR = 2


class Replica:
    """A leader that knows which producers have a transaction open."""

    def __init__(self) -> None:
        self.open: set[int] = set()
        self.guard = VerificationGuard()

    def begin_verification(
        self, producer_id: int, producer_epoch: int, base_sequence: int, *, supports_epoch_bump: bool
    ) -> VerificationGuard | None:
        return None if producer_id in self.open else self.guard


class Cluster:
    """The replicas of a broker, the channels to coordinators, and what goes through both, in order."""

    def __init__(self) -> None:
        self.replicas = {P0: Replica(), P1: Replica()}
        self.partitions: Mapping[TopicPartition, Replica] = self.replicas
        self.verifies_transactions = True
        self.coordinator: int | None = COORDINATOR
        self.requests: list[Struct] = []
        self.refusals: dict[tuple[str, TopicPartition], int] = {}
        self.refuses_rows = False
        """Whether a row is refused as a whole when one of its partitions is."""
        self.top_level: int = ErrorCode.NONE
        self.fails_with: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.appended: list[tuple[int, TopicPartition, int, bool]] = []
        self.verifier = PartitionVerifier(VerifierConfig(), self, self, lambda _: self.coordinator)
        self.topic_ids = {"flights": UUID(int=1)}
        self.appends = TransactionalAppends(self.verifier, self, self.topic_ids.get)

    async def request(self, broker_id: int, api_key: ApiKey, version: int, fields: Any, *, timeout_ms: int) -> Struct:
        assert (broker_id, api_key, timeout_ms) == (COORDINATOR, ApiKey.ADD_PARTITIONS_TO_TXN, 30_000)
        request = decode_request(api_key, version, encode_request(api_key, version, fields))
        self.requests.append(request)
        await self.gate.wait()
        if self.fails_with is not None:
            raise self.fails_with
        results = [
            {
                "transactional_id": row.transactional_id,
                "topic_results": [
                    {
                        "name": topic.name,
                        "results_by_partition": [
                            {
                                "partition_index": index,
                                "partition_error_code": self.code_of(row, topic.name, index),
                            }
                            for index in topic.partitions
                        ],
                    }
                    for topic in row.topics
                ],
            }
            for row in request.transactions
        ]
        response = {"error_code": int(self.top_level), "results_by_transaction": results}
        return decode_response(api_key, version, encode_response(api_key, version, response))

    def code_of(self, row: Struct, topic: str, partition: int) -> int:
        refused = self.refusals.get((row.transactional_id, TopicPartition(topic, partition)))
        of_row = [
            (row.transactional_id, TopicPartition(other.name, index)) in self.refusals
            for other in row.topics
            for index in other.partitions
        ]
        others = ErrorCode.OPERATION_NOT_ATTEMPTED if self.refuses_rows and any(of_row) else ErrorCode.NONE
        return int(others if refused is None else refused)

    def append(
        self,
        acks: int,
        timeout_ms: int,
        entries: Any,
        done: Callable[[Any], None],
        guards: Mapping[TopicPartition, VerificationGuard] | None = None,
        *,
        caller: object = None,
    ) -> None:
        rows = []
        for key, records in entries:
            producer_id = int.from_bytes(records[43:51], "big", signed=True)
            sequence = int.from_bytes(records[53:57], "big", signed=True)
            replica = self.replicas.get(key)
            may_open = producer_id < 0 or (guards or {}).get(key) is not None
            code = ErrorCode.NONE
            if replica is None:
                code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            elif producer_id not in replica.open and not may_open:
                code = ErrorCode.INVALID_TXN_STATE
            else:
                self.appended.append((producer_id, key, sequence, bool(guards)))
                replica.open.add(producer_id)
            rows.append(ProducePartitionResponse(key.partition, int(code), len(self.appended)))
        done(rows)

    async def verify(
        self, operation: Operation, *keys: TopicPartition, producer: tuple[str, int, int] = ("t", 7, 0)
    ) -> Verified:
        found: list[Verified] = []
        self.verifier.verify(TransactionalProducer(*producer), operation, dict.fromkeys(keys, 0), found.append)
        while not found:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        return found[0]

    def produce(
        self, *batches: tuple[TopicPartition, int], producer_id: int = 7, operation: Operation = ADD
    ) -> list[list[ProducePartitionResponse]]:
        """Send a Produce request of batches with these sequence numbers; the list gets its answer."""
        entries = [(key, batch(producer_id, sequence)) for key, sequence in batches]
        answered: list[list[ProducePartitionResponse]] = []
        self.appends.append(AppendRequest("t", operation, -1, 1_000, entries, answered.append))
        for _, records in entries:
            records[:] = bytes(len(records))  # the memory of a request is used again
        return answered


def batch(producer_id: int, sequence: int, *, is_transactional: bool = True) -> memoryview:
    return memoryview(
        encode_batch(
            [NewRecord(None, b"x")],
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence,
            is_transactional=is_transactional,
        )
    )


def played(test: Callable[[Cluster], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """The test on virtual time, with a cluster of its own."""

    def run() -> None:
        async def main() -> None:
            await test(Cluster())

        on_virtual_time(main)

    run.__name__ = test.__name__
    return run


# ---------------------------------------------------------------- questions


@played
async def test_only_partitions_where_the_transaction_is_not_open_are_asked_about(cluster: Cluster) -> None:
    cluster.replicas[P1].open.add(7)
    verified = await cluster.verify(VERIFY, P0, P1, ELSEWHERE)
    assert verified == ({}, {P0: cluster.replicas[P0].guard})
    (request,) = cluster.requests
    (row,) = request.transactions
    assert (row.transactional_id, row.producer_id, row.producer_epoch, row.verify_only) == ("t", 7, 0, True)
    assert [(topic.name, topic.partitions) for topic in row.topics] == [("flights", [0])]
    assert await cluster.verify(ADD, P1) == ({}, {})
    assert len(cluster.requests) == 1


@played
async def test_without_verification_partitions_are_only_added(cluster: Cluster) -> None:
    cluster.verifies_transactions = False
    assert await cluster.verify(VERIFY, P0) == ({}, {})
    assert not cluster.requests
    assert (await cluster.verify(ADD, P0)).guards
    assert not cluster.requests[0].transactions[0].verify_only


@played
async def test_questions_that_come_while_one_is_on_its_way_go_together(cluster: Cluster) -> None:
    cluster.gate.clear()
    first = asyncio.ensure_future(cluster.verify(ADD, P0))
    await settle()
    others = [
        asyncio.ensure_future(cluster.verify(operation, key, producer=producer))
        for operation, key, producer in [
            (ADD, P0, ("t", 7, 0)),
            (ADD, P1, ("t", 7, 0)),
            (ADD, P0, ("u", 8, 0)),
            (ADD, P0, ("t", 7, 1)),
            (VERIFY, P0, ("t", 7, 0)),
        ]
    ]
    await settle()
    assert len(cluster.requests) == 1
    cluster.gate.set()
    await asyncio.gather(first, *others)
    rows = [[(row.transactional_id, row.producer_epoch, row.verify_only) for row in one.transactions]
            for one in cluster.requests]  # fmt: skip
    assert rows == [[("t", 0, False)], [("t", 0, False), ("u", 0, False)], [("t", 1, False)], [("t", 0, True)]]
    assert cluster.requests[1].transactions[0].topics[0].partitions == [0, 1]


def test_the_version_of_a_request_tells_what_its_client_can_do() -> None:
    """Clients with `transaction.version` 2 leave it to the leader to add the partitions of their transactions."""
    produce = [produce_operation(version) for version in (10, 11, 12)]
    commit = [offset_commit_operation(version) for version in (3, 4, 5)]
    knows_nothing, knows_abortable, adds = Operation(False, False), Operation(False, True), Operation(True, True)
    assert produce == commit == [knows_nothing, knows_abortable, adds]


CODES = [
    (ErrorCode.PRODUCER_FENCED, ADD, ErrorCode.INVALID_PRODUCER_EPOCH),
    (ErrorCode.PRODUCER_FENCED, OLD, ErrorCode.INVALID_PRODUCER_EPOCH),
    (ErrorCode.TRANSACTION_ABORTABLE, ADD, ErrorCode.TRANSACTION_ABORTABLE),
    (ErrorCode.TRANSACTION_ABORTABLE, VERIFY, ErrorCode.TRANSACTION_ABORTABLE),
    (ErrorCode.TRANSACTION_ABORTABLE, OLD, ErrorCode.INVALID_TXN_STATE),
    (ErrorCode.TRANSACTION_ABORTABLE, offset_commit_operation(4), ErrorCode.TRANSACTION_ABORTABLE),
    (ErrorCode.TRANSACTION_ABORTABLE, offset_commit_operation(3), ErrorCode.INVALID_TXN_STATE),
    (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ADD, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    (ErrorCode.CONCURRENT_TRANSACTIONS, VERIFY, ErrorCode.CONCURRENT_TRANSACTIONS),
]


@pytest.mark.parametrize(("code", "operation", "expected"), CODES)
def test_the_answer_is_in_codes_that_the_client_knows(
    code: ErrorCode, operation: Operation, expected: ErrorCode
) -> None:
    @played
    async def play(cluster: Cluster) -> None:
        cluster.refusals["t", P1] = code
        verified = await cluster.verify(operation, P0, P1)
        assert verified.errors == {P1: expected}
        assert len(cluster.requests) == 1

    play()


@pytest.mark.parametrize(
    ("top_level", "expected"),
    [
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_an_error_of_the_whole_answer_is_that_of_each_partition(top_level: ErrorCode, expected: ErrorCode) -> None:
    @played
    async def play(cluster: Cluster) -> None:
        cluster.top_level = top_level
        assert (await cluster.verify(ADD, P0)).errors == {P0: expected}

    play()


@played
async def test_a_coordinator_that_does_not_answer_is_a_network_exception(cluster: Cluster) -> None:
    cluster.fails_with = ConnectionRefusedError("nobody listens")
    assert (await cluster.verify(ADD, P0)).errors == {P0: ErrorCode.NETWORK_EXCEPTION}
    cluster.fails_with = None
    assert (await cluster.verify(ADD, P0)).errors == {}


@pytest.mark.parametrize("error", [ProtocolError(ErrorCode.SASL_AUTHENTICATION_FAILED), RuntimeError("no thread")])
def test_after_an_unexpected_error_the_next_question_is_sent(error: Exception) -> None:
    @played
    async def play(cluster: Cluster) -> None:
        cluster.fails_with = error
        assert (await cluster.verify(ADD, P0)).errors == {P0: ErrorCode.NETWORK_EXCEPTION}
        cluster.fails_with = None
        assert (await cluster.verify(ADD, P0)).errors == {}

    play()


@played
async def test_the_refusal_of_one_question_is_no_answer_to_another(cluster: Cluster) -> None:
    """A coordinator adds all partitions of a row or none: the others of the row are asked about again."""
    cluster.gate.clear()
    first = asyncio.ensure_future(cluster.verify(ADD, P0, producer=("u", 8, 0)))
    await settle()
    cluster.refusals["t", P1] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    cluster.refuses_rows = True
    good = asyncio.ensure_future(cluster.verify(ADD, P0))
    bad = asyncio.ensure_future(cluster.verify(ADD, P1))
    both = asyncio.ensure_future(cluster.verify(ADD, P0, P1))
    await settle()
    cluster.gate.set()
    assert (await first).errors == {}
    assert (await good).errors == {}
    assert (await bad).errors == {P1: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    told = {P0: ErrorCode.OPERATION_NOT_ATTEMPTED, P1: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert (await both).errors == told
    assert len(cluster.requests) == 3


@pytest.mark.parametrize("is_top_level", [True, False])
def test_a_code_that_this_broker_does_not_know_is_a_server_error(is_top_level: bool) -> None:
    @played
    async def play(cluster: Cluster) -> None:
        if is_top_level:
            cluster.top_level = 32_000
        else:
            cluster.refusals["t", P0] = 32_000
        assert (await cluster.verify(ADD, P0)).errors == {P0: ErrorCode.UNKNOWN_SERVER_ERROR}
        cluster.top_level = 0
        cluster.refusals.clear()
        assert (await cluster.verify(ADD, P0)).errors == {}

    play()


@played
async def test_without_a_coordinator_the_client_is_to_try_again(cluster: Cluster) -> None:
    cluster.coordinator = None
    assert (await cluster.verify(ADD, P0)).errors == {P0: ErrorCode.COORDINATOR_NOT_AVAILABLE}


@played
async def test_a_transaction_that_is_about_to_end_is_waited_for(cluster: Cluster) -> None:
    cluster.refusals["t", P0] = ErrorCode.CONCURRENT_TRANSACTIONS
    waiting = asyncio.ensure_future(cluster.verify(ADD, P0))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    cluster.refusals.clear()
    assert (await waiting).errors == {}
    cluster.refusals["t", P0] = ErrorCode.CONCURRENT_TRANSACTIONS
    begin = asyncio.get_running_loop().time()
    assert (await cluster.verify(ADD, P0)).errors == {P0: ErrorCode.CONCURRENT_TRANSACTIONS}
    assert 0.08 <= asyncio.get_running_loop().time() - begin <= 0.11


# ---------------------------------------------------------------- appends


@played
async def test_batches_are_appended_when_they_are_verified(cluster: Cluster) -> None:
    answer = cluster.produce((P0, 0), (P1, 0))
    assert not answer
    await settle()
    assert [row.error_code for row in answer[0]] == [0, 0]
    assert cluster.appended == [(7, P0, 0, True), (7, P1, 0, True)]
    assert cluster.produce((P0, 1))[0][0].error_code == 0
    assert len(cluster.requests) == 1


@played
async def test_the_requests_of_a_producer_keep_their_order(cluster: Cluster) -> None:
    cluster.gate.clear()
    answers = [cluster.produce((P0, 0)), cluster.produce((P0, 1), (P1, 0)), cluster.produce((P0, 2))]
    other = cluster.produce((P0, 0), producer_id=8)
    await settle()
    assert not cluster.appended
    cluster.gate.set()
    await settle(30)
    assert [key_and_sequence for key_and_sequence in cluster.appended if key_and_sequence[0] == 7] == [
        (7, P0, 0, True),
        (7, P0, 1, True),
        (7, P1, 0, True),
        (7, P0, 2, False),
    ]
    assert all(row.error_code == 0 for answer in [*answers, other] for row in answer[0])


@played
async def test_a_request_waits_behind_an_earlier_one_though_its_own_partitions_are_verified(cluster: Cluster) -> None:
    """A producer's requests are answered in their order, also where each is for another partition."""
    cluster.replicas[P1].open.add(7)
    cluster.gate.clear()
    answers = [cluster.produce((P0, 0)), cluster.produce((P1, 0))]
    await settle()
    assert answers == [[], []]
    cluster.gate.set()
    await settle(30)
    assert cluster.appended == [(7, P0, 0, True), (7, P1, 0, False)]
    assert len(cluster.requests) == 1


@played
async def test_the_first_producer_id_is_verified_as_every_other(cluster: Cluster) -> None:
    assert not cluster.produce((P0, 0), producer_id=0)
    await settle()
    assert cluster.requests[0].transactions[0].producer_id == 0
    assert cluster.appended == [(0, P0, 0, True)]


@played
async def test_a_batch_without_records_opens_no_transaction_unverified(cluster: Cluster) -> None:
    """It has a header only. What is shorter is no batch, and is left to the append, which refuses it."""
    header = memoryview(bytearray(batch(7, 0)[:BATCH_HEADER_SIZE]))
    for records in (header, header[:-1]):
        cluster.appends.append(AppendRequest("t", ADD, -1, 1_000, [(P0, records)], lambda _: None))
        await settle()
        assert len(cluster.requests) == 1


@played
async def test_what_waited_is_not_appended_to_a_later_topic_of_the_same_name(cluster: Cluster) -> None:
    """Neither the batch that waits for the coordinator, nor the one behind it: clients name topics by id."""
    cluster.gate.clear()
    answers = [cluster.produce((P0, 0)), cluster.produce((P0, 1))]
    await settle()
    cluster.topic_ids["flights"] = UUID(int=2)
    cluster.replicas[P0] = Replica()
    cluster.gate.set()
    await settle(30)
    assert [row.error_code for answer in answers for row in answer[0]] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
    assert not cluster.appended


@played
async def test_the_memory_of_a_request_is_free_once_its_batches_are_in_the_log(cluster: Cluster) -> None:
    """Not before, while copies of them wait for the coordinator."""
    cluster.gate.clear()
    told: list[str] = []

    def send(name: str, key: TopicPartition, sequence: int) -> None:
        entries = [(key, batch(7, sequence))]
        on_appended = partial(told.append, name)
        cluster.appends.append(AppendRequest("t", ADD, -1, 1_000, entries, lambda _: None, None, on_appended))

    cluster.refusals["t", P1] = ErrorCode.INVALID_TXN_STATE
    send("first", P0, 0)
    send("refused", P1, 0)
    await settle()
    assert told == []
    cluster.gate.set()
    await settle(30)
    assert told == ["first", "refused"]
    send("later", P0, 1)
    assert told[2:] == ["later"]


@played
async def test_a_refused_partition_does_not_hold_up_the_others(cluster: Cluster) -> None:
    cluster.refusals["t", P1] = ErrorCode.INVALID_TXN_STATE
    answer = cluster.produce((P1, 0), (P0, 0), (ELSEWHERE, 0))
    await settle()
    refused, written, elsewhere = answer[0]
    assert (refused.error_code, refused.partition) == (ErrorCode.INVALID_TXN_STATE, 1)
    assert refused.error_message == "the transaction coordinator did not confirm the partition: INVALID_TXN_STATE"
    assert (written.error_code, elsewhere.error_code) == (0, ErrorCode.NOT_LEADER_OR_FOLLOWER)


RETRIED = [
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
]


@pytest.mark.parametrize(
    ("code", "operation", "expected"),
    [
        *((code, operation, ErrorCode.NOT_ENOUGH_REPLICAS) for code in RETRIED for operation in (ADD, OLD)),
        (ErrorCode.CONCURRENT_TRANSACTIONS, VERIFY, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, ADD, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.OPERATION_NOT_ATTEMPTED, ADD, ErrorCode.OPERATION_NOT_ATTEMPTED),
    ],
)
def test_clients_get_codes_that_make_them_try_again(code: ErrorCode, operation: Operation, expected: ErrorCode) -> None:
    @played
    async def play(cluster: Cluster) -> None:
        cluster.refusals["t", P0] = code
        answer = cluster.produce((P0, 0), operation=operation)
        await asyncio.sleep(1)
        assert answer[0][0].error_code == expected
        assert not cluster.appended

    play()


@played
async def test_batches_of_two_producers_in_one_request_are_refused(cluster: Cluster) -> None:
    entries = [(P0, batch(7, 0)), (P1, batch(8, 0))]
    answered: list[list[ProducePartitionResponse]] = []
    cluster.appends.append(AppendRequest("t", ADD, -1, 1_000, entries, answered.append))
    assert [row.error_code for row in answered[0]] == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2


@played
async def test_batches_outside_of_transactions_are_appended_at_once(cluster: Cluster) -> None:
    entries = [(P0, batch(-1, -1, is_transactional=False))]
    answered: list[list[ProducePartitionResponse]] = []
    cluster.appends.append(AppendRequest("t", ADD, -1, 1_000, entries, answered.append))
    assert answered[0][0].error_code == 0


@played
async def test_a_partition_that_is_no_more_led_is_left_to_the_append(cluster: Cluster) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    cluster.replicas[P0].begin_verification = refuse  # type: ignore[method-assign]
    assert cluster.produce((P0, 0))[0][0].error_code == ErrorCode.INVALID_TXN_STATE
    assert not cluster.requests
