"""Attacks on the protocol: drawn requests, damaged batches, bad frames, other protocols."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Mapping, Sequence

from ...wire.api_keys import ApiKey
from ...wire.codec import encode_request
from .attack import AttackRun
from .attacker_connection import AttackerConnection, Endpoint, Outcome, request_frame
from .damaged_batches import draw_batch
from .drawn_requests import RequestDrawer, is_drawable, mutate

_REQUESTS_PER_CONNECTION = 40
_LOOK_EVERY = 5
_PRODUCE_VERSION = 9
_OTHER_PROTOCOLS = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    bytes.fromhex("16030100c8010000c40303") + bytes(200),
    b"SSH-2.0-OpenSSH_9.6\r\n",
    b"\x10\x0f\x00\x04MQTT\x04\x02\x00\x3c\x00\x03abc",
    b"EHLO localhost\r\n",
    b"\0\0\0\x08\x04\xd2\x16\x2f",
)


def fuzz_brokers(run: AttackRun) -> None:
    """Drawn requests of every API in every served version, to the listeners of brokers."""
    _fuzz(run, run.target.brokers)


def fuzz_controllers(run: AttackRun) -> None:
    """The same to the listeners of controllers."""
    _fuzz(run, run.target.controllers)


def _fuzz(run: AttackRun, endpoints: Sequence[Endpoint]) -> None:
    drawer = RequestDrawer(run.rng, run.target.known)
    served: list[tuple[ApiKey, int]] = []
    correlation_ids = itertools.count(1)
    while not run.is_over():
        connection = run.connect(run.rng.choice(endpoints))
        if connection is None:
            run.look()
            continue
        with connection:
            served = served or _served(connection)
            if served:
                _fuzz_connection(run, connection, drawer, served, correlation_ids)


def _served(connection: AttackerConnection) -> list[tuple[ApiKey, int]]:
    """Every API in every version that the listener serves."""
    answer = connection.call(ApiKey.API_VERSIONS, 0, {})
    rows = [] if answer is None else answer.api_keys
    return [
        (ApiKey(row.api_key), version)
        for row in rows
        for version in range(row.min_version, row.max_version + 1)
        if is_drawable(ApiKey(row.api_key), version)
    ]


def _fuzz_connection(
    run: AttackRun,
    connection: AttackerConnection,
    drawer: RequestDrawer,
    served: Sequence[tuple[ApiKey, int]],
    correlation_ids: itertools.count[int],
) -> None:
    for number in range(_REQUESTS_PER_CONNECTION):
        api, version = run.rng.choice(served)
        correlation_id = next(correlation_ids)
        frame, is_well_formed = drawer.frame(api, version, correlation_id)
        outcome, answer = run.exchange(connection, frame)
        if outcome is Outcome.ANSWERED and is_well_formed:
            run.judge_answer(api, version, correlation_id, answer)
        if number % _LOOK_EVERY == 0 or not connection.is_open:
            run.look()
        if not connection.is_open or run.is_over():
            return


def bad_frames(run: AttackRun) -> None:
    """Wrong sizes, half frames, other protocols and noise, on both kinds of listener."""
    endpoints = (*run.target.brokers, *run.target.controllers)
    while not run.is_over():
        connection = run.connect(run.rng.choice(endpoints), timeout_s=0.05)
        if connection is not None:
            with connection:
                run.exchange(connection, _bad_frame(run))
        run.look()


def _bad_frame(run: AttackRun) -> bytes:
    rng = run.rng
    good = request_frame(ApiKey.METADATA, 1, struct.pack(">i", 0))
    kind = rng.randrange(6)
    if kind == 0:
        return rng.choice(_OTHER_PROTOCOLS)
    if kind == 1:
        return rng.randbytes(rng.randint(1, 500))
    if kind == 2:
        return good[: rng.randrange(1, len(good))]
    if kind == 3:
        return struct.pack(">i", rng.choice((0, -1, -(2**31), 2**31 - 1, 104_857_601, 1, 7))) + good[4:]
    if kind == 4:
        api, version = rng.choice(((999, 0), (-1, 0), (3, 99), (3, -1), (18, 99), (7, 0), (2**15 - 1, 2**15 - 1)))
        return request_frame(api, version, rng.randbytes(20))
    return bytes(mutate(rng, bytearray(good * rng.randint(1, 50))))


def damaged_batches(run: AttackRun) -> None:
    """Produces batches of every codec, damaged inside, with a right CRC."""
    while not run.is_over():
        connection = run.connect(run.rng.choice(run.target.brokers))
        if connection is None:
            continue
        with connection:
            for _ in range(_REQUESTS_PER_CONNECTION):
                topic = run.rng.choice(run.target.known.topics)
                run.exchange(connection, produce_frame(topic, run.rng.randrange(3), draw_batch(run.rng)))
                if not connection.is_open or run.is_over():
                    break
        run.look()


def produce_frame(topic: str, partition: int, batch: bytes, acks: int = 1, client_id: bytes = b"fuzz") -> bytes:
    """A Produce request with one batch."""
    return produce_frame_of(topic, [{"index": partition, "records": batch}], acks, client_id)


def produce_frame_of(
    topic: str, rows: Sequence[Mapping[str, object]], acks: int = 1, client_id: bytes = b"fuzz"
) -> bytes:
    """A Produce request with these rows of partitions."""
    fields = {"acks": acks, "timeout": 300, "topic_data": [{"name": topic, "partition_data": rows}]}
    body = encode_request(ApiKey.PRODUCE, _PRODUCE_VERSION, fields)
    return request_frame(ApiKey.PRODUCE, _PRODUCE_VERSION, body, client_id=client_id)
