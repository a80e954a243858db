"""`raftwerk consume`: where it begins and ends, what it leaves out, how it reads bytes."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import msgpack
import pytest
from confluent_kafka import Producer
from support.e2e import helpers

from raftwerk.cli.records.decoding import line_of
from raftwerk.cluster.local.supervisor import Supervisor

RAFTWERK = [sys.executable, "-m", "raftwerk"]
HOUR_MS = 3_600_000


def consume(bootstrap: str, *arguments: str) -> list[str]:
    done = subprocess.run(
        [*RAFTWERK, "consume", *arguments, "-b", bootstrap], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def filled(cluster: Supervisor) -> str:
    """Ten records, an hour apart, the last now; keys k0, k1, k0 ..."""
    bootstrap = cluster.plan.bootstrap
    subprocess.run([*RAFTWERK, "topics", "create", "hours", "-p", "1", "-b", bootstrap], check=True, timeout=60)
    producer = Producer({"bootstrap.servers": bootstrap})
    now_ms = int(time.time() * 1000)
    for index in range(10):
        timestamp = now_ms - (9 - index) * HOUR_MS
        producer.produce("hours", b"v%d" % index, b"k%d" % (index % 2), timestamp=timestamp)
    assert producer.flush(30) == 0
    return bootstrap


def test_by_time(filled: str) -> None:
    assert consume(filled, "hours", "-e", "--since", "150m") == ["v7", "v8", "v9"]
    assert consume(filled, "hours", "--since", "270m", "--until", "150m") == ["v5", "v6"]
    iso = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time.time() - 1.5 * 3600))
    assert consume(filled, "hours", "-e", "--since", iso) == ["v8", "v9"]


def test_partitions_that_do_not_reach_to_the_offset_are_told(cluster: Supervisor) -> None:
    at = ("-b", cluster.plan.bootstrap)
    subprocess.run([*RAFTWERK, "topics", "create", "uneven", "-p", "2", *at], check=True, timeout=60)
    for value in "ab":
        subprocess.run([*RAFTWERK, "produce", "uneven", "-p", "1", "-m", value, *at], check=True, timeout=60)
    done = subprocess.run(
        [*RAFTWERK, "consume", "uneven", "--offset", "1", "-e", "-p", "0", "-p", "1", *at],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "there is no offset 1: uneven-0 is empty and ends at 0" in done.stderr
    done = subprocess.run(
        [*RAFTWERK, "consume", "uneven", "--offset", "1", "-e", *at],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "b\n")
    assert done.stderr == "Not read, since there is no offset 1: uneven-0 is empty and ends at 0\n"


def test_the_last_ones_and_keys(filled: str) -> None:
    assert consume(filled, "hours", "-e", "--last", "2", "-k", "=") == ["k0=v8", "k1=v9"]
    assert consume(filled, "hours", "-e", "--key", "k1", "--last", "4") == ["v7", "v9"]
    assert consume(filled, "hours", "-e", "--grep", "v[12]") == ["v1", "v2"]
    assert consume(filled, "hours", "-e", "--offset", "8", "-s", "hex") == ["7638", "7639"]


def test_what_is_wrong_is_said_with_the_way_out(filled: str) -> None:
    for arguments, code, told in (
        (("hours", "--since", "yesterday"), 2, "10m (ago)"),
        (("hours", "--latest", "--last", "1"), 2, "give one of"),
        (("hours", "--grep", "("), 2, "--grep"),
        (("nowhere",), 1, "raftwerk topics list"),
        (("hours", "-p", "7"), 1, "has no partition 7: its only partition is 0"),
        (("hours", "-e", "--offset", "500"), 1, "there is no offset 500: hours-0 has the offsets 0 to 9\n"),
    ):
        done = subprocess.run(
            [*RAFTWERK, "consume", *arguments, "-b", filled], capture_output=True, text=True, timeout=60, check=False
        )
        assert (done.returncode, told in done.stderr) == (code, True), done.stderr


def test_a_live_tail_shows_each_record_as_it_comes(cluster: Supervisor) -> None:
    bootstrap = cluster.plan.bootstrap
    subprocess.run([*RAFTWERK, "topics", "create", "live", "-p", "1", "-b", bootstrap], check=True, timeout=60)
    command = [*RAFTWERK, "consume", "live", "--json", "-s", "msgpack", "-b", bootstrap]
    producer = Producer({"bootstrap.servers": bootstrap})
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for value in ({"a": [1, b"\xff"]}, "text"):
            producer.produce("live", msgpack.packb(value))
            producer.flush(30)
            row = json.loads(process.stdout.readline())
            assert row["value"] == ({"a": [1, "ff"]} if isinstance(value, dict) else "text")
        process.stdout.close()
        producer.produce("live", b"x")
        producer.flush(30)
        assert process.wait(20) == 0


def test_what_cannot_be_decoded_is_text() -> None:
    assert line_of(b"{broken", "json") == b"{broken"
    assert line_of(b'{"a": 1}', "json") == b'{"a":1}'
    assert line_of(b"\xc1", "msgpack") == rb"\xc1"
    assert line_of(b"\xff", "raw") == b"\xff"
    assert line_of(None, "json") == b""


def test_internal_topics_are_read_in_words(bootstrap: str, topic: str) -> None:
    helpers.create_topic(bootstrap, topic)
    group = f"{topic}-group"
    reset = ["groups", "reset", group, "--topic", topic, "--to", "earliest", "--execute", "-b", bootstrap]
    subprocess.run([*RAFTWERK, *reset], check=True, timeout=60, capture_output=True)
    options = ("-s", "internal", "--grep", group, "-e")
    rows = [json.loads(line) for line in consume(bootstrap, "__consumer_offsets", *options, "--json")]
    offsets = [one for one in rows if one["key"]["type"] == "offset" and one["value"]]
    assert {(one["key"]["group"], one["key"]["topic"], one["value"]["offset"]) for one in offsets} == {
        (group, topic, 0)
    }
    assert any('"offset":0' in line for line in consume(bootstrap, "__consumer_offsets", *options))
    refused = subprocess.run(
        [*RAFTWERK, "consume", topic, "-s", "internal"], capture_output=True, text=True, check=False
    )
    assert (refused.returncode, "is for __consumer_offsets" in refused.stderr) == (2, True)


def test_json_tells_bytes_from_text(bootstrap: str, topic: str) -> None:
    """What is not UTF-8 is there in base 64, too, as its text could be the text of other bytes."""
    helpers.create_topic(bootstrap, topic)
    writer = Producer({"bootstrap.servers": bootstrap, **helpers.PRODUCER})
    writer.produce(topic, b"\xff", b"\xfe", headers=[("text", b"a"), ("bytes", b"\xfd"), ("null", None)])
    writer.produce(topic, rb"\xff", rb"\xfe", headers=[("text", b"a")])
    writer.produce(topic, None)
    assert writer.flush(30) == 0
    rows = [json.loads(line) for line in consume(bootstrap, topic, "-e", "--json")]
    first, second, null = rows
    for name in ("key", "value"):
        assert first[name] == second[name]
        assert null[name] is None
    assert (first["key_base64"], first["value_base64"]) == ("/g==", "/w==")
    assert first["headers_base64"] == [["text", "YQ=="], ["bytes", "/Q=="], ["null", None]]
    assert not any(name.endswith("_base64") for row in (second, null) for name in row)
