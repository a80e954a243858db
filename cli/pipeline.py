"""`raftwerk pipeline`: the jobs on Spark."""

from __future__ import annotations

from ..pipeline.cli import pipeline

__all__ = ["pipeline"]
