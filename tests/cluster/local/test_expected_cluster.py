"""A client that found its cluster by the files of a local one notices when another cluster is at its addresses."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from raftwerk import testing
from raftwerk.cluster.client import cluster_client
from raftwerk.cluster.client.access.bootstrap import bootstrap_text, parse_bootstrap
from raftwerk.cluster.client.access.current_login import CURRENT_LOGIN
from raftwerk.cluster.client.access.expected_cluster import EXPECTED_CLUSTER, ExpectedCluster
from raftwerk.cluster.client.admin_client import AdminClient
from raftwerk.cluster.client.client_errors import NotLoggedInError, OtherClusterError, UnreachableError
from raftwerk.cluster.client.cluster_client import NO_ANSWER, ClusterClient, silence_of
from raftwerk.cluster.client.quorum_client import followed_leader
from raftwerk.cluster.doctor.cluster_checks import examine_cluster
from raftwerk.cluster.local.layout import controller_endpoints
from raftwerk.security.client_login import ClientLogin
from raftwerk.security.sasl.plain import PlainClient
from raftwerk.testkit.in_process import InProcessCluster
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.client import Connection, connect

WAY_OUT = "it is down: raftwerk up starts it"
OTHER_ID = "jQC36OAXRmm_rfHkQEdKIw"


def expect(cluster: InProcessCluster, cluster_id: str | None = None, *, is_down: bool = False) -> None:
    """Expect a cluster of this id, by default the one that is there, at the addresses of `cluster`."""
    brokers = parse_bootstrap(cluster.bootstrap)
    controllers = tuple(controller_endpoints(cluster._plan).values())
    id_ = cluster_id or cluster._plan.cluster_id
    EXPECTED_CLUSTER.set(ExpectedCluster(id_, "the one in ./x", brokers, controllers, lambda: WAY_OUT, lambda: is_down))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The keys of all requests of clients, in their order, but for those of nodes to each other."""
    found: list[int] = []

    async def noted(*args: Any, **options: Any) -> Connection:
        connection = await connect(*args, **options)
        send_raw = connection.send_raw

        def send(api_key: int, *rest: Any, **more: Any) -> Any:
            found.append(api_key)
            return send_raw(api_key, *rest, **more)

        monkeypatch.setattr(connection, "send_raw", send)
        return connection

    monkeypatch.setattr(cluster_client, "connect", noted)
    yield found


def test_another_cluster_is_asked_for_its_id_and_for_nothing_else(asked: list[int]) -> None:
    async def run() -> None:
        async with testing.cluster() as other:
            await other.create_topic("orders")
            there = other._plan.cluster_id
            expect(other, OTHER_ID)
            asked.clear()
            async with ClusterClient(other.bootstrap) as client:
                with pytest.raises(OtherClusterError) as raised:
                    await AdminClient(client).delete_topic("orders")
                assert asked == [ApiKey.DESCRIBE_CLUSTER]
            address = other.bootstrap
            assert str(raised.value) == (
                f"no broker of the cluster answers: {address} belongs to another cluster ({there}), not to the one in "
                f"./x; {WAY_OUT}"
            )
            EXPECTED_CLUSTER.set(None)
            async with ClusterClient(other.bootstrap) as client:
                assert [one.name for one in (await client.metadata()).topics] == ["orders"]

    asyncio.run(run())


def test_the_controllers_of_another_cluster_lead_nothing() -> None:
    async def run() -> None:
        async with testing.cluster() as other:
            controllers = controller_endpoints(other._plan)
            expect(other)
            assert await followed_leader(controllers) == 1
            assert await silence_of(*controllers[1]) is None
            expect(other, OTHER_ID)
            assert await followed_leader(controllers) is None
            assert "belongs to another cluster" in (await silence_of(*controllers[1]) or "")
            async with ClusterClient(bootstrap_text(controllers.values()), probe_timeout_s=None) as client:
                with pytest.raises(NO_ANSWER, match="belongs to another cluster"):
                    await client.request_at(controllers[1], ApiKey.DESCRIBE_QUORUM, 1, {"topics": []})

    asyncio.run(run())


