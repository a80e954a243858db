"""How the running command logs in where its clients are not told otherwise."""

from __future__ import annotations

from contextvars import ContextVar

from ....security.client_login import ClientLogin

CURRENT_LOGIN: ContextVar[ClientLogin | None] = ContextVar("login", default=None)
"""How the connections of the running command log in (`--command-config`)."""


def own_scram_user() -> tuple[str, str] | None:
    """The mechanism and the user by whom the running command logs in with a SCRAM password; None otherwise."""
    login = CURRENT_LOGIN.get()
    return None if login is None else login.scram_user
