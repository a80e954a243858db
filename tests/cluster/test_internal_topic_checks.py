"""`raftwerk doctor` on internal topics that cannot be created."""

from __future__ import annotations

import asyncio

from raftwerk.cluster.client.cluster_client import ClusterClient
from raftwerk.cluster.doctor.findings import FAILURE, Finding
from raftwerk.cluster.doctor.internal_topic_checks import missing_internal_topics
from raftwerk.controller.policies import NewTopicRequest, PolicyViolation
from raftwerk.testing import cluster


class TwelvePartitionsAtMost:
    """A policy that does not think of the topics that brokers make."""

    def validate(self, request: NewTopicRequest) -> None:
        if request.partitions is not None and request.partitions > 12:
            raise PolicyViolation("no more than 12 partitions")


async def _found(settings: dict[str, str]) -> list[Finding]:
    async with cluster(settings=settings) as running, ClusterClient(running.bootstrap) as client:
        found = await missing_internal_topics(client, await client.metadata())
        assert (await client.metadata()).topics == (), "it only asked"
    assert all(one.level == FAILURE for one in found)
    return found


def test_a_policy_that_refuses_internal_topics_is_found() -> None:
    found = asyncio.run(_found({"create.topic.policy.class.name": f"{__name__}:TwelvePartitionsAtMost"}))
    so = "is not there and cannot be created, so"
    assert [one.what for one in found] == [
        f"__consumer_offsets {so} consumer groups do not work: no more than 12 partitions",
        f"__transaction_state {so} transactions do not work: no more than 12 partitions",
    ]
    assert all("a policy for new topics" in one.way_out for one in found)


def test_more_replicas_than_brokers_name_the_setting() -> None:
    (found,) = asyncio.run(_found({"transaction.state.log.replication.factor": "3"}))
    assert found.what.startswith(
        "__transaction_state is not there and cannot be created, so transactions do not work: "
    )
    assert found.way_out.startswith("start more brokers, or set transaction.state.log.replication.factor=1 in the prop")


def test_nothing_is_wrong_where_they_could_be_created() -> None:
    assert asyncio.run(_found({})) == []
