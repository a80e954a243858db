"""Nodes that give no answer: what `raftwerk doctor` says of them, and what brings them back."""

from __future__ import annotations

from dataclasses import replace

from raftwerk.cluster.client.cluster_client import ClusterView, PartitionView, TopicView
from raftwerk.cluster.client.peer_protocol import REFUSES
from raftwerk.cluster.doctor.cluster_checks import Reached, _advertised
from raftwerk.cluster.doctor.silent_nodes import WAITS, WAITS_IN_VAIN, bring_back, led_without


def test_a_broker_that_runs_and_does_not_listen_is_not_to_be_started() -> None:
    waits = Reached("nothing listens there", why=WAITS, pid=4711)
    refuses = Reached("nothing listens there", why=REFUSES)
    reached = {(1, ("h", 1)): waits, (2, ("h", 2)): replace(waits, pid=4712), (3, ("h", 3)): refuses}
    running, down = _advertised(reached, " -d c")
    assert running.what.endswith("h:1, h:2: nothing listens there, but their processes 4711, 4712 run")
    which = "brokers 1, 2 start, stop, or wait for the quorum's leader: raftwerk logs 1 2 -d c shows which"
    assert running.way_out == which and down.way_out == "start broker 3"
    assert bring_back("broker", {2: WAITS, 3: REFUSES}, "").startswith("start broker 3; broker 2 starts, stops, or ")
    lost = bring_back("broker", {2: WAITS_IN_VAIN}, "")
    assert (
        lost.startswith("broker 2 waits for a majority of the quorum, which is lost for good") and "voters.md" in lost
    )


def test_what_a_silent_broker_leads_is_led_by_nobody() -> None:
    partitions = (PartitionView(0, 1, 0, (1, 2), (1, 2)), PartitionView(1, 2, 0, (1, 2), (1, 2)))
    view = ClusterView(None, -1, (), (TopicView("t", None, False, partitions),))
    (topic,) = led_without(view, [2]).topics
    assert [(one.leader, one.isr) for one in topic.partitions] == [(1, (1,)), (-1, (1,))]
