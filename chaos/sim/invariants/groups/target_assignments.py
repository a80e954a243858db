"""Which partitions a target assignment may have: all of some topics, each for a member that subscribes to its topic."""

from __future__ import annotations

import re
from collections.abc import Mapping
from uuid import UUID

from .....broker.groups.records.consumer_group_records import MemberMetadataValue
from .group_log import ConsumerRecords


def why_wrong(group: ConsumerRecords, names: Mapping[UUID, str]) -> str | None:
    """What is wrong with a target assignment that was just computed; None if nothing is.

    `names` are those of all topics that were ever known.
    """
    partitions: dict[UUID, list[int]] = {}
    for member_id, target in group.target.items():
        member = group.members.get(member_id)
        for topic_id, index in target:
            partitions.setdefault(topic_id, []).append(index)
            name = names.get(topic_id)
            if member is None or (name is not None and not _subscribes(member, name)):
                return f"{name}-{index} is for {member_id}, which subscribes to {member}"
    for topic_id, indexes in partitions.items():
        if sorted(indexes) != list(range(len(indexes))):
            return f"of {names.get(topic_id)} there are {sorted(indexes)}"
    return None


def _subscribes(member: MemberMetadataValue, topic: str) -> bool:
    pattern = member.topic_regex
    return topic in member.topic_names or bool(pattern and re.fullmatch(pattern, topic))
