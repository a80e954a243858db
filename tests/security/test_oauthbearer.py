"""SASL/OAUTHBEARER from token to token, on both sides; which tokens are valid; and how keys are kept fresh."""

from __future__ import annotations

import asyncio
import functools
import hmac
import json
import warnings
from base64 import urlsafe_b64encode
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc import jws, jwt
from joserfc.jwk import Key, RSAKey
from support.security.identity_provider import AUDIENCE, ISSUER, new_key

from raftwerk.runtime.http.client import HttpAnswer, HttpRequest
from raftwerk.security.oauthbearer.access_token import AccessToken, TokenRefusedError
from raftwerk.security.oauthbearer.exchange import OAuthBearerClient, OAuthBearerServer
from raftwerk.security.oauthbearer.key_refresh import UNKNOWN_KEY_INTERVAL_S, RefreshingKeys, RefreshTimes
from raftwerk.security.oauthbearer.signed_tokens import (
    ALGORITHMS,
    KeySetError,
    SignedTokenOptions,
    SignedTokens,
    parse_key_set,
)
from raftwerk.security.oauthbearer.token_source import ClientCredentials, TokenError, TokenSource
from raftwerk.security.oauthbearer.unsecured_tokens import UnsecuredTokens, extensions_of, unsecured_token
from raftwerk.security.principals import KafkaPrincipal
from raftwerk.security.sasl.mechanism import Authenticated, SaslAuthenticationError
from raftwerk.security.sasl.session import SaslSession
from raftwerk.wire.errors import ErrorCode

NOW_S = 1_700_000_000
NOW_MS = NOW_S * 1000
KEY = new_key("RS256", "one")
CLAIMS: dict[str, Any] = {"sub": "alice", "aud": AUDIENCE, "iss": ISSUER, "iat": NOW_S - 100, "exp": NOW_S + 60}
OPTIONS = SignedTokenOptions((AUDIENCE,), ISSUER)
SECRETS = st.text(st.characters(codec="latin-1"), max_size=40)


def on_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **fixtures: Any) -> None:
        asyncio.run(test(*args, **fixtures))

    return run


def key_set(*keys: Key) -> bytes:
    return json.dumps({"keys": [key.as_dict(private=False) for key in keys]}).encode()


def signed(claims: dict[str, Any] | None = None, key: Key = KEY, **header: Any) -> str:
    """A token; claims and fields of the header that are None are left out."""
    fields = {"alg": "RS256", "kid": key.kid} | header
    values = CLAIMS | (claims or {})
    return jwt.encode(
        {name: value for name, value in fields.items() if value is not None},
        {name: value for name, value in values.items() if value is not None},
        key,
        registry=jws.JWSRegistry(algorithms=[fields["alg"]], strict_check_header=False),
    )


KEYS = parse_key_set(key_set(KEY))
validate = SignedTokens(OPTIONS, lambda: KEYS)


def server() -> OAuthBearerServer:
    return OAuthBearerServer(validate, lambda: NOW_MS)


def refusal(token: str, tokens: Any = validate) -> str:
    with pytest.raises(TokenRefusedError) as error:
        tokens(token, NOW_MS)
    return str(error.value)


def test_a_token_logs_in_for_as_long_as_it_is_valid() -> None:
    exchange = server()
    client = OAuthBearerClient(signed(), {"traceId": "7"})
    assert client.evaluate(exchange.evaluate(client.first())) is None
    assert exchange.result == Authenticated(KafkaPrincipal("User", "alice"), 60_000)


def test_a_token_within_the_clock_skew_does_not_log_in_for_ever() -> None:
    exchange = server()
    exchange.evaluate(OAuthBearerClient(signed({"exp": NOW_S - 20})).first())
    assert exchange.result == Authenticated(KafkaPrincipal("User", "alice"), 1)


def test_a_refusal_is_confirmed_before_the_login_fails() -> None:
    session = SaslSession({"OAUTHBEARER": server})
    session.handshake("OAUTHBEARER")
    client = OAuthBearerClient(signed({"exp": NOW_S - 31}))
    first = session.evaluate(client.first())
    assert (first.error, first.token, first.session_lifetime_ms) == (ErrorCode.NONE, b'{"status":"invalid_token"}', 0)
    assert session.is_in_exchange
    confirmation = client.evaluate(first.token)
    assert confirmation == b"\x01"
    last = session.evaluate(confirmation)
    assert (last.error, last.message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, '{"status":"invalid_token"}')
    assert last.reason == "the token is refused because the token has expired 31 s ago"
    assert session.principal is None


