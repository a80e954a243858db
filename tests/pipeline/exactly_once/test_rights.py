"""Writing exactly once on a secured cluster, with the rights that docs/spark.md names and with fewer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from support.e2e.secured_clients import Login
from support.e2e.secured_node import SecuredNode
from support.pipeline.topics import committed_values, eventually

from raftwerk.pipeline.errors import PipelineError
from raftwerk.testkit.process_cluster import unique_topic

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark", reason="no PySpark: writing exactly once is NOT tested")

from raftwerk.pipeline.source.exactly_once.transactional_writer import (  # noqa: E402
    StreamingTask,
    TransactionalStreamWriter,
)
from raftwerk.pipeline.source.options import parse_write  # noqa: E402

pytestmark = pytest.mark.process
SINK = "sink"
OF_TOPIC = (AclOperation.WRITE, AclOperation.READ)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    with SecuredNode.start(tmp_path_factory.mktemp("secured")) as running:
        yield running


def user_of(node: SecuredNode, name: str, topic: str, *of_topic: AclOperation) -> Login:
    """A user with these rights of the topic, and with those of transactional ids and groups that the page names."""
    login = node.add_user(name, f"secret-of-{name}")
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    prefixed, literal = ResourcePatternType.PREFIXED, ResourcePatternType.LITERAL
    rights = [
        (ResourceType.TRANSACTIONAL_ID, SINK, prefixed, AclOperation.WRITE),
        (ResourceType.GROUP, SINK, prefixed, AclOperation.READ),
        *((ResourceType.TOPIC, topic, literal, operation) for operation in of_topic),
    ]
    for kind, resource, pattern, operation in rights:
        right = AclBinding(kind, resource, pattern, f"User:{name}", "*", operation, AclPermissionType.ALLOW)
        admin.create_acls([right])[right].result(30)
    seen_by_user = AdminClient(login.librdkafka())
    eventually(lambda: seen_by_user.list_topics(topic, timeout=30).topics[topic].error is None, 30)
    return login


def write_batch(login: Login, topic: str) -> None:
    """A micro-batch of one task with one row."""
    given = {f"kafka.{name}": value for name, value in login.java().items()}
    given |= {"kafka.bootstrap.servers": login.bootstrap, "topic": topic, "kafka.transactional.id": SINK}
    options = parse_write(given, streaming=True)
    writer = TransactionalStreamWriter(options, SINK)
    writer.begin_batch()
    rows: Any = pa.RecordBatch.from_pydict({"value": pa.array(["a"], pa.string())})
    written = writer.write_task(StreamingTask("q", 0, 0, 0), iter([rows]))
    TransactionalStreamWriter(options, SINK).commit([written], 0)


def test_a_batch_is_written_with_the_rights_that_the_page_names(node: SecuredNode) -> None:
    """Among them is none of the topic of transactions, which nearly no user may describe."""
    topic = unique_topic("orders")
    write_batch(user_of(node, "writer", topic, *OF_TOPIC), topic)
    assert committed_values(node.bootstrap, topic, 1) == [b"a"]


def test_a_writer_that_may_not_read_the_topic_is_told_so(node: SecuredNode) -> None:
    """The decision on a batch is an offset in the topic, and a commit of offsets needs Read, as in Apache Kafka."""
    topic = unique_topic("orders")
    login = user_of(node, "blind", topic, AclOperation.WRITE)
    with pytest.raises(PipelineError, match=rf"{topic}-0: you may not do this with the topic"):
        write_batch(login, topic)
