"""The admin clients of confluent-kafka and kafka-python: each method that has something to ask here."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, ElectionType, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from confluent_kafka.cimpl import NewTopic
from support.e2e import helpers
from support.e2e.consumers import COUNT, PARTITIONS, confluent, read
from support.e2e.transactions import open_transaction

from raftwerk.cluster.local.supervisor import Supervisor


def done(futures: dict[Any, Any]) -> list[Any]:
    """The results of all of them."""
    return [future.result(20) for future in futures.values()]


def eventually(condition: Callable[[], bool]) -> None:
    """Every broker hears of what the controller has decided, if not at once."""
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


@pytest.fixture
def group(bootstrap: str, filled: str) -> str:
    """A group without members that has read everything."""
    consumer = confluent(bootstrap, filled)
    consumer.subscribe([filled])
    assert read([consumer], COUNT) == list(range(COUNT))
    consumer.commit(asynchronous=False)
    consumer.close()
    return filled


def test_confluent_topics(admin: AdminClient, topic: str) -> None:
    done(admin.create_topics([NewTopic(topic, 1, 3, config={"retention.ms": "70000"})]))
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        done(admin.create_topics([NewTopic(topic, 1, 3)]))
    done(admin.create_partitions([NewPartitions(topic, 3)]))
    eventually(lambda: len(admin.list_topics(topic, timeout=10).topics[topic].partitions) == 3)
    described = done(admin.describe_topics(TopicCollection([topic])))[0]
    assert [len(one.replicas) for one in described.partitions] == [3, 3, 3]
    done(admin.delete_topics([topic]))
    eventually(lambda: topic not in admin.list_topics(timeout=10).topics)


def test_confluent_configs(admin: AdminClient, filled: str) -> None:
    def value(name: str) -> str:
        found = done(admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, filled)]))[0]
        return str(found[name].value)

    change = ConfigEntry("retention.ms", "80000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, filled, incremental_configs=[change])
    done(admin.incremental_alter_configs([resource]))
    eventually(lambda: value("retention.ms") == "80000")
    done(admin.alter_configs([ConfigResource(ConfigResource.Type.TOPIC, filled, set_config={"segment.ms": "90000"})]))
    eventually(lambda: (value("retention.ms"), value("segment.ms")) == ("604800000", "90000"))
    broker = done(admin.describe_configs([ConfigResource(ConfigResource.Type.BROKER, "1")]))[0]
    assert broker["node.id"].value == "1"


def test_confluent_cluster_offsets_and_records(admin: AdminClient, filled: str) -> None:
    cluster = admin.describe_cluster().result(20)
    assert admin.cluster_id(timeout=10) == cluster.cluster_id
    assert (len(cluster.nodes), bool(cluster.cluster_id)) == (3, True)
    first = TopicPartition(filled, 0)
    offsets: Any = OffsetSpec
    for spec, expected in ((offsets.earliest(), 0), (offsets.latest(), 50), (offsets.for_timestamp(0), 0)):
        assert done(admin.list_offsets({first: spec}))[0].offset == expected
    assert done(admin.list_offsets({first: offsets.max_timestamp()}))[0].offset >= 0
    deleted = done(admin.delete_records([TopicPartition(filled, 0, 20)]))[0]
    assert deleted.low_watermark == 20
    assert done(admin.list_offsets({first: offsets.earliest()}))[0].offset == 20
    elected = admin.elect_leaders(ElectionType.PREFERRED, [first]).result(20)
    assert elected[first] is None or "ELECTION_NOT_NEEDED" in str(elected[first])


def test_confluent_groups(admin: AdminClient, bootstrap: str, group: str) -> None:
    listed = admin.list_consumer_groups().result(20).valid
    assert group in {one.group_id for one in listed}
    assert group in {one.id for one in admin.list_groups(timeout=10)}
    described = done(admin.describe_consumer_groups([group]))[0]
    assert (described.state.name, list(described.members)) == ("EMPTY", [])
    asked = [ConsumerGroupTopicPartitions(group)]
    found = done(admin.list_consumer_group_offsets(asked))[0].topic_partitions
    assert sorted((one.partition, one.offset) for one in found) == [(part, 50) for part in range(PARTITIONS)]
    moved = [ConsumerGroupTopicPartitions(group, [TopicPartition(group, 1, 5)])]
    done(admin.alter_consumer_group_offsets(moved))
    asked = [ConsumerGroupTopicPartitions(group, [TopicPartition(group, 1)])]
    assert done(admin.list_consumer_group_offsets(asked))[0].topic_partitions[0].offset == 5
    done(admin.delete_consumer_groups([group]))
    assert group not in {one.group_id for one in admin.list_consumer_groups().result(20).valid}


def test_access_control_lists_need_an_authorizer(admin: AdminClient) -> None:
    of_topic = (ResourceType.TOPIC, "t", ResourcePatternType.LITERAL, "User:a", "*")
    acl = AclBinding(*of_topic, AclOperation.READ, AclPermissionType.ALLOW)
    acls = AclBindingFilter(*of_topic, AclOperation.READ, AclPermissionType.ALLOW)
    asked: list[Callable[[], Any]] = [
        lambda: done(admin.create_acls([acl])),
        lambda: done(admin.delete_acls([acls])),
    ]
    for ask in asked:
        with pytest.raises(KafkaException, match="SECURITY_DISABLED"):
            ask()
    assert admin.describe_acls(acls).result(20) == []  # librdkafka does not tell the error of DescribeAcls


def test_passwords_of_users(admin: AdminClient) -> None:
    information = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192)
    done(admin.alter_user_scram_credentials([UserScramCredentialUpsertion("u", information, b"x")]))
    described = cast("Future[Any]", admin.describe_user_scram_credentials()).result(20)
    assert [(one.mechanism, one.iterations) for one in described["u"].scram_credential_infos] == [
        (ScramMechanism.SCRAM_SHA_256, 8192)
    ]
    deletion = UserScramCredentialDeletion("u", ScramMechanism.SCRAM_SHA_256)
    done(admin.alter_user_scram_credentials([deletion]))
    with pytest.raises(KafkaException, match="does not exist"):
        done(admin.alter_user_scram_credentials([deletion]))


def called_here(methods: Iterable[str]) -> list[str]:
    """Those of a client's methods that this file calls."""
    text = Path(__file__).read_text()
    return [name for name in methods if re.search(rf"admin\.{name}\b", text)]


