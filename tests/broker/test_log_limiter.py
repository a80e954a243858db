"""Log lines about what clients do are limited by the kind of fault and the address, not by what the client chose."""

from __future__ import annotations

import asyncio
import logging
import struct

import pytest
from support.broker.broker_harness import Harness, settle

from raftwerk.broker.log_limiter import ENTRIES_MAX, INTERVAL_S, LogLimiter, kind_of


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        (
            "a frame of -17 bytes; a request has at least a header",
            "a frame of # bytes; a request has at least a header",
        ),
        ("unknown API key 731", "unknown # key #"),
        ("malformed FETCH v12: 9 topics in 4 bytes", "malformed # #"),
        ("VOTE v9 is not supported (v0 to v2 are)", "# # is not supported # to # are)"),
        (
            "the token is refused because its audience is 'a, b'; expected is kafka",
            "the token is refused because its audience is #; expected is kafka",
        ),
        ("client id of length -3", "client id of length #"),
        ("client id of 4711 bytes in a frame of 9", "client id of # bytes in a frame of #"),
    ],
)
def test_the_kind_of_a_reason_has_nothing_that_the_peer_chose(reason: str, kind: str) -> None:
    assert kind_of(reason) == kind


def test_each_kind_is_logged_once_in_an_interval_for_each_peer() -> None:
    limiter = LogLimiter()
    assert limiter.should_log("a", "a frame of 1 bytes", 0.0)
    assert not limiter.should_log("a", "a frame of 2 bytes", 1.0)
    assert limiter.should_log("b", "a frame of 2 bytes", 1.0)
    assert limiter.should_log("a", "unknown key", 1.0)
    assert limiter.should_log("a", "the token is refused because its signature is wrong", 1.0)
    assert limiter.should_log("a", "the token is refused because the token has expired 7 s ago", 1.0)
    assert limiter.should_log("a", "a frame of 3 bytes", INTERVAL_S)


def test_many_addresses_have_a_bound_together() -> None:
    limiter = LogLimiter()
    assert sum(limiter.should_log(f"2001:db8::{index:x}", "x", 0.0) for index in range(5_000)) == ENTRIES_MAX
    assert limiter.should_log("another", "x", INTERVAL_S)


def test_thousands_of_different_bad_requests_leave_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        harness = Harness()
        for index in range(3_000):
            transport = harness.connect()
            header = struct.pack(">hhih", index % 600, index % 50, index, -2 - index % 9)
            transport.deliver(struct.pack(">i", len(header)) + header if index % 3 else struct.pack(">i", -index - 1))
        await settle()
        assert harness.server.rejected_total > 2_000

    with caplog.at_level(logging.WARNING, "raftwerk.broker"):
        asyncio.run(main())
    assert 1 <= len(caplog.records) <= 10
