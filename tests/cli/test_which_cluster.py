"""How commands find their cluster, and what they say when nobody answers there."""

from __future__ import annotations

import os
import socket
import threading
from contextvars import copy_context
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from raftwerk.cli.main import cli
from raftwerk.cluster.client.access.bootstrap import parse_bootstrap
from raftwerk.cluster.client.access.current_login import CURRENT_LOGIN
from raftwerk.cluster.client.client_errors import ClientError
from raftwerk.cluster.command_line.cluster_address import AddressError, find_address
from raftwerk.cluster.command_line.cluster_options import bootstrap_option, chosen_client_properties
from raftwerk.cluster.command_line.commands import Command
from raftwerk.cluster.command_line.profiles import (
    Profiles,
    ProfilesError,
    load_profiles,
    profiles_file,
    save_profiles,
)
from raftwerk.cluster.command_line.user_directories import user_directory
from raftwerk.cluster.local.layout import ClusterShape, plan_cluster, write_properties


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without clusters, who works in an empty directory."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("RAFTWERK_BOOTSTRAP", raising=False)
    monkeypatch.delenv("RAFTWERK_DIR", raising=False)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path


def lay_out(directory: Path, port: int, brokers: int = 3) -> str:
    """The files of a local cluster; returns its bootstrap servers."""
    plan = plan_cluster(str(directory), ClusterShape(brokers, port=port))
    write_properties(plan)
    for node in plan.nodes:
        Path(node.data_dir).mkdir(parents=True)
        (Path(node.data_dir) / "meta.properties").write_text(f"cluster.id={plan.cluster_id}\n")
    return plan.bootstrap


def run(*words: str) -> tuple[int, str]:
    """The exit code and all that a command prints."""
    result = CliRunner().invoke(cli, list(words))
    assert result.exception is None or isinstance(result.exception, (SystemExit, click.exceptions.Exit)), result
    return result.exit_code, result.output


def test_without_anything_it_is_the_default_port() -> None:
    found = find_address()
    assert (found.bootstrap, found.is_explicit) == ("localhost:9092", False)
    assert "./raftwerk-data" in found.origin


def test_the_cluster_beside_is_found_with_all_its_nodes() -> None:
    bootstrap = lay_out(Path("raftwerk-data"), 28392)
    found = find_address()
    assert bootstrap.count(",") == 2
    assert found.bootstrap == bootstrap
    assert "./raftwerk-data" in found.origin


