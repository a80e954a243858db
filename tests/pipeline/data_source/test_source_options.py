"""Options of the data source: what is taken, and what is said of what is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from raftwerk.cluster.local.certificates import CertificateAuthority
from raftwerk.pipeline.errors import PipelineError
from raftwerk.pipeline.source.options import EARLIEST, LATEST, StrategyKind, parse_read, parse_write
from raftwerk.security.tls.key_stores import certificates_in, key_in
from raftwerk.wire.types import TopicPartition

BASE = {"kafka.bootstrap.servers": "a:1", "subscribe": "t"}


def read(streaming: bool = False, **options: Any) -> Any:
    return parse_read({**BASE, **options}, streaming=streaming)


def test_defaults_are_the_connectors() -> None:
    batch, stream = read(), read(streaming=True)
    assert (batch.starting.for_all, batch.ending.for_all) == (EARLIEST, LATEST)
    assert stream.starting.for_all == LATEST
    assert batch.fail_on_data_loss and not batch.include_headers
    assert batch.client.isolation_level == 0
    assert batch.group_id == "raftwerk-spark-t"


def test_names_in_any_case_as_spark_hands_them_over() -> None:
    options = parse_read(
        {name.lower(): value for name, value in {**BASE, "minPartitions": "4"}.items()}, streaming=False
    )
    assert options.min_partitions == 4


def test_the_three_ways_to_choose() -> None:
    assert read(subscribe=" a, b ,").strategy.names == ("a", "b")
    bare = {"kafka.bootstrap.servers": "a:1"}
    pattern = parse_read({**bare, "subscribePattern": "a.*"}, streaming=False).strategy
    assert pattern.kind is StrategyKind.PATTERN and pattern.includes("abc") and not pattern.includes("cab")
    assigned = parse_read({**bare, "assign": '{"t": [0, 2]}'}, streaming=False).strategy
    assert assigned.partitions == (TopicPartition("t", 0), TopicPartition("t", 2))


def test_a_timestamp_goes_before_offsets() -> None:
    options = read(startingTimestamp="5", startingOffsets="earliest", startingOffsetsByTimestamp='{"t":{"0":9}}')
    assert (options.starting.option, options.starting.for_all, options.starting.is_timestamp) == (
        "startingTimestamp",
        5,
        True,
    )
    by_partition = read(startingOffsets="earliest", startingOffsetsByTimestamp='{"t":{"0":9}}').starting
    assert by_partition.by_partition == {TopicPartition("t", 0): 9} and by_partition.is_timestamp


def test_the_groups_name() -> None:
    assert read(groupIdPrefix="nightly").group_id == "nightly-t"
    assert read(False, **{"kafka.group.id": "g"}).group_id == "g"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"subscribe": ""}, "subscribe is empty: say topics"),
        ({"subscribePattern": "x"}, "say one of subscribe, subscribePattern and assign: subscribe and subscribeP"),
        ({"startingOffsets": "soon"}, "startingOffsets is 'soon', and must be earliest, latest, or JSON such as"),
        ({"startingOffsets": "latest"}, "startingOffsets cannot be latest in a batch read"),
        ({"startingOffsets": '{"t":{"0":-1}}'}, "startingOffsets cannot be latest in a batch read"),
        ({"startingOffsets": '{"t":{"0":-3}}'}, "must be earliest, latest, or JSON"),
        ({"endingOffsets": "earliest"}, "endingOffsets cannot be earliest"),
        ({"minPartitions": "0"}, "minPartitions is '0', and must be a whole number above 0"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss is 'maybe', and must be true or false"),
        ({"startingOfsets": "earliest"}, "option startingofsets is not known; did you mean startingOffsets"),
        ({"maxTriggerDelay": "soon"}, "a time such as 500ms, 30s or 15m"),
        ({"kafka.isolation.level": "serializable"}, "must be read_uncommitted or read_committed"),
        ({"kafka.auto.offset.reset": "earliest"}, "kafka.auto.offset.reset cannot be set: say startingOffsets instead"),
        (
            {"kafka.ssl.ca.location": "x"},
            "kafka.ssl.ca.location is a setting of librdkafka and has no effect",
        ),
        ({"kafka.sasl.mechanism": "PLAIN"}, "kafka.security.protocol is not set, so it is PLAINTEXT"),
        ({"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers is missing"),
    ],
)
def test_what_is_wrong_is_one_sentence(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(PipelineError) as raised:
        read(**options)
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_stream_has_no_end() -> None:
    with pytest.raises(PipelineError, match="endingOffsets is for batch reads"):
        read(streaming=True, endingOffsets="latest")


SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"


def test_the_login_of_a_writer_is_that_of_the_java_client(tmp_path: Path) -> None:
    authority = CertificateAuthority.new("test")
    node, trusted = tmp_path / "node.pem", tmp_path / "ca.crt"
    node.write_bytes(authority.issue("client", ["localhost"]))
    trusted.write_bytes(authority.certificate_pem)
    given = {
        "kafka.bootstrap.servers": "a:1",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": f'{SCRAM} username="alice" password="wonder";',
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(trusted),
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.location": str(node),
        "kafka.ssl.endpoint.identification.algorithm": "",
    }
    options = parse_write(given, streaming=False)
    assert options.producer == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": "wonder",
        "ssl.ca.pem": trusted.read_text(),
        "ssl.certificate.pem": certificates_in(node.read_bytes()).decode(),
        "ssl.key.pem": key_in(node.read_bytes()).decode(),
        "ssl.endpoint.identification.algorithm": "none",
    }
    Producer(dict(options.producer))
    assert "wonder" not in repr(options) + repr(parse_read({**given, "subscribe": "t"}, streaming=False))
    with pytest.raises(PipelineError, match="config is not set"):
        parse_write({name: value for name, value in given.items() if "jaas" not in name}, streaming=False)


def test_what_a_writer_is_told_goes_to_the_producer() -> None:
    given = {"kafka.bootstrap.servers": "a:1", "topic": "t", "kafka.compression.type": "zstd"}
    options = parse_write(given, streaming=False)
    assert (options.client.bootstrap, options.topic, options.producer) == ("a:1", "t", {"compression.type": "zstd"})
    assert options.transactional_id is None


def test_only_a_stream_is_written_in_transactions() -> None:
    given = {"kafka.bootstrap.servers": "a:1", "topic": "t", "kafka.transactional.id": "sink"}
    options = parse_write({**given, "kafka.transaction.timeout.ms": "60000"}, streaming=True)
    assert (options.transactional_id, options.transaction_timeout_ms, options.producer) == ("sink", 60_000, {})
    assert parse_write(given, streaming=True).transaction_timeout_ms == 900_000
    with pytest.raises(PipelineError, match=r"kafka\.transactional\.id is for streams"):
        parse_write(given, streaming=False)
