"""What a server keeps of a password for SASL/SCRAM (RFC 5802), and the keys and signatures that are derived from it."""

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
    stored_key = stored_key_of(mechanism, client_key_of(mechanism, salted_password))
    return ScramCredential(salt, stored_key, server_key_of(mechanism, salted_password), iterations)


def client_key_of(mechanism: str, salted_password: bytes) -> bytes:
    """The key that a client proves to have."""
    return signature(mechanism, salted_password, b"Client Key")


def server_key_of(mechanism: str, salted_password: bytes) -> bytes:
    """The key that a server proves to have."""
    return signature(mechanism, salted_password, b"Server Key")


def stored_key_of(mechanism: str, client_key: bytes) -> bytes:
    """The hash of the client's key, which is what a server keeps of it."""
    return hashlib.new(_HASHES[mechanism], client_key).digest()


def signature(mechanism: str, key: bytes, message: bytes) -> bytes:
    """The HMAC of a message by the hash function of the mechanism."""
    return hmac.digest(key, message, _HASHES[mechanism])
