"""The client APIs over an in-memory connection, in every version served."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import pytest
from support.broker.broker_harness import (
    LISTENER,
    TOPIC,
    TOPIC_ID,
    FakeController,
    Harness,
    decode_answer,
    make_image,
    run,
    settle,
)

from raftwerk.controller.metadata.metadata_image import MetadataDelta
from raftwerk.controller.metadata.metadata_records import (
    BrokerChangeRecord,
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)
from raftwerk.isr.ports import FetchCaller
from raftwerk.isr.purgatory.purgatory import DelayedFetch, Purgatory
from raftwerk.isr.results import FetchDone, FetchParams, ListOffsetResult
from raftwerk.runtime.timer_wheel import TimerWheel
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.codec import Struct
from raftwerk.wire.errors import ErrorCode, ProtocolError
from raftwerk.wire.fetch import FetchRequest
from raftwerk.wire.produce import ProducePartitionResponse, RecordError, decode_small_produce_request
from raftwerk.wire.records import encode_batch
from raftwerk.wire.types import LeaderIdAndEpoch, TopicPartition

BATCH = bytes(encode_batch([(None, b"value", [], 1)]))
UNKNOWN_ID = UUID(int=99)


def call(key: ApiKey, version: int, fields: Any, prepare: Callable[[Harness], None] = lambda harness: None) -> Struct:
    async def main() -> Struct:
        harness = Harness()
        prepare(harness)
        return await harness.call(key, version, fields)

    return run(main())


SOFTWARE = {"client_software_name": "apache-kafka-java", "client_software_version": "4.2.0"}


@pytest.mark.parametrize("version", range(5))
def test_api_versions_lists_the_table_of_apis(version: int) -> None:
    answer = call(ApiKey.API_VERSIONS, version, SOFTWARE)
    rows = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
    assert answer.error_code == 0
    assert rows[0] == (0, 13), "as Apache Kafka says it, which serves 3 to 13, too (KAFKA-18659)"
    assert rows[1] == (4, 18)
    assert rows[18] == (0, 4)
    assert list(rows) == sorted(rows)
    if version >= 3:
        supported = {one.name: (one.min_version, one.max_version) for one in answer.supported_features}
        assert supported.get("kraft.version") == ((0, 1) if version >= 4 else None)
        assert supported["metadata.version"] == (7, 27)
        assert answer.finalized_features_epoch >= 0


def test_api_versions_of_the_future_gets_error_35_in_version_0() -> None:
    async def main() -> None:
        harness = Harness()
        transport = harness.connect()
        frame = bytearray(harness.frame(ApiKey.API_VERSIONS, 4, SOFTWARE))
        frame[6:8] = (57).to_bytes(2, "big")
        transport.deliver(bytes(frame))
        answer = decode_answer(ApiKey.API_VERSIONS, 0, transport.frames()[0])
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert [(row.api_key, row.min_version, row.max_version) for row in answer.api_keys] == [(18, 0, 4)]
        assert not transport.closing

    run(main())


@pytest.mark.parametrize("name", ["", "-lib", "lib-", "two words", "naïve"])
def test_api_versions_refuses_odd_software_names(name: str) -> None:
    fields = {"client_software_name": name, "client_software_version": "1"}
    assert call(ApiKey.API_VERSIONS, 3, fields).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", range(14))
def test_metadata_names_brokers_controller_and_leaders(version: int) -> None:
    answer = call(ApiKey.METADATA, version, {"topics": [] if version == 0 else None})
    assert [(one.node_id, one.host, one.port) for one in answer.brokers] == [
        (1, "host1", 9091),
        (2, "host2", 9092),
        (3, "host3", 9093),
    ]
    (topic,) = answer.topics
    assert (topic.name, topic.error_code) == (TOPIC, 0)
    assert [(one.partition_index, one.leader_id, list(one.isr_nodes)) for one in topic.partitions] == [
        (0, 1, [1, 2, 3]),
        (1, 2, [1, 2, 3]),
    ]
    if version >= 1:
        assert answer.controller_id == 2
    if version >= 2:
        assert answer.cluster_id == "cluster-1"
    if version >= 10:
        assert topic.topic_id == TOPIC_ID


@pytest.mark.parametrize("version", range(1, 14))
def test_metadata_of_no_topics_is_brokers_only(version: int) -> None:
    assert list(call(ApiKey.METADATA, version, {"topics": []}).topics) == []


@pytest.mark.parametrize("version", [12, 13])
def test_metadata_by_id(version: int) -> None:
    wanted = [{"topic_id": TOPIC_ID, "name": None}, {"topic_id": UNKNOWN_ID, "name": None}]
    answer = call(ApiKey.METADATA, version, {"topics": wanted})
    assert [(one.name, one.topic_id, one.error_code) for one in answer.topics] == [
        (TOPIC, TOPIC_ID, 0),
        (None, UNKNOWN_ID, int(ErrorCode.UNKNOWN_TOPIC_ID)),
    ]


def test_metadata_by_id_before_version_12_is_refused() -> None:
    answer = call(ApiKey.METADATA, 11, {"topics": [{"topic_id": TOPIC_ID, "name": None}]})
    assert [one.error_code for one in answer.topics] == [ErrorCode.INVALID_REQUEST]


@pytest.mark.parametrize(
    ("name", "may_create", "code", "created"),
    [
        ("new", True, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ["new"]),
        ("new", False, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []),
        ("no good", True, ErrorCode.INVALID_TOPIC_EXCEPTION, []),
        ("..", True, ErrorCode.INVALID_TOPIC_EXCEPTION, []),
        ("x" * 250, True, ErrorCode.INVALID_TOPIC_EXCEPTION, []),
    ],
)
def test_metadata_of_a_missing_topic(name: str, may_create: bool, code: int, created: list[str]) -> None:
    async def main() -> None:
        harness = Harness()
        fields = {"topics": [{"name": name}], "allow_auto_topic_creation": may_create}
        answer = await harness.call(ApiKey.METADATA, 9, fields)
        assert [(one.name, one.error_code) for one in answer.topics] == [(name, code)]
        assert harness.controller.created == created

    run(main())


def test_metadata_of_missing_leaders_and_fenced_brokers() -> None:
    def prepare(harness: Harness) -> None:
        delta, offset = MetadataDelta(), harness.image.offset
        change = PartitionChangeRecord(TOPIC_ID, 0, isr=(2, 3), leader=-1)
        harness.image.replay(change, offset + 1, delta)
        harness.image.replay(PartitionChangeRecord(TOPIC_ID, 1, isr=(2, 3)), offset + 2, delta)
        epoch = harness.image.brokers[1].epoch
        harness.image.replay(BrokerChangeRecord(1, epoch, fenced=True), offset + 3, delta)

    answer = call(ApiKey.METADATA, 9, {"topics": None}, prepare)
    assert [one.node_id for one in answer.brokers] == [2, 3]
    first, second = answer.topics[0].partitions
    assert (first.error_code, first.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert list(second.offline_replicas) == [1]


def test_authorized_operations_only_when_asked() -> None:
    plain = call(ApiKey.METADATA, 8, {"topics": None})
    asked = {"topics": None, "include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}
    full = call(ApiKey.METADATA, 8, asked)
    assert plain.topics[0].topic_authorized_operations == plain.cluster_authorized_operations == -(2**31)
    assert full.topics[0].topic_authorized_operations == 3576
    assert full.cluster_authorized_operations == 8096


@pytest.mark.parametrize("version", range(3))
def test_describe_cluster(version: int) -> None:
    answer = call(ApiKey.DESCRIBE_CLUSTER, version, {"include_cluster_authorized_operations": False})
    assert (answer.error_code, answer.cluster_id, answer.controller_id) == (0, "cluster-1", 2)
    assert [one.broker_id for one in answer.brokers] == [1, 2, 3]


@pytest.mark.parametrize(
    ("kind", "code"), [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (7, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)]
)
def test_describe_cluster_of_the_wrong_kind(kind: int, code: int) -> None:
    assert call(ApiKey.DESCRIBE_CLUSTER, 1, {"endpoint_type": kind}).error_code == code


def test_describe_topic_partitions_page_by_page() -> None:
    async def main() -> None:
        harness = Harness(image=make_image(partitions=5))
        cursor, seen = None, []
        for _ in range(3):
            fields = {"topics": [{"name": TOPIC}], "response_partition_limit": 2, "cursor": cursor}
            answer = await harness.call(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, fields)
            seen += [one.partition_index for one in answer.topics[0].partitions]
            cursor = answer.next_cursor
        assert cursor is None
        assert seen == [0, 1, 2, 3, 4]

    run(main())


def produce_fields(
    version: int,
    acks: int = 1,
    partitions: Sequence[tuple[int, bytes | None]] = ((0, BATCH),),
    transactional_id: str | None = None,
    topic_id: UUID = TOPIC_ID,
    name: str = TOPIC,
) -> dict[str, Any]:
    rows = [{"index": index, "records": records} for index, records in partitions]
    topic = {"topic_id": topic_id} if version >= 13 else {"name": name}
    topics = [topic | {"partition_data": rows}]
    return {"transactional_id": transactional_id, "acks": acks, "timeout": 1000, "topic_data": topics}


@pytest.mark.parametrize("version", range(3, 14))
def test_produce_answers_each_partition(version: int) -> None:
    answer = call(ApiKey.PRODUCE, version, produce_fields(version, partitions=((0, BATCH), (1, BATCH), (9, BATCH))))
    rows = [(one.index, one.error_code, one.base_offset) for one in answer.responses[0].partition_responses]
    assert rows == [(0, 0, 0), (1, 0, 1), (9, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), -1)]


TRANSACTIONAL = bytes(encode_batch([(None, b"v", [], 1)], is_transactional=True, producer_id=1, producer_epoch=0))
OF_ANOTHER = bytes(encode_batch([(None, b"v", [], 1)], is_transactional=True, producer_id=2, producer_epoch=0))
ZSTD = bytearray(BATCH)
ZSTD[22] |= 4


@pytest.mark.parametrize(
    ("version", "fields", "code"),
    [
        (9, {"acks": 2}, ErrorCode.INVALID_REQUIRED_ACKS),
        (9, {"acks": -2}, ErrorCode.INVALID_REQUIRED_ACKS),
        (9, {"partitions": ((0, None),)}, ErrorCode.INVALID_RECORD),
        (9, {"partitions": ((0, b""),)}, ErrorCode.INVALID_RECORD),
        (9, {"partitions": ((0, BATCH + BATCH),)}, ErrorCode.INVALID_RECORD),
        (9, {"partitions": ((0, BATCH[:40]),)}, ErrorCode.CORRUPT_MESSAGE),
        (9, {"partitions": ((0, TRANSACTIONAL),)}, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (
            9,
            {"partitions": ((0, TRANSACTIONAL), (1, OF_ANOTHER)), "transactional_id": "t"},
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ),
        (6, {"partitions": ((0, bytes(ZSTD)),)}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (7, {"partitions": ((0, bytes(ZSTD)),)}, ErrorCode.NONE),
        (13, {"topic_id": UNKNOWN_ID}, ErrorCode.UNKNOWN_TOPIC_ID),
        (12, {"name": "nowhere"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_produce_refusals(version: int, fields: Any, code: int) -> None:
    answer = call(ApiKey.PRODUCE, version, produce_fields(version, **fields))
    assert {one.error_code for one in answer.responses[0].partition_responses} == {code}


@pytest.mark.parametrize("partitions", [((0, BATCH), (1, TRANSACTIONAL)), ((0, BATCH), (9, TRANSACTIONAL))])
@pytest.mark.parametrize("acks", [0, 1])
def test_a_transactional_batch_without_an_id_refuses_the_whole_request(acks: int, partitions: Any) -> None:
    async def main() -> None:
        harness = Harness()
        transport = harness.connect()
        transport.deliver(harness.frame(ApiKey.PRODUCE, 9, produce_fields(9, acks=acks, partitions=partitions)))
        await settle()
        assert not harness.replicas.appended
        assert transport.is_closing() == (acks == 0)
        if acks:
            answer = decode_answer(ApiKey.PRODUCE, 9, transport.frames()[0])
            codes = [one.error_code for one in answer.responses[0].partition_responses]
            assert codes == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2

    run(main())


@pytest.mark.parametrize("version", range(3, 14))
def test_refused_records_are_named_from_version_8_on(version: int) -> None:
    errors = [RecordError(index, "no key") for index in (5, 15, 95)]

    def prepare(harness: Harness) -> None:
        def refuse(acks: int, timeout_ms: int, entries: object, done: Any, *, caller: object = None) -> None:
            code = int(ErrorCode.INVALID_RECORD)
            done([ProducePartitionResponse(0, code, record_errors=errors, error_message="some have no key")])

        harness.replicas.append = refuse  # type: ignore[method-assign]

    (row,) = call(ApiKey.PRODUCE, version, produce_fields(version), prepare).responses[0].partition_responses
    assert (row.error_code, row.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    if version >= 8:
        found = [(one.batch_index, one.batch_index_error_message) for one in row.record_errors]
        assert (found, row.error_message) == ([tuple(error) for error in errors], "some have no key")


@pytest.mark.parametrize("client_id", ["test", None, "__admin_client"])
def test_internal_topics_take_records_of_the_admin_client_only(client_id: str | None) -> None:
    async def main() -> None:
        harness = Harness()
        delta, topic_id = MetadataDelta(), UUID(int=0x0FF5)
        harness.image.replay(TopicRecord("__consumer_offsets", topic_id), 100, delta)
        harness.image.replay(PartitionRecord(topic_id, 0, (1,), (1,), 1), 101, delta)
        for version, fields in ((9, {"name": "__consumer_offsets"}), (13, {"topic_id": topic_id})):
            transport = harness.connect()
            transport.deliver(harness.frame(ApiKey.PRODUCE, version, produce_fields(version, **fields), client_id))
            await settle()
            answer = decode_answer(ApiKey.PRODUCE, version, transport.frames()[0])
            (row,) = answer.responses[0].partition_responses
            is_admin = client_id == "__admin_client"
            assert row.error_code == (0 if is_admin else ErrorCode.INVALID_TOPIC_EXCEPTION)
        assert len(harness.replicas.appended) == (2 if is_admin else 0)

    run(main())


def test_a_stale_leader_names_the_new_leader() -> None:
    def prepare(harness: Harness) -> None:
        harness.replicas.error = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        harness.replicas.current_leader = LeaderIdAndEpoch(2, 0)

    answer = call(ApiKey.PRODUCE, 12, produce_fields(12, partitions=((1, BATCH),)), prepare)
    (row,) = answer.responses[0].partition_responses
    assert (row.current_leader.leader_id, row.current_leader.leader_epoch) == (2, 0)
    assert [(one.node_id, one.host, one.port) for one in answer.node_endpoints] == [(2, "host2", 9092)]


@pytest.mark.parametrize(
    ("key", "version"), [*((ApiKey.PRODUCE, one) for one in (3, 4)), *((ApiKey.FETCH, one) for one in (4, 5, 6))]
)
def test_old_clients_look_for_another_leader_after_a_storage_error(key: ApiKey, version: int) -> None:
    def prepare(harness: Harness) -> None:
        harness.replicas.error = int(ErrorCode.KAFKA_STORAGE_ERROR)

    if key is ApiKey.PRODUCE:
        (row,) = call(key, version, produce_fields(version), prepare).responses[0].partition_responses
        knows_it = version >= 4
    else:
        (row,) = call(key, version, fetch_fields(version), prepare).responses[0].partitions
        knows_it = version >= 6
    assert row.error_code == (ErrorCode.KAFKA_STORAGE_ERROR if knows_it else ErrorCode.NOT_LEADER_OR_FOLLOWER)


def test_frames_given_to_the_log_are_writable_and_uncopied() -> None:
    frame = bytearray(b"\0" * 3)
    harness = Harness()
    frame += harness.frame(ApiKey.PRODUCE, 9, produce_fields(9))[4 + 10 + 4 + 1 :]
    request = decode_small_produce_request(9, memoryview(frame)[3:])
    assert request is not None
    records = request.topics[0].partitions[0][1]
    assert records is not None and not records.readonly
    assert records.obj is frame


def fetch_fields(
    version: int,
    session: tuple[int, int] = (0, -1),
    partitions: Sequence[tuple[int, int]] = ((0, 0),),
    topics: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    rows = [
        {"partition": index, "current_leader_epoch": -1, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
        for index, offset in partitions
    ]
    topic = {"topic_id": TOPIC_ID} if version >= 13 else {"topic": TOPIC}
    base = {"replica_id": -1, "max_wait": 5, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 0}
    named = [topic | {"partitions": rows}] if rows else []
    return base | {"session_id": session[0], "session_epoch": session[1], "topics": named if topics is None else topics}


@pytest.mark.parametrize("version", range(4, 19))
def test_fetch_returns_records(version: int) -> None:
    def prepare(harness: Harness) -> None:
        harness.replicas.records[f"{TOPIC}-0"] = BATCH

    answer = call(ApiKey.FETCH, version, fetch_fields(version, partitions=((0, 0), (7, 0))), prepare)
    rows = [(one.partition_index, one.error_code, one.high_watermark) for one in answer.responses[0].partitions]
    assert rows == [(0, 0, 10), (7, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), -1)]
    assert bytes(answer.responses[0].partitions[0].records) == BATCH


def test_fetch_of_an_unknown_id_is_answered_at_once() -> None:
    topics = [{"topic_id": UNKNOWN_ID, "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1}]}]
    answer = call(ApiKey.FETCH, 13, fetch_fields(13, topics=topics))
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_an_answered_fetch_leaves_no_reference_cycles(monkeypatch: pytest.MonkeyPatch) -> None:
    """The garbage collector would block the loop for milliseconds when it finds thousands of them."""
    count, key, purgatory = 50, TopicPartition(TOPIC, 0), Purgatory(TimerWheel())

    async def main() -> int:
        harness = Harness()
        read = harness.replicas.fetch

        def park(params: FetchParams, request: FetchRequest, done: FetchDone, caller: FetchCaller) -> None:
            parked = DelayedFetch(lambda: read(params, request, done, caller), [key], 1, -1)
            purgatory.park_fetch(parked, 500)
            caller.on_gone = parked.cancel

        monkeypatch.setattr(harness.replicas, "fetch", park)
        transport = harness.connect()
        frame = harness.frame(ApiKey.FETCH, 12, fetch_fields(12))

        async def fetches() -> None:
            for _ in range(count):
                transport.deliver(frame)
                purgatory.on_high_watermark(key, 1, 1, 1, 0)
                await settle()

        await fetches()
        gc.collect()
        answered = transport.writes
        await fetches()
        assert transport.writes == answered + count
        return gc.collect()

    gc.disable()
    try:
        assert run(main()) < count
    finally:
        gc.enable()


def test_a_parked_fetch_is_forgotten_with_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        harness = Harness()
        cancelled = []

        def park(params: FetchParams, request: FetchRequest, done: FetchDone, caller: FetchCaller) -> None:
            caller.on_gone = lambda: cancelled.append(True)

        monkeypatch.setattr(harness.replicas, "fetch", park)
        transport = harness.connect()
        transport.deliver(harness.frame(ApiKey.FETCH, 12, fetch_fields(12)))
        transport.close()
        await settle()
        assert cancelled == [True]

    run(main())


@pytest.mark.parametrize("version", range(1, 12))
def test_list_offsets(version: int) -> None:
    rows = [{"partition_index": index, "current_leader_epoch": -1, "timestamp": -1} for index in (0, 1, 1, 8)]
    fields = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": TOPIC, "partitions": rows}]}
    answer = call(ApiKey.LIST_OFFSETS, version, fields)
    assert [(one.partition_index, one.error_code, one.offset) for one in answer.topics[0].partitions] == [
        (0, 0, 42),
        (1, int(ErrorCode.INVALID_REQUEST), -1),
        (1, int(ErrorCode.INVALID_REQUEST), -1),
        (8, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), -1),
    ]


@pytest.mark.parametrize("version", range(1, 12))
def test_list_offsets_at_a_new_leader_is_tried_again_by_old_clients(version: int) -> None:
    def prepare(harness: Harness) -> None:
        refused = ListOffsetResult(int(ErrorCode.OFFSET_NOT_AVAILABLE))
        harness.replicas.list_offset = lambda *_: refused  # type: ignore[method-assign]

    rows = [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}]
    fields = {"replica_id": -1, "topics": [{"name": TOPIC, "partitions": rows}]}
    (row,) = call(ApiKey.LIST_OFFSETS, version, fields, prepare).topics[0].partitions
    assert row.error_code == (ErrorCode.LEADER_NOT_AVAILABLE if version < 5 else ErrorCode.OFFSET_NOT_AVAILABLE)


@pytest.mark.parametrize(("version", "timestamp", "code"), [(6, -3, 35), (7, -3, 0), (7, -4, 35), (11, -99, 35)])
def test_list_offsets_of_special_timestamps_by_version(version: int, timestamp: int, code: int) -> None:
    rows = [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}]
    fields = {"replica_id": -1, "topics": [{"name": TOPIC, "partitions": rows}]}
    assert call(ApiKey.LIST_OFFSETS, version, fields).topics[0].partitions[0].error_code == code


@pytest.mark.parametrize("version", range(2, 5))
def test_offset_for_leader_epoch(version: int) -> None:
    rows = [{"partition": index, "current_leader_epoch": -1, "leader_epoch": 3} for index in (0, 8)]
    answer = call(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, {"topics": [{"topic": TOPIC, "partitions": rows}]})
    found = [(one.partition, one.error_code, one.leader_epoch, one.end_offset) for one in answer.topics[0].partitions]
    assert found == [(0, 0, 3, 17), (8, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), -1, -1)]


@pytest.mark.parametrize("version", range(7))
def test_init_producer_id(version: int) -> None:
    answer = call(ApiKey.INIT_PRODUCER_ID, version, {"transactional_id": None, "transaction_timeout": 1000})
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, 101, 0)
    refused = call(ApiKey.INIT_PRODUCER_ID, version, {"transactional_id": "t", "transaction_timeout": 1000})
    assert refused.error_code == ErrorCode.NOT_COORDINATOR


def test_without_producer_ids_the_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nobody_gives(self: FakeController) -> None:
        raise ProtocolError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the controller gave no producer ids")

    monkeypatch.setattr(FakeController, "next_id", lambda self: None)
    monkeypatch.setattr(FakeController, "wait_for_id", nobody_gives)

    async def main() -> None:
        harness = Harness()
        transport = harness.connect()
        fields = {"transactional_id": None, "transaction_timeout": 1000}
        transport.deliver(harness.frame(ApiKey.INIT_PRODUCER_ID, 4, fields))
        await settle()
        assert transport.closing
        assert transport.frames() == []

    asyncio.run(main())


@pytest.mark.parametrize("version", range(1, 5))
def test_describe_configs_has_values_and_sources(version: int) -> None:
    def prepare(harness: Harness) -> None:
        harness.image.replay(
            ConfigRecord(2, TOPIC, "min.insync.replicas", "2"), harness.image.offset + 1, MetadataDelta()
        )

    resources = [
        {"resource_type": 2, "resource_name": TOPIC, "configuration_keys": None},
        {"resource_type": 2, "resource_name": "nowhere", "configuration_keys": None},
        {"resource_type": 4, "resource_name": "1", "configuration_keys": None},
        {"resource_type": 4, "resource_name": "2", "configuration_keys": None},
    ]
    answer = call(ApiKey.DESCRIBE_CONFIGS, version, {"resources": resources, "include_synonyms": True}, prepare)
    topic, missing, broker, other = answer.results
    values = {one.name: (one.value, one.config_source) for one in topic.configs}
    assert values["min.insync.replicas"] == ("2", 1)
    assert values["retention.ms"] == ("1000", 4)
    assert values["cleanup.policy"] == ("delete", 5)
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    settings = {one.name: (one.value, one.config_source, one.read_only) for one in broker.configs}
    assert settings["node.id"] == ("1", 4, True)
    assert settings["ssl.keystore.password"][0] is None
    assert settings["log.retention.ms"][1:] == (5, False), "what can be set at run time is shown with its default"
    assert other.error_code == ErrorCode.INVALID_REQUEST


def test_settings_of_an_unknown_type_are_described_as_secrets() -> None:
    """As in Apache Kafka: a policy or an authorizer gets its own from server.properties, and may log in by them."""
    settings = {
        "acme.policy.ldap.bind.credentials": "hunter2",
        "listener.name.inside.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.inside.plain.sasl.jaas.config": "hunter2",
        "listener.name.inside.plain.connections.max.reauth.ms": "5",
        "listener.name.inside.acme": "hunter2",
    }

    def prepare(harness: Harness) -> None:
        values: Any = harness.config.values
        values.update(settings)

    resource = {"resource_type": 4, "resource_name": "1", "configuration_keys": list(settings)}
    fields = {"resources": [resource], "include_synonyms": True}
    answer = call(ApiKey.DESCRIBE_CONFIGS, 4, fields, prepare)
    told = {one.name: (one.value, one.is_sensitive, one.config_type) for one in answer.results[0].configs}
    assert told == {
        "acme.policy.ldap.bind.credentials": (None, True, 0),
        "listener.name.inside.sasl.enabled.mechanisms": ("PLAIN", False, 7),
        "listener.name.inside.plain.sasl.jaas.config": (None, True, 9),
        "listener.name.inside.plain.connections.max.reauth.ms": ("5", False, 5),
        "listener.name.inside.acme": (None, True, 0),
    }
    assert not any(row.value == "hunter2" for one in answer.results[0].configs for row in one.synonyms)


@pytest.mark.parametrize("version", range(2, 8))
def test_forwarded_requests_without_a_controller_time_out_with_an_answer(version: int) -> None:
    topic = {"name": "t", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    answer = call(ApiKey.CREATE_TOPICS, version, {"topics": [topic], "timeout": 100, "validate_only": False})
    assert [(one.name, one.error_code) for one in answer.topics] == [("t", ErrorCode.REQUEST_TIMED_OUT)]


def test_responses_have_endpoints_of_the_listener_of_the_request() -> None:
    async def main() -> None:
        harness = Harness()
        harness.server.listener_name = "INTERNAL"
        answer = await harness.call(ApiKey.METADATA, 9, {"topics": None})
        assert [one.host for one in answer.brokers] == ["int1", "int2", "int3"]
        assert LISTENER != "INTERNAL"

    run(main())
