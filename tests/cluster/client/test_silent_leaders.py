"""What commands say of brokers that do not answer while others do, and how long they wait for them."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from support.e2e.command import fails, raftwerk

from raftwerk.cluster.client import consumer as consumer_module
from raftwerk.cluster.client.admin_client import BROKER, AdminClient
from raftwerk.cluster.client.client_errors import ClientError, NoLeaderAnswersError, RefusedError
from raftwerk.cluster.client.cluster_client import (
    BrokerView,
    ClusterClient,
    ClusterView,
    PartitionView,
    TopicView,
    WaitsFor,
)
from raftwerk.cluster.client.consumer import LATEST, Consumer
from raftwerk.cluster.client.group_client import GroupClient
from raftwerk.cluster.client.peer_protocol import UnknownBrokerError, silent_broker
from raftwerk.cluster.client.producer import Producer
from raftwerk.cluster.client.transactions.transaction_client import TransactionClient
from raftwerk.testkit.process_cluster import TestCluster
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.client import RequestTimedOutError
from raftwerk.wire.codec import Struct
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.types import TopicPartition

_SILENT = (
    "broker 1 (a:9092) does not answer in time, and may be paused, overloaded or cut off; raftwerk doctor shows which "
    "nodes are to be started or woken"
)


class _Ailing(ClusterClient):
    """Broker 1 leads the partitions 0, 2 and 4 and is silent, 2 leads 1 and answers, 3 has no leader.

    From the metadata number `heals_at` on, broker 2 leads all.
    """

    def __init__(self, topic: str = "t", *, heals_at: int = 1_000_000, code: ErrorCode = ErrorCode.NONE) -> None:
        super().__init__("localhost:9092", timeout_s=0.0)
        self.asked = 0
        self._heals_at = heals_at
        self._code = code
        self._topic = topic

    async def metadata(self, topics: Iterable[str] | None = None, **_: Any) -> ClusterView:
        self.asked += 1
        leaders = (1, 2, 1, -1, 1) if self.asked < self._heals_at else (2, 2, 2, 2, 2)
        parts = tuple(PartitionView(one, leader, 0, (1, 2), (2,)) for one, leader in enumerate(leaders))
        brokers = (BrokerView(1, "a", 9092, None), BrokerView(2, "b", 9092, None))
        self._brokers = {one.node_id: one for one in brokers}
        return ClusterView("c", 1, brokers, (TopicView(self._topic, None, False, parts),))

    async def request_node(
        self, node_id: int, api: ApiKey, version: int, fields: Mapping[str, Any], waits_for: WaitsFor | None = None
    ) -> Struct:
        if node_id == 1:
            await asyncio.sleep(0)
            raise RequestTimedOutError("no answer")
        if api is ApiKey.LIST_GROUPS:
            group = Struct({"group_id": "g", "group_state": "Empty", "group_type": "classic", "protocol_type": ""})
            return Struct({"error_code": 0, "groups": [group]})
        if api is ApiKey.LIST_TRANSACTIONS:
            listed = Struct({"transactional_id": "x", "transaction_state": "Empty", "producer_id": 3})
            return Struct({"error_code": 0, "unknown_state_filters": [], "transaction_states": [listed]})
        if api is ApiKey.DESCRIBE_TRANSACTIONS:
            (wanted,) = fields["transactional_ids"]
            state = {"transactional_id": wanted, "transaction_state": "Ongoing", "topics": []}
            times = {"transaction_timeout": 1, "transaction_start_time": 1, "producer_id": 3, "producer_epoch": 0}
            code = ErrorCode.NONE if wanted == "x" else ErrorCode.NOT_COORDINATOR
            return Struct({"transaction_states": [Struct({**state, **times, "error_code": int(code)})]})
        if api is ApiKey.DESCRIBE_PRODUCERS:
            return _producers(fields["topics"])
        rows = [
            Struct(
                {
                    "partition_index": one["partition" if api is ApiKey.FETCH else "partition_index"],
                    "error_code": int(self._code),
                    "offset": 7,
                    "low_watermark": 7,
                    "records": b"",
                    "aborted_transactions": None,
                }
            )
            for one in fields["topics"][0]["partitions"]
        ]
        await asyncio.sleep(0)
        part = Struct({"partitions": rows})
        return Struct({"topics": [part], "responses": [part]})


def _producers(topics: Iterable[Mapping[str, Any]]) -> Struct:
    """Every partition has a transaction open from its offset 4 on, whose last record is of the millisecond 1000."""
    state = {"producer_id": 3, "producer_epoch": 0, "coordinator_epoch": 0}
    producer = Struct({**state, "current_txn_start_offset": 4, "last_timestamp": 1000})
    row = {"error_code": 0, "error_message": None, "active_producers": [producer]}
    answers = []
    for one in topics:
        rows = [Struct({**row, "partition_index": index}) for index in one["partition_indexes"]]
        answers.append(Struct({"name": one["name"], "partitions": rows}))
    return Struct({"topics": answers})


async def ends(client: ClusterClient) -> dict[int, int]:
    async with asyncio.timeout(20):
        consumer = Consumer(client, "t")
        await consumer.start(at=0)
        return await consumer.offsets(LATEST, consumer.positions)


def test_offsets_are_asked_for_within_the_time_out_and_the_silent_leaders_are_named() -> None:
    with pytest.raises(NoLeaderAnswersError) as told:
        asyncio.run(ends(_Ailing()))
    assert str(told.value) == (
        "t-0, t-2, t-4: broker 1 (a:9092) does not answer in time; t-3: no broker leads this partition; "
        "raftwerk doctor shows which nodes are to be started or woken"
    )


def test_a_leader_that_is_elected_while_the_former_one_is_silent_is_asked_even_late() -> None:
    assert asyncio.run(ends(_Ailing(heals_at=2))) == dict.fromkeys(range(5), 7)


def test_what_a_leader_answers_instead_of_offsets_is_told() -> None:
    with pytest.raises(NoLeaderAnswersError, match=r"t-0, t-1.*: broker 2 \(b:9092\) says: .*\(OFFSET_NOT_AVAILABLE\)"):
        asyncio.run(ends(_Ailing(heals_at=0, code=ErrorCode.OFFSET_NOT_AVAILABLE)))


class _Settings(_Ailing):
    """Its brokers have one setting, and it notes the changes that any of them is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.altered: list[Mapping[str, Any]] = []

    async def request(self, api: ApiKey, version: int, fields: Mapping[str, Any], *_: Any, **__: Any) -> Struct:
        assert api is ApiKey.INCREMENTAL_ALTER_CONFIGS
        self.altered += fields["resources"]
        return Struct({"responses": [Struct({"error_code": 0})]})

    async def request_node(
        self, node_id: int, api: ApiKey, version: int, fields: Mapping[str, Any], waits_for: WaitsFor | None = None
    ) -> Struct:
        if node_id == 1:
            raise RequestTimedOutError("no answer")
        (wanted,) = fields["resources"]
        assert wanted["resource_name"] == str(node_id)  # Kafka's brokers describe none but themselves
        row = {"name": "log.retention.ms", "value": "1", "config_source": 5, "read_only": False, "documentation": ""}
        return Struct({"results": [Struct({"error_code": 0, "configs": [Struct(row)]})]})


