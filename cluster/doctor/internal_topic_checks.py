"""Looks for internal topics that are not there yet, and that the controller would refuse to create."""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from ...wire.errors import ErrorCode
from ..client.admin_client import BROKER, AdminClient, NewTopic
from ..client.client_errors import ClientError, RefusedError
from ..client.cluster_client import NO_ANSWER, ClusterClient, ClusterView
from .findings import FAILURE, Finding

_LASTING = (ErrorCode.POLICY_VIOLATION, ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.INVALID_CONFIG)
"""Errors that stay until somebody changes something; a quota that is used up, for example, is none."""


class _InternalTopic(NamedTuple):
    """An internal topic that brokers create when it is needed, and by which settings."""

    name: str
    partitions: str
    replication_factor: str
    needed_by: str


_TOPICS = (
    _InternalTopic(
        "__consumer_offsets", "offsets.topic.num.partitions", "offsets.topic.replication.factor", "consumer groups"
    ),
    _InternalTopic(
        "__transaction_state",
        "transaction.state.log.num.partitions",
        "transaction.state.log.replication.factor",
        "transactions",
    ),
)


async def missing_internal_topics(client: ClusterClient, view: ClusterView) -> list[Finding]:
    """Ask the controller whether it would create those that are not there; it creates none.

    Nothing is found where this user may not ask, or nobody answers.
    """
    there = {topic.name for topic in view.topics}
    missing = [topic for topic in _TOPICS if topic.name not in there]
    if not missing or not view.brokers:
        return []
    admin = AdminClient(client)
    found: list[Finding] = []
    with suppress(ClientError, *NO_ANSWER):
        name = str(view.brokers[0].node_id)
        settings = {one.name: one.value for one in await admin.describe_configs(BROKER, name, everything=True)}
        for topic in missing:
            partitions, factor = (
                int(settings.get(each) or -1) for each in (topic.partitions, topic.replication_factor)
            )
            refusal = await _refusal(admin, NewTopic(topic.name, partitions, factor))
            if refusal is not None:
                what = f"{topic.name} is not there and cannot be created, so {topic.needed_by} do not work: {refusal}"
                if factor > len(view.brokers):
                    way_out = (
                        f"start more brokers, or set {topic.replication_factor}={len(view.brokers)} in the properties "
                        "of each node and start it again"
                    )
                else:
                    way_out = "mend that; a policy for new topics (create.topic.policy.class.name) has to let it pass"
                found.append(Finding(FAILURE, what, way_out))
    return found


async def _refusal(admin: AdminClient, topic: NewTopic) -> str | None:
    """Why the controller refuses to create the topic for good; None when it would create it, or for another error."""
    try:
        await admin.create_topic(topic, validate_only=True)
    except RefusedError as error:
        return error.reason if error.code in _LASTING else None
    return None
