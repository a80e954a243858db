"""The shape of a simulated cluster and its settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """The shape of a cluster and its settings.

    `properties` are settings of every node, in addition to the simulator's own. If there are `controllers`, the `nodes`
    are only brokers. `extra_log_dirs` are log directories besides the one that also holds the metadata log.
    """

    nodes: int = 3
    controllers: int = 0
    client_names: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    extra_log_dirs: Sequence[str] = ()
    is_old: bool = False
    """The nodes start with old software, which knows only the first form of metadata records."""
    first_voters: int = 0
    """If not 0, voters are dynamic: this many controllers are formatted as voters, and the others join."""
    has_logins: bool = False
    """Whether brokers have a listener LOGIN besides; its protocol is in the settings."""
    racks: Sequence[str] = ()
    """The racks of the brokers, in their order; empty: they have none."""
    may_choose_replicas: bool = True
    """Whether clients may choose the replicas of new partitions themselves, which are not judged then."""
