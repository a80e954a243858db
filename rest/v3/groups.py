"""Consumer groups: their members, what these are assigned, and how far the groups are behind."""

from __future__ import annotations

import asyncio
from typing import Any

from ...cluster.client.client_errors import RefusedError
from ...cluster.client.group_client import LagView
from ...wire.errors import ErrorCode
from ..errors import RestError
from ..request import Request
from ..routes import Answer, Route
from ..services import Services
from .group_descriptions import Description, Member, describe_group
from .resources import Links, links_of

_GROUPS = "/v3/clusters/{cluster_id}/consumer-groups"
_GROUP = f"{_GROUPS}/{{consumer_group_id}}"
_ASSIGNMENTS = f"{_GROUP}/consumers/{{consumer_id}}/assignments"
_CONCURRENT_DESCRIPTIONS = 16


def _group_resource(links: Links, group: Description) -> Any:
    at = ("consumer-groups", group.group_id)
    return links.resource(
        "KafkaConsumerGroup",
        at,
        [("consumer-group", group.group_id)],
        consumer_group_id=group.group_id,
        is_simple=group.is_simple,
        partition_assignor=group.assignor,
        state=group.state,
        type=group.kind,
        is_mixed_consumer_group=False,
        coordinator=links.related("brokers", group.coordinator),
        consumers=links.related(*at, "consumers"),
        lag_summary=links.related(*at, "lag-summary"),
    )


def _consumer_resource(links: Links, group_id: str, member: Member) -> Any:
    at = ("consumer-groups", group_id, "consumers", member.member_id)
    return links.resource(
        "KafkaConsumer",
        at,
        [("consumer-group", group_id), ("consumer", member.member_id)],
        consumer_group_id=group_id,
        consumer_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        assignments=links.related(*at, "assignments"),
    )


def _assignment_resource(links: Links, group_id: str, member: Member, topic: str, partition: int) -> Any:
    group = ("consumer-groups", group_id)
    return links.resource(
        "KafkaConsumerAssignment",
        (*group, "consumers", member.member_id, "assignments", topic, "partitions", partition),
        [
            ("consumer-group", group_id),
            ("consumer", member.member_id),
            ("assignment", f"{topic}/partition={partition}"),
        ],
        consumer_group_id=group_id,
        consumer_id=member.member_id,
        topic_name=topic,
        partition_id=partition,
        partition=links.related("topics", topic, "partitions", partition),
        lag=links.related(*group, "lags", topic, "partitions", partition),
    )


def _lag_resource(links: Links, group: Description, row: LagView) -> Any:
    owner = _owner(group, row)
    return links.resource(
        "KafkaConsumerLag",
        ("consumer-groups", group.group_id, "lags", row.topic, "partitions", row.partition),
        [("consumer-group", group.group_id), ("lag", f"{row.topic}/partition={row.partition}")],
        consumer_group_id=group.group_id,
        topic_name=row.topic,
        partition_id=row.partition,
        consumer_id=owner.member_id,
        instance_id=owner.instance_id,
        client_id=owner.client_id,
        current_offset=row.committed,
        log_end_offset=row.end,
        lag=row.lag,
    )


def _owner(group: Description, row: LagView) -> Member:
    """The member that has the partition; one without a name where none has it."""
    key = (row.topic, row.partition)
    return next((one for one in group.members if key in one.partitions), Member("", None, "", ()))


async def _list_groups(services: Services, request: Request) -> Answer:
    links = await links_of(services, request)
    at_once = asyncio.Semaphore(_CONCURRENT_DESCRIPTIONS)

    async def described(group_id: str) -> Any:
        async with at_once:
            try:
                return _group_resource(links, await describe_group(services.cluster, group_id))
            except RefusedError as error:
                if error.code == ErrorCode.GROUP_ID_NOT_FOUND:
                    return None  # it was deleted meanwhile
                raise

    found = (await services.cluster.groups.list_groups()).whole()
    rows = await asyncio.gather(*(described(one.group_id) for one in found))
    return links.listed("KafkaConsumerGroupList", ["consumer-groups"], [row for row in rows if row is not None])


async def _group_of(services: Services, request: Request) -> Description:
    return await describe_group(services.cluster, request.parameters["consumer_group_id"])


async def _get_group(services: Services, request: Request) -> Answer:
    links = await links_of(services, request)
    return Answer(_group_resource(links, await _group_of(services, request)))


async def _list_consumers(services: Services, request: Request) -> Answer:
    links = await links_of(services, request)
    group = await _group_of(services, request)
    rows = [_consumer_resource(links, group.group_id, one) for one in group.members]
    return links.listed("KafkaConsumerList", ["consumer-groups", group.group_id, "consumers"], rows)


async def _member_of(services: Services, request: Request) -> tuple[Description, Member]:
    group, wanted = await _group_of(services, request), request.parameters["consumer_id"]
    for member in group.members:
        if member.member_id == wanted:
            return group, member
    raise RestError(404, f"Consumer {wanted} cannot be found.")


async def _get_consumer(services: Services, request: Request) -> Answer:
    links = await links_of(services, request)
    group, member = await _member_of(services, request)
    return Answer(_consumer_resource(links, group.group_id, member))


