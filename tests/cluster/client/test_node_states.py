"""Brokers and voters that are down: found by asking, and told with what to do."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from uuid import UUID

import pytest
from support.e2e.command import fails, ok, raftwerk

from raftwerk.cluster.client.admin_client import AdminClient
from raftwerk.cluster.client.client_errors import ClientError
from raftwerk.cluster.client.cluster_client import ClusterClient
from raftwerk.cluster.client.quorum_client import QuorumClient, QuorumReplica, QuorumView, SilentVoter, silent_in
from raftwerk.cluster.doctor import cluster_checks
from raftwerk.cluster.doctor.cluster_checks import examine_cluster
from raftwerk.cluster.doctor.findings import OK, WARNING
from raftwerk.testkit.process_cluster import TestCluster


def voter(node_id: int, last_fetch_ms: int) -> QuorumReplica:
    return QuorumReplica(node_id, UUID(int=node_id), True, 10, last_fetch_ms, last_fetch_ms)


def test_voters_that_do_not_fetch_are_silent() -> None:
    voters = (voter(1, 100_000), voter(2, 99_000), voter(3, 60_000), voter(4, -1))
    found = silent_in(QuorumView(1, 7, 10, voters, {}))
    assert found == [SilentVoter(3, 40_000), SilentVoter(4, None)]
    assert found[0].since == "has not fetched from the quorum's leader for 40 s"
    assert found[1].since == "has never fetched from the quorum's leader"


def test_a_silent_voter_is_told_with_the_way_out() -> None:
    (found,) = cluster_checks._voters(3, [SilentVoter(103, None)])
    assert found.level == WARNING
    assert found.what == (
        "controller 103, a voter of the quorum, has never fetched from the quorum's leader: if one more fails, topics "
        "and leaders cannot change"
    )
    assert "start controller 103; if it is gone for good, raftwerk quorum remove-controller 103" in found.way_out
    assert "if its process runs, it is paused" in found.way_out and "kill 103 --signal CONT" in found.way_out
    (found,) = cluster_checks._voters(5, [SilentVoter(5, 9000)])
    assert found.what.endswith("for 9 s: 1 more may fail")
    assert [one.level for one in cluster_checks._voters(3, [])] == [OK]


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 40
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.long
@pytest.mark.process
def test_nodes_that_were_killed_are_told_at_once_and_a_quorum_without_a_leader_is_named() -> None:
    async def states(bootstrap: str) -> dict[int, str | None]:
        async with ClusterClient(bootstrap) as client:
            return {one.node_id: one.why_down for one in await AdminClient(client).broker_states()}

    with TestCluster.start(3, separate=True) as cluster:
        servers, directory = cluster.bootstrap_servers, cluster.plan.directory
        assert asyncio.run(states(servers)) == {1: None, 2: None, 3: None}
        cluster.kill(2)
        assert "refuses the connection" in str(asyncio.run(states(servers))[2])
        line = next(line for line in ok("brokers", "list", "-d", directory).splitlines() if line.startswith("   2"))
        assert line.endswith("refuses the connection")
        down = next(one for one in (101, 102, 103) if one != cluster.controller())
        cluster.kill(down)
        wait_for(
            lambda: any(f"controller {down}, a voter" in one.what for one in asyncio.run(examine_cluster(servers)))
        )
        status = raftwerk("status", "-b", servers)
        assert status.returncode == 1 and f" {down}  a voter of the quorum that " in status.stdout

        (left,) = {101, 102, 103} - {down, leader := cluster.controller()}
        assert leader is not None
        cluster.kill(leader)
        local = raftwerk("status", "-d", directory)
        assert local.returncode == 1 and "No broker answers" not in local.stdout
        assert "The quorum has no leader: topics and leaders cannot change until a majority of the" in local.stdout
        assert "there is no majority: raftwerk start" in local.stdout
        at = str(cluster.plan.node(left).controller_address)
        told = fails(1, "quorum", "--bootstrap-controller", at)
        assert f"the quorum has no leader: of its voters {left} ({at}) answers; " in told
        assert told.count("refuses the connection") == 2

        async def through_brokers() -> None:
            async with ClusterClient(servers, timeout_s=1.5) as client:
                await QuorumClient(client).describe()

        with pytest.raises(ClientError) as refused:  # a broker's settings name the controllers
            asyncio.run(through_brokers())
        told = str(refused.value)
        assert f"the quorum has no leader: of its voters {left} ({at}) answers; " in told
        assert told.count("refuses the connection") == 2
        silent = [
            one for one in asyncio.run(examine_cluster(servers)) if one.what.startswith("no controller is active")
        ]
        assert [one.way_out for one in silent] == [
            f"start the nodes {min(down, leader)}, {max(down, leader)}: a majority of the voters must run"
        ]


@pytest.mark.process
@pytest.mark.parametrize("group", [(), ("--group", "g")], ids=["alone", "in a group"])
def test_consume_says_that_no_broker_answers(group: tuple[str, ...]) -> None:
    with TestCluster.start(1) as cluster:
        cluster.create_topic("t")
        command = [sys.executable, "-m", "raftwerk", "consume", "t", *group, "-b", cluster.bootstrap_servers]
        ok("produce", "t", "-m", "x", "-b", cluster.bootstrap_servers)
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as consuming:
            try:
                assert consuming.stdout is not None and consuming.stderr is not None
                assert consuming.stdout.readline() == "x\n"
                cluster.kill(1)
                told = consuming.stderr.readline()  # the test's limit of time ends it if nothing comes
                assert f"no broker answers: {cluster.bootstrap_servers} refuses the connection" in told
            finally:
                consuming.kill()