def test_after_a_refusal_another_token_is_not_taken() -> None:
    exchange = server()
    assert exchange.evaluate(OAuthBearerClient("no.valid.token").first()) == b'{"status":"invalid_token"}'
    with pytest.raises(SaslAuthenticationError, match="invalid_token"):
        exchange.evaluate(OAuthBearerClient(signed()).first())
    assert exchange.result is None


def test_an_authorization_id_must_be_the_principal() -> None:
    same = server()
    assert same.evaluate(f"n,a=alice,\x01auth=bearer {signed()}\x01\x01".encode()) == b""
    with pytest.raises(SaslAuthenticationError, match="that is different from the token's"):
        server().evaluate(f"n,a=bob,\x01auth=Bearer {signed()}\x01\x01".encode())


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"n,,\x01auth=Bearer abc\x01",
        b"n,,\x01auth=Bearer a\x00b\x01\x01",
        b"n,,\x01token=Bearer abc\x01\x01",
        b"n,,\x01auth=Bearer abc\x01more\x01\x01",
        b"y,,\x01auth=Bearer abc\x01\x01",
        b"n,a=,\x01auth=Bearer abc\x01\x01",
        "n,,\x01auth=Bearer \u00e4\x01\x01".encode(),
    ],
)
def test_messages_that_are_none_are_refused(message: bytes) -> None:
    with pytest.raises(SaslAuthenticationError, match="invalid credentials with SASL mechanism OAUTHBEARER"):
        server().evaluate(message)


@given(st.binary(max_size=200) | st.builds(lambda token: f"n,,\x01auth=Bearer {token}\x01\x01".encode(), SECRETS))
def test_no_message_breaks_a_server(message: bytes) -> None:
    exchange = server()
    try:
        assert exchange.evaluate(message) == b'{"status":"invalid_token"}'
    except SaslAuthenticationError:
        pass
    assert exchange.result is None


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_all_asymmetric_algorithms(algorithm: str) -> None:
    own, other = new_key(algorithm, "own"), new_key(algorithm, "other")
    tokens = SignedTokens(OPTIONS, lambda: parse_key_set(key_set(other, own)))
    assert tokens(signed(key=own, alg=algorithm), NOW_MS) == AccessToken("alice", NOW_MS + 60_000)
    assert tokens(signed(key=own, alg=algorithm, kid=None), NOW_MS).principal_name == "alice"
    assert refusal(signed(key=own, alg=algorithm, kid="other"), tokens) == "its signature is wrong"


def part(values: object) -> str:
    return urlsafe_b64encode(json.dumps(values).encode()).decode().rstrip("=")


def test_a_public_key_is_not_the_secret_of_a_hash() -> None:
    assert isinstance(KEY, RSAKey)
    signed_part = f"{part({'alg': 'HS256', 'kid': 'one'})}.{part(CLAIMS)}"
    for secret in (KEY.as_pem(private=False), json.dumps(KEY.as_dict(private=False)).encode()):
        digest = urlsafe_b64encode(hmac.digest(secret, signed_part.encode(), "sha256")).decode().rstrip("=")
        assert "its signature is by 'HS256'" in refusal(f"{signed_part}.{digest}")


def test_no_secret_key_of_a_document_is_used() -> None:
    secret = {"kty": "oct", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0", "kid": "one"}
    with pytest.raises(KeySetError):
        parse_key_set(json.dumps({"keys": [secret]}).encode())


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "", None, 7, ["RS256"], {}, "HS512", "A128KW"])
def test_other_algorithms_are_refused(algorithm: object) -> None:
    token = f"{part({'alg': algorithm, 'kid': 'one'})}.{part(CLAIMS)}."
    assert refusal(token) == "it is not a signed token: three parts with dots between"
    assert "its signature is by" in refusal(f"{token}AAAA")


