"""Wrong passwords, and how long the next try has to wait."""

from __future__ import annotations

from raftwerk.console.logins.login_limit import LoginLimit


def test_after_some_failures_each_one_doubles_the_wait() -> None:
    limit = LoginLimit(3)
    waits = []
    for _ in range(6):
        waits.append(limit.wait_s("alice", 100.0))
        limit.failed("alice", 100.0)
    assert waits == [0.0, 0.0, 0.0, 2.0, 4.0, 8.0]
    assert limit.wait_s("alice", 110.0) == 6.0
    assert limit.wait_s("bob", 100.0) == 0.0
    for _ in range(2000):
        limit.failed("alice", 100.0)
    assert limit.wait_s("alice", 100.0) == 300.0


def test_a_success_or_a_quarter_of_an_hour_begins_anew() -> None:
    limit = LoginLimit(1)
    for key in ("alice", "bob"):
        limit.failed(key, 0.0)
        assert limit.wait_s(key, 0.0) == 2.0
    limit.succeeded("alice")
    assert limit.wait_s("alice", 0.0) == 0.0
    assert limit.wait_s("bob", 901.0) == 0.0
    limit.failed("bob", 902.0)
    assert limit.wait_s("bob", 902.0) == 2.0


def test_many_keys_take_no_more_memory_than_some() -> None:
    limit = LoginLimit(1)
    for number in range(12_000):
        limit.failed(str(number), 0.0)
    assert limit.wait_s("0", 0.0) == 0.0
    assert limit.wait_s("11999", 0.0) == 2.0
