"""Transactions of the clients people use: commit, abort, offsets in transactions, fencing, time-outs."""

from __future__ import annotations

import asyncio
import subprocess

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from support.e2e import helpers, transactions
from support.e2e.consumers import confluent
from support.e2e.java_tools import JavaTools
from support.e2e.transactions import TIMEOUT_S, Copier, open_transaction, producer, until, values, wait_for_values


def test_confluent_reads_all_of_a_transaction_or_nothing(bootstrap: str, topic: str) -> None:
    helpers.create_topic(bootstrap, topic, 2)
    writer = producer(bootstrap, f"{topic}-id")
    for number in range(4):
        writer.begin_transaction()
        for partition in range(2):
            writer.produce(topic, f"{number}", partition=partition)
        assert writer.flush(TIMEOUT_S) == 0
        if number % 2:
            writer.abort_transaction(TIMEOUT_S)
        else:
            writer.commit_transaction(TIMEOUT_S)
    wait_for_values(bootstrap, topic, *[[b"0", b"2"]] * 2)
    assert values(bootstrap, topic, 2, "read_uncommitted") == [[b"0", b"1", b"2", b"3"]] * 2


def test_an_open_transaction_holds_up_read_committed_only(bootstrap: str, topic: str) -> None:
    helpers.create_topic(bootstrap, topic)
    writer = producer(bootstrap, f"{topic}-id")
    writer.begin_transaction()
    writer.produce(topic, b"inside")
    assert writer.flush(TIMEOUT_S) == 0
    outside = Producer({"bootstrap.servers": bootstrap, **helpers.PRODUCER})
    outside.produce(topic, b"outside")
    assert outside.flush(TIMEOUT_S) == 0
    assert values(bootstrap, topic) == [[]]
    assert values(bootstrap, topic, 1, "read_uncommitted") == [[b"inside", b"outside"]]
    writer.commit_transaction(TIMEOUT_S)
    wait_for_values(bootstrap, topic, [b"inside", b"outside"])


@pytest.mark.parametrize("aborts", [False, True])
def test_confluent_commits_offsets_in_transactions(bootstrap: str, topic: str, aborts: bool) -> None:
    target = f"{topic}-copy"
    transactions.numbers(bootstrap, topic, 10)
    helpers.create_topic(bootstrap, target)
    for count in (6, 4):  # the second one goes on where the first one ended
        copier = Copier(bootstrap, topic, target)
        copier.run(count, abort_first=aborts)
        copier.close()
    wait_for_values(bootstrap, target, [str(number).encode() for number in range(10)])


def test_offsets_are_unstable_until_the_transaction_ends(bootstrap: str, topic: str) -> None:
    helpers.create_topic(bootstrap, topic)
    consumer = confluent(bootstrap, f"{topic}-group", **{"isolation.level": "read_committed"})
    writer = producer(bootstrap, f"{topic}-id")
    for expected, ends in ((None, "abort_transaction"), (7, "commit_transaction")):
        writer.begin_transaction()
        metadata = consumer.consumer_group_metadata()
        writer.send_offsets_to_transaction([TopicPartition(topic, 0, 7)], metadata, TIMEOUT_S)
        with pytest.raises(KafkaException) as raised:
            consumer.committed([TopicPartition(topic, 0)], timeout=1)
        assert raised.value.args[0].code() in (KafkaError.UNSTABLE_OFFSET_COMMIT, KafkaError._TIMED_OUT)
        getattr(writer, ends)(TIMEOUT_S)
        (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=TIMEOUT_S)
        assert found.offset == (expected or -1001)  # OFFSET_INVALID
    consumer.close()


def test_a_zombie_is_fenced_and_its_transaction_is_aborted(bootstrap: str, topic: str) -> None:
    helpers.create_topic(bootstrap, topic)
    zombie = producer(bootstrap, f"{topic}-id")
    zombie.begin_transaction()
    zombie.produce(topic, b"zombie")
    assert zombie.flush(TIMEOUT_S) == 0
    successor = producer(bootstrap, f"{topic}-id")
    with pytest.raises(KafkaException) as raised:
        zombie.commit_transaction(TIMEOUT_S)
    assert raised.value.args[0].fatal()
    assert raised.value.args[0].code() in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
    successor.begin_transaction()
    successor.produce(topic, b"successor")
    successor.commit_transaction(TIMEOUT_S)
    wait_for_values(bootstrap, topic, [b"successor"])


def test_a_transaction_that_times_out_is_aborted(bootstrap: str, topic: str) -> None:
    helpers.create_topic(bootstrap, topic)
    late = producer(bootstrap, f"{topic}-id", **{"transaction.timeout.ms": 1_000, "message.timeout.ms": 900})
    late.begin_transaction()
    late.produce(topic, b"late")
    assert late.flush(TIMEOUT_S) == 0
    outside = Producer({"bootstrap.servers": bootstrap, **helpers.PRODUCER})
    outside.produce(topic, b"outside")
    assert outside.flush(TIMEOUT_S) == 0
    wait_for_values(bootstrap, topic, [b"outside"])
    with pytest.raises(KafkaException):
        late.commit_transaction(TIMEOUT_S)
    assert values(bootstrap, topic) == [[b"outside"]]