@pytest.mark.parametrize("broker", ["1", "2", ""])
def test_a_setting_is_unset_though_a_broker_is_down_which_may_be_so_because_of_it(broker: str) -> None:
    client = _Settings()
    admin = AdminClient(client)
    asyncio.run(admin.alter_configs(BROKER, broker, {}, ["log.retention.ms"]))
    assert [one["resource_name"] for one in client.altered] == [broker]
    with pytest.raises(RefusedError, match="there is no setting retention"):
        asyncio.run(admin.alter_configs(BROKER, broker, {}, ["retention"]))
    assert len(client.altered) == 1


class _Fenced(_Settings):
    """All its brokers are fenced, as of full disks, so that metadata names none of them."""

    async def metadata(self, topics: Iterable[str] | None = None, **_: Any) -> ClusterView:
        self._brokers = dict(self._added)
        return ClusterView("c", 1, (), ())

    async def request(self, api: ApiKey, version: int, fields: Mapping[str, Any], *_: Any, **__: Any) -> Struct:
        if api is ApiKey.DESCRIBE_CLUSTER:
            row = {"host": "b", "port": 9092, "rack": None, "is_fenced": True}
            return Struct({"brokers": [Struct({**row, "broker_id": one}) for one in (1, 2)]})
        return await super().request(api, version, fields)


