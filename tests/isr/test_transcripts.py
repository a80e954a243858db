"""Conversations of leader, followers and controller, compared with `transcripts/*.txt` as a whole.

A line that begins with `> ` is a command, the lines below it are what came of it. To take over a new outcome, having
read it, run `python tests/isr/test_transcripts.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.isr.replica_model import Model, Node
from support.isr.replicas import TP, batch
from support.transcripts import check_transcript

from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.produce import ProducePartitionResponse

DIRECTORY = Path(__file__).parent / "transcripts"


class Conversation:
    """Runs commands on the replica model; nodes learn metadata only when told."""

    def __init__(self) -> None:
        self.model = Model(0)
        self.out: list[str] = []

    def run(self, text: str) -> str:
        for line in text.splitlines():
            if line.startswith("#") or not line:
                self.out.append(line)
            elif line.startswith("> "):
                self.out.append(line)
                name, *args = line[2:].split()
                command: Callable[..., None] = getattr(self, f"do_{name.replace('-', '_')}")
                command(*args)
        return "\n".join(self.out) + "\n"

    def say(self, text: str) -> None:
        self.out.append(f"  {text}")

    def node(self, node_id: str) -> Node:
        return self.model.nodes[int(node_id)]

    # -- commands

    def do_append(self, node_id: str, value: str, acks: str = "all") -> None:
        """Produce one record at a node."""
        node = self.node(node_id)

        def done(results: list[ProducePartitionResponse]) -> None:
            row = results[0]
            hint = f", leader {row.current_leader.leader_id}" if row.current_leader else ""
            self.say(f"{value}: {ErrorCode(row.error_code).name}, offset {row.base_offset}{hint}")

        number = -1 if acks == "all" else int(acks)
        node.appends.append(number, 1000, [(TP, batch(value.encode()))], done)
        self.state(node)

    def do_fetch(self, *followers: str) -> None:
        """One fetch of each follower from the leader it believes in, and its answer."""
        for follower in followers:
            node, model = self.node(follower), self.model
            request = node.fetchers[node.fetching_from].next_request(node.broker_epoch, model.now_ms)
            if request is None:
                self.say(f"{follower} asks for nothing")
                continue
            asked = request.topics[0].partitions[0]
            self.say(
                f"{follower} -> {node.fetching_from}: epoch {asked.current_leader_epoch}, offset {asked.fetch_offset}, "
                f"last epoch {asked.last_fetched_epoch}"
            )
            model._send("fetch", node.node_id, node.fetching_from, request)
            self._answer(node)

    def _answer(self, node: Node) -> None:
        self.model.deliver()
        row = self.model.messages[-1].body.topics[0].partitions[0]
        if row.error_code:
            text = ErrorCode(row.error_code).name
        elif row.diverging_epoch is not None:
            text = f"diverging, epoch {row.diverging_epoch.epoch} ends at {row.diverging_epoch.end_offset}"
        else:
            text = f"{'records' if row.records else 'nothing new'}, high watermark {row.high_watermark}"
        self.say(f"{node.fetching_from} -> {node.node_id}: {text}")
        self.model.deliver()
        self.model.now_ms += 10
        self.state(node)

    def do_controller(self, what: str, *args: str) -> None:
        """`leader N`, `isr N,N`, or `fence N`."""
        controller = self.model.controller
        now = controller.now
        if what == "fence":
            controller.fence(int(args[0]))
        else:
            isr = tuple(int(n) for n in args[0].split(",")) if what == "isr" else now.isr
            controller._change(isr, now.leader if what == "isr" else int(args[0]))
        self.registration()

    def do_learn(self, *node_ids: str) -> None:
        """Let nodes learn all metadata."""
        for node_id in node_ids:
            self.node(node_id).apply(len(self.model.controller.history) - 1)
            self.state(self.node(node_id))

    def do_alter_partition(self, node_id: str) -> None:
        """Carry a leader's proposal to the controller, and the answer back."""
        node = self.node(node_id)
        if not node.to_send:
            self.say(f"{node_id} proposes nothing")
            return
        item, _ = sent = node.to_send.pop()
        self.say(f"{node_id} wants ISR {[member for member, _ in item.proposal.new_isr]}")
        self.model.faults = False
        self.model._send("alter-partition", node.node_id, node.node_id, sent)
        self.model.deliver()
        self.registration()
        self.state(node)

    def do_wait(self, milliseconds: str) -> None:
        self.model.now_ms += int(milliseconds)

    def do_shrink(self, node_id: str) -> None:
        """The leader looks for members that lag."""
        node = self.node(node_id)
        leader = node.replica.partition.leader
        assert leader is not None
        proposal = leader.propose_shrink(node.replica.log_end_offset, self.model.now_ms)
        if proposal is not None:
            node.proposals.submit(node.replica, proposal)
        self.state(node)

    def do_restart(self, node_id: str) -> None:
        """Kill a node's process and start it again."""
        node = self.node(node_id)
        node.disk.crash(power_loss=False)
        self.model.incarnation[node.node_id] += 1
        node.boot(self.model.controller.register(node.node_id), len(self.model.controller.history) - 1)
        self.registration()
        self.state(node)

    # -- what is said

    def registration(self) -> None:
        now = self.model.controller.now
        self.say(f"controller: leader {now.leader} in epoch {now.leader_epoch}, ISR {list(now.isr)}")

    def state(self, node: Node) -> None:
        records = " ".join(f"{value.decode()}@{epoch}" for epoch, value in self.model.records_of(node))
        leader = node.replica.partition.leader
        role: Any = f"follows {node.replica.partition.leader_id}"
        if leader is not None:
            role = f"leads, ISR {list(leader.isr_state.isr)}, maximal {list(leader.isr_state.maximal_isr)}"
        self.say(f"{node.node_id}: [{records}] high watermark {node.replica.high_watermark}, {role}")


@pytest.mark.parametrize("path", sorted(DIRECTORY.glob("*.txt")), ids=lambda path: path.stem)
def test_conversation_goes_as_written(path: Path) -> None:
    check_transcript(path, lambda text: Conversation().run(text))
