"""Drawn requests: the same seed gives the same ones, and those that are called well formed are."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest

from raftwerk.broker.apis.api_table import API_TABLE, broker_registry
from raftwerk.chaos.fuzz import (
    attacker_connection,
    damaged_batches,
    drawn_requests,
    drawn_values,
    protocol_attacks,
    sent_requests,
)
from raftwerk.chaos.fuzz.attack_table import ATTACKS
from raftwerk.chaos.fuzz.run import FuzzOptions
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.codec import Struct, decode_request, decode_response, encode_response
from raftwerk.wire.compression import Compression
from raftwerk.wire.frames import parse_request_header
from raftwerk.wire.records import iter_records, read_header, verify_crc

KNOWN = drawn_values.KnownNames(("fuzz-plain", "fuzz-compacted"), (UUID(int=7), UUID(int=8)))
SERVED = [(spec.key, version) for spec in API_TABLE for version in range(spec.versions[0], spec.versions[1] + 1)]


def drawer(seed: int) -> drawn_requests.RequestDrawer:
    return drawn_requests.RequestDrawer(random.Random(seed), KNOWN)


def test_the_same_seed_draws_the_same_requests() -> None:
    one, other = drawer(3), drawer(3)
    without_batches = [(api, version) for api, version in SERVED if api is not ApiKey.PRODUCE]  # they hold the time
    assert [one.frame(*row, 1) for row in without_batches] == [other.frame(*row, 1) for row in without_batches]


def test_well_formed_requests_of_every_api_and_version_can_be_decoded() -> None:
    drawing, well_formed = drawer(1), 0
    for number, (api, version) in enumerate(SERVED * 3):
        frame, is_well_formed = drawing.frame(api, version, number)
        assert struct.unpack_from(">i", frame)[0] == len(frame) - 4
        if is_well_formed:
            header, at = parse_request_header(memoryview(frame)[4:])
            assert (header.api_key, header.api_version, header.correlation_id) == (api, version, number)
            decode_request(api, version, memoryview(frame)[4:], at)
            well_formed += 1
    assert 0.3 < well_formed / (3 * len(SERVED)) < 0.8


class Listener:
    """Answers ApiVersions as a broker does."""

    def call(self, api: ApiKey, version: int, fields: dict[str, Any]) -> Any:
        answer = encode_response(api, version, {"api_keys": broker_registry().version_rows()})
        return decode_response(api, version, memoryview(answer))


def test_requests_are_drawn_of_all_versions_that_a_broker_serves() -> None:
    """And not of Produce 0 to 2, which it names for librdkafka's sake."""
    served = [
        (api.key, version) for api in broker_registry() for version in range(api.versions[0], api.versions[1] + 1)
    ]
    assert protocol_attacks._served(cast("Any", Listener())) == served


def _strings(value: object) -> list[str]:
    if isinstance(value, Struct):
        return [text for inner in value.__dict__.values() for text in _strings(inner)]
    if isinstance(value, list):
        return [text for inner in value for text in _strings(inner)]
    return [value] if isinstance(value, str) else []


@pytest.mark.parametrize("api", [ApiKey.DELETE_TOPICS, ApiKey.ALTER_CONFIGS, ApiKey.ALTER_PARTITION_REASSIGNMENTS])
def test_requests_that_change_topics_name_none_that_the_run_needs(api: ApiKey) -> None:
    drawing = drawer(5)
    for number in range(300):
        frame, is_well_formed = drawing.frame(api, 1, number)
        if is_well_formed:
            _, at = parse_request_header(memoryview(frame)[4:])
            found = _strings(decode_request(api, 1, memoryview(frame)[4:], at))
            assert not {"steady", drawn_values.INTERNAL_TOPIC} & set(found)


@pytest.mark.parametrize("damage", list(damaged_batches.DAMAGES))
def test_a_damaged_batch_is_not_the_good_one(damage: str) -> None:
    rng = random.Random(damage)
    for codec in Compression:
        good = damaged_batches.good_batch(rng, codec)
        assert len(list(iter_records(bytes(good)))) == 3
        assert damaged_batches.DAMAGES[damage](rng, bytearray(good)) != good


def test_bombs_are_small_and_have_a_right_crc() -> None:
    for batch, count in (
        (damaged_batches.bomb(Compression.ZSTD, 1_000_000), 1),
        (damaged_batches.many_records(Compression.GZIP, 5_000), 5_000),
    ):
        assert len(batch) < 25_000
        header = read_header(batch)
        assert header.size_bytes == len(batch)
        assert verify_crc(batch, 0, header)
        assert len(list(iter_records(batch))) == count


def test_requests_are_read_from_a_file_as_they_were_written(tmp_path: Path) -> None:
    sent = sent_requests.SentRequests(str(tmp_path / "failures"))
    requests = [
        sent_requests.SentRequest(2, "controller", attacker_connection.request_frame(ApiKey.VOTE, 1, b"body")),
        sent_requests.SentRequest(1, "broker", b"GET"),
    ]
    assert sent.write("nothing was sent") is None
    for request in requests:
        sent.add(request)
    path = sent.write("first line\nsecond line")
    assert path is not None
    assert list(sent_requests.read_requests(path)) == requests
    with open(path) as file:
        assert "# node=2 listener=controller VOTE v1\n" in file.readlines()


def test_attacks_go_to_loopback_only() -> None:
    with pytest.raises(ValueError, match="not a loopback address"):
        attacker_connection.AttackerConnection(attacker_connection.Endpoint(1, "broker", "192.0.2.1", 9092))


def test_an_unknown_attack_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no attack lightning; there are protocol, "):
        FuzzOptions("unused", attacks=("lightning",))
    assert FuzzOptions("unused").attacks == tuple(ATTACKS)
