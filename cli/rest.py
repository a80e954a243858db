"""`raftwerk rest`: a REST proxy beside the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import click

from ..cluster.command_line.cluster_options import bootstrap_option, chosen_client_properties
from ..cluster.command_line.extras import not_installed
from ..cluster.command_line.registry_url import check_registry
from ..runtime.loop import real_runtime
from .http_options import authentication_options, check_certificate, chosen_logins, https_options
from .options import Command, WrongConfiguration, listening, sentence_of


@click.command(cls=Command)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port", default=8082, show_default=True, type=click.IntRange(0, 65535), help="The port; 0 for a free one."
)
@click.option(
    "--max-body-bytes",
    default=4 << 20,
    show_default=True,
    type=click.IntRange(1024, 100 << 20),
    help="The largest body of a request, and the largest record of a stream.",
)
@click.option(
    "--max-requests",
    default=1000,
    show_default=True,
    type=click.IntRange(1, 100_000),
    help="Requests that are served at the same time; others get status 429.",
)
@click.option(
    "--max-consumers",
    default=100,
    show_default=True,
    type=click.IntRange(0, 1000),
    help="Consumer instances that may be open at the same time.",
)
@click.option(
    "--consumer-timeout-ms",
    default=300_000,
    show_default=True,
    type=click.IntRange(100, 86_400_000),
    help="A consumer instance that is not used for so long is closed (consumer.instance.timeout.ms).",
)
@click.option(
    "--delivery-timeout-ms",
    default=60_000,
    show_default=True,
    type=click.IntRange(1000, 3_600_000),
    help="How long a record is tried until all in-sync replicas have it (delivery.timeout.ms).",
)
@click.option(
    "--registry",
    "registry_url",
    metavar="URL",
    help="A schema registry for records in Avro, JSON Schema and Protobuf, such as http://localhost:8081.",
)
@authentication_options
@click.option(
    "--max-users",
    default=100,
    show_default=True,
    type=click.IntRange(1, 10_000),
    help="Users whose clients are open at the same time.",
)
@https_options
@bootstrap_option
def rest(
    host: str,
    port: int,
    max_body_bytes: int,
    max_requests: int,
    max_consumers: int,
    consumer_timeout_ms: int,
    delivery_timeout_ms: int,
    registry_url: str | None,
    authentication: str,
    mechanism: str | None,
    max_users: int,
    certificate: str | None,
    key: str | None,
    bootstrap: str,
) -> None:
    """Serve the cluster over HTTP until Ctrl-C: the API of Confluent's REST proxy, versions 3 and 2.

    /openapi.json describes everything that is served. Without --authentication each client does what the proxy may do
    (--command-config), so it listens on this machine only unless --host says otherwise. With it each client acts as the
    user whose password or token it has.

    \b
    Examples:
      raftwerk rest
      raftwerk rest --port 18082 --name orders
      raftwerk rest --registry http://localhost:8081
      raftwerk rest --authentication basic --command-config client.properties --certificate proxy.pem
      curl -s localhost:8082/topics
      curl -s localhost:8082/topics/orders -H 'Content-Type: application/vnd.kafka.json.v2+json' \\
           -d '{"records": [{"value": {"amount": 5}}]}'
    """
    from ..cluster.client.access.current_login import CURRENT_LOGIN
    from ..cluster.settings.client_properties import ClientPropertiesError, librdkafka_login, read_properties
    from ..rest.http_app import Limits
    from ..rest.logins.users import UserLimits
    from ..rest.server import ProxySettings, UserSettings, missing_libraries, serve
    from ..rest.v2.consumer_instances import ConsumerLimits

    missing = missing_libraries()
    if missing:
        raise click.ClickException(not_installed(missing, "rest"))
    check_registry(registry_url)
    runtime, path = real_runtime(), chosen_client_properties()
    check_certificate(certificate, key, runtime)
    try:
        properties = {} if path is None else read_properties(path, runtime)
        librdkafka = {"bootstrap.servers": bootstrap, **librdkafka_login(properties, runtime)}
    except ClientPropertiesError as error:
        raise WrongConfiguration(str(error)) from None
    logins = chosen_logins(authentication, mechanism, properties, librdkafka, runtime)
    users = None if logins is None else UserSettings(authentication, logins, UserLimits(max_users))
    settings = ProxySettings(
        bootstrap,
        librdkafka,
        CURRENT_LOGIN.get(),
        host,
        port,
        Limits(max_body_bytes, max_requests),
        ConsumerLimits(max_consumers, consumer_timeout_ms),
        delivery_timeout_ms,
        registry_url,
        users,
        certificate,
        key or certificate,
    )
    with _refusals_told(), listening(host, port):
        asyncio.run(serve(settings, lambda url: click.echo(f"REST proxy at {url}, for the cluster at {bootstrap}")))


@contextmanager
def _refusals_told() -> Iterator[None]:
    """End the command with a sentence where the cluster does not answer, or lets nobody in."""
    from ..cluster.client.client_errors import ClientError, WrongArgumentError

    try:
        yield
    except WrongArgumentError as error:
        raise WrongConfiguration(str(error)) from None
    except ClientError as error:
        raise click.ClickException(sentence_of(error)[0]) from None
