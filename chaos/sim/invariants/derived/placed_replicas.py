"""Checks how a controller has placed the replicas of new partitions, by the committed records alone.

In each new partition the first replica is live, and racks have equal shares as far as they have brokers; nobody is
fenced for whom a live broker of the same rack, or of one with a smaller share, would do ("new replicas are spread over
racks, and live"). The partitions of one decision are led by all live brokers in turn, and followed by all brokers of a
rack ("the partitions of a topic are spread over brokers"). Sources: KIP-36, and what Kafka's `StripedReplicaPlacer`
says of its goals. Clients of the simulator choose no replicas themselves; reassignments, for which they do, create no
partitions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from uuid import UUID

from .....controller.metadata.metadata_image import BrokerRegistration
from .....controller.metadata.metadata_records import PartitionRecord, decode_record
from .....raft.types import CommittedBatch
from ..invariant_broken import InvariantBroken
from .metadata_images import ImageChecker


class PlacementChecker:
    """Judges the records of new partitions by the brokers that `images` has, which is told of each batch first."""

    def __init__(self, images: ImageChecker) -> None:
        self._images = images

    def on_committed(self, batches: Sequence[CommittedBatch]) -> None:
        """These batches are committed, after all others. Raises `InvariantBroken`."""
        for batch in batches:
            new: dict[UUID, list[tuple[int, ...]]] = {}
            for record in map(decode_record, batch.records):
                if isinstance(record, PartitionRecord):
                    new.setdefault(record.topic_id, []).append(tuple(record.replicas))
            metadata = self._images.at(batch.last_offset) if new else None
            if metadata is not None:
                usable = [one for _, one in metadata["brokers"] if not one.in_controlled_shutdown]
                for placed in new.values():
                    check_placed(usable, placed)


def check_placed(usable: Sequence[BrokerRegistration], placed: Sequence[tuple[int, ...]]) -> None:
    """Judge the replicas of the new partitions of one topic. Raises `InvariantBroken`."""
    brokers = {broker.broker_id: broker for broker in usable}
    for replicas in placed:
        wrong = _what_is_wrong(brokers, replicas)
        if wrong:
            raise InvariantBroken(
                "new replicas are spread over racks, and live", f"{wrong} in {_told(brokers, placed)}"
            )
    wrong = _what_is_uneven(brokers, placed)
    if wrong:
        detail = f"{wrong} in {_told(brokers, placed)}"
        raise InvariantBroken("the partitions of a topic are spread over brokers", detail)


def _what_is_wrong(brokers: dict[int, BrokerRegistration], replicas: tuple[int, ...]) -> str:
    strange = [one for one in replicas if one not in brokers]
    if strange or len(set(replicas)) < len(replicas):
        return f"{replicas} are not brokers that may get replicas"
    if brokers[replicas[0]].fenced:
        return f"{replicas[0]} is fenced and first"
    shares = Counter(brokers[one].rack for one in replicas)
    unused = [broker for broker in brokers.values() if broker.broker_id not in replicas]
    for broker in unused:
        if shares[broker.rack] < max(shares.values()) - 1:
            return f"{replicas}: rack {broker.rack} has too small a share"
    for fenced in (brokers[one] for one in replicas if brokers[one].fenced):
        for live in (one for one in unused if not one.fenced):
            if live.rack == fenced.rack or shares[live.rack] < shares[fenced.rack]:
                return f"{replicas}: {fenced.broker_id} is fenced, {live.broker_id} is not"
    return ""


def _what_is_uneven(brokers: dict[int, BrokerRegistration], placed: Sequence[tuple[int, ...]]) -> str:
    led = Counter(replicas[0] for replicas in placed)
    leaders = [led[broker.broker_id] for broker in brokers.values() if not broker.fenced]
    if max(leaders) - min(leaders) > 1:
        return "leaders are not chosen in turn"
    if any(broker.fenced for broker in brokers.values()):
        return ""
    for leader, count in led.items():
        of_leader = [replicas[1:] for replicas in placed if replicas[0] == leader]
        for rack in {broker.rack: None for broker in brokers.values()}:
            members = [one.broker_id for one in brokers.values() if one.rack == rack and one.broker_id != leader]
            held = Counter(one for followers in of_leader for one in followers if one in members)
            if held.total() and count >= len(brokers) - 1 and len(held) < len(members):
                return f"{leader} is never followed by some of {members}"
    return ""


def _told(brokers: dict[int, BrokerRegistration], placed: Sequence[tuple[int, ...]]) -> str:
    known = ", ".join(f"{one.broker_id} in {one.rack}{' fenced' * one.fenced}" for one in brokers.values())
    return f"{[*placed]}; brokers: {known}"
