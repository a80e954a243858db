"""What is recorded of a run: it goes the same way, and the history tells what the nodes went through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from raftwerk.chaos.sim.faults.fault import Fault, FaultKind
from raftwerk.chaos.sim.replay.history import History, Step, StepKind, folded
from raftwerk.chaos.sim.replay.observation import observe_controller, observe_quorum, observe_replica
from raftwerk.chaos.sim.replay.record_run import record_run
from raftwerk.chaos.sim.replay.recorder import RunRecorder
from raftwerk.chaos.sim.run import Run
from raftwerk.chaos.sim.scenarios import SCENARIOS

CALM = replace(SCENARIOS["kill"], faults_s=2.0)
ANY = "n1", "n1"


def record(faults: Sequence[Fault], seed: int = 3) -> History:
    outcome, history = record_run(CALM, seed, faults)
    assert outcome.failure is None
    return history


def after(history: History, start: int, kind: StepKind, text: str, where: str = "") -> int:
    """The number of the next step that says so."""
    for number in range(start + 1, len(history.steps)):
        step = history.steps[number]
        if step.kind is kind and step.text.startswith(text) and where in ("", step.where):
            return number
    raise AssertionError(f"no step after {history.steps[start]} says {text!r}")


def of_kind(history: History, kind: StepKind) -> list[Step]:
    return [step for step in history.steps if step.kind is kind]


@pytest.mark.parametrize(
    ("scenario", "seed"),
    [("chase", 0), ("network", 7), ("roles", 4), ("churn", 1)],
)
def test_a_run_goes_the_same_way_with_a_recorder_and_without(scenario: str, seed: int) -> None:
    without = Run(SCENARIOS[scenario], seed).execute()
    recorded, history = record_run(SCENARIOS[scenario], seed)
    assert recorded == without
    assert history.facts.digest == without.digest
    assert len(history.steps) > 300
    assert len(history.messages) > 300


def test_the_state_after_the_last_step_is_what_the_nodes_have() -> None:
    run = Run(SCENARIOS["chase"], 4)
    recorder = RunRecorder(run.cluster, lambda: len(run.history.acked))
    run.world.observe(recorder)
    assert run.execute().failure is None
    state = folded({}, recorder.steps)
    for node_id in run.cluster.ids:
        name, node = run.cluster.name_of(node_id), run.cluster.nodes[node_id]
        assert node.raft is not None
        assert node.replica_manager is not None
        found = observe_quorum(name, node.raft) | observe_controller(name, node)
        for replica in node.replica_manager.partitions.values():
            found |= observe_replica(name, replica)
        assert {key: value for key, value in found.items() if value is not None}.items() <= state.items()
        assert state[f"{name}.process"] == "up"
        assert state[f"{name}.fenced"] is False
    assert recorder.acks_us == sorted(recorder.acks_us)
    assert len(recorder.acks_us) == len(run.history.acked)


def test_the_failover_of_a_killed_controller_is_told_from_the_kill_to_the_new_leaders() -> None:
    history = record([Fault(0.5, FaultKind.KILL, "controller", "controller", 1.2)])
    killed = after(history, -1, StepKind.PROCESS, "killed")
    victim = history.steps[killed].where
    pre_vote = after(history, killed, StepKind.ELECTION, "prospective of epoch 1")
    asked = after(history, pre_vote, StepKind.REQUEST, "Vote to")
    assert "asks for a pre-vote in epoch 1" in history.steps[asked].text
    candidate = after(history, asked, StepKind.ELECTION, "candidate of epoch 2", history.steps[pre_vote].where)
    granted = after(history, candidate, StepKind.REQUEST, "Vote response to")
    assert history.steps[granted].text.endswith("grants it, epoch 2")
    leads = after(history, granted - 1, StepKind.ELECTION, "leader of epoch 2")
    told = after(history, leads, StepKind.REQUEST, "BeginQuorumEpoch to")
    active = after(history, told, StepKind.CONTROLLER, "is the active controller", history.steps[leads].where)
    fenced = after(history, active, StepKind.BROKER, "broker is fenced", victim)
    shrunk = after(history, active, StepKind.ISR, "ISR [")
    back = after(history, fenced, StepKind.PROCESS, "restart", victim)
    ready = after(history, back, StepKind.PROCESS, "ready", victim)
    assert shrunk < back
    down = folded(history.start, history.steps[: killed + 1])
    assert down[f"{victim}.process"] == "down"
    assert f"{victim}.role" not in down
    assert down[f"{victim}.log_end_offset"] == folded(history.start, history.steps[:killed])[f"{victim}.log_end_offset"]
    assert folded(history.start, history.steps[: ready + 1])[f"{victim}.process"] == "up"


def test_a_proposal_of_an_isr_is_told_with_the_partition_s_name() -> None:
    history = record([Fault(0.5, FaultKind.KILL, *ANY, 1.0)])
    proposals = [step.text for step in of_kind(history, StepKind.REQUEST) if "proposes ISR" in step.text]
    assert proposals
    assert all(" for t-" in text for text in proposals)


def test_a_cut_is_told_once_and_keeps_messages_on_their_way() -> None:
    history = record([Fault(0.5, FaultKind.ISOLATE, *ANY, 0.7)])
    cut, healed = of_kind(history, StepKind.LINK)
    assert cut.text == "n1 ↔ n2, n1 ↔ n3: cut"
    assert healed.text == "n1 ↔ n2, n1 ↔ n3: works again"
    assert set(cut.changes.values()) == {"cut"}
    between = [
        one
        for one in history.messages
        if {one.source, one.target} == {"n1", "n2"} and cut.at_us < one.sent_us < healed.at_us
    ]
    assert between
    assert all(one.arrived_us is None or one.arrived_us >= healed.at_us for one in between)


def test_a_pause_ends_in_the_state_before_it() -> None:
    history = record([Fault(0.5, FaultKind.PAUSE, *ANY, 0.3)])
    paused, resumed = [step for step in of_kind(history, StepKind.PROCESS) if step.text in ("paused", "resumed")]
    assert paused.changes == {"n1.process": "paused"}
    assert resumed.changes == {"n1.process": "up"}
    (span,) = history.faults
    assert (span.what, span.hosts, span.to_us - span.from_us) == ("pause", ("n1",), 300_000)


def test_faults_end_when_all_are_undone() -> None:
    history = record([Fault(1.5, FaultKind.SLOW_LINK, "n1", "n2", 9.0)])
    (span,) = history.faults
    heal = next(step for step in of_kind(history, StepKind.FAULT) if step.text == "all faults end")
    assert span.hosts == ("n1", "n2")
    assert span.to_us == heal.at_us


def test_messages_say_whose_they_are_and_when_they_arrived() -> None:
    history = record([])
    groups = {(one.api, one.group) for one in history.messages}
    assert {
        ("Vote", "quorum"),
        ("Fetch", "quorum"),
        ("Fetch", "replication"),
        ("Fetch", "client"),
        ("Produce", "client"),
        ("BrokerHeartbeat", "controller"),
    } <= groups
    assert all(one.arrived_us is None or one.arrived_us >= one.sent_us for one in history.messages)
    asked = sum(one.api == "Produce" and not one.is_response for one in history.messages)
    answered = sum(one.api == "Produce" and one.is_response for one in history.messages)
    assert asked == answered > 10


def test_a_deleted_topic_leaves_the_state() -> None:
    _, history = record_run(SCENARIOS["churn"], 1)
    deleted = [step for step in history.steps if step.text == "is deleted"]
    assert deleted
    number = history.steps.index(deleted[0])
    gone = deleted[0].where
    before = folded(history.start, history.steps[:number])
    later = next(number for number, step in enumerate(history.steps) if step.at_us > deleted[0].at_us)
    assert any(key.startswith((f"{gone}.", f"n1.{gone}.")) for key in before)
    assert f"{gone}.leader" not in folded(history.start, history.steps[:later])


def test_a_broken_invariant_is_the_last_step(monkeypatch: pytest.MonkeyPatch) -> None:
    from raftwerk.isr.leader import appends

    monkeypatch.setattr(appends, "ACKS_ALL", -2)  # a leader that acks before its followers have the batch
    outcome, history = record_run(SCENARIOS["kill"], 7)
    failure = history.facts.failure
    assert failure is not None
    assert f"{failure.name}: {failure.detail}" == outcome.failure
    assert failure.at_us == round(outcome.virtual_s * 1e6)
    last = history.steps[-1]
    assert (last.kind, last.at_us) == (StepKind.FAILURE, failure.at_us)
    assert "an acked record is committed" in last.text