async def _list_assignments(services: Services, request: Request) -> Answer:
    links = await links_of(services, request)
    group, member = await _member_of(services, request)
    rows = [_assignment_resource(links, group.group_id, member, *one) for one in member.partitions]
    at = ["consumer-groups", group.group_id, "consumers", member.member_id, "assignments"]
    return links.listed("KafkaConsumerAssignmentList", at, rows)


async def _get_assignment(services: Services, request: Request) -> Answer:
    links = await links_of(services, request)
    topic, partition = request.parameters["topic_name"], request.number("partition_id")
    group, member = await _member_of(services, request)
    if (topic, partition) not in member.partitions:
        raise RestError(404, f"Consumer {member.member_id} is not assigned partition {topic}-{partition}.")
    return Answer(_assignment_resource(links, group.group_id, member, topic, partition))


async def _lags_of(services: Services, group: Description) -> list[LagView]:
    """The partitions of the topics that the group reads, the largest lag first; at the end those where none is known.

    The group has no commit there, or no leader tells where they end. Kafka's tools show these, too. Who looks for what
    is not read must find them.
    """
    assigned = [partition for member in group.members for partition in member.partitions]
    rows = (await services.cluster.groups.lags(group.group_id, assigned)).rows
    return sorted(rows, key=lambda row: -1 if row.lag is None else row.lag, reverse=True)


async def _list_lags(services: Services, request: Request) -> Answer:
    links = await links_of(services, request)
    group = await _group_of(services, request)
    rows = [_lag_resource(links, group, row) for row in await _lags_of(services, group)]
    return links.listed("KafkaConsumerLagList", ["consumer-groups", group.group_id, "lags"], rows)


async def _get_lag(services: Services, request: Request) -> Answer:
    links = await links_of(services, request)
    topic, partition = request.parameters["topic_name"], request.number("partition_id")
    group = await _group_of(services, request)
    for row in await _lags_of(services, group):
        if (row.topic, row.partition) == (topic, partition):
            return Answer(_lag_resource(links, group, row))
    raise RestError(
        404,
        f"Consumer group {group.group_id} has neither committed an offset of {topic}-{partition} nor is it assigned.",
    )


async def _lag_summary(services: Services, request: Request) -> Answer:
    links = await links_of(services, request)
    group = await _group_of(services, request)
    rows = await _lags_of(services, group)
    if not rows:
        raise RestError(404, f"Consumer group {group.group_id} has committed no offsets and is assigned no partition.")
    most = rows[0]
    owner, at = _owner(group, most), ("consumer-groups", group.group_id)
    summary = links.resource(
        "KafkaConsumerGroupLagSummary",
        (*at, "lag-summary"),
        [("consumer-group", f"{group.group_id}/lag-summary")],
        consumer_group_id=group.group_id,
        max_lag_consumer_id=owner.member_id,
        max_lag_instance_id=owner.instance_id,
        max_lag_client_id=owner.client_id,
        max_lag_topic_name=most.topic,
        max_lag_partition_id=most.partition,
        max_lag=most.lag,
        total_lag=sum(row.lag or 0 for row in rows),
        partitions_without_commit=sum(row.committed is None for row in rows),
        max_lag_consumer=links.related(*at, "consumers", owner.member_id),
        max_lag_partition=links.related("topics", most.topic, "partitions", most.partition),
    )
    return Answer(summary)


_SEEING = "Describe on the group"
_SEEING_LAGS = "Describe on the group and on its topics"
ROUTES = (
    Route("GET", _GROUPS, _list_groups, "All consumer groups.", "ConsumerGroupDataList", right=_SEEING),
    Route("GET", _GROUP, _get_group, "A consumer group.", "ConsumerGroupData", right=_SEEING),
    Route("GET", f"{_GROUP}/consumers", _list_consumers, "The members of a group.", "ConsumerDataList", right=_SEEING),
    Route(
        "GET",
        f"{_GROUP}/consumers/{{consumer_id}}",
        _get_consumer,
        "A member of a group.",
        "ConsumerData",
        right=_SEEING,
    ),
    Route(
        "GET",
        _ASSIGNMENTS,
        _list_assignments,
        "The partitions of a member.",
        "ConsumerAssignmentDataList",
        right=_SEEING,
    ),
    Route(
        "GET",
        f"{_ASSIGNMENTS}/{{topic_name}}/partitions/{{partition_id}}",
        _get_assignment,
        "A partition of a member.",
        "ConsumerAssignmentData",
        right=_SEEING,
    ),
    Route(
        "GET",
        f"{_GROUP}/lags",
        _list_lags,
        "The lags of a group, the largest first; null in partitions without a committed offset or a leader.",
        "ConsumerLagDataList",
        right=_SEEING_LAGS,
    ),
    Route(
        "GET",
        f"{_GROUP}/lags/{{topic_name}}/partitions/{{partition_id}}",
        _get_lag,
        "The lag of a group in one partition; null without a committed offset.",
        "ConsumerLagData",
        right=_SEEING_LAGS,
    ),
    Route(
        "GET",
        f"{_GROUP}/lag-summary",
        _lag_summary,
        "The largest lag of a group, the sum of all, and how many partitions have no committed offset.",
        "ConsumerGroupLagSummaryData",
        right=_SEEING_LAGS,
    ),
)
