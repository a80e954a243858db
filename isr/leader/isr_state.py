"""The ISR of a partition as its leader sees it: one type a state.

`isr` is what the controller has committed. `maximal_isr` is that plus every replica the leader has asked to add, for
the controller may have accepted before the leader hears of it; so the high watermark waits for them too (KIP-497). A
pending shrink takes nobody out of the maximal ISR: a replica counts until the controller has let it go.

    Committed --expand--> PendingExpand --answer or newer metadata--> Committed
    Committed --shrink--> PendingShrink --answer or newer metadata--> Committed
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class CommittedIsr:
    """No change is under way."""

    isr: tuple[int, ...]

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        return self.isr

    @property
    def committed(self) -> CommittedIsr:
        return self


@dataclass(frozen=True, slots=True)
class PendingExpandIsr:
    """The controller has been asked to add `new_replica`."""

    committed: CommittedIsr
    new_replica: int

    @property
    def isr(self) -> tuple[int, ...]:
        return self.committed.isr

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        return (*self.committed.isr, self.new_replica)

    @property
    def proposed_isr(self) -> tuple[int, ...]:
        return self.maximal_isr


@dataclass(frozen=True, slots=True)
class PendingShrinkIsr:
    """The controller has been asked to remove `out_of_sync`."""

    committed: CommittedIsr
    out_of_sync: tuple[int, ...]

    @property
    def isr(self) -> tuple[int, ...]:
        return self.committed.isr

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        return self.committed.isr

    @property
    def proposed_isr(self) -> tuple[int, ...]:
        return tuple(replica for replica in self.committed.isr if replica not in self.out_of_sync)


PendingIsr: TypeAlias = PendingExpandIsr | PendingShrinkIsr
IsrState: TypeAlias = CommittedIsr | PendingIsr
