"""Judges a history: reads every line once, in bounded memory for any length.

The files may come in any order, because sends and reads are collected in tables that do not depend on it (`ledger`).
Only the polls of one process must be in order; and the acks of one producer, for the gaps between them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..history import VERSION, HistoryError, Line, WrongLineError, history_files, read_lines
from .findings import Findings, Verdict
from .ledger import ACKED, STATES, Ledger
from .time_series import TimeSeries
from .transactions.transaction_check import TransactionCheck

_TOTALS = ("sends", "acked", "failed", "unknown", "unanswered", "reads")


@dataclass
class HistoryCheck:
    """A check of a history: `add` all lines, then `finish`."""

    ledger: Ledger
    findings: Findings
    series: TimeSeries = field(default_factory=TimeSeries)
    totals: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_TOTALS, 0))
    positions: dict[tuple[str, int], int] = field(default_factory=dict)
    transactions: TransactionCheck = field(init=False)

    def __post_init__(self) -> None:
        self.transactions = TransactionCheck(self.findings)

    def add(self, line: Line) -> None:
        """Add a line. `WrongLineError` if it is not in the format."""
        try:
            handle = _HANDLERS.get(line["f"])
            if handle is not None:
                handle(self, line)
        except (KeyError, TypeError, ValueError) as error:
            raise WrongLineError.of(line, error) from None

    def finish(self) -> Verdict:
        """Judge the whole history."""
        self.ledger.origin_ns = self.series.origin_ns = self._origin_ns()
        self.ledger.judge(self.totals)
        self.transactions.finish(self.series.origin_ns)
        self.totals["sends"] = sum(self.totals[name] for name in ("acked", "failed", "unknown", "unanswered"))
        figures = self.transactions.figures
        loads = []
        if self.totals["sends"] or not figures:
            loads.append(self.totals["acked"] and self.totals["reads"])
        if figures:
            loads.append(figures["committed"] and figures["committed_reads"])
        is_judged = all(loads) and not self._lacks_faults
        valid = self.findings.total == 0 if is_judged else None
        return Verdict(False if self.findings.total else valid, self.findings, self.totals, self._notes(), figures)

    def _origin_ns(self) -> int:
        """The time from which others are counted: the begin of the run, or of what is known first."""
        if "began" in self.series.facts:
            return int(self.series.facts["began"])
        known = [self.ledger.origin_ns, self.series.first_ns, self.transactions.table.first_ns]
        known += [span.start_ns for span in self.series.faults.values()]
        return min((one for one in known if one is not None), default=0)

    @property
    def _lacks_faults(self) -> bool:
        """Whether the run was to inject faults, and injected none: then it says nothing about failures."""
        return self.series.facts.get("faults", "[]") != "[]" and not self.series.faults

    def _notes(self) -> tuple[str, ...]:
        notes = []
        if self._lacks_faults:
            notes.append("no fault was injected, though the run was to inject some: it says nothing about failures")
        figures = self.transactions.figures
        if not figures or self.totals["sends"]:
            if not self.totals["acked"]:
                notes.append("nothing was acked: there is nothing to lose")
            if not self.totals["reads"]:
                notes.append("nothing was read: what was acked cannot be looked for")
            elif not self.ledger.has_final:
                notes.append(
                    "no final read, as after a run that was cut short: a record counts as seen when anybody read it at "
                    "any time; sends without an answer, and records behind the last read, are not judged"
                )
        if figures and not figures["committed"]:
            notes.append("no transaction was committed: there is nothing to lose in them")
        elif figures and not figures["committed_reads"]:
            notes.append("nothing was read at read_committed: what was committed cannot be looked for")
        if figures and not self.transactions.reads.final_ends:
            notes.append(
                "no final read at read_committed: a record counts as seen when anybody read it there; records behind "
                "the last read are not judged"
            )
        return tuple(notes)

    # -- one handler for each f

    def on_header(self, line: Mapping[str, Any]) -> None:
        """The first line of a process."""
        if line["version"] != VERSION:
            raise ValueError(f"version {line['version']}; this checker knows version {VERSION}")
        if line["process"] == "nemesis":
            self.series.facts = dict(line)
        if "producer" in line:
            self.ledger.idempotent[line["producer"]] = bool(line["idempotent"])
            if not line.get("timed", True):
                self.ledger.untimed[line["producer"]] = None
        if "copies" in line:
            self.transactions.on_copies(*line["copies"])

    def on_send(self, line: Mapping[str, Any]) -> None:
        """An invocation or an outcome of a send."""
        state = STATES[line["type"]]
        place = self.ledger.place(line["topic"], line["partition"])
        producer, number, start_ns = line["producer"], line["number"], line["start"]
        end_ns = line.get("end", 0)
        self.ledger.sent(producer, number, state, line["key"], place, (start_ns, end_ns))
        if state == ACKED:
            offset = line.get("offset")
            if offset is not None:
                self.ledger.acked_at(producer, number, place, offset)
            timed = producer not in self.ledger.untimed
            self.series.acked(producer, str(self.ledger.places[place]), start_ns, end_ns, timed=timed)
        elif end_ns:
            self.series.second(end_ns).failed += 1

    def on_assign(self, line: Mapping[str, Any]) -> None:
        """A consumer reads a partition from a new offset on."""
        place = self.ledger.place(line["topic"], line["partition"])
        self.positions[line["process"], place] = line["offset"] - 1
        self.transactions.reads.assigned(line)

    def on_poll(self, line: Mapping[str, Any]) -> None:
        """The records of a poll."""
        if line["type"] != "ok":
            return
        ledger, process, records = self.ledger, line["process"], line["records"]
        place, end_ns = ledger.place(line["topic"], line["partition"]), line["end"]
        final = line.get("final", False)
        ledger.has_final = ledger.has_final or final
        position = self.positions.get((process, place))
        for offset, producer, number, key in records:
            if position is not None and offset != position + 1:
                self._on_jump(process, place, position, offset)
            position = offset
            if producer >= 0:
                ledger.read(place, offset, (producer, number, key), end_ns, final)
            else:
                said = f"{process} read bytes at {ledger.places[place]} offset {offset} that nobody of the run wrote"
                self.findings.add("corrupt", said, place=str(ledger.places[place]), offset=offset)
            ledger.reached(place, offset, final)
        if position is not None:
            self.positions[process, place] = position
        self.totals["reads"] += len(records)
        self.series.second(end_ns).read += 0 if final else len(records)

    def _on_jump(self, process: str, place: int, position: int, offset: int) -> None:
        where = str(self.ledger.places[place])
        if offset <= position:
            said = f"{process} read {where} offset {offset} after offset {position}"
            self.findings.add("nonmonotonic-poll", said, process=process, place=where, offset=offset)
        else:
            self.ledger.skipped(process, place, position, offset)

    def on_final(self, line: Mapping[str, Any]) -> None:
        """A final read reached the end of a partition, which may be empty."""
        if "isolation" in line:
            self.transactions.reads.ended(line)
            return
        self.ledger.ended(self.ledger.place(line["topic"], line["partition"]), line["offset"])

    def on_transaction(self, line: Mapping[str, Any]) -> None:
        """The begin or the outcome of a transaction."""
        self.transactions.table.add(line)
        if line["type"] == "ok" and "commit" in line:
            self.series.committed(line["commit"], line["end"])

    def on_commit(self, line: Mapping[str, Any]) -> None:
        """A client asks for the commit of a transaction."""
        self.transactions.table.commit_asked(line)

    def on_read(self, line: Mapping[str, Any]) -> None:
        """What a reader of transactional topics read."""
        self.transactions.reads.read(line)

    def on_heal(self, line: Mapping[str, Any]) -> None:
        """Whether all replicas were in sync again after the last fault."""
        if line["type"] != "ok":
            self.findings.add("not-healed", str(line.get("error", "the replicas did not get in sync")))

    def on_node_end(self, line: Mapping[str, Any]) -> None:
        """A node ended, and no fault of the run ended it."""
        self.findings.add("node-ended", line["error"], node=line["node"])

    def on_fault(self, line: Mapping[str, Any]) -> None:
        """The begin or the end of a fault."""
        self.series.fault(line)

    def on_stall(self, line: Mapping[str, Any]) -> None:
        """The machine was stalled."""
        self.series.stalls.append((line["start"], line["end"]))

    def on_cluster(self, line: Mapping[str, Any]) -> None:
        """A change that an observer saw."""
        self.series.cluster(line)


_HANDLERS: dict[str, Callable[[HistoryCheck, Mapping[str, Any]], None]] = {
    "history": HistoryCheck.on_header,
    "send": HistoryCheck.on_send,
    "assign": HistoryCheck.on_assign,
    "poll": HistoryCheck.on_poll,
    "final": HistoryCheck.on_final,
    "txn": HistoryCheck.on_transaction,
    "commit": HistoryCheck.on_commit,
    "read": HistoryCheck.on_read,
    "group-offset": lambda check, line: check.transactions.on_group_offset(line),
    "stable": lambda check, line: check.transactions.on_stable(line),
    "hanging": lambda check, line: check.transactions.on_hanging(line),
    "heal": HistoryCheck.on_heal,
    "node-end": HistoryCheck.on_node_end,
    "fault": HistoryCheck.on_fault,
    "cluster": HistoryCheck.on_cluster,
    "stall": HistoryCheck.on_stall,
}


@dataclass(frozen=True, slots=True)
class Result:
    """A verdict, and the figures of its report."""

    verdict: Verdict
    series: TimeSeries


def check_lines(lines: Iterable[Line], *, evidence_max: int = 20) -> Result:
    """Judge lines in memory."""

    def add_to(check: HistoryCheck) -> None:
        for line in lines:
            check.add(line)

    return _judged(add_to, evidence_max)


def check_paths(paths: Iterable[str], *, evidence_max: int = 20) -> Result:
    """Judge the histories in these files and directories. `HistoryError` if they cannot be read."""

    def add_to(check: HistoryCheck) -> None:
        for path in history_files(paths):
            for number, line in enumerate(read_lines(path), 1):
                try:
                    check.add(line)
                except WrongLineError as error:
                    raise HistoryError(f"{path}:{number}: {error}") from None

    return _judged(add_to, evidence_max)


def _judged(add_to: Callable[[HistoryCheck], None], evidence_max: int) -> Result:
    with tempfile.TemporaryDirectory(prefix="raftwerk-check-") as directory:
        findings = Findings(evidence_max)
        check = HistoryCheck(Ledger(directory, findings), findings)
        try:
            add_to(check)
            return Result(check.finish(), check.series)
        finally:
            check.ledger.close()