def public_methods(client: type) -> list[str]:
    return [name for name in dir(client) if not name.startswith("_") and callable(getattr(client, name))]


def test_each_method_of_the_clients_is_tried() -> None:
    """What a new version of a client brings is to be tried too."""
    from kafka.admin import KafkaAdminClient

    local = ("poll", "set_sasl_credentials")
    methods = [name for name in public_methods(AdminClient) if name not in local]
    assert [name for name in methods if name not in called_here(methods)] == []
    methods = public_methods(KafkaAdminClient)
    assert [name for name in methods if name not in called_here(methods)] == []


@pytest.fixture
def kafka_python(bootstrap: str) -> Iterator[Any]:
    from kafka.admin import KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    yield admin
    admin.close()


def test_kafka_python_topics(kafka_python: Any, topic: str) -> None:
    from kafka.admin import ConfigResource as Resource
    from kafka.admin import ConfigResourceType, NewPartitions, NewTopic
    from kafka.structs import TopicPartition as Part

    admin = kafka_python
    admin.create_topics([NewTopic(topic, 1, 2)])
    admin.wait_for_topics([topic])
    assert topic in admin.list_topics()
    admin.create_partitions({topic: NewPartitions(2)})
    eventually(lambda: len(admin.describe_topics([topic])[0]["partitions"]) == 2)
    assert topic in str(admin.describe_topic_partitions([topic]))
    resource = Resource(ConfigResourceType.TOPIC, topic, {"retention.ms": "60000"})
    admin.alter_configs([resource])
    eventually(lambda: "60000" in str(admin.describe_configs([Resource(ConfigResourceType.TOPIC, topic)])))
    admin.reset_configs([resource])
    eventually(lambda: "60000" not in str(admin.describe_configs([Resource(ConfigResourceType.TOPIC, topic)])))
    assert topic in str(admin.list_config_resources())
    first = Part(topic, 0)
    admin.alter_partition_reassignments({first: [3, 1]})
    eventually(lambda: not admin.list_partition_reassignments())
    eventually(lambda: sorted(admin.describe_topics([topic])[0]["partitions"][0]["isr_nodes"]) == [1, 3])
    admin.elect_leaders(0, {topic: [0]}, raise_errors=False)
    assert admin.describe_producers([first])
    assert str(admin.list_partition_offsets({first: -1}))
    admin.delete_topics([topic])
    eventually(lambda: topic not in admin.list_topics())


def test_kafka_python_groups(kafka_python: Any, group: str) -> None:
    from kafka.admin import OffsetSpec as Spec
    from kafka.structs import OffsetAndMetadata
    from kafka.structs import TopicPartition as Part

    admin, first = kafka_python, Part(group, 0)
    assert group in str(admin.list_groups())
    assert "Empty" in str(admin.describe_groups([group]))
    assert "offset=50" in str(admin.list_group_offsets({group: [first]}))
    admin.alter_group_offsets(group, {first: OffsetAndMetadata(7, "", -1)})
    assert "offset=7" in str(admin.list_group_offsets({group: [first]}))
    admin.reset_group_offsets(group, {first: Spec.EARLIEST})
    assert "offset=0" in str(admin.list_group_offsets({group: [first]}))
    admin.delete_group_offsets(group, [first])
    assert "offset=0" not in str(admin.list_group_offsets({group: [first]}))
    admin.delete_records({Part(group, 1): 5})
    admin.delete_groups([group])
    assert group not in str(admin.list_groups())


