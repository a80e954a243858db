"""`raftwerk up --secure`: three nodes, their certificates, users and files for clients; all commands work on it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.e2e.command import fails, ok, raftwerk
from support.e2e.java_tools import JavaTools

from raftwerk.cluster.local.certificates import hosts_of
from raftwerk.cluster.local.client_files import EXAMPLES
from raftwerk.cluster.local.layout import load_plan

NODES = 3


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    where = str(tmp_path_factory.mktemp("secured") / "cluster")
    yield where
    raftwerk("down", "-d", where)


@pytest.fixture(scope="module")
def told(directory: str) -> str:
    """What `up` printed."""
    return ok("up", "-n", str(NODES), "--secure", "--detach", "--port", "0", "-d", directory)


def secrets_of(directory: str) -> set[str]:
    plan = load_plan(directory)
    jaas = [text for name, text in plan.nodes[0].properties.items() if name.endswith("jaas.config")]
    files = Path(directory, "security")
    jaas.append((files / "admin.properties").read_text())
    return {text.partition('password="')[2].partition('"')[0] for text in jaas} | {(files / "app.password").read_text()}


def test_files_are_the_owner_s_and_secrets_are_shown_nowhere(told: str, directory: str) -> None:
    where = Path(directory, "security")
    assert where.stat().st_mode & 0o777 == 0o700
    assert {path.name: oct(path.stat().st_mode & 0o777) for path in where.iterdir()} == dict.fromkeys(
        [
            *(f"node-{number}.pem" for number in range(1, NODES + 1)),
            *(
                "ca.crt",
                "ca.key",
                "admin.properties",
                "admin.password",
                "app.password",
                "client.properties",
                "librdkafka.conf",
            ),
            *EXAMPLES,
        ],
        "0o600",
    )
    secrets = secrets_of(directory)
    assert len(secrets) == 3  # of the nodes, of admin and of app
    assert (where / "admin.password").read_text() in secrets
    assert all(len(one) > 20 for one in secrets)
    logs = "".join(Path(node.log_file).read_text() for node in load_plan(directory).nodes)
    shown = told + logs + ok("status", "-d", directory) + ok("configs", "show", "--broker", "1", "-d", directory)
    assert [one for one in secrets if one in shown] == []
    assert str(where / "client.properties") in told
    assert {"localhost", "127.0.0.1", "::1"} <= hosts_of((where / "node-1.pem").read_bytes())


def test_commands_know_the_cluster_beside_them(told: str, directory: str, tmp_path: Path) -> None:
    ok("topics", "create", "orders", "-p", "3", "-d", directory)
    ok("produce", "orders", "-m", "hello", "-d", directory)
    assert ok("consume", "orders", "-e", "-d", directory) == "hello\n"
    assert "admin" in ok("users", "list", "-d", directory)
    assert "FAIL" not in ok("doctor", "-d", directory)
    exports = ok("env", "-d", directory)
    assert f"export RAFTWERK_COMMAND_CONFIG={directory}/security/admin.properties;" in exports
    script = f'eval "$({sys.executable} -m raftwerk env -d {directory})"; {sys.executable} -m raftwerk topics list'
    listed = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert "orders" in listed.stdout


def test_app_may_work_and_not_administer_and_strangers_may_nothing(told: str, directory: str) -> None:
    bootstrap = load_plan(directory).bootstrap
    app = ("-b", bootstrap, "--command-config", f"{directory}/security/client.properties")
    ok("topics", "create", "of-app", *app)
    ok("produce", "of-app", "-m", "hello", *app)
    assert ok("consume", "of-app", "-n", "1", "-g", "readers", *app) == "hello\n"
    refused = raftwerk("users", "list", *app)
    assert refused.returncode == 1
    assert "CLUSTER_AUTHORIZATION_FAILED" in refused.stderr or "may not" in refused.stderr, refused.stderr
    assert raftwerk("topics", "list", "-b", bootstrap).returncode == 1


def test_what_a_user_may_not_see_is_told_as_that(told: str, directory: str) -> None:
    bootstrap = load_plan(directory).bootstrap
    app = ("-b", bootstrap, "--command-config", f"{directory}/security/client.properties")
    status = ok("status", *app)
    assert "Who is the active controller cannot be seen: " in status and "no leader" not in status.replace("\n", " ")
    assert "Topics that this user may not describe are not counted" in " ".join(status.split())
    assert [json.loads(row)["may_lack_topics"] for row in ok("status", "--json", *app).splitlines()] == [True] * 3
    assert '"may_lack_topics":false' in ok("status", "--json", "-d", directory)
    examined = ok("doctor", *app)
    assert "topics that this user may not describe are not examined" in " ".join(examined.split())
    assert "not describe" not in ok("status", "-d", directory) + ok("doctor", "-d", directory)
    assert "whether a controller is active is not known: the quorum cannot be seen: you may not" in examined
    assert examined.count("the free space of log directories cannot be seen, of brokers 1, 2, 3: ") == 1
    for words in (("brokers", "log-dirs"), ("quorum",), ("partitions", "elect", "--all")):
        refused = raftwerk(*words, *app)
        assert refused.returncode == 1 and refused.stderr.startswith("Error: "), (words, refused)
        assert "CLUSTER_AUTHORIZATION_FAILED" in refused.stderr


@pytest.mark.long
def test_a_throttle_is_all_or_nothing(told: str, directory: str) -> None:
    ok("topics", "create", "still", "-p", "1", "--replicas", "2", "-d", directory)
    app = ("-b", load_plan(directory).bootstrap, "--command-config", f"{directory}/security/client.properties")
    refused = raftwerk("partitions", "reassign", "still-0=1,2", "--throttle", "1000", *app)
    assert refused.returncode == 1 and "throttle stays" not in refused.stderr, refused.stderr
    ok(
        "acls", "allow", "app", "alter-configs", "--topic", "still", "-d", directory
    )  # the topic's part, not the brokers'
    refused = raftwerk("partitions", "reassign", "still-0=1,2", "--throttle", "1000", *app)
    assert refused.returncode == 1 and "throttle stays" not in refused.stderr, refused.stderr
    assert "Nothing was throttled" in ok("partitions", "unthrottle", "-d", directory)
    refused = raftwerk("partitions", "reassign", "still-0=1,77", "--throttle", "1000", "-d", directory)
    assert refused.returncode == 1 and "throttle stays" not in refused.stderr, refused.stderr
    assert "Nothing was throttled" in ok("partitions", "unthrottle", "-d", directory)


@pytest.mark.parametrize("name", [one for one in EXAMPLES if "spark" not in one])
def test_the_examples_run(told: str, directory: str, name: str) -> None:
    command = [sys.executable, os.path.join(directory, "security", name)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr
    assert "not found" not in done.stderr, "a first run is as quiet as the next ones"


@pytest.mark.java
def test_kafkas_tools_log_in_by_the_files(told: str, directory: str, java_tools: JavaTools) -> None:
    at = ("--bootstrap-server", load_plan(directory).bootstrap, "--command-config")
    app, admin = (*at, f"{directory}/security/client.properties"), (*at, f"{directory}/security/admin.properties")
    assert "Created topic by-java." in java_tools.run("TopicCommand", *app, "--create", "--topic", "by-java")
    users = java_tools.run("kafka.admin.ConfigCommand", *admin, "--describe", "--entity-type", "users")
    assert "'app' are SCRAM-SHA-512=iterations=4096" in users
    assert "User:app" in java_tools.run("AclCommand", *admin, "--list")
    assert "LeaderId" in java_tools.run("MetadataQuorumCommand", *admin, "describe", "--status")


def test_a_killed_node_comes_back(told: str, directory: str) -> None:
    ok("kill", "2", "-d", directory)
    ok("start", "2", "-d", directory)
    ok("stop", "3", "-d", directory)
    ok("start", "-d", directory)
    ok("topics", "create", "wide", "-p", "3", "--replicas", "3", "-d", directory)


@pytest.mark.long
def test_it_grows_shrinks_and_starts_again_with_the_same_secrets(told: str, directory: str) -> None:
    secrets, authority = secrets_of(directory), Path(directory, "security", "ca.crt").read_bytes()
    own = Path(directory, "security", "node-1.pem").read_bytes()
    ok("users", "add", "alice", "--password", "tea", "-d", directory)
    ok("down", "-d", directory)
    ok("up", "-n", "4", "--detach", "-d", directory)
    assert Path(directory, "security", "node-4.pem").exists()
    ok("topics", "create", "four", "-p", "1", "--replicas", "4", "-d", directory)
    ok("shrink", "-n", "3", "--yes", "-d", directory)
    assert not Path(directory, "security", "node-4.pem").exists()
    ok("down", "-d", directory)
    ok("up", "--detach", "-d", directory)
    assert secrets_of(directory) == secrets
    assert Path(directory, "security", "ca.crt").read_bytes() == authority
    assert Path(directory, "security", "node-1.pem").read_bytes() == own
    assert "alice" in ok("users", "list", "-d", directory)


def test_deletion_removes_the_secrets(told: str, directory: str) -> None:
    copy = f"{directory}-copy"
    shutil.copytree(directory, copy, ignore=shutil.ignore_patterns("*.pid"))
    ok("delete", "--yes", "-d", copy)
    assert not os.path.exists(copy)


@pytest.mark.long
def test_who_has_deleted_the_logins_is_told_how_they_are_made_anew(told: str, directory: str) -> None:
    before = secrets_of(directory)
    ok("topics", "create", "kept", "-d", directory)
    ok("users", "add", "carol", "--password", "tea", "-d", directory)
    login = Path(directory, "security", "admin.properties")
    login.rename(login.with_suffix(".away"))
    told = fails(1, "topics", "list", "-d", directory)
    assert f"{login}, with which the commands log in, is not there: raftwerk " in told
    shutil.rmtree(Path(directory, "security"))
    way_out = f"raftwerk down -d {directory}, and then raftwerk up --detach -d {directory} makes them anew"
    for command in (("topics", "list"), ("status",), ("doctor",)):
        found = raftwerk(*command, "-d", directory)
        assert found.returncode == 1 and way_out in " ".join((found.stdout + found.stderr).split()), found
    ok("down", "-d", directory)
    assert fails(1, "start", "-d", directory).count(f"gone: raftwerk up --detach -d {directory} makes them anew") == 1
    ok("up", "--detach", "-d", directory)
    assert "kept" in ok("topics", "list", "-d", directory) and "carol" in ok("users", "list", "-d", directory)
    assert len(secrets_of(directory) - before) == 2  # those of admin and of app; nodes keep theirs


@pytest.mark.long
def test_a_plain_cluster_is_secured_and_keeps_its_records(tmp_path: Path) -> None:
    where = str(tmp_path / "c")
    try:
        ok("up", "--separate", "--detach", "--port", "0", "-d", where)
        ok("topics", "create", "old", "-d", where)
        ok("produce", "old", "-m", "kept", "-d", where)
        ok("down", "-d", where)
        ok("up", "--secure", "--detach", "-d", where)
        assert ok("consume", "old", "-n", "1", "-d", where) == "kept\n"
        assert raftwerk("topics", "list", "-b", load_plan(where).bootstrap).returncode == 1
    finally:
        raftwerk("down", "-d", where)
