"""A cluster in the event loop of a test."""

from __future__ import annotations

import asyncio
import glob
import os
import tempfile
import threading
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from raftwerk.cluster.client.client_errors import ClientError
from raftwerk.cluster.client.cluster_client import ClusterClient
from raftwerk.cluster.client.producer import Producer
from raftwerk.cluster.settings.node_config import ConfigError
from raftwerk.testing import cluster
from raftwerk.testkit import in_process
from raftwerk.wire.compression import Compression


@pytest.fixture(autouse=True)
def _own_temporary_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests make clusters at the same time, whose directories are not looked at here."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def directories() -> list[str]:
    return glob.glob(os.path.join(tempfile.gettempdir(), "raftwerk-in-process-*"))


def test_a_client_writes_and_reads() -> None:
    async def main() -> None:
        async with cluster(settings={"group.initial.rebalance.delay.ms": 0}) as started:
            await started.create_topic("orders", partitions=2, config={"retention.ms": 60_000})
            producer = AIOKafkaProducer(bootstrap_servers=started.bootstrap, enable_idempotence=True)
            consumer = AIOKafkaConsumer(
                "orders", bootstrap_servers=started.bootstrap, group_id="g", auto_offset_reset="earliest"
            )
            await producer.start()
            await consumer.start()
            await producer.send_and_wait("orders", b"one", key=b"k", partition=1)
            message = await asyncio.wait_for(consumer.getone(), 20.0)
            assert (message.value, message.partition) == (b"one", 1)
            await consumer.commit()
            await producer.stop()
            await consumer.stop()
            assert (await started.committed("g", "orders"))[1] == 1
            (record,) = await started.records("orders")
            assert (record.partition, record.offset, record.key, record.value) == (1, 0, b"k", b"one")
            assert await started.leader_of("orders") == 1
            with pytest.raises(ClientError, match="partition 7"):
                await started.leader_of("orders", 7)
            await started.delete_topic("orders")

    asyncio.run(main())
    assert not directories()


def test_all_running_brokers_know_a_topic_that_was_created() -> None:
    """Each learns it from the metadata log: who asked another one was told that there is no such topic."""

    async def main() -> None:
        async with cluster(nodes=3) as started:
            for number in range(20):
                name = f"topic-{number}"
                await started.create_topic(name, replicas=3)
                loaders = [node.loader for node in started._nodes.values()]
                assert all(loader and name in loader.image.topics_by_name for loader in loaders)
            await started.kill(3)
            await started.create_topic("with-two")

    asyncio.run(main())


def test_a_majority_restarts_in_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with cluster(nodes=3) as started:
            await started.create_topic("t")
            await started.produce("t", "one")
            for node_id in started.node_ids:
                await started.kill(node_id)
            monkeypatch.setattr(in_process, "_START_TIMEOUT_S", 0.5)
            with pytest.raises(TimeoutError, match=r"serve within 0.5 s: 1; .* a majority: restart 2, 3 with them"):
                await started.restart(1)
            monkeypatch.undo()
            await started.restart(*started.node_ids)
            assert await started.values("t") == [b"one"]

    asyncio.run(main())


def test_what_is_acked_outlives_a_killed_node() -> None:
    async def main() -> None:
        async with cluster(nodes=3) as started:
            await started.create_topic("t")
            leader = await started.leader_of("t")
            await started.produce("t", "one", "two")
            await started.kill(leader)
            with pytest.raises(ValueError, match=f"node {leader} does not run"):
                await started.kill(leader)
            await started.produce("t", "three")
            assert await started.values("t") == [b"one", b"two", b"three"]
            await started.restart(leader)
            await started.restart(leader % 3 + 1)
            assert await started.values("t") == [b"one", b"two", b"three"]
            with pytest.raises(ValueError, match="there is no node 9, only 1, 2, 3"):
                await started.restart(9)

    asyncio.run(main())


def test_a_normal_end_fences_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with cluster(nodes=3) as started:
            await started.create_topic("t", partitions=3)
            await started.produce("t", "one")

    asyncio.run(main())
    assert [record.getMessage() for record in caplog.records if "is fenced" in record.getMessage()] == []


def test_a_test_that_fails_leaves_nothing_behind() -> None:
    async def main() -> None:
        async with cluster():
            raise KeyError("of the test")

    async def tasks_left() -> int:
        with pytest.raises(KeyError):
            await main()
        return len(asyncio.all_tasks())

    assert asyncio.run(tasks_left()) == 1
    assert not directories()


def test_wrong_settings_are_refused() -> None:
    async def main(name: str, value: object, nodes: int = 1) -> None:
        async with cluster(nodes, settings={name: value}):
            pass

    with pytest.raises(ConfigError, match=r"did you mean min\.insync\.replicas\?"):
        asyncio.run(main("min.insync.replica", 1))
    with pytest.raises(ValueError, match="1 to "):
        asyncio.run(main("min.insync.replicas", 1, nodes=0))
    assert not directories()


def test_clusters_leave_no_threads_behind() -> None:
    computing: set[threading.Thread] = set()

    async def main() -> None:
        async with cluster() as started:
            await started.create_topic("t", config={"cleanup.policy": "compact"})
            async with ClusterClient(started.bootstrap) as client:
                producer = Producer(client, "t", compression=Compression.GZIP)
                await producer.start()
                await producer.send([(b"k", bytes(6_000_000))])
            computing.update(thread for thread in threading.enumerate() if thread.name == "compute")

    before = {thread for thread in threading.enumerate() if thread.name == "compute"}
    asyncio.run(main())
    computing -= before
    assert computing, "a batch that inflates to megabytes is checked in another thread"
    for thread in computing:
        thread.join(10)
    assert not any(thread.is_alive() for thread in computing)
