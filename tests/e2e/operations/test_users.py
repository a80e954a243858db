"""`raftwerk users` on a node whose clients log in."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.e2e.clusters import start_cluster
from support.e2e.command import fails, ok, raftwerk

from raftwerk.cluster.local.supervisor import Supervisor

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervisor]:
    overrides = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": f'{PLAIN} username="node" password="n" user_node="n";',
    }
    supervisor = start_cluster(tmp_path_factory.mktemp("cluster"), 1, overrides=overrides)
    yield supervisor
    supervisor.stop()


def eventually(holds: Callable[[], bool], timeout_s: float = 20.0) -> None:
    end = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < end, "not in time"


def file_of(path: Path, mechanism: str, module: str, user: str, password: str) -> str:
    path.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
        f'sasl.jaas.config={module} username="{user}" password="{password}";\n'
    )
    return str(path)


def test_users_come_change_their_passwords_and_go(cluster: Supervisor, tmp_path: Path) -> None:
    where = ("-b", cluster.plan.bootstrap)
    at = (*where, "--command-config", file_of(tmp_path / "node", "PLAIN", PLAIN, "node", "n"))

    def can_log_in(mechanism: str, password: str) -> bool:
        login = file_of(tmp_path / "alice", mechanism, SCRAM, "alice", password)
        return raftwerk("topics", "list", *where, "--command-config", login).returncode == 0

    assert ok("users", "list", *at) == ""
    both = ("--mechanism", "SCRAM-SHA-256", "--mechanism", "scram-sha-512", "--iterations", "5000")
    assert ok("users", "add", "alice", *both, *at, text="tea\nnot this\n") == (
        "Added alice for SCRAM-SHA-256 and SCRAM-SHA-512.\n"
    )
    rows = [json.loads(line) for line in ok("users", "list", "--json", *at).splitlines()]
    assert rows == [{"user": "alice", "mechanism": f"SCRAM-SHA-{size}", "iterations": 5000} for size in ("256", "512")]
    eventually(lambda: can_log_in("SCRAM-SHA-256", "tea"))
    assert can_log_in("SCRAM-SHA-512", "tea")
    assert not can_log_in("SCRAM-SHA-512", "coffee")

    secret = tmp_path / "secret"
    secret.write_text("coffee\n")
    ok("users", "password", "alice", "--mechanism", "SCRAM-SHA-512", "--password-file", str(secret), *at)
    eventually(lambda: can_log_in("SCRAM-SHA-512", "coffee"))
    assert can_log_in("SCRAM-SHA-256", "tea")
    assert "5000 iterations" in ok("users", "list", "alice", *at).splitlines()[1]

    assert ok("users", "remove", "alice", "--mechanism", "SCRAM-SHA-256", *at) == (
        "Removed the password of alice for SCRAM-SHA-256.\n"
    )
    eventually(lambda: not can_log_in("SCRAM-SHA-256", "tea"))
    told = raftwerk("users", "password", "alice", "--mechanism", "SCRAM-SHA-256", *at, text="x\n")
    assert (told.returncode, told.stderr) == (
        1,
        "Error: alice has no password for SCRAM-SHA-256, only for SCRAM-SHA-512\n",
    )
    own = (*where, "--command-config", file_of(tmp_path / "own", "SCRAM-SHA-512", SCRAM, "alice", "coffee"))
    assert "this command logs in as alice by SCRAM-SHA-512, and could not log in again" in fails(
        1, "users", "remove", "alice", *own
    )
    assert can_log_in("SCRAM-SHA-512", "coffee")
    ok("users", "remove", "alice", "--force", *own)
    assert ok("users", "list", *at) == ""


def test_what_cannot_be_is_told(cluster: Supervisor, tmp_path: Path) -> None:
    at = ("-b", cluster.plan.bootstrap, "--command-config", file_of(tmp_path / "node", "PLAIN", PLAIN, "node", "n"))
    told = raftwerk("users", "add", "bob", "--password", "seen", *at)
    assert told.returncode == 0
    assert told.stderr.startswith("Warning: the command line and the shell's history show the password to others")
    assert "seen" not in told.stdout + told.stderr
    again = raftwerk("users", "add", "bob", *at, text="other\n")
    assert (again.returncode, again.stderr) == (
        1,
        "Error: bob has a password for SCRAM-SHA-512 already: raftwerk users password bob changes it\n",
    )
    for command in (("remove",), ("password",), ("list",)):
        nobody = raftwerk("users", *command, "nobody", *at, text="x\n")
        assert (nobody.returncode, nobody.stderr) == (
            1,
            "Error: there is no user nobody with a SCRAM password: raftwerk users list shows them\n",
        )
    assert "the password is empty" in raftwerk("users", "add", "carol", *at, text="").stderr
    absent = raftwerk("users", "add", "carol", "--password-file", str(tmp_path / "none"), *at)
    assert (absent.returncode, absent.stderr) == (
        2,
        f"Error: cannot read {tmp_path / 'none'}: no such file or directory\n",
    )
    assert "4096 to 16384" in raftwerk("users", "add", "carol", "--iterations", "100", *at, text="x\n").stderr
    assert raftwerk("users", "add", "", *at, text="x\n").returncode == 1
