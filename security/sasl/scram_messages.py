"""The messages of SASL/SCRAM (RFC 5802, section 7), without channel binding.

A user and a password are the bytes of their UTF-8, as in Apache Kafka. SASLprep, which the RFC has in addition, would
make others of some: no tool has applied it to the password of which a cluster keeps the credential.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from typing import NamedTuple

from .scram_credential import ITERATIONS_MIN

_ITERATIONS_MAX = 10_000_000
"""A client does not calculate for longer than this, whatever its server says."""
_NAME = r"(?:[^\0=,]|=2C|=3D)+"
_NONCE = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64 = r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==)?"
_EXTENSIONS = r"(?:,(?!m=)[A-Za-z]+=[^\0,]+)*"
_CLIENT_FIRST = re.compile(
    rf"(?P<gs2>[ny],(?:a=(?P<authorization_id>{_NAME}))?,)"
    rf"(?P<bare>n=(?P<user>{_NAME}),r=(?P<nonce>{_NONCE})(?P<extensions>{_EXTENSIONS}))"
)
_SERVER_FIRST = re.compile(
    rf"r=(?P<nonce>{_NONCE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[1-9][0-9]{{0,9}}){_EXTENSIONS}"
)
_CLIENT_FINAL = re.compile(
    rf"(?P<unproved>c=(?P<channel>{_BASE64}),r=(?P<nonce>{_NONCE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)
_SERVER_FINAL = re.compile(rf"v=(?P<signature>{_BASE64}){_EXTENSIONS}")


class MalformedMessageError(ValueError):
    """A message that does not have the format of SCRAM, or that has a value which is not allowed."""


class ClientFirst(NamedTuple):
    """The client's first message. Of it `bare` is a part of what is signed, and `gs2_header` is sent again."""

    gs2_header: str
    bare: str
    user: str
    nonce: str
    extensions: dict[str, str]


class ServerFirst(NamedTuple):
    """The server's first message."""

    nonce: str
    salt: bytes
    iterations: int


class ClientFinal(NamedTuple):
    """The client's final message. Of it `unproved`, which is all but the proof, is a part of what is signed."""

    unproved: str
    channel_binding: bytes
    nonce: str
    proof: bytes


def escaped(name: str) -> str:
    """A user's name as it stands in a message."""
    return name.replace("=", "=3D").replace(",", "=2C")


def parse_client_first(text: str) -> ClientFirst:
    """The client's first message. Raises `MalformedMessageError`."""
    found = _matched(_CLIENT_FIRST, text)
    if found["authorization_id"] not in (None, found["user"]):
        raise MalformedMessageError("the client wants to act as another user")
    pairs = [one.partition("=") for one in found["extensions"].split(",")[1:]]
    extensions = {name: value for name, _, value in pairs}
    if len(extensions) < len(pairs):
        raise MalformedMessageError("an extension is there twice")
    user = found["user"].replace("=2C", ",").replace("=3D", "=")
    return ClientFirst(found["gs2"], found["bare"], user, found["nonce"], extensions)


def parse_server_first(text: str) -> ServerFirst:
    """The server's first message. Raises `MalformedMessageError`."""
    found = _matched(_SERVER_FIRST, text)
    iterations = int(found["iterations"])
    if not ITERATIONS_MIN <= iterations <= _ITERATIONS_MAX:
        raise MalformedMessageError(f"{iterations} iterations are too few, or too many")
    return ServerFirst(found["nonce"], b64decode(found["salt"]), iterations)


def parse_client_final(text: str) -> ClientFinal:
    """The client's final message. Raises `MalformedMessageError`."""
    found = _matched(_CLIENT_FINAL, text)
    return ClientFinal(found["unproved"], b64decode(found["channel"]), found["nonce"], b64decode(found["proof"]))


def parse_server_final(text: str) -> bytes:
    """The signature in the server's final message. Raises `MalformedMessageError`, also where it tells an error."""
    return b64decode(_matched(_SERVER_FINAL, text)["signature"])


def base64_text(data: bytes) -> str:
    """These bytes as they stand in a message."""
    return b64encode(data).decode()


def _matched(pattern: re.Pattern[str], text: str) -> re.Match[str]:
    found = pattern.fullmatch(text)
    if found is None:
        raise MalformedMessageError("the message does not have the format of SCRAM")
    return found
