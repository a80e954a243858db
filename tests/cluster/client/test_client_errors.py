"""The sentences of errors about several addresses."""

from __future__ import annotations

from raftwerk.cluster.client.client_errors import UnreachableError


def test_what_several_addresses_did_is_told_once() -> None:
    silent, refused = "did not answer in time", "refuses the connection"
    assert str(UnreachableError({("a", 1): refused})) == "no broker answers: a:1 refuses the connection"
    two = {("a", 1): refused, ("b", 2): refused}
    assert str(UnreachableError(two)) == "no broker answers: a:1 refuses the connection; likewise b:2"
    four = {("a", 1): refused, ("b", 2): silent, ("c", 3): refused, ("d", 4): refused}
    told = "a:1 refuses the connection; likewise c:3, d:4; b:2 did not answer in time"
    assert str(UnreachableError(four)) == f"no broker answers: {told}"
