"""A coordinator of transactions that takes its memory for doubtful, and loads its partition again.

It does so in the same leader epoch when part of a write was refused, as on a full disk. The markers that it had sent
are on their way then, and it sends them again, so that each is answered twice.
"""

from __future__ import annotations

import asyncio

from ....broker.transactions.transaction_coordinator import TransactionCoordinator

_LOOK_EVERY_S = 0.005
_PAUSE_S = 0.05


async def load_while_markers_are_sent(coordinator: TransactionCoordinator, duration_s: float) -> None:
    """Load a partition again whenever markers of its transactions are under way."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + duration_s
    while loop.time() < until_s and coordinator.partitions.is_started:
        sending = [
            shard
            for shard in coordinator.partitions.shards.values()
            if not shard.is_loading and any(entry.unmarked for entry in shard.entries.values())
        ]
        for shard in sending:
            coordinator.partitions.reload(shard)
        await asyncio.sleep(_PAUSE_S if sending else _LOOK_EVERY_S)
