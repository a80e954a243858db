"""What a scenario is made of; the scenarios are in `scenarios.py`."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from .faults.fault import FaultKind

_SNAPSHOT_SETTING = "metadata.log.max.record.bytes.between.snapshots"


@dataclass(frozen=True, slots=True)
class Scenario:
    """The faults, the cluster and the workloads of a run. Times are in virtual seconds."""

    name: str
    what: str
    """What happens, for the help of `raftwerk sim`."""
    kinds: Sequence[FaultKind]
    targets: Sequence[str] = ("leader", "controller", "n1", "n2", "n3")
    nodes: int = 3
    partitions: int = 2
    faults_s: float = 6.0
    mean_gap_s: float = 1.0
    mean_duration_s: float = 1.0
    one_at_a_time: bool = False
    topic_configs: Mapping[str, str] = field(default_factory=dict)
    controllers: int = 0
    shapes: Sequence[tuple[int, int]] = ()
    """Pairs of numbers of nodes and of controllers; one pair is drawn instead of `nodes` and `controllers`."""
    first_voters: int = 0
    """How many controllers are voters at first, if voters are dynamic (KIP-853); 0: voters are fixed."""
    workloads: Sequence[str] = ()
    """Names of workloads beside the main load; see `Run`."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Settings of the nodes."""
    drawn_properties: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Settings of the nodes of which each run draws one value."""
    fixed_targets: Mapping[FaultKind, str] = field(default_factory=dict)
    """The target of all faults of a kind, instead of the drawn one."""
    racks: Sequence[str] = ()
    """Racks of the brokers, a letter for each; one of these texts is drawn. Empty: brokers have no racks."""
    extra_log_dirs: Sequence[str] = ()
    """Log directories of each node besides the first one."""
    constants: Sequence[str] = ()
    """Constants of the nodes' code of which each run draws a value; names of `drawn_constants.DRAWN`."""

    @property
    def has_many_snapshots(self) -> bool:
        """Whether nodes make snapshots of the metadata within a run."""
        return bool(self.first_voters) or _SNAPSHOT_SETTING in (*self.properties, *self.drawn_properties)

    def with_draws(self, rng: random.Random) -> Scenario:
        """This scenario with one of its shapes, and with one value of each setting that is drawn."""
        drawn = self
        if self.shapes:
            nodes, controllers = rng.choice(self.shapes)
            drawn = replace(drawn, nodes=nodes, controllers=controllers)
        if self.racks:
            drawn = replace(drawn, racks=(rng.choice(self.racks),))
        if self.drawn_properties:
            chosen = {name: rng.choice(values) for name, values in self.drawn_properties.items()}
            drawn = replace(drawn, properties={**drawn.properties, **chosen})
        return drawn
