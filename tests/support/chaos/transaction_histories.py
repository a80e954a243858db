"""Helpers that make the lines of transactional histories, and a simulated log that writes good ones."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from raftwerk.chaos.live.checker.transactions.read_table import COMMITTED

Line = dict[str, Any]
Records = list[list[Any]]
SECOND = 10**9
UNCOMMITTED = "read_uncommitted"
GROUP = "g"


def begun(name: str, *writes: list[Any], at: float = 0.0, inputs: Records | None = None) -> Line:
    """A transaction begins. Names are `id.incarnation:number`; writes are rows of the format."""
    process = name.partition(":")[0]
    identity = {"id": process.partition(".")[0], "incarnation": int(process.partition(".")[2])}
    line: Line = {"process": process, "type": "invoke", "f": "txn", "txn": name, **identity, "writes": list(writes)}
    line |= {"start": round(at * SECOND)}
    return line if inputs is None else line | {"group": GROUP, "inputs": inputs}


def asked(name: str, at: float) -> Line:
    return {
        "process": name.partition(":")[0],
        "type": "invoke",
        "f": "commit",
        "txn": name,
        "start": round(at * SECOND),
    }


def ended(line: Line, type_: str, *acks: int | None, at: float) -> Line:
    return line | {"type": type_, "acks": list(acks), "end": round(at * SECOND)}


def read(
    *records: list[Any],
    topic: str = "t",
    partition: int = 0,
    at: float = 50.0,
    process: str = "reader",
    isolation: str = COMMITTED,
) -> Line:
    """Records as [offset, transaction, index]."""
    line = {"process": process, "type": "ok", "f": "read", "topic": topic, "partition": partition}
    times = {"start": round(at * SECOND) - 1, "end": round(at * SECOND)}
    return line | {"isolation": isolation, "records": [list(one) for one in records], **times}


def final(*records: list[Any], end: int, topic: str = "t", partition: int = 0) -> list[Line]:
    """The final read at read_committed, and the end that it came to."""
    line = read(*records, topic=topic, partition=partition, at=100.0, process="final") | {"final": True}
    where = {"topic": topic, "partition": partition, "offset": end, "isolation": COMMITTED}
    return [line, {"process": "final", "type": "ok", "f": "final", **where, "end": 101 * SECOND}]


def group_offset(offset: int, partition: int = 0) -> Line:
    fields = {"group": GROUP, "topic": "t", "partition": partition, "offset": offset, "end": 99 * SECOND}
    return {"process": "end-state", "type": "ok", "f": "group-offset", **fields}


def stable(offset: int, high_watermark: int) -> Line:
    type_ = "ok" if offset == high_watermark else "fail"
    fields = {"topic": "t", "partition": 0, "stable": offset, "high_watermark": high_watermark}
    return {"process": "end-state", "type": type_, "f": "stable", **fields, "start": 60 * SECOND, "end": 90 * SECOND}


@dataclass
class SimulatedLogs:
    """Logs of partitions with transactions, as a faultless cluster has them, and the lines of their clients."""

    lines: list[Line] = field(default_factory=list)
    logs: dict[tuple[str, int], Records] = field(default_factory=dict)
    committed: dict[str, None] = field(default_factory=dict)
    now: float = 0.0

    def transact(
        self, name: str, writes: Records, end: str, *, inputs: Records | None = None, read_at_once: bool = False
    ) -> None:
        """`end` is ok, fail, unknown-committed, unknown-aborted, or crashed."""
        self.now += 1.0
        line = begun(name, *writes, at=self.now, inputs=inputs)
        acks = []
        for index, row in enumerate(writes):
            log = self.logs.setdefault((row[0], row[1]), [])
            acks.append(len(log))
            log.append([len(log), name, index])
        self.lines.append(line)
        if end not in ("fail", "crashed"):
            self.now += 1.0
            self.lines.append(asked(name, self.now))
        self.now += 1.0
        if end in ("ok", "fail"):
            self.lines.append(ended(line, end, *acks, at=self.now))
        elif end != "crashed":
            self.lines.append(ended(line, "info", *acks, at=self.now))
        if end in ("ok", "unknown-committed"):
            self.committed[name] = None
        for place in dict.fromkeys((row[0], row[1]) for row in writes):
            self.logs[place].append([len(self.logs[place]), "", 0])  # the marker
        if read_at_once:
            self.now += 0.5
            self.read_all("reader", COMMITTED)

    def read_all(self, process: str, isolation: str) -> None:
        """A reader with no position yet reads everything."""
        for (topic, partition), log in sorted(self.logs.items()):
            assign = {"process": process, "type": "ok", "f": "assign", "topic": topic, "partition": partition}
            self.lines.append(assign | {"offset": 0, "start": round(self.now * SECOND)})
            rows = [row for row in log if row[1] and (isolation == UNCOMMITTED or row[1] in self.committed)]
            self.lines.append(
                read(*rows, topic=topic, partition=partition, at=self.now, process=process, isolation=isolation)
            )

    def finish(self, inputs: str | None = None) -> list[Line]:
        """The final reads, and what the cluster says of itself; then all lines."""
        self.now = 100.0 + self.now
        self.read_all("last", UNCOMMITTED)
        for (topic, partition), log in sorted(self.logs.items()):
            rows = [row for row in log if row[1] in self.committed]
            self.lines += final(*rows, end=len(log), topic=topic, partition=partition)
            if topic == inputs:
                self.lines.append(group_offset(len(log), partition))
        return self.lines


def good_history() -> list[Line]:
    """Two writers with crashes, aborts and unknown outcomes, and a processor that reads what they wrote."""
    logs = SimulatedLogs()
    logs.transact("w.1:1", [["t", 0], ["u", 0], ["t", 1]], "ok", read_at_once=True)
    logs.transact("w.1:2", [["t", 0], ["u", 0]], "fail")
    logs.transact("w.1:3", [["t", 0], ["u", 0]], "unknown-committed")
    logs.transact("v.1:1", [["t", 0], ["u", 0]], "unknown-aborted", read_at_once=True)
    logs.transact("w.2:1", [["u", 0], ["t", 1]], "crashed")
    logs.transact("w.3:1", [["u", 0], ["t", 1]], "ok")
    process_all(logs, "p.1")
    return logs.finish("t")


def process_all(logs: SimulatedLogs, process: str) -> None:
    """A processor aborts once, and then gives every committed record of topic t its effect in topic e."""
    number = 0
    for partition in (0, 1):
        log = logs.logs.get(("t", partition), [])
        offsets = [row[0] for row in log if row[1] in logs.committed]
        start = 0
        for offset in offsets:
            inputs = [["t", partition, start, offset + 1]]
            writes = [["e", offset % 2, "t", partition, offset]]
            if number == 0:
                number += 1
                logs.transact(f"{process}:{number}", writes, "fail", inputs=inputs)
            number += 1
            logs.transact(f"{process}:{number}", writes, "ok", inputs=inputs)
            start = offset + 1
        if log:
            number += 1
            logs.transact(f"{process}:{number}", [], "ok", inputs=[["t", partition, start, len(log)]])


@st.composite
def good_histories(draw: st.DrawFn) -> list[Line]:
    """Histories of a faultless cluster, in which at least one transaction with two records was committed."""
    rng = random.Random(draw(st.integers(0, 2**32)))
    logs = SimulatedLogs()
    incarnations = {"w": 1, "v": 1}
    for number in range(draw(st.integers(1, 12))):
        writer = rng.choice(["w", "v"])
        writes = [[rng.choice("tu"), rng.randrange(2)] for _ in range(rng.randint(1, 4))]
        end = rng.choice(["ok", "ok", "fail", "unknown-committed", "unknown-aborted", "crashed"])
        logs.transact(f"{writer}.{incarnations[writer]}:{number}", writes, end, read_at_once=rng.random() < 0.2)
        if end not in ("ok", "fail"):
            incarnations[writer] += 1
    logs.transact(f"w.{incarnations['w']}:last", [["t", 0], ["u", 1]], "ok")
    process_all(logs, "p.1")
    return logs.finish("t")
