"""SASL/OAUTHBEARER whose tokens a class of the operator verifies."""

from __future__ import annotations

from collections.abc import Callable

from ..sasl.mechanism import ServerMechanism
from ..sasl.server_callbacks import AskedMechanism, CallbackError, ServerCallback
from .access_token import AccessToken, TokenRefusedError
from .exchange import OAuthBearerServer, parse_initial_response


def tokens_by_callback(callback: ServerCallback, wall_ms: Callable[[], int]) -> AskedMechanism:
    """SASL/OAUTHBEARER by a `TokenCallback`."""

    async def begin(token: bytes) -> ServerMechanism:
        _, access_token = parse_initial_response(token)
        try:
            found = _access_token(callback, await callback.ask(access_token))
            reason = f"it says no, or the token has expired ({callback.name})"
        except CallbackError as error:
            found, reason = None, str(error)

        def validate(_: str, now_ms: int) -> AccessToken:
            if found is None or found.expires_at_ms <= now_ms:
                raise TokenRefusedError(reason)
            return found

        return OAuthBearerServer(validate, wall_ms)

    return AskedMechanism(begin)


def _access_token(callback: ServerCallback, found: object) -> AccessToken | None:
    if found is None:
        return None
    if not isinstance(found, tuple) or list(map(type, found)) != [str, int] or not found[0]:
        raise callback.wrong("pair of a name and a time in milliseconds")
    return AccessToken(*found)