def test_each_source_goes_before_the_next(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay_out(Path("raftwerk-data"), 21000)
    save_profiles(Profiles({"staging": "staging:1"}, "staging"))
    assert find_address().bootstrap == "staging:1"
    monkeypatch.setenv("RAFTWERK_DIR", str(home / "other"))
    other = lay_out(home / "other", 22000)
    assert find_address().bootstrap == other
    monkeypatch.setenv("RAFTWERK_BOOTSTRAP", "variable")
    assert find_address().bootstrap == "variable:9092"
    assert find_address(bootstrap="option:7").bootstrap == "option:7"
    assert find_address(directory=str(home / "other")).bootstrap == other
    assert find_address(name="staging").bootstrap == "staging:1"
    named = lay_out(home / "state" / "raftwerk" / "orders", 23000)
    assert find_address(name="orders").bootstrap == named


def test_what_is_not_there_is_said(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AddressError, match=r"there is no cluster nobody: .*profile list"):
        find_address(name="nobody")
    with pytest.raises(AddressError, match=r"there is no cluster in .*none \(--dir\).*raftwerk up"):
        find_address(directory=str(home / "none"))
    monkeypatch.setenv("RAFTWERK_BOOTSTRAP", "http://x:9092")
    with pytest.raises(AddressError, match=r"is not host:port.*RAFTWERK_BOOTSTRAP"):
        find_address()


def test_a_directory_without_a_cluster_is_named_whole_with_the_one_nearby(home: Path) -> None:
    here = home / "here"
    for words in (("status", "-d", "."), ("kill", "1", "-d", "."), ("topics", "list", "-d", "."), ("down", "-d", ".")):
        assert run(*words)[0] == 2
        assert f"there is no cluster in {here}" in run(*words)[1]
    lay_out(here / "raftwerk-data", 21000)
    for words in (("start", "-d", "."), ("topics", "list", "-d", ".")):
        assert f"but there is one in it: --dir {here}/raftwerk-data" in run(*words)[1]
    assert f"but there is one above it: --dir {here}/raftwerk-data" in run("logs", "-d", "raftwerk-data/node-1")[1]
    assert f"the cluster in {here}/raftwerk-data has 1, 2, 3" in run("kill", "7")[1]
    for words in (("down", "--name", "orders"), ("kill", "1", "--name", "orders")):
        code, told = run(*words)
        assert (code, "there is no cluster orders: " in told, str(home) in told) == (2, True, False)


def test_exports_of_a_local_cluster_name_its_directory_too(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bootstrap = lay_out(home / "other", 22000)
    monkeypatch.setenv("RAFTWERK_BOOTSTRAP", bootstrap)
    monkeypatch.setenv("RAFTWERK_DIR", str(home / "other"))
    assert find_address().directory == str(home / "other")
    port = bootstrap.rpartition(":")[2]
    monkeypatch.setenv("RAFTWERK_BOOTSTRAP", f"localhost:{port}")
    assert find_address().directory == str(home / "other")
    monkeypatch.setenv("RAFTWERK_BOOTSTRAP", f"elsewhere,localhost:{port}")
    assert find_address().directory is None


def test_an_address_in_the_environment_is_the_local_cluster_s_only_while_that_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While it is down another cluster may have the address, and the address is all that was named."""
    monkeypatch.setenv("RAFTWERK_BOOTSTRAP", lay_out(Path("raftwerk-data"), 22000, 1))
    assert find_address().directory is None
    monkeypatch.setattr("raftwerk.cluster.local.supervisor.has_running_nodes", lambda _: True)
    assert find_address().directory == os.path.abspath("raftwerk-data")


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (("topics", "list"), "raftwerk up{} or raftwerk start{} starts it"),
        (("status",), "No broker answers: raftwerk up{} starts the cluster, raftwerk start N{} one node."),
        (("kill", "1"), "node 1 is not running; raftwerk start 1{} starts it"),
    ],
)
def test_advice_names_the_cluster_that_was_told(words: tuple[str, ...], advice: str, home: Path) -> None:
    lay_out(home / "state" / "raftwerk" / "orders", 23000)
    lay_out(home / "other", 23100)
    lay_out(Path("raftwerk-data"), 23200)
    for told in (" --name orders", f" -d {home}/other", ""):
        code, said = run(*words, *told.split())
        assert (code, advice.replace("{}", told) in " ".join(said.split())) == (1, True), said


def test_a_foreign_directory_is_said() -> None:
    Path("raftwerk-data").mkdir()
    Path("raftwerk-data/s1.properties").write_text("a=b\n")
    for words in (("topics", "list"), ("status",), ("kill", "1"), ("start",), ("logs",), ("up", "--port", "0")):
        code, told = run(*words)
        assert code == 2
        assert "raftwerk-data/s1.properties is not the file of a node: take another directory" in told


def test_profiles_are_kept(home: Path) -> None:
    assert run("profile", "list") == (0, "There are no profiles; raftwerk profile add NAME HOST:PORT,... adds one.\n")
    assert run("profile", "add", "prod", "a,b:9093")[0] == 0
    assert run("profile", "add", "with.dot", "[::1]:1")[0] == 0
    assert run("profile", "use", "prod") == (0, "Commands now use prod: a:9092,b:9093.\n")
    assert run("profile", "list")[1].splitlines()[0].startswith("* prod")
    assert load_profiles() == Profiles({"prod": "a:9092,b:9093", "with.dot": "[::1]:1"}, "prod")
    assert profiles_file() == str(home / "config" / "raftwerk" / "profiles.toml")
    told = "It was in use: commands now find the cluster of this directory, or else that at localhost:9092."
    assert run("profile", "remove", "prod") == (0, f"Removed the profile prod.\n{told}\n")
    assert load_profiles() == Profiles({"with.dot": "[::1]:1"})
    assert run("profile", "use", "prod") == (2, "Error: there is no profile prod; there are: with.dot\n")
    assert run("profile", "remove", "prod") == (1, "Error: there is no profile prod; there are: with.dot\n")
    lay_out(home / "state" / "raftwerk" / "orders", 23000)
    assert "local cluster" in run("profile", "add", "orders", "a:1")[1]
    assert "is a profile of a cluster elsewhere" in run("kill", "1", "--name", "with.dot")[1]


def test_a_link_to_the_file_of_profiles_stays_a_link(home: Path) -> None:
    kept = home / "dotfiles.toml"
    link = Path(profiles_file())
    link.parent.mkdir(parents=True)
    link.symlink_to(kept)
    for name in ("staging", "live"):
        save_profiles(Profiles({name: f"{name}:1"}, name))
        assert link.is_symlink() and not kept.is_symlink()
        assert load_profiles().bootstraps == {name: f"{name}:1"}


def test_a_cluster_that_cannot_be_read_is_named_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay_out(Path("raftwerk-data"), 21000)
    file = home / "here" / "raftwerk-data" / "s1.properties"
    file.unlink()
    file.mkdir()
    assert run("topics", "list") == (
        2,
        f"Error: cannot read {file}: is a directory (from the cluster in ./raftwerk-data)\n",
    )


def test_what_a_profile_logs_in_by_is_told(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "live.properties"
    file.write_text("security.protocol=PLAINTEXT\nssl.truststore.location=security/ca.crt\n")
    code, told = run("profile", "add", "live", "a:1", "--command-config", str(file))
    assert code == 0 and told.startswith("Added the profile live;")
    path = os.path.abspath("security/ca.crt")
    assert "Warning: ssl.truststore.location=security/ca.crt in that file is a relative path" in told
    assert told.endswith(f"write {path}\n")
    code, told = run("profile", "add", "live", "b:1")
    assert code == 0 and told.startswith("Replaced the profile live;")
    assert told.endswith(f"log in no more as {file} says: --command-config keeps that.\n")
    assert load_profiles() == Profiles({"live": "b:1"})


def test_names_of_users_and_topics_that_are_none_are_told() -> None:
    code, told = run("users", "add", "User:erin", "-b", "a:1")
    assert code == 2 and told.endswith("as ACLs name them: raftwerk users add erin\n")
    code, told = run("acls", "allow", "bob", "all", "--topic", "orders*", "-b", "a:1")
    assert code == 2 and "no topic has * in its name: --topic orders --prefixed is for all that begin so" in told


@pytest.mark.parametrize("path", ["/home/\U0001f600/login", '/home/ä\x7f\t"\\/login', "/home/ \u2028\ufeff/login"])
def test_a_profile_keeps_its_path_whatever_its_characters(path: str) -> None:
    profiles = Profiles().with_profile(path, "a:1", path).using(path)
    save_profiles(profiles)
    assert load_profiles() == profiles


def test_a_path_that_is_no_text_is_refused() -> None:
    save_profiles(Profiles({"live": "a:1"}))
    with pytest.raises(ProfilesError, match="cannot be written: a path in them is no Unicode text"):
        save_profiles(Profiles().with_profile("staging", "a:1", os.fsdecode(b"/home/\xff")))
    assert load_profiles() == Profiles({"live": "a:1"})


def test_a_malformed_file_of_profiles_is_named() -> None:
    path = Path(profiles_file())
    path.parent.mkdir(parents=True)
    no_path = "[profiles.x]\nbootstrap-servers = 'a:1'\ncommand-config = 3"
    for text in ("current = ", 'current = "x"', "profiles = 3", "[profiles.x]\nbootstrap = 'a:1'", no_path):
        path.write_text(text)
        code, told = run("topics", "list")
        assert code == 2
        assert f"{path} is malformed" in told


def test_exports_for_the_shell(home: Path) -> None:
    bootstrap = lay_out(home / "state" / "raftwerk" / "orders", 23000)
    directory = home / "state" / "raftwerk" / "orders"
    told = run("env", "orders")[1].splitlines()
    assert told[:2] == [f"export RAFTWERK_BOOTSTRAP={bootstrap};", f"export RAFTWERK_DIR={directory};"]
    assert run("env", "-b", "x")[1].splitlines()[:2] == ["export RAFTWERK_BOOTSTRAP=x:9092;", "export RAFTWERK_DIR='';"]
    assert run("env", "orders", "--name", "orders")[0] == 2


@pytest.mark.parametrize(
    "words",
    [
        ("topics", "list"),
        ("groups", "list"),
        ("quorum",),
        ("quorum", "describe"),
        ("features", "list"),
        ("produce", "t", "-m", "x"),
        ("consume", "t"),
        ("perf", "consume", "t"),
        ("doctor",),
        ("pipeline", "run", "windows", "-t", "t", "--out", "o"),
        ("pipeline", "feed"),
    ],
)
def test_a_wrong_choice_is_told_with_its_origin(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("confluent_kafka", reason="the jobs need confluent-kafka: NOT tested")
    lay_out(Path("raftwerk-data"), 1, 1)
    code, told = run(*words)
    assert code == 1
    assert "127.0.0.1:1 refuses the connection" in told
    assert "the cluster in ./raftwerk-data" in told
    monkeypatch.setenv("RAFTWERK_BOOTSTRAP", "127.0.0.1:2")
    assert "127.0.0.1:2 refuses the connection" in run(*words)[1]
    assert "RAFTWERK_BOOTSTRAP" in run(*words)[1]


def test_the_doctor_misses_no_login_of_the_commands_where_another_one_is_given() -> None:
    """Its way out makes other passwords, which nobody needs who logs in with a file of their own."""
    directory = Path("raftwerk-data")
    plan = plan_cluster(str(directory), ClusterShape(1, port=1, secure=True))
    write_properties(plan)
    Path(plan.nodes[0].data_dir).mkdir(parents=True)
    (Path(plan.nodes[0].data_dir) / "meta.properties").write_text(f"cluster.id={plan.cluster_id}\n")
    (directory / "security").mkdir()
    Path("own.properties").write_text("security.protocol=PLAINTEXT\n")
    missing = "with which the commands log in, is not there"
    assert missing in " ".join(run("doctor")[1].split())
    assert missing not in " ".join(run("doctor", "--command-config", "own.properties")[1].split())
    (directory / "security").rmdir()
    assert "are gone:" in run("doctor", "--command-config", "own.properties")[1]


def test_the_brokers_are_named_where_the_controllers_of_the_local_cluster_are_asked() -> None:
    bootstrap = lay_out(Path("raftwerk-data"), 1, 1)
    assert f"the brokers of this cluster are at {bootstrap}; " in run("topics", "list", "-b", "localhost:1002")[1]
    assert "the brokers of this cluster" not in run("topics", "list", "-b", "localhost:1003")[1]


def test_options_of_a_group_hold_in_its_subcommands() -> None:
    assert "127.0.0.1:1 refuses" in run("quorum", "-b", "127.0.0.1:1", "describe")[1]
    told = run("quorum", "--bootstrap-controller", "127.0.0.1:1", "describe")[1]
    assert "127.0.0.1:1 refuses" in told
    assert "the address is from --bootstrap-controller" in told
    code, told = run("quorum", "describe", "-b", "a:1", "--bootstrap-controller", "b:1")
    assert (code, "give one of them" in told) == (2, True)


def test_only_one_option_names_a_cluster() -> None:
    for words in (("-b", "x:1", "--name", "y"), ("-b", "x:1", "-d", "y"), ("--name", "x", "-d", "y")):
        code, told = run("topics", "list", *words)
        assert (code, "give one of them" in told) == (2, True)


def test_all_names_of_the_option() -> None:
    for name in ("-b", "--bootstrap-server", "--bootstrap-servers", "--bootstrap"):
        assert "127.0.0.1:1 refuses" in run("topics", "list", name, "127.0.0.1:1")[1]


def test_a_port_that_is_missing_is_9092() -> None:
    assert parse_bootstrap("localhost, b:1,[::1]") == [("localhost", 9092), ("b", 1), ("::1", 9092)]
    for wrong in ("", "a:", "a:b", ":1", "http://a:1", "a:0", "a:65536", "::1:9092", "a:1,,b", "a b"):
        with pytest.raises(ClientError, match="is not host:port"):
            parse_bootstrap(wrong)


@click.command(cls=Command)
@bootstrap_option
def _login(bootstrap: str) -> None:
    """Print the file by which the command logs in, if it does."""
    click.echo(chosen_client_properties() if CURRENT_LOGIN.get() is not None else "none")


def test_a_cluster_that_an_option_names_has_its_own_login(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment may say how to log in to another one, after `eval "$(raftwerk env)"` there."""
    login = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config=" + (
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";\n'
    )
    lay_out(home / "plain", 28392)
    bootstrap = lay_out(home / "secured", 28402)
    own, other, option = home / "secured/security/admin.properties", home / "other.properties", home / "option"
    own.parent.mkdir()
    for file in (own, other, option):
        file.write_text(login)
    monkeypatch.setenv("RAFTWERK_COMMAND_CONFIG", str(other))

    def login_of(*words: str) -> str:
        return copy_context().run(CliRunner().invoke, _login, words).output.strip()

    assert login_of("-d", str(home / "plain")) == "none"
    assert login_of("-d", str(home / "secured")) == str(own)
    assert login_of("-b", bootstrap) == login_of() == str(other)
    assert login_of("-d", str(home / "secured"), "--command-config", str(option)) == str(option)
    assert login_of("-d", str(home / "plain"), "--command-config", str(option)) == str(option)


def test_a_profile_names_the_file_of_its_login(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, other = home / "here" / "own.properties", home / "other.properties"

    def told_by(*words: str) -> tuple[int, str]:
        return copy_context().run(run, *words)  # the login is one of the context, and other tests have none

    own.write_text("security.protocol=SSL\n")
    other.write_text("security.protocol=SSL\n")
    assert told_by("profile", "add", "live", "a:1", "--command-config", "own.properties")[0] == 0
    assert told_by("profile", "add", "plain", "b:1")[0] == 0
    assert load_profiles() == Profiles({"live": "a:1", "plain": "b:1"}, None, {"live": str(own)})
    assert f"logs in as {own} says" in told_by("profile", "list")[1].splitlines()[0]

    def login_of(*words: str) -> str:
        return copy_context().run(CliRunner().invoke, _login, words).output.strip()

    assert (login_of("--name", "live"), login_of("--name", "plain"), login_of("-b", "a:1")) == (
        str(own),
        "none",
        "none",
    )
    assert login_of("--name", "live", "--command-config", str(other)) == str(other)
    assert f"export RAFTWERK_COMMAND_CONFIG={own};" in told_by("env", "live")[1].splitlines()
    told_by("profile", "use", "live")
    assert login_of() == str(own)
    monkeypatch.setenv("RAFTWERK_COMMAND_CONFIG", str(other))
    assert (login_of(), login_of("--name", "live"), login_of("--name", "plain")) == (str(other), str(own), str(other))
    assert "export RAFTWERK_COMMAND_CONFIG='';" not in told_by("env", "plain")[1].splitlines()
    monkeypatch.setenv("RAFTWERK_COMMAND_CONFIG", str(own))
    assert "export RAFTWERK_COMMAND_CONFIG='';" in told_by("env", "plain")[1].splitlines()
    own.unlink()
    code, told = told_by("topics", "list", "--name", "live")
    assert code == 2 and f"cannot read {own}" in told
    assert told_by("profile", "add", "plain", "b:1", "--command-config", "nofile")[0] == 2
    assert told_by("profile", "add", "live", "a:1")[0] == 0
    assert load_profiles().login_files == {}


def test_a_login_of_the_environment_that_fails_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "other.properties").write_text("security.protocol=SSL\n")
    monkeypatch.setenv("RAFTWERK_COMMAND_CONFIG", str(home / "other.properties"))
    with socket.create_server(("127.0.0.1", 0)) as server:

        def close_after_the_hello() -> None:
            connection, _ = server.accept()
            connection.recv(65536)
            connection.close()

        told = {}
        for command in (("topics", "list", "-b"), ("quorum", "--bootstrap-controller")):
            thread = threading.Thread(target=close_after_the_hello)
            thread.start()
            code, told[command[0]] = copy_context().run(run, *command, f"127.0.0.1:{server.getsockname()[1]}")
            thread.join()
            assert code == 1
    assert "the login is from RAFTWERK_COMMAND_CONFIG=" in told["topics"]
    text = told["topics"]
    assert text.index("unset that if it belongs to another cluster") < text.index("set security.protocol")
    assert "controllers were asked, and may take another login than brokers: set security.protocol" in told["quorum"]
    assert f"name it with --command-config: it is {home / 'other.properties'} now" in told["quorum"]


@pytest.mark.parametrize("named", ["", "relative/dir", "./x"])
def test_a_relative_directory_of_a_user_is_ignored(monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setenv("XDG_STATE_HOME", named)
    assert user_directory("XDG_STATE_HOME", ".local/state") == "/home/ada/.local/state"
    monkeypatch.setenv("XDG_STATE_HOME", "/var/ada")
    assert user_directory("XDG_STATE_HOME", ".local/state") == "/var/ada"