def test_kafka_python_cluster(kafka_python: Any) -> None:
    admin = kafka_python
    assert len(admin.describe_cluster()["brokers"]) == 3
    assert "metadata.version" in str(admin.describe_features())
    assert "leader_id" in str(admin.describe_metadata_quorum())
    assert admin.describe_log_dirs()
    assert admin.get_broker_version_data(1)
    assert set(admin.list_transactions()) == {1, 2, 3}
    assert admin.find_hanging_transactions() == []
    assert admin.api_versions()
    assert admin.update_features({"eligible.leader.replicas.version": 1}) == {"eligible.leader.replicas.version": "OK"}


def test_kafka_python_dirs_and_members(kafka_python: Any, cluster: Supervisor, group: str) -> None:
    from kafka.admin import MemberToRemove
    from kafka.errors import LogDirNotFoundError, NoError, UnknownMemberIdError

    admin = kafka_python
    places = {(group, 0, node.node_id): node.properties["log.dirs"] for node in cluster.plan.nodes}
    assert list(admin.alter_replica_log_dirs(places).values()) == [NoError] * 3, "it is there already"
    nowhere = admin.alter_replica_log_dirs({(group, 0, 1): "/nowhere"})
    assert list(nowhere.values()) == [LogDirNotFoundError]
    removed = admin.remove_group_members(group, [MemberToRemove(member_id="nobody")])
    assert list(removed.values()) == [UnknownMemberIdError]


def test_kafka_python_is_told_that_there_is_no_authorizer(kafka_python: Any, filled: str) -> None:
    from kafka.admin import (
        ACL,
        ACLFilter,
        ACLOperation,
        ACLPermissionType,
        ResourcePattern,
        ResourcePatternFilter,
    )
    from kafka.admin import ACLResourcePatternType as PatternType
    from kafka.admin import ResourceType as Kind
    from kafka.errors import SecurityDisabledError

    admin = kafka_python
    pattern = ResourcePattern(Kind.TOPIC, "t")
    acl = ACL("User:a", "*", ACLOperation.READ, ACLPermissionType.ALLOW, pattern)
    patterns = ResourcePatternFilter(Kind.TOPIC, "t", PatternType.ANY)
    acls = ACLFilter("User:a", "*", ACLOperation.ANY, ACLPermissionType.ANY, patterns)
    assert admin.create_acls([acl]) == {"succeeded": [], "failed": [SecurityDisabledError]}
    assert admin.delete_acls([acls]) == [(acls, [], SecurityDisabledError)]
    with pytest.raises(SecurityDisabledError):
        admin.describe_acls(acls)


def test_kafka_python_describes_and_deletes_passwords(kafka_python: Any) -> None:
    from kafka.admin import ScramMechanism as Mechanism
    from kafka.admin import UserScramCredentialDeletion as Deletion

    admin = kafka_python
    assert admin.describe_user_scram_credentials() == {}
    told = admin.alter_user_scram_credentials([Deletion("nobody", Mechanism.SCRAM_SHA_256)])
    assert told == {"nobody": "Attempt to delete a user credential that does not exist"}


def test_kafka_python_describes_and_aborts_transactions(kafka_python: Any, bootstrap: str, topic: str) -> None:
    from kafka import TopicPartition as Partition
    from kafka.admin import AbortTransactionSpec

    helpers.create_topic(bootstrap, topic)
    writer = open_transaction(bootstrap, topic)
    admin = kafka_python
    (described,) = admin.describe_transactions([f"{topic}-id"]).values()
    assert str(described.state).endswith("ONGOING")
    assert list(described.topic_partitions) == [Partition(topic, 0)]

    def state_of_producer() -> tuple[int, ...]:
        """Producer id, epoch, last sequence and timestamp, coordinator epoch, start of the transaction."""
        (described_partition,) = admin.describe_producers([Partition(topic, 0)]).values()
        (state,) = described_partition.active_producers
        return tuple(state)

    producer_id, epoch, *_, coordinator_epoch, start = state_of_producer()
    assert (producer_id, start) == (described.producer_id, 0)
    spec = AbortTransactionSpec(Partition(topic, 0), producer_id, epoch, max(coordinator_epoch, 0))
    admin.abort_transaction(spec)
    assert state_of_producer()[-1] == -1
    del writer
