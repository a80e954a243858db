"""How a listener verifies the tokens of SASL/OAUTHBEARER, by its settings (KIP-255, KIP-768)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, Protocol

from ....runtime.http.client import FILE_URL, HttpError, HttpRequest, address_of, fetch, path_of, url_problem
from ....runtime.os_errors import os_words
from ....runtime.ports import Runtime
from ....runtime.tls_contexts import TlsContext
from ....security.oauthbearer.access_token import ValidateToken
from ....security.oauthbearer.exchange import OAUTHBEARER, OAuthBearerServer
from ....security.oauthbearer.key_refresh import RefreshingKeys, RefreshTimes
from ....security.oauthbearer.signed_tokens import KeySetError, SignedTokenOptions, SignedTokens, parse_key_set
from ....security.oauthbearer.unsecured_tokens import UnsecuredTokens
from ....security.sasl.session import MakeMechanism
from ..node_config import ConfigError, Problem

_HANDLER_KEY, _URL_KEY = "sasl.server.callback.handler.class", "sasl.oauthbearer.jwks.endpoint.url"
_PACKAGE = "org.apache.kafka.common.security.oauthbearer."
_SIGNED = "OAuthBearerValidatorCallbackHandler"
_UNSECURED = "OAuthBearerUnsecuredValidatorCallbackHandler"


class OAuthBearerSettings(Protocol):
    """The settings of one listener for OAUTHBEARER."""

    def __getitem__(self, key: str) -> Any:
        """A value, or its default."""
        ...

    def name_of(self, key: str) -> str:
        """The name under which the value is set."""
        ...


class OAuthBearerListener(NamedTuple):
    """What makes the exchanges of a listener, and the keys that are kept fresh while it runs."""

    make: MakeMechanism
    keys: RefreshingKeys | None


def oauthbearer_server(
    settings: OAuthBearerSettings,
    options: Mapping[str, str],
    runtime: Runtime,
    tls: Callable[[], TlsContext],
) -> OAuthBearerListener:
    """How a listener verifies tokens. `options` are those of the login module; `tls` is for the provider's HTTPS.

    Raises `ConfigError`.
    """
    validate, keys = _validator(settings, options, runtime, tls)
    return OAuthBearerListener(lambda: OAuthBearerServer(validate, runtime.clock.wall_ms), keys)


def _validator(
    settings: OAuthBearerSettings, options: Mapping[str, str], runtime: Runtime, tls: Callable[[], TlsContext]
) -> tuple[ValidateToken, RefreshingKeys | None]:
    handler = settings[_HANDLER_KEY]
    name = None if handler is None else handler.rpartition(".")[2]
    if name == _UNSECURED:
        try:
            return UnsecuredTokens(options), None
        except ValueError as error:
            raise _refused(
                settings, _HANDLER_KEY, f"an option of sasl.jaas.config is wrong: {error}", "correct it"
            ) from None
    if name not in (None, _SIGNED):
        raise _refused(settings, _HANDLER_KEY, "this class is not served", f"remove it, or set {_PACKAGE}{_SIGNED}")
    keys = _keys(settings, runtime, tls)
    claims = SignedTokenOptions(
        audience=settings["sasl.oauthbearer.expected.audience"] or (),
        issuer=settings["sasl.oauthbearer.expected.issuer"],
        scope_claim=settings["sasl.oauthbearer.scope.claim.name"],
        subject_claim=settings["sasl.oauthbearer.sub.claim.name"],
        clock_skew_s=settings["sasl.oauthbearer.clock.skew.seconds"],
    )
    return SignedTokens(claims, lambda: keys.keys, keys.on_unknown_key), keys


def _keys(settings: OAuthBearerSettings, runtime: Runtime, tls: Callable[[], TlsContext]) -> RefreshingKeys:
    url = settings[_URL_KEY]
    if url is None:
        way_out = (
            "set it to the address of the identity provider's keys, or to file:/path; for tests without signatures set "
            f"{_HANDLER_KEY} to {_PACKAGE}internals.unsecured.{_UNSECURED} with the prefix of listener and mechanism"
        )
        raise ConfigError([Problem(settings.name_of(_URL_KEY), None, f"{OAUTHBEARER} needs it", way_out)])
    read: Callable[[], Awaitable[bytes]]
    if url.startswith(FILE_URL):
        path = path_of(url)

        async def read() -> bytes:
            return runtime.disk.read_bytes(path)

        _check_file(settings, runtime, path)
    else:
        problem = url_problem(url)
        if problem is not None:
            raise _refused(settings, _URL_KEY, problem, "correct it, or write file:/path")
        request = HttpRequest(url, tls=tls() if url.startswith("https:") else None)

        async def read() -> bytes:
            answer = await fetch(request)
            if answer.status != 200:
                raise HttpError(f"{address_of(url)} answers {answer.status}")
            return answer.body

    times = RefreshTimes(*(settings[f"sasl.oauthbearer.jwks.endpoint.{rest}"] for rest in _TIMES))
    return RefreshingKeys(address_of(url), read, times)


_TIMES = ("refresh.ms", "retry.backoff.ms", "retry.backoff.max.ms")


def _check_file(settings: OAuthBearerSettings, runtime: Runtime, path: str) -> None:
    try:
        parse_key_set(runtime.disk.read_bytes(path))
    except OSError as error:
        raise _refused(settings, _URL_KEY, f"cannot read {path}: {os_words(error)}", "correct it") from None
    except KeySetError as error:
        raise _refused(settings, _URL_KEY, str(error), "correct the file") from None


def _refused(settings: OAuthBearerSettings, key: str, reason: str, way_out: str) -> ConfigError:
    return ConfigError([Problem(settings.name_of(key), settings[key], reason, way_out)])
