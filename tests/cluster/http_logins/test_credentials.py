"""What the header Authorization may hold, and what of it is shown."""

from __future__ import annotations

import pytest
from support.rest.proxy import basic
from support.rest.tokens import token

from raftwerk.cluster.http_logins.credentials import Credentials, NoCredentialsError, claims_of, credentials_in


def test_a_user_and_a_password() -> None:
    found = credentials_in(basic("älice", "a:b c"), "basic")
    assert (found.user, found.secret, found.owner) == ("älice", "a:b c", "älice")
    assert "a:b c" not in repr(found)


def test_a_token() -> None:
    found = credentials_in("bearer  abc-._~+/1==", "bearer")
    assert (found.user, found.secret) == ("", "abc-._~+/1==")
    assert "abc" not in repr(found)


@pytest.mark.parametrize(
    "header",
    [None, "", "Basic", "Basic ?", "Basic YQ==", "Basic Og==", "Basic OmI=", "Basic YTo=", "Basic /w==", "Bearer abc"]
    + [basic("a\0b", "c"), basic("a", "b\n"), "Basic " + "A" * 20_000],
)
def test_headers_without_a_user_and_a_password(header: str | None) -> None:
    with pytest.raises(NoCredentialsError, match="a user and a password"):
        credentials_in(header, "basic")


@pytest.mark.parametrize("header", [None, "Bearer", "Bearer a b", "Bearer \x01", basic("a", "b")])
def test_headers_without_a_token(header: str | None) -> None:
    with pytest.raises(NoCredentialsError, match="a token"):
        credentials_in(header, "bearer")


def test_tokens_of_one_principal_have_one_owner() -> None:
    first, later = token(sub="alice", exp=1, iat=1, jti="a"), token(exp=2, iat=2, jti="b", sub="alice")
    assert Credentials("", first).owner == Credentials("", later).owner
    assert Credentials("", first).owner != Credentials("", token(sub="bob", exp=1)).owner
    assert Credentials("", first).owner != Credentials("", token(sub="alice", client_id="x")).owner
    assert Credentials("", "opaque").owner == "opaque"


@pytest.mark.parametrize("text", ["", "a.b", "a.?.c", "a.AAAA.c", "a.W10.c", "a.b.c.d"])
def test_what_has_no_claims(text: str) -> None:
    assert claims_of(text) == {}