def test_aiokafka(bootstrap: str, topic: str) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka import TopicPartition as Partition

    helpers.create_topic(bootstrap, topic, 2)
    offsets = {Partition(topic, 0): 2}

    async def run() -> tuple[list[bytes], int | None]:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"{topic}-id") as writer:
            for number in range(4):
                try:
                    async with writer.transaction():
                        for partition in range(2):
                            await writer.send_and_wait(topic, b"%d" % number, partition=partition)
                        if number == 2:
                            await writer.send_offsets_to_transaction(offsets, f"{topic}-group")
                        if number % 2:
                            raise InterruptedError
                except InterruptedError:
                    pass
        async with AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            enable_auto_commit=False,
            isolation_level="read_committed",
            group_id=f"{topic}-group",
        ) as consumer:
            consumer.assign([Partition(topic, 1)])
            await consumer.seek_to_beginning()
            values = [(await asyncio.wait_for(consumer.getone(), TIMEOUT_S)).value for _ in range(2)]
            return values, await consumer.committed(Partition(topic, 0))

    assert asyncio.run(run()) == ([b"0", b"2"], 2)


def test_kafka_python(bootstrap: str, topic: str) -> None:
    from kafka import KafkaConsumer, KafkaProducer
    from kafka import OffsetAndMetadata as Offset
    from kafka import TopicPartition as Partition

    helpers.create_topic(bootstrap, topic)
    writer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"{topic}-id", acks="all")
    writer.init_transactions()
    for number in range(4):
        writer.begin_transaction()
        writer.send(topic, b"%d" % number).get(TIMEOUT_S)
        if number == 2:
            writer.send_offsets_to_transaction({Partition(topic, 0): Offset(2, "", -1)}, f"{topic}-group")
        if number % 2:
            writer.abort_transaction()
        else:
            writer.commit_transaction()
    writer.close()
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=f"{topic}-group",
        enable_auto_commit=False,
        isolation_level="read_committed",
        consumer_timeout_ms=10_000,
    )
    consumer.assign([Partition(topic, 0)])
    consumer.seek_to_beginning()
    assert [next(consumer).value for _ in range(2)] == [b"0", b"2"]
    assert consumer.committed(Partition(topic, 0)) == 2
    consumer.close()


@pytest.mark.java
@pytest.mark.parametrize("options", [[], ["--group-mode", "--use-group-metadata"]])
def test_java_copies_each_record_once(bootstrap: str, topic: str, java_command: list[str], options: list[str]) -> None:
    """Apache Kafka's own test of read-process-write: a Java client of `transaction.version` 2, with random aborts."""
    target = f"{topic}-copy"
    transactions.numbers(bootstrap, topic, 500)
    helpers.create_topic(bootstrap, target)
    copier = [*java_command, "org.apache.kafka.tools.TransactionalMessageCopier"]
    where = ["--input-topic", topic, "--input-partition", "0", "--output-topic", target, "--broker-list", bootstrap]
    who = ["--consumer-group", f"{topic}-group", "--transactional-id", f"{topic}-id"]
    shape = ["--transaction-size", "50", "--enable-random-aborts", *options]
    done = subprocess.run([*copier, *where, *who, *shape], capture_output=True, check=False, text=True, timeout=120)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    wait_for_values(bootstrap, target, [str(number).encode() for number in range(500)])


@pytest.mark.java
def test_kafka_transactions(bootstrap: str, topic: str, java_tools: JavaTools) -> None:
    """Every verb of the tool."""

    def told(*arguments: str, fails: bool = False) -> list[list[str]]:
        """What the tool prints below its head: rows, and words."""
        text = java_tools.run("TransactionsCommand", "--bootstrap-server", bootstrap, *arguments, fails=fails)
        return [line.split() for line in text.splitlines()]

    partition = "--topic", topic, "--partition", "0"
    helpers.create_topic(bootstrap, topic)
    assert told("describe-producers", *partition)[0][0] == "ProducerId"
    missing = " ".join(told("abort", *partition, "--start-offset", "0", fails=True)[0])
    assert "Could not find any open transactions" in missing
    missing = " ".join(told("describe", "--transactional-id", topic, fails=True)[0])
    assert "because the ID could not be found" in missing

    name = f"{topic}-id"
    writer = open_transaction(bootstrap, topic)
    for options in ([], ["--transactional-id-pattern", f"{topic}.*"], ["--duration-filter", "0"]):
        (row,) = [row for row in told("list", *options) if row[0] == name]
        assert row[-1] == "Ongoing"
    assert not [row for row in told("list", "--transactional-id-pattern", "nobody") if row[0] == name]
    assert f"{topic}-0" in str(told("describe", "--transactional-id", name))
    assert [row[-1] for row in told("describe-producers", *partition)[1:]] == ["0"]
    assert name not in str(told("find-hanging", "--broker-id", "1", "--max-transaction-timeout", "0"))
    told("forceTerminateTransaction", "--transactionalId", name)
    until(lambda: {"'CompleteAbort'", "'Empty'"} & set(str(told("describe", "--transactional-id", name)).split(", ")))
    with pytest.raises(KafkaException) as raised:
        writer.commit_transaction(TIMEOUT_S)
    assert raised.value.args[0].fatal()
    assert values(bootstrap, topic) == [[]]

    writer = open_transaction(bootstrap, topic)
    _, *rows = told("describe-producers", *partition)
    (start,) = [row[-1] for row in rows if row[-1] != "None"]
    told("abort", *partition, "--start-offset", start)
    assert values(bootstrap, topic) == [[]]
    assert [row[-1] for row in told("describe-producers", *partition)[1:]] == ["None"]
