"""The kinds of anomalies that a check can find, and the anomalies that it found, with evidence.

Each kind breaks a promise of Kafka's documentation to clients with acks=all and idempotence. The last three kinds are
about liveness: they say that an answer is missing, not that it is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

KINDS = {
    "lost": "acked, and the final read passed its offset without seeing it",
    "vanished": "read once, though never acked, and not there in the final read",
    "duplicate": "one send of an idempotent producer, read at two places",
    "reordered": "two records of one key and one idempotent producer, read in the other order than they were sent",
    "inconsistent-offset": "two different records at one offset, or an ack that names an offset which holds another",
    "seen-before-send": "read before its send began",
    "nonmonotonic-poll": "a consumer's position went back, without a new assignment",
    "skipped-poll": "a consumer's position passed over records which others read there",
    "phantom": "read, though nobody sent it",
    "failed-seen": "the send surely failed, and the record was read",
    "corrupt": "the bytes that were read are not those that were sent",
    "unseen": "acked, and no final read came as far as its offset",
    "unanswered": "the client never told what became of the send, long after everything was healed",
    "not-healed": "the replicas did not get in sync again after the last fault was taken back",
}
LIVENESS = ("unseen", "unanswered", "not-healed")
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

    @property
    def word(self) -> str:
        """VALID, INVALID or UNKNOWN."""
        return "UNKNOWN" if self.valid is None else "VALID" if self.valid else "INVALID"

    def to_json(self) -> dict[str, Any]:
        """The verdict for `--json` and for verdict.json."""
        return {
            "verdict": self.word,
            "totals": self.totals,
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
