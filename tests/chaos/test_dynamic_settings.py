"""Settings that are changed while brokers run take effect, on whole nodes."""

from __future__ import annotations

from raftwerk.chaos.sim.cluster_config import ClusterConfig
from raftwerk.chaos.sim.kernel.event_loop import ProcessLoop
from raftwerk.chaos.sim.kernel.world import World
from raftwerk.chaos.sim.simulated_cluster import SimulatedCluster
from raftwerk.cluster.client.cluster_client import ClusterClient
from raftwerk.log.manager.log_manager_config import LogMaintenanceChange
from raftwerk.wire.api_keys import ApiKey

BROKER = 4


def test_settings_of_log_maintenance() -> None:
    """For all brokers, and for one of them."""
    told: dict[int, LogMaintenanceChange] = {}
    with World(1) as world:
        cluster = SimulatedCluster(world, ClusterConfig())
        world.network.add_host("client")
        client = ProcessLoop(world.scheduler, "client", world.network)
        world.processes.append(client)
        cluster.start_all()
        assert world.scheduler.run_until(cluster.is_healthy, 10.0)
        listen(cluster, told)
        client.run_until_complete(alter(cluster.bootstrap, "", {"log.cleaner.backoff.ms": "77"}))
        client.run_until_complete(alter(cluster.bootstrap, "2", {"producer.id.expiration.ms": "5000"}))
        world.scheduler.run_until(lambda: len(told) == 3 and told[2].producer_expiration_ms == 5000, 10.0)
        assert {node: change.backoff_ms for node, change in told.items()} == {1: 77, 2: 77, 3: 77}
        assert {node: change.producer_expiration_ms for node, change in told.items()} == {
            1: 86_400_000,
            2: 5_000,
            3: 86_400_000,
        }


def test_verification_of_transactions() -> None:
    with World(1) as world:
        cluster = SimulatedCluster(world, ClusterConfig())
        world.network.add_host("client")
        client = ProcessLoop(world.scheduler, "client", world.network)
        world.processes.append(client)
        cluster.start_all()
        assert world.scheduler.run_until(cluster.is_healthy, 10.0)
        managers = [node.replica_manager for node in cluster.nodes.values()]
        assert all(manager is not None and manager.verifies_transactions for manager in managers)
        for value in ("false", "true"):
            client.run_until_complete(
                alter(cluster.bootstrap, "", {"transaction.partition.verification.enable": value})
            )
            world.scheduler.run_until(
                lambda: all(one is not None and str(one.verifies_transactions).lower() == value for one in managers),  # noqa: B023
                10.0,
            )
            assert [one and one.verifies_transactions for one in managers] == [value == "true"] * 3


def listen(cluster: SimulatedCluster, told: dict[int, LogMaintenanceChange]) -> None:
    for node_id, node in cluster.nodes.items():
        manager = node.log_manager
        assert manager is not None
        carry_out = manager.change_maintenance

        def change(to: LogMaintenanceChange, node_id: int = node_id, carry_out: object = carry_out) -> None:
            told[node_id] = to
            assert callable(carry_out)
            carry_out(to)

        manager.change_maintenance = change  # type: ignore[method-assign]


async def alter(bootstrap: str, broker: str, values: dict[str, str]) -> None:
    configs = [{"name": name, "config_operation": 0, "value": value} for name, value in values.items()]
    resource = {"resource_type": BROKER, "resource_name": broker, "configs": configs}
    async with ClusterClient(bootstrap) as client:
        fields = {"resources": [resource], "validate_only": False}
        answer = await client.request(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, fields)
        assert answer.responses[0].error_code == 0
