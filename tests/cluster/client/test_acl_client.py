"""`raftwerk acls` and its client, against a controller listener on the loopback."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from click.testing import CliRunner
from support.controller.controller_listener import ControllerListener

from raftwerk.broker.authorization import Authorization
from raftwerk.cli.main import cli
from raftwerk.cluster.client import cluster_client
from raftwerk.security.authorizer.standard_authorizer import StandardAuthorizer


@contextmanager
def controller(authorization: Authorization) -> Iterator[str]:
    """The address of a controller that runs in a thread."""
    loop = asyncio.new_event_loop()
    started: list[ControllerListener] = []

    async def start() -> int:
        listener = ControllerListener()
        listener.services.authorization = authorization
        started.append(listener)
        await listener.server.start()
        return listener.server.port

    async def stop() -> None:
        started[0].services.controller.close()
        await started[0].server.stop()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    port = loop.run_until_complete(start())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        with pytest.MonkeyPatch.context() as patch:  # it answers as the brokers do that would forward to it
            patch.setattr(cluster_client, "is_controller_listener", lambda served: False)
            yield f"127.0.0.1:{port}"
    finally:
        asyncio.run_coroutine_threadsafe(stop(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture
def at() -> Iterator[str]:
    with controller(Authorization(StandardAuthorizer(["User:ANONYMOUS"]))) as address:
        yield address


def told(at: str, *arguments: str, code: int = 0) -> list[str]:
    result = CliRunner().invoke(cli, ["acls", *arguments, "-b", at], prog_name="raftwerk")
    assert result.exit_code == code, result.output
    return [" ".join(line.split()) for line in result.output.splitlines()]


def test_entries_are_made_listed_and_removed(at: str) -> None:
    assert told(at, "list") == ["There are no ACLs."]
    assert told(at, "allow", "alice", "consume", "-t", "flights", "-g", "reports") == [
        "allow User:alice read topic flights",
        "allow User:alice describe topic flights",
        "allow User:alice read group reports",
    ]
    told(at, "allow", "bob", "write", "-t", "fli", "--prefixed")
    assert told(at, "deny", "*", "ALL", "--topic", "*", "--host", "192.0.2.7") == [
        "deny User:* all every topic from 192.0.2.7"
    ]
    told(at, "allow", "User:node", "cluster_action", "--cluster")
    assert told(at, "list", "--topic", "flights") == [
        "deny User:* all every topic from 192.0.2.7",
        "allow User:bob write topic fli and all that begin so",
        "allow User:alice read topic flights",
        "allow User:alice describe topic flights",
    ]
    assert told(at, "list", "--cluster", "--principal", "node") == ["allow User:node cluster-action cluster"]
    (row,) = told(at, "list", "-t", "fli", "--prefixed", "--json")
    assert json.loads(row) == {
        "permission": "allow",
        "principal": "User:bob",
        "operation": "write",
        "resource_type": "topic",
        "resource_name": "fli",
        "pattern": "prefix",
        "host": "*",
    }
    (missing,) = told(at, "remove", "bob", "-t", "fli", code=1)
    assert missing == "Error: there are no such ACLs; raftwerk acls list shows them"
    assert told(at, "remove", "bob", "-t", "fli", "--dry-run") == ["No ACL matches."]
    assert told(at, "list", "--principal", "nobody") == ["No ACL matches."]
    assert told(at, "remove", "alice", "read", "--dry-run") == [
        "allow User:alice read topic flights",
        "allow User:alice read group reports",
        "2 ACLs would be removed.",
    ]
    assert told(at, "remove", "alice", "describe", "-t", "flights")[-1] == "Removed 1 ACL."
    assert len(told(at, "list")) == 5
    assert told(at, "remove", "--all")[-1] == "Removed 5 ACLs."
    assert told(at, "remove", "--all") == ["There are no ACLs."]
    assert told(at, "list") == ["There are no ACLs."]


def test_entries_about_tokens(at: str) -> None:
    assert told(at, "allow", "carol", "create-tokens", "--user-principal", "alice") == [
        "allow User:carol create-tokens user User:alice"
    ]
    assert told(at, "allow", "carol", "describe", "--delegation-token", "*") == [
        "allow User:carol describe every delegation token"
    ]
    assert told(at, "list", "--user-principal", "User:alice") == ["allow User:carol create-tokens user User:alice"]
    assert told(at, "remove", "carol", "--delegation-token", "*")[-1] == "Removed 1 ACL."


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("allow alice read", "say on what: --topic NAME"),
        ("allow alice jump --topic t", "'jump' is no operation; there are produce, consume, all, read"),
        ("allow alice cluster-action --topic t", "nobody can cluster-action a topic; there are all, read, write"),
        ("allow alice consume --cluster", "consume means nothing there"),
        ("allow alice alter --cluster --prefixed", "the cluster has no prefix"),
        ("allow alice", "Missing argument 'OPERATION"),
        ("remove", "say whose or on what: PRINCIPAL"),
        ("remove alice --all", "--all removes all entries"),
        ("remove alice produce", "produce means something on topics"),
        ("remove alice jump", "'jump' is no operation"),
    ],
)
def test_wrong_commands_are_told_in_plain_words(line: str, sentence: str) -> None:
    (output,) = [" ".join(told("127.0.0.1:1", *line.split(), code=2))]
    assert sentence in output


def test_a_cluster_without_an_authorizer_says_so() -> None:
    with controller(Authorization()) as address:
        for line in ("list", "allow alice read -t t", "remove alice"):
            (output,) = told(address, *line.split(), code=1)
            assert "SECURITY_DISABLED" in output and "authorizer.class.name in the nodes' settings" in output


def test_who_may_not_is_told_whom_to_ask() -> None:
    with controller(Authorization(StandardAuthorizer())) as address:
        for line, right in (("list", "describe"), ("allow alice read -t t", "alter"), ("remove alice", "alter")):
            (output,) = told(address, *line.split(), code=1)
            assert "CLUSTER_AUTHORIZATION_FAILED" in output
            assert f"an administrator gives by raftwerk acls allow PRINCIPAL {right} --cluster" in output
