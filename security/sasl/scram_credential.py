"""What a server keeps of a password for SASL/SCRAM (RFC 5802), and how it is derived. No library is needed for that."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

SCRAM_SHA_256, SCRAM_SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
SCRAM_MECHANISMS = {1: SCRAM_SHA_256, 2: SCRAM_SHA_512}
"""The mechanisms by their numbers in requests and in the metadata log (KIP-554)."""
MECHANISM_NUMBERS = {name: number for number, name in SCRAM_MECHANISMS.items()}
ITERATIONS_MIN, ITERATIONS_MAX = 4096, 16384
_HASHES = {SCRAM_SHA_256: "sha256", SCRAM_SHA_512: "sha512"}


class ScramCredential(NamedTuple):
    """What a server keeps of a password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations})"  # the keys are secrets


FindCredential: TypeAlias = Callable[[str, str], ScramCredential | None]
"""The credential of a user for a mechanism, by (mechanism, user)."""


def salted(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """The salted password that a tool sends to set a credential. It takes some milliseconds."""
    return hashlib.pbkdf2_hmac(_HASHES[mechanism], password.encode(), salt, iterations)


def credential_of(mechanism: str, salted_password: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """The credential of a salted password: who knows only this cannot log in."""
    name = _HASHES[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", name)
    server_key = hmac.digest(salted_password, b"Server Key", name)
    return ScramCredential(salt, hashlib.new(name, client_key).digest(), server_key, iterations)
