"""What commands say of a cluster whose controllers have lost their majority: nothing in its metadata is fresh."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from pathlib import Path
from threading import Thread

import pytest
from support.e2e.command import fails, raftwerk

from raftwerk.broker.apis.api_table import API_TABLE
from raftwerk.cluster.client.client_errors import CONTROLLER_APIS
from raftwerk.cluster.client.peer_protocol import spoken_protocol
from raftwerk.cluster.doctor.cluster_checks import examine_cluster
from raftwerk.cluster.doctor.findings import FAILURE, OK, Finding
from raftwerk.cluster.local.layout import controller_endpoints
from raftwerk.testkit.process_cluster import TestCluster
from raftwerk.wire.api_keys import ApiKey


def findings(cluster: TestCluster) -> dict[str, Finding]:
    plan = cluster.plan
    found = asyncio.run(examine_cluster(cluster.bootstrap_servers, controllers=controller_endpoints(plan)))
    return {one.what: one for one in found}


def the_one(found: dict[str, Finding], start: str) -> Finding:
    (one,) = [finding for what, finding in found.items() if what.startswith(start)]
    return one


@pytest.mark.long
@pytest.mark.process
def test_two_of_three_nodes_are_dead() -> None:
    with TestCluster.start(3) as cluster:
        cluster.create_topic("t", partitions=6, replicas=3)
        cluster.kill(2)
        cluster.kill(3)
        for _ in range(2):  # while node 1 may still lead the quorum, and when it has given up
            found = findings(cluster)
            two, three = (controller_endpoints(cluster.plan)[one][1] for one in (2, 3))
            no_controller = the_one(found, "no controller is active: topics and leaders cannot change; ")
            assert no_controller.level == FAILURE and no_controller.way_out.startswith("start the nodes 2, 3:")
            assert (
                f"voter 2 (127.0.0.1:{two}) refuses the connection, voter 3 (127.0.0.1:{three})" in no_controller.what
            )
            assert the_one(found, "what follows is the last known metadata")
            behind = the_one(found, "6 partitions without all replicas in sync")
            assert "(without " in behind.what and behind.way_out == "start brokers 2, 3"
            assert the_one(found, "brokers 2, 3 advertise themselves as ").level == FAILURE
            assert the_one(found, "broker 1 advertises itself as ").level == OK
            assert not [what for what in found if "are in sync" in what or "is the active controller" in what]
            told = [what for what in found if "offline, since the leader does not answer" in what]
            leaders = {one.leader for one in cluster.describe().topic("t").partitions}
            assert bool(told) == bool(leaders & {2, 3})
            while not asyncio.run(no_leader(cluster)):
                time.sleep(0.05)
        moves = fails(1, "partitions", "reassignments", "-d", cluster.plan.directory)
        assert moves.startswith("Error: no controller is active that the brokers reach: ") and "no broker" not in moves
        assert f"127.0.0.1:{cluster.plan.node(1).port} answers, but not to this request" in moves
        assert f"of the controllers 2 (127.0.0.1:{two}) refuses the connection; 3 (127.0.0.1:{three}) refuses" in moves
        assert f"raftwerk doctor -d {cluster.plan.directory} shows what to do" in moves
        for words in (("create", "u"), ("delete", "t"), ("alter", "t", "-p", "9")):
            answer = fails(1, "topics", *words, "-d", cluster.plan.directory)
            assert answer.startswith("Error: no controller is active that the brokers reach: "), answer
            assert "raftwerk doctor" in answer and "in time; try again" not in answer
        described = raftwerk("topics", "describe", "t", "-d", cluster.plan.directory)
        assert described.returncode == 0 and described.stdout.count("replicas ") == 6
        assert "this is what was known last, and may have changed; raftwerk doctor" in described.stderr
        assert cluster.controller() is None
        sentence = fails(1, "produce", "t", "-m", "x", "-b", cluster.bootstrap_servers)
        assert (
            "is a broker, and closes the connection instead of an answer: it may reach no active controller" in sentence
        )
        assert "no broker can serve this request: " in sentence and "no broker answers" not in sentence
        assert "correct" not in sentence, "the address is right"


def test_what_brokers_ask_the_controller_for() -> None:
    forwarded = {one.key for one in API_TABLE if one.is_forwarded}
    assert forwarded | {ApiKey.INIT_PRODUCER_ID} == CONTROLLER_APIS


async def no_leader(cluster: TestCluster) -> bool:
    found = await examine_cluster(cluster.bootstrap_servers)
    return all("is the active controller" not in one.what for one in found)


@pytest.mark.long
@pytest.mark.process
def test_quorum_marks_dead_voters_and_names_them_soon_when_there_is_no_leader() -> None:
    with TestCluster.start(3) as cluster:
        directory = cluster.plan.directory
        ports = {one: at[1] for one, at in controller_endpoints(cluster.plan).items()}
        leader = json.loads(raftwerk("quorum", "--json", "-d", directory).stdout)["leader"]
        first, second = (one for one in (1, 2, 3) if one != leader)
        cluster.kill(first)
        deadline = time.monotonic() + 20
        while "no answer" not in (told := raftwerk("quorum", "-d", directory).stdout):
            assert time.monotonic() < deadline, told
        assert f"Voter {first} (127.0.0.1:{ports[first]}) refuses the connection." in told
        states = {
            row["node"]: row["state"]
            for row in json.loads(raftwerk("quorum", "--json", "-d", directory).stdout)["replicas"]
        }
        assert states == {leader: "leader", first: "no answer", second: "follows"}
        cluster.kill(second)
        deadline = time.monotonic() + 20
        while (done := raftwerk("quorum", "-d", directory)).returncode == 0:
            assert time.monotonic() < deadline, done.stdout
        began = time.monotonic()
        told = fails(1, "quorum", "-d", directory)
        assert time.monotonic() - began < 8
        assert f"of its voters {leader} (127.0.0.1:{ports[leader]}) answers" in told
        assert f"{second} (127.0.0.1:{ports[second]}) refuses the connection" in told


@pytest.mark.process
def test_a_broker_that_is_asked_what_it_speaks_logs_nothing() -> None:
    with TestCluster.start(1) as cluster:
        node = cluster.plan.nodes[0]
        assert asyncio.run(spoken_protocol("127.0.0.1", node.port or 0)) is None
        cluster.create_topic("t")
        assert "instead of Kafka's protocol" not in Path(node.log_file).read_text()
        assert "HTTP" not in Path(node.log_file).read_text()


def test_a_web_server_is_recognised_by_a_request_of_kafka() -> None:
    from http.server import BaseHTTPRequestHandler, HTTPServer

    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        thread = Thread(target=server.handle_request)
        thread.start()
        assert asyncio.run(spoken_protocol("127.0.0.1", server.server_port)) == "HTTP"
        thread.join()


def test_a_host_name_that_cannot_be_encoded_speaks_nothing() -> None:
    assert asyncio.run(spoken_protocol("a..b", 9092)) is None


def test_a_silent_peer_is_not_asked_twice() -> None:
    with socket.socket() as paused:
        paused.bind(("127.0.0.1", 0))
        paused.listen()
        assert asyncio.run(spoken_protocol("127.0.0.1", paused.getsockname()[1], timeout_s=0.1)) is None
        paused.settimeout(5)
        connection, _ = paused.accept()
        connection.close()
        paused.setblocking(False)
        with pytest.raises(BlockingIOError):
            paused.accept()


@pytest.mark.long
@pytest.mark.process
def test_paused_nodes_are_to_be_woken_and_no_leader_is_claimed_without_a_majority() -> None:
    with TestCluster.start(3) as cluster:
        cluster.create_topic("t", partitions=6, replicas=3)
        directory = cluster.plan.directory
        leader = cluster.controller()
        assert leader is not None
        first, second = (one for one in (1, 2, 3) if one != leader)
        cluster.pause(first)
        found = asyncio.run(examine_cluster(cluster.bootstrap_servers, local_options=" -d X"))
        told = {one.what: one for one in found}
        wakes = f"raftwerk kill {first} --signal CONT -d X ends a pause"
        for start in (
            f"broker {first} advertises",
            f"controller {first}, a voter of the quorum, does not answer in time",
        ):
            assert wakes in the_one(told, start).way_out
        assert not [one for one in found if f"start broker {first}" in one.way_out or "start controller" in one.way_out]
        cluster.pause(second)
        status = raftwerk("status", "-d", directory)
        assert status.returncode == 1 and "active controller\n" not in status.stdout
        assert f"raftwerk kill {first} {second} --signal CONT -d {directory} ends the pause" in " ".join(
            status.stdout.split()
        )
        remote = raftwerk("status", "-b", f"127.0.0.1:{cluster.plan.node(leader).port}")
        assert remote.returncode == 1
        for node in (first, second):
            cluster.resume(node)
