"""The kinds of anomalies that a check can find, and the anomalies that it found, with evidence.

Each kind breaks a promise of Kafka's documentation to clients with acks=all and idempotence, or to transactional ones.
Some kinds are about liveness: they say that an answer is missing, not that it is wrong. G0, G1a and G1b are names of
Adya's thesis for what a database must not show.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

RECORD_KINDS = {
    "lost": "acked, and the final read passed its offset without seeing it",
    "vanished": "read once, though never acked, and not there in the final read",
    "duplicate": "one send of an idempotent producer, read at two places",
    "reordered": "two records of one idempotent producer in one partition, read in the other order than they were sent",
    "realtime-order": "at a lower offset than a record that had been acked before the send began",
    "inconsistent-offset": (
        "two different records at one offset, an ack that names an offset which holds another, or a record in another "
        "partition than it was sent to"
    ),
    "seen-before-send": "read before its send began",
    "nonmonotonic-poll": "a consumer's position went back, without a new assignment",
    "skipped-poll": "a consumer's position passed over records which others read there",
    "phantom": "read, though nobody sent it",
    "failed-seen": "the send surely failed, and the record was read",
    "corrupt": "the bytes that were read are not those that were sent",
    "unseen": "acked, and no final read came as far as its offset",
    "unanswered": "the client never told what became of the send, long after everything was healed",
    "not-healed": "the replicas did not get in sync again after the last fault was taken back",
    "node-ended": "a node ended, and no fault of the run ended it",
}
TRANSACTION_KINDS = {
    "lost-transaction": "its commit was reported, and none of its records are in the final read",
    "torn-transaction": "some of its records are in the final read, and some are not",
    "aborted-read": "read at read_committed, though its transaction was never committed (G1a)",
    "intermediate-read": "read at read_committed before the commit of its transaction was asked for (G1b)",
    "write-cycle": "a record stands behind one of a transaction that began after its own had ended (G0)",
    "fenced-commit": "a commit was reported to a producer whose successor had already begun",
    "duplicate-effect": "an input record has its effect more than once",
    "lost-effect": "the group has passed an input record that has no effect",
    "lost-offset": "the offset that a committed transaction gave to its group was lost",
    "aborted-offset": "an offset took effect whose transaction was not committed",
    "unprocessed": "the group did not come as far as this input record",
    "stuck-stable-offset": "the last stable offset did not reach the end of the log after all transactions had ended",
    "hanging-transaction": "a partition has a transaction open, long after all of them should have ended",
}
KINDS = {**RECORD_KINDS, **TRANSACTION_KINDS}
EVIDENCE_MAX = 20


@dataclass(frozen=True, slots=True)
class Evidence:
    """One anomaly: a sentence, and the same as fields."""

    text: str
    fields: dict[str, Any]


@dataclass
class Findings:
    """The number of anomalies of each kind, and the first of them."""

    evidence_max: int = EVIDENCE_MAX
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    evidence: dict[str, list[Evidence]] = field(default_factory=lambda: {kind: [] for kind in KINDS})

    def add(self, kind: str, text: str, **fields: Any) -> None:
        """Add an anomaly."""
        self.counts[kind] += 1
        if len(self.evidence[kind]) < self.evidence_max:
            self.evidence[kind].append(Evidence(text, fields))

    @property
    def total(self) -> int:
        """The number of anomalies."""
        return sum(self.counts.values())


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a check. `valid` is None if nothing was acked or nothing was read: there is nothing to judge."""

    valid: bool | None
    findings: Findings
    totals: dict[str, int]
    notes: tuple[str, ...]
    transactions: dict[str, int] = field(default_factory=dict)
    """Figures of the transactions; empty if the history has none."""

    @property
    def word(self) -> str:
        """VALID, INVALID or UNKNOWN."""
        return "UNKNOWN" if self.valid is None else "VALID" if self.valid else "INVALID"

    def to_json(self) -> dict[str, Any]:
        """The verdict for `--json` and for verdict.json."""
        return {
            "verdict": self.word,
            "totals": self.totals,
            "transactions": self.transactions,
            "anomalies": {
                kind: {
                    "count": count,
                    "meaning": KINDS[kind],
                    "evidence": [{"text": one.text, **one.fields} for one in self.findings.evidence[kind]],
                }
                for kind, count in self.findings.counts.items()
            },
            "notes": list(self.notes),
        }
