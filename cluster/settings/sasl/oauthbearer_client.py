"""How a node or a command has the token by which it logs in, by its settings (KIP-255, KIP-768)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ....runtime.http.client import FILE_URL, fetch, path_of, url_problem
from ....runtime.ports import Runtime
from ....runtime.tls_contexts import TlsContext
from ....security.client_login import ClientLogin
from ....security.oauthbearer.exchange import OAuthBearerClient
from ....security.oauthbearer.token_source import ClientCredentials, ReadToken, TokenSource
from ....security.oauthbearer.unsecured_tokens import extensions_of, unsecured_token
from ..node_config import ConfigError, Problem

_URL_KEY = "sasl.oauthbearer.token.endpoint.url"
_ID_KEY = "sasl.oauthbearer.client.credentials.client.id"
_SECRET_KEY = "sasl.oauthbearer.client.credentials.client.secret"


class ClientSettings(Protocol):
    """The settings of a client, or of a listener that a node logs in to."""

    def __getitem__(self, key: str) -> Any:
        """A value, or its default."""
        ...


def oauthbearer_login(
    jaas_key: str,
    settings: ClientSettings,
    options: Mapping[str, str],
    runtime: Runtime,
    contexts: tuple[TlsContext | None, Callable[[], TlsContext]],
) -> ClientLogin:
    """How to log in by OAUTHBEARER. `options` are those of the login module.

    `contexts` are those of the connection, and of the token endpoint's HTTPS. Raises `ConfigError`.
    """
    tls, make_endpoint_tls = contexts
    source = TokenSource(_reader(jaas_key, settings, options, runtime, make_endpoint_tls), runtime.clock.wall_ms)
    extensions = extensions_of(options)
    return ClientLogin(tls, lambda _: OAuthBearerClient(source.token, extensions), prepare=source.prepare)


def client_credentials(
    settings: ClientSettings, options: Mapping[str, str], tls: Callable[[], TlsContext] | None
) -> ClientCredentials | None:
    """What the token endpoint needs; None where the token comes from elsewhere. Raises `ConfigError`.

    `tls` makes the context of its HTTPS; None where somebody else makes the request.

    As in Apache Kafka, settings count before the options clientId, clientSecret and scope of the login module.
    """
    url = settings[_URL_KEY]
    if url is None or url.startswith(FILE_URL):
        return None
    problem = url_problem(url)
    if problem is not None:
        raise ConfigError([Problem(_URL_KEY, url, problem, "correct it, or write file:/path")])
    client_id = settings[_ID_KEY] or options.get("clientId")
    secret = settings[_SECRET_KEY] or options.get("clientSecret")
    for key, value in ((_ID_KEY, client_id), (_SECRET_KEY, secret)):
        if not value:
            raise ConfigError([Problem(key, None, "the token endpoint asks for it", "set it")])
    return ClientCredentials(
        url,
        str(client_id),
        str(secret),
        settings["sasl.oauthbearer.scope"] or options.get("scope"),
        bool(settings["sasl.oauthbearer.header.urlencode"]),
        tls() if tls is not None and url.startswith("https:") else None,
    )


def _reader(
    jaas_key: str,
    settings: ClientSettings,
    options: Mapping[str, str],
    runtime: Runtime,
    tls: Callable[[], TlsContext],
) -> ReadToken:
    credentials = client_credentials(settings, options, tls)
    if credentials is not None:
        return lambda: credentials.read(fetch)
    url = settings[_URL_KEY]
    if url is not None:
        path = path_of(url)

        async def read_file() -> str:
            return runtime.disk.read_bytes(path).decode("latin-1")

        return read_file

    def make() -> str | None:
        return unsecured_token(options, runtime.clock.wall_ms())

    try:
        is_unsecured = make() is not None
    except ValueError as error:
        raise ConfigError([Problem(jaas_key, "", f"an option is wrong: {error}", "correct it")]) from None
    if not is_unsecured:
        raise ConfigError([Problem(_URL_KEY, None, "OAUTHBEARER needs a token", "set it to where tokens come from")])

    async def read_options() -> str:
        return make() or ""

    return read_options
