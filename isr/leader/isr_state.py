"""The ISR of a partition as its leader sees it: each state is a type.

`isr` is what the controller has committed. `maximal_isr` also has the replica that the leader has proposed to add: the
controller may have accepted it before the leader learns that, so the high watermark waits for it, too (KIP-497). A
pending shrink removes no replica from the maximal ISR: it counts until the controller has committed the shrink.

    Committed --expand--> PendingExpand --answer or newer metadata--> Committed
    Committed --shrink--> PendingShrink --answer or newer metadata--> Committed
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class CommittedIsr:
    """No proposal is under way."""

    isr: tuple[int, ...]

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """The replicas that the high watermark waits for."""
        return self.isr

    @property
    def committed(self) -> CommittedIsr:
        """The state to return to when a proposal is dropped."""
        return self


@dataclass(frozen=True, slots=True)
class PendingExpandIsr:
    """The leader has proposed to add `new_replica`."""

    committed: CommittedIsr
    new_replica: int

    @property
    def isr(self) -> tuple[int, ...]:
        """The ISR that the controller has committed."""
        return self.committed.isr

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """The replicas that the high watermark waits for."""
        return (*self.committed.isr, self.new_replica)

    @property
    def proposed_isr(self) -> tuple[int, ...]:
        """The ISR that the controller was asked for."""
        return self.maximal_isr


@dataclass(frozen=True, slots=True)
class PendingShrinkIsr:
    """The leader has proposed to remove the replicas `out_of_sync`."""

    committed: CommittedIsr
    out_of_sync: tuple[int, ...]

    @property
    def isr(self) -> tuple[int, ...]:
        """The ISR that the controller has committed."""
        return self.committed.isr

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """The replicas that the high watermark waits for."""
        return self.committed.isr

    @property
    def proposed_isr(self) -> tuple[int, ...]:
        """The ISR that the controller was asked for."""
        return tuple(replica for replica in self.committed.isr if replica not in self.out_of_sync)


PendingIsr: TypeAlias = PendingExpandIsr | PendingShrinkIsr
IsrState: TypeAlias = CommittedIsr | PendingIsr
