"""The loggers of a node. Their levels can be changed while it runs (`broker/loggers.py`)."""

from __future__ import annotations

ROOT = "root"
STATE_CHANGE = "raftwerk.state-change"

AUTHORIZER = "kafka.authorizer.logger"

LOGGERS = {
    ROOT: "what has no level of its own",
    "raftwerk.node": "start, stop, configuration of the node; its metrics port",
    STATE_CHANGE: "leaders, ISRs, brokers, the quorum: every change as this node sees it",
    "raftwerk.broker": "connections, requests that fail, registration and heartbeats",
    "raftwerk.groups": "consumer groups",
    "raftwerk.transactions": "transactions",
    "raftwerk.controller": "the active controller's decisions",
    "raftwerk.isr": "replication between brokers",
    "raftwerk.raft": "the metadata quorum",
    "raftwerk.log": "files: recovery, retention, compaction",
    "raftwerk.runtime": "event loop, disk",
    AUTHORIZER: "who was denied what; DEBUG: also who was allowed what",
    "asyncio": "the event loop's own",
}
"""Every logger with its subject. Loggers below them, such as `raftwerk.isr.follower`, can have a level too."""