@pytest.mark.parametrize(
    ("claims", "told"),
    [
        ({"exp": NOW_S - 31}, "expired 31 s ago"),
        ({"exp": None}, "no time of expiry"),
        ({"exp": "soon"}, "exp is not a time"),
        ({"exp": True}, "exp is not a time"),
        ({"exp": 1e400}, "exp is not a time"),
        ({"exp": 10**400}, "exp is not a time"),
        ({"exp": -1}, "exp is not a time"),
        ({"nbf": NOW_S + 31}, "not valid before 31 s"),
        ({"iat": None}, "no time of issue"),
        ({"exp": NOW_S - 10, "iat": NOW_S - 9}, "expires before it is issued"),
        ({"exp": NOW_S + 10, "nbf": NOW_S + 11}, "expires before it is issued or valid"),
        ({"iss": "https://other.example"}, "its issuer is 'https://other.example', not https://issuer.example"),
        ({"iss": None}, "its issuer is None"),
        ({"aud": "other"}, "its audience is 'other'; expected is kafka"),
        ({"aud": ["other", 7]}, "its audience is"),
        ({"aud": None}, "its audience is None"),
        ({"sub": None}, "the claim sub is not a text"),
        ({"sub": " "}, "the claim sub is not a text"),
        ({"sub": ["alice"]}, "the claim sub is not a text"),
        ({"scope": ["read", "read"]}, "scope is not a list of different names"),
        ({"scope": " "}, "the claim scope is blank"),
    ],
)
def test_claims_that_are_refused(claims: dict[str, Any], told: str) -> None:
    assert told in refusal(signed(claims))


def test_claims_that_are_accepted() -> None:
    assert validate(signed(nonce="n", x5t="thumb"), NOW_MS).principal_name == "alice"
    for claims in ({"aud": ["other", AUDIENCE]}, {"exp": NOW_S - 29}, {"nbf": NOW_S + 29}, {"scope": "a b"}):
        assert validate(signed(claims), NOW_MS).principal_name == "alice"
    renamed = SignedTokens(SignedTokenOptions(subject_claim="email"), lambda: KEYS)
    assert renamed(signed({"email": "a@x", "aud": None}), NOW_MS).principal_name == "a@x"


def test_an_audience_that_nobody_expects_is_refused_as_by_kafka() -> None:
    tokens = SignedTokens(SignedTokenOptions(), lambda: KEYS)
    assert "sasl.oauthbearer.expected.audience is not set" in refusal(signed(), tokens)


@pytest.mark.parametrize(
    "token",
    [
        signed()[:-4] + "AAAA",
        f"{part({'alg': 'RS256', 'kid': 'one', 'crit': ['exp'], 'exp': 1})}.{part(CLAIMS)}.AAAA",
        "..",
        "a.b",
        f"{part([])}.{part(CLAIMS)}.AAAA",
        f"{part('x')}.{part(CLAIMS)}.AAAA",
        f"{urlsafe_b64encode(b'[' * 100_000).decode()}.{part(CLAIMS)}.AAAA",
        f"{part({'alg': 'RS256', 'kid': 'one'})}.{part(CLAIMS)}.",
        f"{part({'alg': 'RS256', 'kid': ['one']})}.{part(CLAIMS)}.AAAA",
        f"{part({'alg': 'RS256', 'kid': 'one'})}.{part(CLAIMS)}.*",
        f"{part({'alg': 'RS256', 'kid': 'one', 'jwk': KEY.as_dict(private=False)})}.{part(CLAIMS)}.AAAA",
    ],
    ids=range(11),  # keys are new in each process, and names of tests must not be
)
def test_forged_and_broken_tokens_are_refused(token: str) -> None:
    refusal(token)


def test_short_rsa_keys_and_keys_for_encryption_are_left_out() -> None:
    with warnings.catch_warnings(action="ignore"):
        short = RSAKey.generate_key(1024, {"kid": "short"})
    encryption = RSAKey.generate_key(2048, {"kid": "enc", "use": "enc"})
    odd = b', {"kty": "new"}, {"kty": "RSA", "n": 7}, {"kty": "RSA", "alg": ["RS256"]}, {"kty": "EC", "alg": {}}]}'
    found = parse_key_set(key_set(short, encryption, KEY)[:-2] + odd)
    assert [key.key_id for key in found] == ["one"]


@pytest.mark.parametrize("document", [b"", b"{}", b"[]", b'{"keys": 7}', b'{"keys": [7]}', b'{"keys": []}', b"\xff"])
def test_documents_without_keys(document: bytes) -> None:
    with pytest.raises(KeySetError):
        parse_key_set(document)


class Documents:
    """What an identity provider answers, one after the other."""

    def __init__(self, *answers: bytes | Exception) -> None:
        self.answers = list(answers)
        self.reads = asyncio.Semaphore(0)
        self.count = 0

    async def read(self) -> bytes:
        self.count += 1
        self.reads.release()
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


async def until(documents: Documents, count: int) -> None:
    async with asyncio.timeout(10):
        await asyncio.gather(*(documents.reads.acquire() for _ in range(count)))


