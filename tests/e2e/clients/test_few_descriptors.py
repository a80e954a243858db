"""A cluster whose nodes may open fewer files than they have partitions, by their hard limit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer
from support.e2e.helpers import create_topic, read_all

PARTITIONS, LIMIT = 300, 150


def send_to_all(bootstrap: str, value: bytes) -> None:
    """One record to each partition, all of them acknowledged."""
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "message.timeout.ms": 30_000})
    for partition in range(PARTITIONS):
        producer.produce("t", value, partition=partition, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(60) == 0
    assert errors == [None] * PARTITIONS


def limited(*arguments: str) -> str:
    """`raftwerk` with a hard limit, which the nodes that it starts inherit."""
    command = ["bash", "-c", f'ulimit -n {LIMIT} && exec "$@"', "limited", sys.executable, "-P", "-m", "raftwerk"]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=90, check=True).stdout


@pytest.mark.long
def test_more_partitions_are_written_than_files_can_be_open(tmp_path: Path) -> None:
    where = str(tmp_path / "c")
    bootstrap = (
        limited("up", "-n", "2", "--detach", "-d", where, "--port", "0").split("bootstrap.servers=")[1].split()[0]
    )
    try:
        create_topic(bootstrap, "t", PARTITIONS, 2)
        values = [b"%d" % number * 6_000 for number in range(6)]
        for value in values[:3]:
            send_to_all(bootstrap, value)
        assert read_all(bootstrap, "t", PARTITIONS) == [values[:3]] * PARTITIONS
        for node in "12":
            files = Path(f"/proc/{(tmp_path / f'c/n{node}.pid').read_text().strip()}/fd")
            assert len(list(files.iterdir())) < LIMIT
            assert (
                sum(f"/node-{node}/" in os.path.realpath(file) for file in files.iterdir()) <= LIMIT // 2 + 1
            )  # a lock
            limited("kill", node, "-d", where)
            limited("start", node, "-d", where)
        for value in values[3:]:
            send_to_all(bootstrap, value)
        assert read_all(bootstrap, "t", PARTITIONS) == [values] * PARTITIONS
    finally:
        limited("down", "-d", where)
    for node in "12":
        assert "Too many open files" not in (tmp_path / f"c/n{node}.log").read_text()
