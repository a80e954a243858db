"""`raftwerk registry`: a schema registry beside the cluster."""

from __future__ import annotations

import asyncio

import click

from ..cluster.command_line.cluster_options import bootstrap_option, chosen_client_properties
from ..cluster.command_line.extras import not_installed
from ..runtime.loop import real_runtime
from .options import Command, WrongConfiguration, listening, run_client


@click.command(cls=Command)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port", default=8081, show_default=True, type=click.IntRange(0, 65535), help="The port; 0 for a free one."
)
@click.option(
    "-t", "--topic", default="_schemas", show_default=True, help="The compacted topic that holds the schemas."
)
@bootstrap_option
def registry(host: str, port: int, topic: str, bootstrap: str) -> None:
    """Serve a registry of schemas over HTTP until Ctrl-C, as Confluent's clients and serializers expect it.

    Everything is in the topic _schemas, in the format of Confluent's registry, so that one can follow the other. Of
    several registries of a topic the one that was started last writes; all answer reads.

    \b
    Examples:
      raftwerk registry
      raftwerk registry --port 18081 --name orders
      curl -s localhost:8081/subjects
    """
    from ..cluster.settings.client_properties import ClientPropertiesError, librdkafka_login, read_properties
    from ..registry.server import missing_libraries, serve

    missing = missing_libraries()
    if missing:
        raise click.ClickException(not_installed(missing, "registry"))
    from ..registry.schemas_topic import SchemasTopicError

    runtime, path = real_runtime(), chosen_client_properties()
    try:
        login = {} if path is None else librdkafka_login(read_properties(path, runtime), runtime)
    except ClientPropertiesError as error:
        raise WrongConfiguration(str(error)) from None
    run_client(_ask(bootstrap))
    settings = {"bootstrap.servers": bootstrap, **login}
    try:
        with listening(host, port):
            asyncio.run(serve(settings, host, port, topic, lambda url: _announce(url, topic, bootstrap)))
    except SchemasTopicError as error:
        raise click.ClickException(str(error)) from None


async def _ask(bootstrap: str) -> None:
    """Raise `ClientError` at once where no broker answers or lets this command in; librdkafka would try on."""
    from ..cluster.client.cluster_client import ClusterClient

    async with ClusterClient(bootstrap) as client:
        await client.metadata()


def _announce(url: str, topic: str, bootstrap: str) -> None:
    click.echo(f"schema registry at {url}, schemas in {topic} of {bootstrap}")