@on_a_loop
async def test_keys_are_read_again_and_kept_when_they_cannot_be() -> None:
    other = new_key("ES256", "two")
    documents = Documents(key_set(KEY), OSError("gone"), b"no json", key_set(other))
    keys = RefreshingKeys("file", documents.read, RefreshTimes(20, 5, 10))
    await keys.start()
    assert [key.key_id for key in keys.keys] == ["one"]
    await until(documents, 3)
    assert [key.key_id for key in keys.keys] == ["one"]
    await until(documents, 2)
    assert [key.key_id for key in keys.keys] == ["two"]
    keys.stop()


@on_a_loop
async def test_keys_are_read_again_after_any_error(caplog: pytest.LogCaptureFixture) -> None:
    """As where the system can start no thread for a host's name. Else the keys would stay the same for ever."""
    documents = Documents(RuntimeError("can't start new thread"), ValueError("a bug"), key_set(KEY))
    keys = RefreshingKeys("url", documents.read, RefreshTimes(20, 5, 10))
    await keys.start()
    assert "all tokens are refused until it is read: can't start new thread" in caplog.text
    assert caplog.records[-1].exc_info is not None
    await until(documents, 4)
    assert [key.key_id for key in keys.keys] == ["one"]
    keys.stop()


@on_a_loop
@pytest.mark.parametrize("document", [b'{"keys": []}', b'{"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "one"}]}'])
async def test_keys_that_a_provider_has_revoked_hold_no_more(document: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Also when no other key takes their place. What cannot be read revokes nothing."""
    documents = Documents(key_set(KEY), OSError("gone"), document)
    keys = RefreshingKeys("url", documents.read, RefreshTimes(20, 5, 10))
    await keys.start()
    await until(documents, 2)
    assert [key.key_id for key in keys.keys] == ["one"]
    await until(documents, 2)
    assert len(keys.keys) == 0
    assert [record.args[1] for record in caplog.records if isinstance(record.args, tuple)] == [
        "the former keys hold",
        "all tokens are refused until it is read",
    ]
    documents.answers = [key_set(KEY)]
    await until(documents, 4)
    assert [key.key_id for key in keys.keys] == ["one"]
    keys.stop()


@on_a_loop
async def test_unknown_keys_are_looked_for_once_in_some_seconds() -> None:
    documents = Documents(key_set(KEY))
    keys = RefreshingKeys("url", documents.read, RefreshTimes())
    await keys.start()
    tokens = SignedTokens(OPTIONS, lambda: keys.keys, keys.on_unknown_key)
    for number in range(100):
        assert "there is no key" in refusal(signed(kid=f"key-{number}"), tokens)
        await asyncio.sleep(0)
    await until(documents, 2)
    assert documents.count == 2
    assert UNKNOWN_KEY_INTERVAL_S >= 10
    keys.stop()


def test_pauses_between_attempts() -> None:
    times = RefreshTimes(3_600_000, 100, 10_000)
    assert [times.pause_s(failures) for failures in (0, 1, 2, 3, 8, 1000)] == [3600, 0.1, 0.2, 0.4, 10, 10]


NONE = part({"alg": "none"})


def test_unsecured_tokens() -> None:
    token = unsecured_token({"unsecuredLoginStringClaim_sub": "alice", "unsecuredLoginLifetimeSeconds": "60"}, NOW_MS)
    assert token is not None
    assert UnsecuredTokens({})(token, NOW_MS) == AccessToken("alice", NOW_MS + 60_000)
    options = {"unsecuredLoginStringClaim_name": "bob", "unsecuredLoginPrincipalClaimName": "name"}
    more = {"unsecuredLoginListClaim_scope": "|read|write", "unsecuredLoginNumberClaim_level": "7"}
    token = unsecured_token(options | more, NOW_MS)
    assert token is not None
    wanted = {"unsecuredValidatorPrincipalClaimName": "name", "unsecuredValidatorRequiredScope": "write read"}
    assert UnsecuredTokens(wanted)(token, NOW_MS).principal_name == "bob"
    assert unsecured_token({"unsecuredLoginStringClaim_other": "x"}, NOW_MS) is None
    assert extensions_of({"unsecuredLoginExtension_traceId": "7", "extension_a": "b"}) == {"traceId": "7", "a": "b"}


def test_unsecured_tokens_that_are_refused() -> None:
    wanting = UnsecuredTokens({"unsecuredValidatorRequiredScope": "admin"})
    token = unsecured_token(
        {"unsecuredLoginStringClaim_sub": "alice", "unsecuredLoginListClaim_scope": "|read"}, NOW_MS
    )
    exchange = OAuthBearerServer(wanting, lambda: NOW_MS)
    answer = exchange.evaluate(OAuthBearerClient(token or "").first())
    assert answer == b'{"status":"insufficient_scope", "scope":"admin"}'
    claims = {"sub": "alice", "exp": NOW_S + 1}
    for wrong in (
        signed(),
        f"{NONE}.{part(claims)}",
        f"{NONE}.{part(claims)}.AAAA",
        f"{NONE}.{part({'sub': 'alice'})}.",
        f"{NONE}.{part(claims | {'exp': NOW_S})}.",
        f"{NONE}.{part(claims | {'iat': NOW_S + 1})}.",
        f"{NONE}.{part({'exp': NOW_S + 1})}.",
        f"{part({'alg': 'RS256'})}.{part(claims)}.",
    ):
        refusal(wrong, UnsecuredTokens({}))
    with pytest.raises(ValueError, match="must not be negative"):
        UnsecuredTokens({"unsecuredValidatorAllowableClockSkewMs": "-1"})


@on_a_loop
async def test_a_token_is_used_until_most_of_its_time_is_over() -> None:
    now_ms = NOW_MS
    asked: list[int] = []

    async def read() -> str:
        asked.append(now_ms)
        return signed({"exp": now_ms // 1000 + 100}) + "\n"

    source = TokenSource(read, lambda: now_ms)
    for later_ms in (0, 79_000, 80_000, 81_000):
        now_ms = NOW_MS + later_ms
        await source.prepare()
    assert asked == [NOW_MS, NOW_MS + 80_000]
    assert source.token == signed({"exp": NOW_S + 180})


@on_a_loop
async def test_a_token_is_used_while_it_holds_and_no_other_can_be_had() -> None:
    """The endpoint is asked again after a pause, and its failure told when the token holds no more."""
    now_ms = NOW_MS
    error: Exception | None = None
    asked: list[int] = []

    async def read() -> str:
        asked.append(now_ms - NOW_MS)
        if error is not None:
            raise error
        return signed({"exp": now_ms // 1000 + 100})

    source = TokenSource(read, lambda: now_ms)
    await source.prepare()
    first = source.token
    for later_ms, failure in (
        (80_000, TokenError("cannot be reached")),
        (89_000, None),
        (91_000, RuntimeError("can't start new thread")),
    ):
        now_ms, error = NOW_MS + later_ms, failure
        await source.prepare()
        assert source.token == first
    now_ms = NOW_MS + 100_000  # the token has ended, if the pause has not
    with pytest.raises(TokenError, match="can't start new thread"):
        await source.prepare()
    error = None
    await source.prepare()
    assert source.token != first
    assert asked == [0, 80_000, 91_000, 100_000, 100_000]


@on_a_loop
async def test_opaque_tokens_are_asked_for_each_time_and_odd_ones_refused() -> None:
    tokens = ["opaque", "opaque2", "", "a b", "\u00e4"]

    async def read() -> str:
        return tokens.pop(0)

    source = TokenSource(read, lambda: NOW_MS)
    await source.prepare()
    await source.prepare()
    assert source.token == "opaque2"
    for _ in range(3):
        with pytest.raises(TokenError):
            await source.prepare()


@on_a_loop
async def test_client_credentials() -> None:
    credentials = ClientCredentials(
        "http://idp/token?tenant=secret", "alice:1", "pass word", "kafka read", encodes=True
    )
    request = credentials.request()
    assert request.headers["Authorization"] == "Basic YWxpY2UlM0ExOnBhc3Mrd29yZA=="
    assert request.body == b"grant_type=client_credentials&scope=kafka+read"
    assert "pass" not in repr((credentials, request)) and "tenant" not in repr((credentials, request))
    answers = [
        HttpAnswer(200, b'{"access_token": "a.b.c"}'),
        HttpAnswer(200, b'{"id_token": "d.e.f"}'),
        HttpAnswer(401, b'{"error": "invalid_client", "error_description": "no such client"}'),
        HttpAnswer(200, b"[]"),
        HttpAnswer(500, b"\xff"),
    ]

    async def fetch(request: HttpRequest) -> HttpAnswer:
        return answers.pop(0)

    assert [await credentials.read(fetch), await credentials.read(fetch)] == ["a.b.c", "d.e.f"]
    told = []
    for _ in range(3):
        with pytest.raises(TokenError) as error:
            await credentials.read(fetch)
        told.append(str(error.value).removeprefix("the token endpoint http://idp/token answers "))
    assert told == ["401: invalid_client no such client", "without an access_token", "500"]
