"""SASL/SCRAM-SHA-256 and -512 (RFC 5802, RFC 7677; KIP-84): the password is never sent, and not kept by the server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hmac import compare_digest

from ..delegation_token import FindToken, no_tokens
from ..principals import USER, KafkaPrincipal
from .mechanism import Authenticated, SaslAuthenticationError, utf8_of
from .scram_credential import (
    ITERATIONS_MIN,
    FindCredential,
    ScramCredential,
    client_key_of,
    salted,
    server_key_of,
    signature,
    stored_key_of,
)
from .scram_messages import (
    ClientFinal,
    ClientFirst,
    MalformedMessageError,
    base64_text,
    escaped,
    parse_client_final,
    parse_client_first,
    parse_server_final,
    parse_server_first,
)

_NONCE_BYTES = 24
_GS2_HEADER = "n,,"
"""What a client's first message begins with that uses no channel binding, and acts as its own user."""
_TOKEN_EXTENSION = "tokenauth"
_TOKEN_IS_GONE = "the delegation token is not known, or has expired"
_WRONG_NONCE = (
    "Invalid client nonce in the final client message. Clients with a librdkafka before 2.6.1 send it: take a newer "
    "one, or another mechanism"
)


def new_nonce(secret_bytes: Callable[[int], bytes]) -> str:
    """A nonce that nobody can guess."""
    return base64_text(secret_bytes(_NONCE_BYTES))


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


@dataclass(frozen=True, slots=True)
class _Begun:
    """An exchange whose first messages are sent: the client's one, the credential, and the server's answer."""

    first: ClientFirst
    credential: ScramCredential
    nonce: str
    answer: str

    def signed(self, final: ClientFinal) -> bytes:
        """What both sides sign."""
        return f"{self.first.bare},{self.answer},{final.unproved}".encode()


def _is_token(first: ClientFirst) -> bool:
    return first.extensions.get(_TOKEN_EXTENSION, "").lower() == "true"


class ScramServer:
    """The server's side of one exchange: a user logs in, or somebody who has a delegation token (KIP-48)."""

    def __init__(self, mechanism: str, find: FindCredential, nonce: str, find_token: FindToken = no_tokens) -> None:
        self._mechanism = mechanism
        self._find = find
        self._find_token = find_token
        self._own_nonce = nonce
        self._begun: _Begun | None = None
        self.result: Authenticated | None = None

    def evaluate(self, token: bytes) -> bytes:
        """Answer the first or the final message of the client. Raises `SaslAuthenticationError`."""
        if self.result is not None:
            raise SaslAuthenticationError("the exchange is complete")
        try:
            text = token.decode()
            return (self._begin(text) if self._begun is None else self._end(self._begun, text)).encode()
        except MalformedMessageError as error:
            raise self._refused(str(error)) from None
        except ValueError as error:
            raise self._refused(str(error), kind="no text, or no base64") from None

    def _begin(self, text: str) -> str:
        first = parse_client_first(text)
        credential = self._credential_of(first)
        if credential.iterations < ITERATIONS_MIN:
            raise self._refused(f"the credential has fewer than {ITERATIONS_MIN} iterations")
        nonce = first.nonce + self._own_nonce
        answer = f"r={nonce},s={base64_text(credential.salt)},i={credential.iterations}"
        self._begun = _Begun(first, credential, nonce, answer)
        return answer

    def _credential_of(self, first: ClientFirst) -> ScramCredential:
        if not _is_token(first):
            found = self._find(self._mechanism, first.user)
            if found is None:
                raise self._refused()
            return found
        login = self._find_token(self._mechanism, first.user)
        if login is None:
            raise self._refused(_TOKEN_IS_GONE)
        return login.credential

    def _end(self, begun: _Begun, text: str) -> str:
        final = parse_client_final(text)
        if final.nonce != begun.nonce:
            raise SaslAuthenticationError(_WRONG_NONCE)
        if final.channel_binding != begun.first.gs2_header.encode():
            raise self._refused("the client's messages differ in the channel binding")
        signed = begun.signed(final)
        if not self._is_proved(final.proof, begun.credential.stored_key, signed):
            raise self._refused()
        self.result = self._authenticated(begun.first)
        return f"v={base64_text(signature(self._mechanism, begun.credential.server_key, signed))}"

    def _is_proved(self, proof: bytes, stored_key: bytes, signed: bytes) -> bool:
        """Whether who made the proof has the key whose hash this is."""
        expected = signature(self._mechanism, stored_key, signed)
        if len(proof) != len(expected):
            return False
        return compare_digest(stored_key_of(self._mechanism, _xor(proof, expected)), stored_key)

    def _authenticated(self, first: ClientFirst) -> Authenticated:
        if not _is_token(first):
            return Authenticated(KafkaPrincipal(USER, first.user))
        login = self._find_token(self._mechanism, first.user)
        if login is None:
            raise self._refused(_TOKEN_IS_GONE)
        return Authenticated(login.owner, login.lifetime_ms)

    def _refused(self, reason: str | None = None, kind: str | None = None) -> SaslAuthenticationError:
        """The refusal. `reason` is for the log of the server, where it knows more than the client is told."""
        told = "Authentication failed during authentication due to invalid credentials with SASL mechanism "
        return SaslAuthenticationError(told + self._mechanism, reason, kind)


class ScramClientExchange:
    """The client's side of one exchange. It also checks that the server knows the password.

    With `is_token` the user is the id of a delegation token, and the password its HMAC in base64.
    """

    def __init__(self, mechanism: str, user: str, password: str, nonce: str, *, is_token: bool = False) -> None:
        self.name = mechanism
        self._extensions = f",{_TOKEN_EXTENSION}=true" if is_token else ""
        self._user = user
        self._password = password
        self._nonce = nonce
        self._signature: bytes | None = None
        """What the server has to sign with, once its first message was answered."""

    @property
    def _bare(self) -> str:
        return f"n={escaped(self._user)},r={self._nonce}{self._extensions}"

    def first(self) -> bytes:
        """The client's first message. Raises `SaslAuthenticationError`."""
        utf8_of(self._password)
        return utf8_of(_GS2_HEADER + self._bare)

    def evaluate(self, token: bytes) -> bytes | None:
        """Answer the server's first message, or check its final one. Raises `SaslAuthenticationError`."""
        try:
            text = token.decode()
            if self._signature is None:
                return self._final(text)
            is_right = compare_digest(parse_server_final(text), self._signature)
        except ValueError:
            is_right = False
        if not is_right:
            raise SaslAuthenticationError("the server's answer does not fit the password")
        return None

    def _final(self, answer: str) -> bytes:
        """The client's final message. Raises ValueError for an answer that is none to this exchange."""
        first = parse_server_first(answer)
        if not first.nonce.startswith(self._nonce) or first.nonce == self._nonce:
            raise ValueError("the nonce is not that of this exchange")
        salted_password = salted(self.name, self._password, first.salt, first.iterations)
        unproved = f"c={base64_text(_GS2_HEADER.encode())},r={first.nonce}"
        signed = f"{self._bare},{answer},{unproved}".encode()
        self._signature = signature(self.name, server_key_of(self.name, salted_password), signed)
        client_key = client_key_of(self.name, salted_password)
        proof = _xor(client_key, signature(self.name, stored_key_of(self.name, client_key), signed))
        return f"{unproved},p={base64_text(proof)}".encode()
