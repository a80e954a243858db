"""The end of a process of the tests: one that does not end must not hold the whole run."""

from __future__ import annotations

import subprocess


def told_until_its_end(process: subprocess.Popen[str], limit_s: float = 30.0) -> str:
    """What a process that was told to end writes as errors. One that does not end is killed, and fails the test."""
    try:
        return process.communicate(timeout=limit_s)[1]
    except subprocess.TimeoutExpired:
        process.kill()
        raise