def test_a_cluster_that_is_the_expected_one_costs_no_further_request(asked: list[int]) -> None:
    async def run() -> None:
        async with testing.cluster() as cluster:
            for is_expected in (False, True):
                if is_expected:
                    expect(cluster)
                asked.clear()
                async with ClusterClient(cluster.bootstrap) as client:
                    await client.metadata()
                    await client.metadata()
                first = ApiKey.DESCRIBE_CLUSTER if is_expected else ApiKey.API_VERSIONS
                assert asked == [first, ApiKey.METADATA, ApiKey.METADATA]
            host, port = parse_bootstrap(cluster.bootstrap)[0]
            assert host == "127.0.0.1"
            expect(cluster, OTHER_ID)
            async with ClusterClient(f"localhost:{port}") as client:  # another name of the same address
                with pytest.raises(OtherClusterError):
                    await client.metadata()

    asyncio.run(run())


def test_the_doctor_finds_another_cluster_at_the_addresses() -> None:
    async def run() -> None:
        async with testing.cluster() as other:
            expect(other, OTHER_ID)
            (found,) = await examine_cluster(other.bootstrap)
            assert found.level == "failure"
            assert f"{other.bootstrap}: belongs to another cluster ({other._plan.cluster_id})" in found.what
            assert found.way_out == WAY_OUT

    asyncio.run(run())


@pytest.mark.parametrize("is_down", [True, False])
def test_who_does_not_take_our_login_is_another_cluster_where_the_expected_one_is_down(is_down: bool) -> None:
    """Else it may be the login that is wrong."""

    async def run() -> None:
        async with testing.cluster() as other:
            expect(other, OTHER_ID, is_down=is_down)
            CURRENT_LOGIN.set(ClientLogin(None, lambda _: PlainClient("alice", "wonder")))
            async with ClusterClient(other.bootstrap) as client:
                with pytest.raises(
                    OtherClusterError if is_down else NotLoggedInError, match="takes no login"
                ) as raised:
                    await client.metadata()
            assert (WAY_OUT in str(raised.value)) is is_down
            (found,) = await examine_cluster(other.bootstrap)
            assert (found.way_out == f"that is not the one in ./x; {WAY_OUT}") is is_down

    asyncio.run(run())


@pytest.mark.parametrize("is_down", [True, False])
def test_who_closes_the_connection_is_another_cluster_where_the_expected_one_is_down(is_down: bool) -> None:
    async def run() -> None:
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        address = server.sockets[0].getsockname()[:2]
        EXPECTED_CLUSTER.set(ExpectedCluster(OTHER_ID, "x", [address], [], lambda: WAY_OUT, lambda: is_down))
        async with server, ClusterClient(bootstrap_text([address])) as client:
            with pytest.raises(UnreachableError) as raised:
                await client.metadata()
            assert isinstance(raised.value, OtherClusterError) is is_down
            (found, *_) = await examine_cluster(bootstrap_text([address]))
            assert (found.way_out == f"that is not x; {WAY_OUT}") is is_down

    asyncio.run(run())


def test_a_node_of_the_expected_cluster_that_ends_is_not_taken_for_another_ones() -> None:
    async def run() -> None:
        async with testing.cluster() as cluster:
            expect(cluster, is_down=True)
            async with ClusterClient(cluster.bootstrap) as client:
                await client.metadata()
                for connection in client._connections.values():
                    asked = asyncio.ensure_future(client.metadata())
                    await asyncio.sleep(0)
                    connection.close()
                with pytest.raises(UnreachableError) as raised:
                    await asked
                assert not isinstance(raised.value, OtherClusterError)

    asyncio.run(run())