@pytest.mark.parametrize("broker", ["1", "2", ""])
def test_a_setting_is_unset_though_all_brokers_are_fenced(broker: str) -> None:
    client = _Fenced()
    asyncio.run(AdminClient(client).alter_configs(BROKER, broker, {}, ["log.retention.ms"]))
    assert [one["resource_name"] for one in client.altered] == [broker]


class _Group(GroupClient):
    """A group that has committed the offset 3 in two partitions of t."""

    async def committed(self, group_id: str) -> dict[TopicPartition, int]:
        return {TopicPartition("t", one): 3 for one in (1, 3)}


def test_the_lag_is_told_where_a_leader_answers_and_the_other_partitions_are_named() -> None:
    found = asyncio.run(_Group(_Ailing()).lags("g"))
    ends = [(one.partition, one.committed, one.end, one.lag) for one in found.rows]
    unknown = [(one, 3 if one == 3 else None, None, None) for one in (0, 2, 3, 4)]
    assert ends == sorted([*unknown, (1, 3, 7, 4)])
    assert found.missing == [
        "t-0, t-2, t-4: broker 1 (a:9092) does not answer in time; t-3: no broker leads this partition, and the lag is "
        "missing"
    ]


def test_of_a_topic_that_is_gone_the_committed_offsets_are_shown() -> None:
    found = asyncio.run(_Group(_Ailing("other")).lags("g", [TopicPartition("t", 2)]))
    rows = [(one.partition, one.committed, one.end, one.lag) for one in found.rows]
    assert rows == [(1, 3, None, None), (2, None, None, None), (3, 3, None, None)]
    (missing,) = found.missing
    assert missing.startswith("topic t: there is no such topic")


def test_a_deletion_of_records_tells_where_it_was_done() -> None:
    with pytest.raises(RefusedError) as told:
        asyncio.run(AdminClient(_Ailing()).delete_records("t", {0: -1, 1: -1, 3: -1}))
    assert str(told.value).startswith("t-0: its leader, broker 1 (a:9092), does not answer in time")
    assert str(told.value).endswith("; 1 other refused, too; deleted the records of: t-1")


def test_records_of_a_topic_that_is_only_compacted() -> None:
    client = AdminClient(_Ailing(heals_at=0, code=ErrorCode.POLICY_VIOLATION))
    with pytest.raises(RefusedError, match=r"t-0: its cleanup\.policy is compact alone .*\(a tombstone\)"):
        asyncio.run(client.delete_records("t", {0: 1}))


def test_a_consumer_says_for_which_leaders_it_waits_and_goes_on_when_there_are_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(consumer_module, "NOTICE_AFTER_S", 0.0)
    monkeypatch.setattr(consumer_module, "_LOOK_FOR_LEADER_S", 0.0)
    client = _Ailing(heals_at=10)

    async def run() -> None:
        consumer = Consumer(client, "t")
        await consumer.start(at=0)
        async with asyncio.timeout(20):
            while client.asked < 12:
                await consumer.poll()
                if client.asked >= 10:
                    return

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    assert caplog.messages == [
        "t-0, t-2, t-4: broker 1 (a:9092) does not answer in time; t-3: no broker leads this partition; "
        "asking again until a leader answers"
    ]


def test_it_is_said_once_for_which_leaders_offsets_are_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(consumer_module, "NOTICE_AFTER_S", 0.05)
    client = _Ailing(heals_at=6)
    client.timeout_s = 10.0
    with caplog.at_level(logging.WARNING):
        assert asyncio.run(ends(client)) == dict.fromkeys(range(5), 7)
    assert caplog.messages == [
        "t-0, t-2, t-4: broker 1 (a:9092) does not answer in time; t-3: no broker leads this partition; "
        "asking again for up to 10 s"
    ]


