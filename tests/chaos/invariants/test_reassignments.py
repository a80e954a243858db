"""A reassignment does not forget which replicas are still to catch up."""

from __future__ import annotations

from typing import Any

import pytest

from raftwerk.chaos.sim.invariants.derived.reassignments import check_reassignment
from raftwerk.chaos.sim.invariants.invariant_broken import InvariantBroken
from raftwerk.controller.metadata.metadata_image import PartitionRegistration

MOVING = PartitionRegistration(
    replicas=(3, 2, 1),
    isr=(1, 2),
    elr=(),
    last_known_elr=(),
    adding_replicas=(3,),
    removing_replicas=(1,),
    leader=1,
    leader_epoch=1,
    partition_epoch=7,
    leader_recovery_state=0,
    directories=(),
)


@pytest.mark.parametrize(
    ("after", "is_broken"),
    [
        ({"adding_replicas": ()}, True),
        ({"adding_replicas": (), "isr": (1, 2, 3)}, False),
        ({"replicas": (3, 2), "adding_replicas": (), "removing_replicas": (), "isr": (2,)}, True),
        ({"replicas": (3, 2), "adding_replicas": (), "removing_replicas": (), "isr": (2, 3)}, False),
        ({"replicas": (1, 2), "adding_replicas": (), "removing_replicas": ()}, False),
        ({"replicas": (4, 3, 2, 1), "adding_replicas": (3, 4)}, False),
        ({"replicas": (4, 3, 2, 1)}, True),
        ({"replicas": (4, 3, 2, 1), "adding_replicas": (4,), "removing_replicas": (1, 3)}, False),
        ({"adding_replicas": (), "partition_epoch": 9}, False),
    ],
)
def test_a_replica_stays_an_added_one_until_it_is_in_sync(after: dict[str, Any], *, is_broken: bool) -> None:
    now = MOVING._replace(**{"partition_epoch": 8, **after})
    if is_broken:
        with pytest.raises(InvariantBroken, match="counts once it is in sync"):
            check_reassignment("t-0", MOVING, now)
    else:
        check_reassignment("t-0", MOVING, now)
