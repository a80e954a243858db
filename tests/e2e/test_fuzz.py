"""A bounded run of `make fuzz`: what the cluster withstands, it goes on withstanding."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from raftwerk.chaos.fuzz.attack_table import ATTACKS
from raftwerk.chaos.fuzz.attacker_connection import request_frame
from raftwerk.chaos.fuzz.sent_requests import SentRequest, write_requests
from raftwerk.wire.api_keys import ApiKey

SLOW = ("create-topics",)
"""Three thousand logs are made by every node, and the client waits for the disk as long as the machine needs."""
CHOSEN = tuple(name for name in ATTACKS if name not in SLOW)
P99_FLOOR_MS = "2000"  # other tests run on the same processors


def fuzz(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "raftwerk.chaos.fuzz", *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=240)


@pytest.mark.long
def test_attacks_leave_three_nodes_and_their_client_unharmed(tmp_path: Path) -> None:
    arguments = ["--minutes", "0.2", "--alone-seconds", "2", "--kills", "1", "--p99-floor-ms", P99_FLOOR_MS, "--json"]
    done = fuzz("run", "--attacks", ",".join(CHOSEN), "-d", str(tmp_path / "run"), *arguments)
    assert done.returncode in (0, 1), done.stderr
    verdict = json.loads(done.stdout)
    assert verdict["findings"] == []
    assert done.returncode == 0
    assert [one["name"] for one in verdict["attacks"]] == list(CHOSEN)
    assert all(sum(one["outcomes"].values()) >= 1 for one in verdict["attacks"])
    assert verdict["totals"]["acked"] > 500


def test_requests_of_a_file_are_sent_again(tmp_path: Path) -> None:
    requests = [
        SentRequest(2, "controller", request_frame(ApiKey.API_VERSIONS, 0, b"")),
        SentRequest(1, "broker", b"GET / HTTP/1.1\r\n\r\n"),
    ]
    write_requests(str(tmp_path / "0001.hex"), requests, "a reason")
    done = fuzz("replay", str(tmp_path / "0001.hex"))
    assert done.returncode == 0, done.stderr
    assert "API_VERSIONS v0 to the controller 2: answered" in done.stderr
    assert "to the broker 1: closed" in done.stderr
