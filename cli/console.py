"""`raftwerk console`: the cluster in a browser."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import nullcontext
from ipaddress import ip_address

import click

from ..cluster.command_line.cluster_options import bootstrap_option, chosen_address
from ..cluster.command_line.extras import missing_packages, not_installed
from ..cluster.command_line.registry_url import check_registry
from ..runtime.loop import real_runtime
from .options import Command, listening
from .user_logins import PASSWORD_MECHANISMS, password_logins


def _addresses(context: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    for text in texts:
        try:
            ip_address(text)
        except ValueError:
            raise click.BadParameter(f"{text!r} is no IP address, such as 127.0.0.1") from None
    return texts


@click.command(cls=Command)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port", default=8080, show_default=True, type=click.IntRange(0, 65535), help="The port; 0 for a free one."
)
@click.option("--read-only", is_flag=True, help="Show everything, change nothing.")
@click.option(
    "--allowed-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME",
    help="A name or address by which browsers may address it; repeatable. Default: --host, and all with 0.0.0.0.",
)
@click.option(
    "--proxy",
    "proxies",
    multiple=True,
    metavar="ADDRESS",
    callback=_addresses,
    help="A proxy's IP address, from which X-Forwarded-For and X-Forwarded-Proto are believed; repeatable.",
)
@click.option(
    "--registry",
    "registry_url",
    metavar="URL",
    help="A schema registry by whose schemas records are decoded, such as http://localhost:8081.",
)
@click.option(
    "--login/--no-login",
    "has_users",
    default=None,
    help="Users log in, and each has its own rights; default: where this command logs in by a user and a password.",
)
@click.option(
    "--mechanism",
    type=click.Choice(PASSWORD_MECHANISMS),
    help="The SASL mechanism of users at the cluster; default: that of --command-config.",
)
@click.option("--ready-fd", type=int, hidden=True)
@click.option("--stop-at-eof", is_flag=True, hidden=True)
@bootstrap_option
def console(
    host: str,
    port: int,
    read_only: bool,
    allowed_hosts: tuple[str, ...],
    proxies: tuple[str, ...],
    registry_url: str | None,
    has_users: bool | None,
    mechanism: str | None,
    ready_fd: int | None,
    stop_at_eof: bool,
    bootstrap: str,
) -> None:
    """Show the cluster in a browser, live, until Ctrl-C.

    Nodes, quorum, every partition's leader and in-sync replicas; topics with their settings and records; groups with
    their lag. Of a cluster that raftwerk up started on this machine, nodes can be killed, paused and started by a
    click, while a probe shows for how long writes stop.

    On a secured cluster users log in on the page, and each has its own rights. Without logins everybody who can open
    the page has the rights of this command. So it listens on 127.0.0.1 unless --host says otherwise.

    \b
    Examples:
      raftwerk console
      raftwerk console --name orders --port 0
      raftwerk up -n 3 --console                   the cluster and its console, by one command
      raftwerk console -b broker-1:9092 --command-config client.properties --read-only
    """
    missing = missing_packages("uvicorn")
    if missing:
        raise click.ClickException(not_installed(missing, "console"))
    check_registry(registry_url)
    from ..cluster.local.running_up import CONSOLE_PID, AnotherUpError, staying_with
    from ..console.server import ConsoleSettings, serve_console

    address = chosen_address()
    directory = None if address is None else address.directory

    def on_ready(url: str) -> None:
        click.echo(f"console of {bootstrap} at {url}")
        sys.stdout.flush()
        if ready_fd is not None:
            os.write(ready_fd, f"{url}\n".encode())
            os.close(ready_fd)

    runtime = real_runtime()
    settings = ConsoleSettings(
        bootstrap,
        host,
        port,
        directory,
        read_only,
        frozenset(one.lower() for one in allowed_hosts),
        registry_url,
        password_logins(mechanism, runtime, has_users=has_users),
        stop_at_eof,
        proxies,
    )
    is_beside_up = ready_fd is not None and directory is not None
    claim = staying_with(str(directory), CONSOLE_PID) if is_beside_up else nullcontext()
    try:
        with listening(host, port), claim:
            asyncio.run(serve_console(settings, runtime, on_ready))
    except AnotherUpError as error:
        raise click.ClickException(f"the cluster has a console already (process {error.pid})") from None
