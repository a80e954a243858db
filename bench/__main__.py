"""`python -m raftwerk.bench [NAME]`: runs a benchmark; without a name, Raftwerk and Apache Kafka side by side."""

from __future__ import annotations

import importlib
import sys

BENCHMARKS = {
    "compare": "comparison.benchmark",
    "acls": "access_control_lists",
    "peers": "peers_before_login",
    "scale": "scale.benchmark",
    "groups": "consumer_groups",
    "compaction": "compaction_latency",
    "recovery": "log_recovery",
    "reads": "cached_reads",
    "cold": "cold_reads",
    "log-size": "log_size",
    "writes": "file_writes",
    "audit": "history_audit",
    "spark": "spark",
    "transactions": "transactions",
    "security": "security",
}
"""The module of each benchmark. Each module has a `main` that takes the arguments and returns the exit code."""


def main(arguments: list[str]) -> int:
    """Run the benchmark that the first argument names, or else the comparison."""
    name, rest = (
        (arguments[0], arguments[1:]) if arguments[:1] and arguments[0] in BENCHMARKS else ("compare", arguments)
    )
    return int(importlib.import_module(f".{BENCHMARKS[name]}", __package__).main(rest))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
