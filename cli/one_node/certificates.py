"""`raftwerk certificates`: certificates for the nodes of a cluster, and the authority that signs them."""

from __future__ import annotations

import re

import click

from ...cluster.command_line.extras import missing_packages, not_installed
from ...runtime.os_errors import os_reason
from ..options import Command, WrongConfiguration

_HOST = re.compile(r"[A-Za-z0-9_.:-]+")


@click.command(cls=Command)
@click.argument("directory", type=click.Path(file_okay=False))
@click.argument("hosts", nargs=-1, required=True, metavar="HOST...")
@click.option("--also", multiple=True, metavar="HOST", help="Another name or address of every node; repeatable.")
def certificates(directory: str, hosts: tuple[str, ...], also: tuple[str, ...]) -> None:
    """Make DIRECTORY/HOST.pem for each HOST: a key and its certificate, for ssl.keystore.location.

    An authority signs them, which is made first if DIRECTORY has none: ca.crt is for ssl.truststore.location of nodes
    and clients, and who has ca.key can sign certificates. Those that are there stay, unless they expire within 30 days
    or lack a name. Each is valid for localhost too. Only you may read the files. A local cluster makes its own: see
    the option --secure of raftwerk up.

    \b
    Examples:
      raftwerk certificates certs broker-1.example broker-2.example broker-3.example
      raftwerk certificates certs node-1 node-2 node-3 --also kafka.example
    """
    for host in (*hosts, *also):
        if _HOST.fullmatch(host) is None:
            raise click.BadParameter(f"{host!r} is neither a host name nor an address", param_hint="HOST")
    missing = missing_packages("cryptography")
    if missing:
        raise click.ClickException(not_installed(missing, "security"))
    from ...cluster.local.certificates import make_certificates

    try:
        made = make_certificates(directory, "Raftwerk cluster", {host: [host, *also] for host in hosts})
    except OSError as error:
        raise click.ClickException(os_reason(error)) from None
    except ValueError as error:
        raise WrongConfiguration(f"{directory} has files of another kind: {error}") from None
    for path in made:
        click.echo(f"Made {path}.")
    if not made:
        click.echo("All are there.")
