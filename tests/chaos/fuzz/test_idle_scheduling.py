"""The attackers' share of the processors."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from raftwerk.chaos.fuzz.attack import leave_processors_to_others


def policy() -> int:
    return os.sched_getscheduler(0)


def nested_policy() -> int:
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(policy).result()


@pytest.mark.skipif(sys.platform != "linux", reason="the scheduling class is Linux's")
def test_an_attacking_thread_and_its_threads_are_idle_and_no_others() -> None:
    before = policy()
    with ThreadPoolExecutor(1, initializer=leave_processors_to_others) as thread:
        assert thread.submit(policy).result() == os.SCHED_IDLE
        assert thread.submit(nested_policy).result() == os.SCHED_IDLE
    assert policy() == before
