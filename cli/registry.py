"""`raftwerk registry`: a schema registry beside the cluster."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from ..cluster.command_line.cluster_options import bootstrap_option, chosen_client_properties
from ..cluster.command_line.extras import not_installed
from ..runtime.http.client import url_problem
from ..runtime.loop import real_runtime
from ..runtime.ports import Runtime
from .http_options import authentication_options, check_certificate, chosen_logins, https_options, pem
from .options import Command, WrongConfiguration, listening, run_client

if TYPE_CHECKING:
    from ..runtime.tls_contexts import TlsContext


@click.command(cls=Command)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port", default=8081, show_default=True, type=click.IntRange(0, 65535), help="The port; 0 for a free one."
)
@click.option(
    "-t", "--topic", default="_schemas", show_default=True, help="The compacted topic that holds the schemas."
)
@click.option(
    "--advertised-url",
    metavar="URL",
    help="Where the other registries of the topic reach this one, to forward writes; default: where it listens.",
)
@authentication_options
@https_options
@click.option(
    "--ca", metavar="FILE", help="Whom to trust (PEM) where other registries serve HTTPS; default: the system's."
)
@bootstrap_option
def registry(
    host: str,
    port: int,
    topic: str,
    advertised_url: str | None,
    authentication: str,
    mechanism: str | None,
    certificate: str | None,
    key: str | None,
    ca: str | None,
    bootstrap: str,
) -> None:
    """Serve a registry of schemas over HTTP until Ctrl-C, as Confluent's clients and serializers expect it.

    Everything is in the topic _schemas, in the format of Confluent's registry, so that one can follow the other. Of
    several registries of a topic one writes, and the others forward writes to it; all answer reads. With
    --authentication clients log in as users of the cluster: those who may READ the topic see schemas, and those who may
    WRITE it, too, register them.

    \b
    Examples:
      raftwerk registry
      raftwerk registry --port 18081 --name orders
      raftwerk registry --authentication basic --command-config client.properties --certificate registry.pem
      curl -s localhost:8081/subjects
    """
    from ..cluster.client.access.current_login import CURRENT_LOGIN
    from ..cluster.settings.client_properties import ClientPropertiesError, librdkafka_login, read_properties
    from ..registry.server import RegistrySettings, missing_libraries, serve

    missing = missing_libraries()
    if missing:
        raise click.ClickException(not_installed(missing, "registry"))
    from ..registry.access import LoginSettings
    from ..registry.schemas_topic import SchemasTopicError

    runtime, path = real_runtime(), chosen_client_properties()
    _check_url(advertised_url)
    check_certificate(certificate, key, runtime)
    try:
        properties = {} if path is None else read_properties(path, runtime)
        librdkafka = {"bootstrap.servers": bootstrap, **librdkafka_login(properties, runtime)}
    except ClientPropertiesError as error:
        raise WrongConfiguration(str(error)) from None
    logins = chosen_logins(authentication, mechanism, properties, librdkafka, runtime)
    settings = RegistrySettings(
        bootstrap,
        librdkafka,
        CURRENT_LOGIN.get(),
        topic,
        host,
        port,
        advertised_url,
        _trusted(ca, runtime),
        None if logins is None else LoginSettings(authentication, logins),
        certificate,
        key or certificate,
    )
    run_client(_ask(bootstrap))
    try:
        with listening(host, port):
            asyncio.run(serve(settings, lambda url: _announce(url, topic, bootstrap)))
    except SchemasTopicError as error:
        raise click.ClickException(str(error)) from None


def _check_url(url: str | None) -> None:
    if url is None:
        return
    problem = url_problem(url)
    if problem is None and (urlsplit(url).port is None or urlsplit(url).path.strip("/") or urlsplit(url).query):
        problem = "it has to be a scheme, a host and a port, and nothing more"
    if problem is not None:
        raise click.BadParameter(f"{url!r}: {problem}", param_hint="--advertised-url")


def _trusted(ca: str | None, runtime: Runtime) -> TlsContext:
    from ..runtime.tls_contexts import TlsError, TlsMaterial, TlsOptions, client_context

    authorities = None if ca is None else pem("--ca", ca, runtime)
    try:
        return client_context(TlsMaterial(authorities=authorities), TlsOptions())
    except TlsError as error:
        raise WrongConfiguration(f"--ca {ca}: {error}") from None


async def _ask(bootstrap: str) -> None:
    """Raise `ClientError` at once where no broker answers or lets this command in; librdkafka would try on."""
    from ..cluster.client.cluster_client import ClusterClient

    async with ClusterClient(bootstrap) as client:
        await client.metadata()


def _announce(url: str, topic: str, bootstrap: str) -> None:
    click.echo(f"schema registry at {url}, schemas in {topic} of {bootstrap}")
