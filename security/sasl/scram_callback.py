"""SASL/SCRAM whose users a class of the operator knows."""

from __future__ import annotations

from collections.abc import Callable

from .mechanism import SaslAuthenticationError, ServerMechanism
from .scram import ScramServer
from .scram_credential import FindCredential, ScramCredential
from .server_callbacks import AskedMechanism, CallbackError, ServerCallback

MakeScram = Callable[[FindCredential], ScramServer]
"""Makes an exchange that finds credentials so; delegation tokens are found by the node itself."""


def scram_by_callback(callback: ServerCallback, make: MakeScram) -> AskedMechanism:
    """SASL/SCRAM by a `ScramCallback`."""

    async def begin(token: bytes) -> ServerMechanism:
        users: list[str] = []

        def no_credential(mechanism: str, user: str) -> None:
            users.append(user)

        refusal = ""
        try:
            make(no_credential).evaluate(token)  # only to know whom the message names
        except SaslAuthenticationError as error:
            refusal = str(error)
        if not users:  # it has a delegation token, or is no first message
            return make(no_credential)
        try:
            found = _credential(callback, await callback.ask(users[0]))
        except CallbackError as error:
            raise SaslAuthenticationError(refusal, str(error)) from None
        return make(lambda mechanism, user: found)

    return AskedMechanism(begin)


def _credential(callback: ServerCallback, found: object) -> ScramCredential | None:
    if found is None:
        return None
    if not isinstance(found, tuple) or list(map(type, found)) != [bytes, bytes, bytes, int]:
        raise callback.wrong("ScramCredential")
    return ScramCredential(*found)
