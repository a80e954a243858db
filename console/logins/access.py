"""Whose service answers a request: one for all, or that of the user whose session the request's cookie names.

The cookie is for this console's port by its name, since cookies do not distinguish ports.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import RequestRefusedError
from ..fields import Fields, text
from ..service import ConsoleService
from .sessions import Sessions

Scope = Mapping[str, Any]
Header = tuple[bytes, bytes]


class OpenAccess:
    """Everybody who can open the page has the service of the console's own login."""

    has_users = False

    def __init__(self, service: ConsoleService) -> None:
        self._service = service

    async def service_for(self, scope: Scope) -> ConsoleService:
        """The service for a request."""
        return self._service

    async def log_in(self, scope: Scope, fields: Fields) -> Header:
        """Refuse it: nobody has to."""
        raise RequestRefusedError(404, "this console has no logins: it acts with its own")

    async def log_out(self, scope: Scope) -> Header:
        """Refuse it: nobody has logged in."""
        raise RequestRefusedError(404, "this console has no logins: it acts with its own")

    def stop(self) -> None:
        """End all streams."""
        self._service.stop()


class UserAccess:
    """Each user has a service of its own, after a login. `port` is that of the console."""

    has_users = True

    def __init__(self, sessions: Sessions, port: int) -> None:
        self._sessions = sessions
        self._cookie = f"raftwerk-console-{port}"

    async def service_for(self, scope: Scope) -> ConsoleService:
        """The service of the request's user. Raises `RequestRefusedError` (401) without a session."""
        session = await self._sessions.of(self._token(scope))
        if session is None:
            raise RequestRefusedError(401, "log in first: there is no session, or it has ended")
        return session.service

    async def log_in(self, scope: Scope, fields: Fields) -> Header:
        """Begin a session for `user` with `password`; the header with its cookie."""
        address = (scope.get("client") or ("unknown",))[0]
        token = await self._sessions.log_in(text(fields, "user"), text(fields, "password"), address)
        await self._sessions.log_out(self._token(scope))
        return self._header(scope, token, "")

    async def log_out(self, scope: Scope) -> Header:
        """End the request's session; the header that removes its cookie."""
        await self._sessions.log_out(self._token(scope))
        return self._header(scope, "", "; Max-Age=0")

    def stop(self) -> None:
        """End all streams."""
        self._sessions.stop()

    def _header(self, scope: Scope, token: str, more: str) -> Header:
        secure = "; Secure" if scope.get("scheme") == "https" else ""
        return b"set-cookie", f"{self._cookie}={token}; Path=/; HttpOnly; SameSite=Strict{secure}{more}".encode()

    def _token(self, scope: Scope) -> str:
        """The token in the request's cookie; empty if there is none."""
        for header, content in scope["headers"]:
            if header != b"cookie":
                continue
            # Other programs of this host have cookies, too, which `http.cookies` may not understand.
            pairs: list[str] = content.decode("latin-1").split(";")
            for name, _, token in (pair.strip().partition("=") for pair in pairs):
                if name == self._cookie:
                    return token
        return ""
