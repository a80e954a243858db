"""How slow this machine is, for bounds of processor time that were set on another one."""

from __future__ import annotations

import time

_REFERENCE_S = 0.008
"""What the loop below takes on the machine on which bounds are set."""


def times_slower() -> float:
    """At least 1: how many times longer than on that machine a loop in Python takes here, the best of five."""
    return max(1.0, min(_loop_s() for _ in range(5)) / _REFERENCE_S)


def _loop_s() -> float:
    began = time.thread_time()
    total = 0
    for number in range(300_000):
        total += number & 7
    return time.thread_time() - began