def test_a_partition_without_a_leader_is_looked_for_while_others_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_module, "_LOOK_FOR_LEADER_S", 0.0)
    client = _Ailing()

    async def run() -> None:
        consumer = Consumer(client, "t")
        await consumer.start([1, 3], at=0)
        async with asyncio.timeout(20):
            while client.asked < 3:
                await consumer.poll()

    asyncio.run(run())


def test_records_that_a_silent_leader_should_delete() -> None:
    client = AdminClient(_Ailing())
    with pytest.raises(RefusedError, match=r"t-0: its leader, broker 1 \(a:9092\), does not answer in time"):
        asyncio.run(client.delete_records("t", {0: 1}))


def test_a_list_of_groups_has_those_of_the_brokers_that_answer_and_says_what_is_missing() -> None:
    found = asyncio.run(GroupClient(_Ailing("__consumer_offsets")).list_groups())
    assert [(one.group_id, one.coordinator) for one in found.rows] == [("g", 2)]
    assert found.missing == [
        "broker 1 (a:9092) does not answer in time: the groups that it coordinates are missing",
        "__consumer_offsets-3: no broker leads this partition, and their groups are missing",
    ]


def test_a_list_of_transactions_says_what_is_missing_and_no_verdict_is_built_on_it() -> None:
    found = asyncio.run(TransactionClient(_Ailing("__transaction_state")).list_transactions())
    assert [(one.transactional_id, one.coordinator) for one in found.rows] == [("x", 2)]
    assert found.missing == [
        "broker 1 (a:9092) does not answer in time: the transactional ids that it coordinates are missing",
        "__transaction_state-3: no broker leads this partition, and their transactional ids are missing",
    ]
    with pytest.raises(ClientError, match=r"broker 1 .* does not answer in time: .*; __transaction_state-3: no "):
        found.whole()


def test_a_transaction_is_described_by_the_broker_that_answers_and_else_the_silent_one_is_named() -> None:
    client = TransactionClient(_Ailing("__transaction_state"))
    assert asyncio.run(client.describe("x")).coordinator == 2
    with pytest.raises(ClientError, match=f"^{re.escape(_SILENT)}$"):
        asyncio.run(client.describe("of-broker-1"))


def test_the_settings_of_a_silent_broker_are_refused_with_a_way_out() -> None:
    with pytest.raises(ClientError, match=f"^{re.escape(_SILENT)}$"):
        asyncio.run(AdminClient(_Ailing()).describe_configs(BROKER, "1"))


def test_of_a_broker_that_the_cluster_does_not_have_it_is_not_said_that_it_may_be_paused() -> None:
    told = str(silent_broker("broker 9", UnknownBrokerError()))
    assert told == "broker 9 does not answer: it is not among the brokers that raftwerk brokers list shows"


_UNSEEN = (
    "t-0, t-2, t-4: broker 1 (a:9092) does not answer in time, and its open transactions are missing",
    "t-3: no broker leads this partition, and its open transactions are missing",
)


def test_a_search_for_hanging_transactions_says_in_which_partitions_it_could_not_look() -> None:
    found = asyncio.run(TransactionClient(_Ailing()).find_hanging(1000))
    assert (found.rows, found.missing) == ([], [*_UNSEEN]), "no transaction is old enough"


def test_no_transaction_is_said_to_hang_while_its_coordinator_may_be_silent() -> None:
    found = asyncio.run(TransactionClient(_Ailing(heals_at=0)).find_hanging(1001))
    assert found.rows == []
    assert found.missing == [
        "broker 1 (a:9092) does not answer in time: the transactional ids that it coordinates are missing"
    ]


def test_a_new_leader_is_asked_for_its_open_transactions_even_late() -> None:
    found = asyncio.run(TransactionClient(_Ailing(heals_at=3)).open_transactions("t"))
    assert [(str(one.partition), one.start_offset) for one in found] == [(f"t-{index}", 4) for index in range(5)]
    with pytest.raises(ClientError, match=r"^t-0, t-2, t-4: broker 1 [^;]* are missing; raftwerk doctor shows which"):
        asyncio.run(TransactionClient(_Ailing()).open_transactions("t"))


