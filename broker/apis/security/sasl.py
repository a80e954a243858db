"""SaslHandshake and SaslAuthenticate (KIP-43, KIP-152, KIP-368), for a first login and for one before expiry.

SaslHandshake 0 is offered, since librdkafka 2.0 (kcat) logs in nowhere without it, although it then sends version 1. A
client that does send version 0 is refused: its tokens would come without Kafka's headers.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any

from ....security.sasl.session import SaslSession, TokenAnswer
from ....wire.api_keys import ApiKey
from ....wire.codec import decode_request, encode_response
from ....wire.errors import ErrorCode
from ...network.request import Request

logger = logging.getLogger("raftwerk.broker")

_TOKENS_WITHOUT_HEADERS = "the client logs in by SaslHandshake 0; version 1 is needed, which clients have since 2017"
_NOT_SASL = "this listener does not authenticate by SASL"
_OUT_OF_TURN = "during a login, after a failed one, or for a session of another mechanism"


def handshake(_: Any, request: Request) -> None:
    """Choose a mechanism. After an error the connection is closed."""
    message = decode_request(ApiKey.SASL_HANDSHAKE, request.api_version, request.body)
    sasl = request.sink.sasl
    if sasl is None:
        error, offered, reason = ErrorCode.ILLEGAL_SASL_STATE, [], _NOT_SASL
    elif request.api_version == 0:
        error, offered, reason = ErrorCode.UNSUPPORTED_VERSION, sasl.offered, _TOKENS_WITHOUT_HEADERS
    else:
        error, offered = sasl.handshake(message.mechanism), sasl.offered
        if error is ErrorCode.ILLEGAL_SASL_STATE:
            reason = f"SaslHandshake chose {message.mechanism!r} {_OUT_OF_TURN}"
        else:
            reason = f"SASL mechanism {message.mechanism!r} is not one of {', '.join(offered)}"
    fields = {"error_code": int(error), "mechanisms": offered}
    request.respond(encode_response(ApiKey.SASL_HANDSHAKE, request.api_version, fields))
    if error is not ErrorCode.NONE and sasl is not None:
        request.reject(reason, kind=error.name)


def authenticate(_: Any, request: Request) -> None:
    """Answer the next token of the exchange. A failure is answered late, and closes the connection."""
    message = decode_request(ApiKey.SASL_AUTHENTICATE, request.api_version, request.body)
    sasl = request.sink.sasl
    if sasl is None:
        _answer(request, {"error_code": int(ErrorCode.ILLEGAL_SASL_STATE), "error_message": _NOT_SASL})
        return
    token = bytes(message.auth_bytes)
    if sasl.is_awaited:
        request.on_gone = asyncio.get_running_loop().create_task(_answer_soon(request, sasl, token)).cancel
    else:
        _answer_token(request, sasl, sasl.evaluate(token))


async def _answer_soon(request: Request, sasl: SaslSession, token: bytes) -> None:
    try:
        answer = await sasl.evaluate_soon(token)
    except Exception:
        logger.exception("a token of %s could not be evaluated", request.sink.peer)
        request.reject("the login failed because of an error of this node")
        return
    _answer_token(request, sasl, answer)


def _answer_token(request: Request, sasl: SaslSession, answer: TokenAnswer) -> None:
    fields = {
        "error_code": int(answer.error),
        "error_message": answer.message,
        "auth_bytes": answer.token,
        "session_lifetime": answer.session_lifetime_ms,
    }
    if answer.error is ErrorCode.NONE:
        if not sasl.is_in_exchange:
            request.sink.on_authenticated(answer.session_lifetime_ms)
        _answer(request, fields)
    else:
        reason = f"the login failed: {answer.reason or answer.message}"
        kind = f"login: {answer.kind or reason}"
        asyncio.get_running_loop().call_later(sasl.failure_delay_s, partial(_fail, request, fields, reason, kind))


def _answer(request: Request, fields: dict[str, Any]) -> None:
    request.respond(encode_response(ApiKey.SASL_AUTHENTICATE, request.api_version, fields))


def _fail(request: Request, fields: dict[str, Any], reason: str, kind: str) -> None:
    _answer(request, fields)
    request.reject(reason, kind)
