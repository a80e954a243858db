"""The list of invariants that a replay shows names those that are checked."""

from __future__ import annotations

import ast
from pathlib import Path

from raftwerk.chaos.sim.invariants.names import CHECKED_IN_EVERY_RUN

FOLDER = Path(__file__).parents[3] / "chaos" / "sim" / "invariants"
MODULES = {
    "the metadata quorum": (
        "answers/controller_answers",
        "answers/silent_brokers",
        "answers/vote_answers",
        "quorum_invariants",
        "steps/quorum_steps",
    ),
    "partitions": (
        "answers/follower_fetches",
        "answers/replica_states",
        "derived/counted_replicas",
        "derived/placed_replicas",
        "derived/reassignments",
        "partition_invariants",
        "producer_invariants",
        "steps/partition_steps",
        "steps/replica_steps",
    ),
    "what nodes make of the metadata": (
        "derived/compacted_logs",
        "steps/lone_decisions",
        "derived/metadata_changes",
        "derived/metadata_images",
        "derived/noted_gaps",
        "derived/producer_ids",
        "derived/recovered_logs",
        "derived/recovery_points",
        "derived/roles_in_force",
        "derived/settings_in_force",
        "derived/snapshot_images",
        "derived/voters_of_log",
    ),
    "transactions": (
        "decision_invariants",
        "transactions/cleaned_logs",
        "transactions/coordinator_log",
        "transactions/described",
        "transactions/expirations",
        "transactions/leader_log",
        "transactions/transaction_checker",
    ),
    "groups and committed offsets": (
        "groups/administrator_answers",
        "groups/group_answers",
        "groups/group_checker",
        "groups/group_log",
        "groups/silent_members",
        "groups/member_answers",
    ),
    "topics whose own settings change, where there are some": (
        "settings/log_losses",
        "settings/time_lookups",
        "settings/told_producers",
        "settings/topic_settings_checker",
    ),
    "clients": (
        "answers/cleaned_answers",
        "answers/epoch_answers",
        "answers/fetch_answers",
        "answers/read_replicas",
        "answers/replica_states",
        "answers/fetch_session_model",
        "client_invariants",
    ),
}
OF_CLIENTS = {
    "an acked record is committed": "partition_invariants",
    "only committed batches are consumed": "partition_invariants",
    "a reported end is durable": "decision_invariants",
    "a granted epoch is recorded, and nobody had it before": "transactions/transaction_checker",
}
"""These are judged when a client is answered, by the modules of others."""
OF_BIT_ROT = "rot is mended where another replica is sound"


def names_in(module: str) -> set[str]:
    """The names that a module raises, or hands to a function that raises."""
    tree = ast.parse((FOLDER / f"{module}.py").read_text())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    raised = [call.args[0] for call in calls if isinstance(call.func, ast.Name) and call.func.id == "InvariantBroken"]
    handed = [
        call.args[-1] for call in calls if call.args and ast.unparse(call.func) in ("self._compare", "_compare_records")
    ]
    assigned = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["name"]
    ]
    texts = [node.value for node in (*raised, *handed, *assigned) if isinstance(node, ast.Constant)]
    return {text for text in texts if isinstance(text, str)}


def test_every_invariant_of_every_run_is_listed() -> None:
    for about, modules in MODULES.items():
        found = set().union(*(names_in(module) for module in modules)) - {OF_BIT_ROT}
        listed = set(CHECKED_IN_EVERY_RUN[about])
        moved = set(OF_CLIENTS)
        assert listed - moved == found - moved, about
    assert set(OF_CLIENTS) <= set(CHECKED_IN_EVERY_RUN["clients"])
    assert all(name in names_in(module) for name, module in OF_CLIENTS.items())
