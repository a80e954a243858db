"""The system's library of Kerberos, by the package `gssapi` (RFC 2743, RFC 4121).

Its calls read key tables, ticket caches and the replay cache, and ask key distribution centres for tickets, so they may
block for seconds: they are made in threads. The library finds its own configuration (`KRB5_CONFIG`, /etc/krb5.conf).
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")

INSTALL = "pip install 'raftwerk[kerberos]', which needs a C compiler and the headers of Kerberos (Debian: libkrb5-dev)"
_caches = itertools.count(1)


class KerberosError(Exception):
    """The library refuses; the text is its own, with names of principals and files and no secret.

    `code` is the minor status of GSSAPI, or the major one where there is none; its number is not of the peer's choice.
    """

    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(text)
        self.code = code


def load_library() -> Any:
    """The package. Raises ImportError where it, or the system's library below it, is missing."""
    try:
        return importlib.import_module("gssapi")
    except OSError as error:
        raise ImportError(str(error)) from None


class KerberosContext:
    """One security context, of the side that accepts or of the side that initiates it."""

    def __init__(self, library: Any, make: Callable[[], Any]) -> None:
        self._library = library
        self._make = make
        self._context: Any = None
        self.is_complete = False
        """Whether both sides have proved who they are."""

    def step(self, token: bytes | None) -> bytes:
        """Take the peer's token, none at the begin of the initiator; returns the next one. Raises `KerberosError`."""

        def take() -> bytes:
            if self._context is None:
                self._context = self._make()
            answer = self._context.step(token) or b""
            self.is_complete = bool(self._context.complete)  # the library raises the error of a step only here
            return answer

        return self._checked(take)

    @property
    def initiator(self) -> str:
        """The principal of the initiator, such as alice@EXAMPLE.COM. Raises `KerberosError`."""
        return self._checked(lambda: str(self._context.initiator_name))

    def wrap(self, message: bytes) -> bytes:
        """The message with a proof that it comes from this side. Raises `KerberosError`."""
        return self._checked(lambda: bytes(self._context.wrap(message, False).message))

    def unwrap(self, message: bytes) -> bytes:
        """The contents of what the peer wrapped. Raises `KerberosError`."""
        return self._checked(lambda: bytes(self._context.unwrap(message).message))

    def _checked(self, call: Callable[[], T]) -> T:
        return _checked(self._library, call)


def _checked(library: Any, call: Callable[[], T]) -> T:
    try:
        return call()
    except library.exceptions.GSSError as error:
        raise KerberosError(_words(error), error.min_code or error.maj_code) from None


def _words(error: Any) -> str:
    """What the library says of an error: the words of Kerberos where there are any, else those of GSSAPI."""
    try:
        told = [str(one) for one in error.get_all_statuses(error.min_code, False)] if error.min_code else []
        told = told or [str(one) for one in error.get_all_statuses(error.maj_code, True)]
    except Exception:
        told = [str(error)]
    return "; ".join(" ".join(one.split()) for one in told)


def acceptor(key_table: str | None, principal: str | None) -> Callable[[], KerberosContext]:
    """What makes the contexts of a server: by all keys of the table without `principal`, by the system's without both.

    The table is read for each context, so one with new keys may take its place. Raises ImportError.
    """
    library = load_library()

    def make() -> Any:
        store = None if key_table is None else {b"keytab": f"FILE:{key_table}".encode()}
        return library.SecurityContext(creds=_credentials(library, principal, "accept", store), usage="accept")

    return lambda: KerberosContext(library, make)


def check_acceptor(key_table: str | None, principal: str | None) -> None:
    """Raise `KerberosError` where there is no key to accept contexts by, and ImportError."""
    library = load_library()
    store = None if key_table is None else {b"keytab": f"FILE:{key_table}".encode()}
    _checked(library, lambda: _credentials(library, principal, "accept", store))


def initiator(
    service: str, key_table: str | None, principal: str | None, ticket_cache: str | None
) -> Callable[[str], KerberosContext]:
    """What makes the contexts of a client that talks to `service` at a host.

    Its ticket is that of the cache, or the system's cache; with a key table it asks for tickets itself, and keeps them
    in memory. Raises ImportError.
    """
    library = load_library()
    store: Mapping[bytes, bytes] | None = None
    if key_table is not None:
        store = {b"client_keytab": f"FILE:{key_table}".encode(), b"ccache": f"MEMORY:raftwerk-{next(_caches)}".encode()}
    elif ticket_cache is not None:
        store = {b"ccache": f"FILE:{ticket_cache}".encode()}
    flags = library.RequirementFlag.mutual_authentication | library.RequirementFlag.integrity

    def make(host: str) -> Any:
        name = library.Name(f"{service}@{host}", library.NameType.hostbased_service)
        return library.SecurityContext(
            name=name,
            creds=_credentials(library, principal, "initiate", store),
            mech=library.MechType.kerberos,
            flags=flags,
            usage="initiate",
        )

    return lambda host: KerberosContext(library, lambda: make(host))


def _credentials(library: Any, principal: str | None, usage: str, store: Mapping[bytes, bytes] | None) -> Any:
    name = None if principal is None else library.Name(principal, library.NameType.kerberos_principal)
    return library.Credentials(name=name, usage=usage, mechs=[library.MechType.kerberos], store=store)


def default_realm() -> str:
    """The realm of names without one, by the library's configuration; empty where it names none. Raises ImportError."""
    library = load_library()
    try:
        name = library.Name("name", library.NameType.user).canonicalize(library.MechType.kerberos)
    except library.exceptions.GSSError:
        return ""
    return str(name).partition("@")[2]
