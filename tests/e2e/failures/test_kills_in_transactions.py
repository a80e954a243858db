"""SIGKILL of brokers while transactions are under way: records are copied once, and what is decided is carried out."""

from __future__ import annotations

import threading
from collections.abc import Callable

from support.e2e import helpers, transactions
from support.e2e.transactions import Copier, producer, wait_for_values

from raftwerk.broker.coordinators.partition_for import partition_for
from raftwerk.broker.transactions.transaction_config import TRANSACTION_TOPIC
from raftwerk.cluster.local.supervisor import Supervisor

MakeCluster = Callable[..., Supervisor]
COUNT = 600


def test_each_record_is_copied_once_while_each_broker_dies(new_cluster: MakeCluster, topic: str) -> None:
    """Leaders, the coordinator of the group, that of the transactions and the controller are among them."""
    supervisor = new_cluster()
    bootstrap, target = supervisor.plan.bootstrap, f"{topic}-copy"
    transactions.numbers(bootstrap, topic, COUNT)
    helpers.create_topic(bootstrap, target, min_insync_replicas="2")
    copier = Copier(bootstrap, topic, target, size=5)
    failures: list[BaseException] = []

    def copy() -> None:
        try:
            copier.run(COUNT, timeout_s=120)
        except BaseException as failure:
            failures.append(failure)
        finally:
            copier.close()

    def wait_for_copies() -> None:
        before = copier.copied
        transactions.until(lambda: copier.copied > before + 20 or not copying.is_alive())

    copying = threading.Thread(target=copy)
    copying.start()
    for victim in (1, 2, 3):
        wait_for_copies()
        supervisor.kill(victim)
        wait_for_copies()
        supervisor.start_node(victim)
        supervisor.wait_ready()
        helpers.wait_in_sync(bootstrap, target, 3)
    copying.join(120)
    assert not failures
    wait_for_values(bootstrap, target, [str(number).encode() for number in range(COUNT)])


def test_a_decided_commit_is_carried_out_when_the_coordinator_dies(new_cluster: MakeCluster, topic: str) -> None:
    supervisor = new_cluster()
    bootstrap = supervisor.plan.bootstrap
    helpers.create_topic(bootstrap, topic, min_insync_replicas="2")
    writer = producer(bootstrap, topic)
    writer.begin_transaction()
    writer.produce(topic, b"committed")
    writer.commit_transaction(transactions.TIMEOUT_S)
    partition = partition_for(
        topic, len(helpers.describe(bootstrap, TRANSACTION_TOPIC).topic(TRANSACTION_TOPIC).partitions)
    )
    supervisor.kill(helpers.leader_of(bootstrap, TRANSACTION_TOPIC, partition))
    wait_for_values(bootstrap, topic, [b"committed"])
    writer.begin_transaction()
    writer.produce(topic, b"next")
    writer.commit_transaction(transactions.TIMEOUT_S)
    wait_for_values(bootstrap, topic, [b"committed", b"next"])
