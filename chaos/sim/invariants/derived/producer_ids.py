"""The invariant "no producer id is given to two brokers": the blocks that brokers hold do not overlap (KIP-730).

A block has so many ids that hardly any run uses one up, so the blocks are compared, not the ids that clients get.
"""

from __future__ import annotations

from .....broker.to_controller.producer_id_manager import ProducerIdBlock, ProducerIdManager
from ..invariant_broken import InvariantBroken


class ProducerIdChecker:
    """Remembers who got each block."""

    def __init__(self) -> None:
        self._owners: dict[ProducerIdBlock, ProducerIdManager] = {}
        self._held: dict[int, tuple[ProducerIdBlock, ...]] = {}

    def after_event(self, node_id: int, manager: ProducerIdManager) -> None:
        """Check the broker whose event has just run. Raises `InvariantBroken`."""
        held = manager.blocks
        if held == self._held.get(node_id):
            return
        self._held[node_id] = held
        for block in held:
            if self._owners.setdefault(block, manager) is not manager:
                raise InvariantBroken("no producer id is given to two brokers", f"node {node_id}: {block} again")
            for other in self._owners:
                if other != block and _overlap(block, other):
                    detail = f"node {node_id}: {block} overlaps {other}"
                    raise InvariantBroken("no producer id is given to two brokers", detail)


def _overlap(one: ProducerIdBlock, other: ProducerIdBlock) -> bool:
    return one.first < other.first + other.length and other.first < one.first + one.length
