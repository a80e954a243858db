"""The names of the invariants that every run is checked for, by what they are about."""

from __future__ import annotations

from collections.abc import Mapping

CHECKED_IN_EVERY_RUN: Mapping[str, tuple[str, ...]] = {
    "the metadata quorum": (
        "one leader an epoch",
        "epochs do not go back",
        "the vote is durable before its reply",
        "a leader holds every committed record",
        "a committed record is on a majority's disks",
        "committed records never change",
        "nothing committed is truncated",
        "the high watermark does not go back",
        "a leader whose time is over resigns",
        "an answered change of the voters is committed",
        "each step of the quorum is one of its specification",
    ),
    "partitions": (
        "one leader an epoch",
        "a leader is in its ISR",
        "a leader holds every committed batch",
        "only a leader commits",
        "a leader waits for all whom the controller holds in sync",
        "every ISR member has what is committed",
        "who enters the ISR has what is committed",
        "an ISR member cuts nothing committed",
        "an elected replica has what it had in the ISR",
        "a fenced broker is in no ISR",
        "ISR and ELR are disjoint parts of the replicas",
        "epochs of partitions do not go back",
        "committed batches never change",
        "the high watermark does not go back",
        "the high watermark is within the log",
        "the high watermark moves only with min ISR",
        "each change of a partition is a step of its specification",
        "each step of a replica is one of its specification",
        "a log gives up only what it was asked to",
        "every replica holds what is committed in the end",
        "a log holds whole batches only",
        "producers are those of the log",
    ),
    "what nodes make of the metadata": (
        "nodes have the same metadata at the same offset",
        "the voters of a node are those of its log",
        "no producer id is given to two brokers",
        "a leader goes by the min.insync.replicas of the metadata",
        "all logs of a partition go by the same settings",
        "replicas have acted on the newest metadata in the end",
        "a coordinator has loaded its partition in its leader's epoch",
        "what is below a recovery point is on the disk",
        "compaction passes no open transaction",
    ),
    "clients": (
        "an acked record is committed",
        "only committed batches are consumed",
        "every acked record is read",
        "a record is in the partition that it was sent to",
        "records are there once and in order",
    ),
}