@pytest.mark.process
def test_a_dead_broker_with_the_only_replica() -> None:
    with TestCluster.start(3) as cluster:
        at = ("-d", cluster.plan.directory)
        topic = cluster.create_topic(partitions=3, replicas=1)
        dead = next(one for one in (1, 2, 3) if one != cluster.controller())
        (led,) = (one.partition for one in cluster.describe().topic(topic).partitions if one.leader == dead)
        cluster.kill(dead)
        listed = raftwerk("brokers", "log-dirs", *at)
        assert listed.returncode == 1
        assert {int(line.split()[0]) for line in listed.stdout.splitlines()} == {1, 2, 3} - {dead}
        port = cluster.plan.node(dead).port
        assert f"Error: incomplete: broker {dead} (127.0.0.1:{port}) " in listed.stderr
        assert ": its log directories are missing; raftwerk doctor" in listed.stderr
        while cluster.describe().topic(topic).partitions[led].leader >= 0:  # the test's limit of time ends it
            time.sleep(0.05)
        hanging = f"{topic}-{led}: no broker leads this partition, and its open transactions are missing"
        assert f"Error: incomplete: {hanging}; raftwerk doctor" in fails(1, "transactions", "find-hanging", *at)
        examined = [json.loads(line)["what"] for line in raftwerk("doctor", "--json", *at).stdout.splitlines()]
        assert f"whether transactions hang cannot be seen: {hanging}" in examined
        told = fails(1, "partitions", "elect", "--unclean", f"{topic}-{led}", *at)
        assert told.endswith(f"; start broker {dead}, which has its only replica")
        for every in (("--all",), ("--all", "--unclean")):
            assert f"{topic}-{led} not elected: " in fails(1, "partitions", "elect", *every, *at)


@pytest.mark.long
@pytest.mark.process
def test_a_record_that_waits_for_replicas_does_not_blame_the_leader_that_is_there() -> None:
    with TestCluster.start(3, settings={"min.insync.replicas": 3}) as cluster:
        topic = cluster.create_topic(replicas=3)
        leader = cluster.leader_of(topic)
        behind = next(one for one in (1, 2, 3) if one not in (leader, cluster.controller()))
        cluster.pause(behind)

        async def run() -> None:
            async with ClusterClient(cluster.bootstrap_servers, timeout_s=4) as client:
                producer = Producer(client, topic, timeout_s=4)
                await producer.start()
                await producer.send([(None, b"x")])

        with pytest.raises(RefusedError) as told:
            asyncio.run(run())
        cluster.resume(behind)
    sentence = str(told.value)
    assert (
        "acks=all waits for all replicas in sync, and needs min.insync.replicas (3 in this topic) of them: " in sentence
    )
    assert f": broker {behind}" in sentence and f"broker {leader} " not in sentence


@pytest.mark.long
@pytest.mark.process
def test_a_producer_names_the_paused_replica_for_which_a_leader_waits() -> None:
    with TestCluster.start(3) as cluster:
        cluster.create_topic("t", replicas=3)
        leader = cluster.describe().topic("t").partitions[0].leader
        paused = next(one for one in (1, 2, 3) if one not in (leader, cluster.controller()))
        cluster.pause(paused)
        produced = raftwerk("produce", "t", "-m", "x", "-d", cluster.plan.directory)
        status = raftwerk("status", "-d", cluster.plan.directory)
        cluster.resume(paused)
    assert produced.returncode == 0
    ports = {node.node_id: node.port for node in cluster.plan.nodes}
    assert produced.stderr.startswith(
        f"broker {leader} (127.0.0.1:{ports[leader]}) has not answered for 2 s, since it waits for broker {paused} "
        f"(127.0.0.1:{ports[paused]}), which does not answer in time; waiting for up to "
    )
    assert f"Node {paused} is paused (process " in status.stdout
    assert f": raftwerk kill {paused} --signal CONT -d {cluster.plan.directory} lets it go on." in status.stdout
