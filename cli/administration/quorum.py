"""`raftwerk quorum`: describes the metadata quorum, adds and removes voters."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ...cluster.command_line.cluster_options import choose_address, cluster_options, keep_address
from ...cluster.command_line.text_table import folded
from ..options import Group, WrongConfiguration, json_option, print_json, run_client

if TYPE_CHECKING:
    from ...cluster.client.quorum_client import DownVoter, QuorumClient, QuorumReplica, QuorumView
    from ...cluster.command_line.cluster_address import ClusterAddress

_LEADS, _FOLLOWS = "leader", "follows"
_AT_CONTROLLERS = "--bootstrap-controller"
_DESCRIBE_TIMEOUT_S = 3.0
"""A quorum that is well elects a leader in less."""

F = TypeVar("F", bound=Callable[..., Any])


def _where(function: F) -> F:
    """The options that name a cluster, and `--bootstrap-controller`. The function gets an `address`."""
    straight = click.option(
        "--bootstrap-controller",
        "controllers",
        metavar="HOST:PORT,...",
        help="Ask these controllers directly, instead of brokers.",
    )

    @functools.wraps(function)
    def with_address(*args: Any, bootstrap_server: str | None, controllers: str | None, **rest: Any) -> Any:
        name, directory = rest.pop("cluster_name"), rest.pop("cluster_dir")
        address = choose_address(bootstrap_server, name, directory, controllers)
        if not address.at_controllers and _AT_CONTROLLERS not in address.way_out:
            where = ",".join(f"{host}:{port}" for host, port in address.controllers.values()) or "HOST:PORT"
            way_out = f"{address.way_out}; {_AT_CONTROLLERS} {where} asks the controllers themselves"
            address = replace(address, way_out=way_out)
            keep_address(address)
        return function(*args, address=address, **rest)

    return cluster_options(straight(with_address))  # type: ignore[return-value]


def _run(address: ClusterAddress, act: Callable[[QuorumClient], Any], timeout_s: float = 10.0) -> Any:
    async def run() -> Any:
        from ...cluster.client.cluster_client import ClusterClient
        from ...cluster.client.quorum_client import QuorumClient

        async with ClusterClient(address.bootstrap, timeout_s=timeout_s) as client:
            return await act(
                QuorumClient(client, at_controllers=address.at_controllers, controllers=address.controllers)
            )

    return run_client(run())


@click.group(cls=Group, invoke_without_command=True)
@_where
@json_option
@click.pass_context
def quorum(ctx: click.Context, address: ClusterAddress, as_json: bool) -> None:
    """Show the leader of the metadata quorum, its voters and observers, and how far each is behind.

    \b
    Examples:
      raftwerk quorum
      raftwerk quorum --bootstrap-controller localhost:10093 --json
      raftwerk quorum add-controller -c server.properties
      raftwerk quorum remove-controller 3
    """
    if ctx.invoked_subcommand is None:
        _describe(address, as_json)


@quorum.command("describe")
@_where
@json_option
def describe(address: ClusterAddress, as_json: bool) -> None:
    """Show the leader of the quorum, its voters and observers; the same as `raftwerk quorum` alone.

    \b
    Example:
      raftwerk quorum describe --json
    """
    _describe(address, as_json)


def _describe(address: ClusterAddress, as_json: bool) -> None:
    from ...cluster.client.quorum_client import REPLACED
    from ...cluster.doctor.silent_nodes import rejoin
    from ...log.state.checkpoints import encode_uuid

    async def ask(client: QuorumClient) -> tuple[QuorumView, list[DownVoter]]:
        view = await client.describe()
        return view, await client.down_voters(view)

    found, down = _run(address, ask, _DESCRIBE_TIMEOUT_S)
    whys = {one.node_id: one.why for one in down}
    end_offset = max((one.log_end_offset for one in found.replicas), default=0)
    rows = [
        {
            "node": one.node_id,
            "role": "voter" if one.is_voter else "observer",
            "log_end_offset": one.log_end_offset,
            "lag": end_offset - one.log_end_offset,
            "directory_id": encode_uuid(one.directory_id),
            "state": _state(one, found, whys),
        }
        for one in found.replicas
    ]
    head = {"leader": found.leader_id, "epoch": found.leader_epoch, "high_watermark": found.high_watermark}
    if as_json:
        print_json(head | {"replicas": rows})
        return
    click.echo("leader {leader}  epoch {epoch}  high watermark {high_watermark}".format(**head))
    click.echo(f"{'node':>6}  {'role':<8}  {'log end':>9}  {'lag':>7}  {'directory':<22}  state")
    for row in rows:
        known = row if row["log_end_offset"] >= 0 else {**row, "log_end_offset": "-", "lag": "-"}
        line = "{node:>6}  {role:<8}  {log_end_offset:>9}  {lag:>7}  {directory_id:<22}  ".format(**known)
        is_well = row["state"] in (_LEADS, _FOLLOWS)
        click.echo(line + (row["state"] if is_well else click.style(row["state"], fg="red")))
    if any(row["role"] == "observer" and row["state"].startswith("silent") for row in rows):
        click.echo(folded("An observer that is silent may be gone: it is listed for 5 minutes."))
    for voter in down:
        click.echo(folded(f"Voter {voter}{f': {rejoin(voter.node_id)}' if voter.why == REPLACED else ''}."))
    if 2 * len(down) >= len(found.voters):
        few = "Too few voters are left: the quorum loses its leader, and topics and leaders cannot change then."
        click.echo(folded(few))


def _state(one: QuorumReplica, view: QuorumView, down: Mapping[int, str]) -> str:
    """What a replica of the quorum does, as its leader knows. An observer that is gone stays listed for 5 minutes."""
    from ...cluster.client.quorum_client import REPLACED, SILENT_VOTER_MS

    if one.node_id == view.leader_id:
        return _LEADS
    if one.is_voter and one.node_id in down:
        return "replaced" if down[one.node_id] == REPLACED else "no answer"
    silent_ms = view.silent_ms(one)
    if silent_ms is None:
        return "never here"
    is_silent = silent_ms >= SILENT_VOTER_MS if one.is_voter else view.is_late(one)  # an observer is not asked
    return f"silent {silent_ms / 1000:.0f} s" if is_silent else _FOLLOWS


@quorum.command("add-controller")
@_where
@click.option("-c", "--config", "file", type=click.Path(dir_okay=False), help="The server.properties of the new voter.")
@click.option("--controller", metavar="ID@HOST:PORT:DIRECTORY-ID", help="The new voter, if its files are not here.")
@click.option("--listener", default="CONTROLLER", show_default=True, help="The quorum's listener, with --controller.")
def add_controller(address: ClusterAddress, file: str | None, controller: str | None, listener: str) -> None:
    """Make a running controller, which follows the quorum as an observer, a voter.

    With -c and no option that names the cluster, it asks the controllers that the file names in
    controller.quorum.bootstrap.servers.

    \b
    Examples:
      raftwerk quorum add-controller -c server.properties
      raftwerk quorum add-controller --controller 4@host:9093:JEXY6aqzQY-32P5TStzaFg
    """
    if (file is None) == (controller is None):
        raise click.UsageError("Name the controller: give either -c server.properties or --controller.")
    from ...cluster.node.formatting import FormatChoiceError, FormatError, parse_controllers
    from ...cluster.node.process import formatted_controller

    try:
        if file is not None:
            voter, controllers = formatted_controller(file)
            address = address.of_file(controllers, file)
            keep_address(address)
        else:
            (voter,) = parse_controllers(controller or "", [listener])
    except (FormatChoiceError, ValueError) as error:
        raise WrongConfiguration(str(error)) from None
    except FormatError as error:
        raise click.ClickException(str(error)) from None
    _run(address, lambda client: client.add_voter(voter))
    click.echo(f"Controller {voter.key.id} is now a voter.")


@quorum.command("remove-controller")
@_where
@click.argument("node_id", type=int)
@click.option("--directory-id", help="Its directory id; default: that of the voter with this node id.")
def remove_controller(address: ClusterAddress, node_id: int, directory_id: str | None) -> None:
    """Remove a voter from the quorum. If it is running, it continues as an observer.

    A running controller with controller.quorum.auto.join.enable=true, as `raftwerk up` starts them, would join again:
    stop it first.

    \b
    Example:
      raftwerk quorum remove-controller 3
    """
    from ...log.state.checkpoints import decode_uuid

    try:
        wanted = None if directory_id is None else decode_uuid(directory_id)
    except ValueError:
        raise click.BadParameter(f"{directory_id!r} is not a directory id") from None

    async def remove(client: QuorumClient) -> None:
        from ...cluster.client.client_errors import ClientError

        chosen = wanted
        if chosen is None:
            found = [one for one in (await client.describe()).voters if one.node_id == node_id]
            if not found:
                raise ClientError(f"controller {node_id} is not a voter: `raftwerk quorum` lists the voters")
            chosen = found[0].directory_id
        if await client.joins_by_itself(node_id):
            raise ClientError(
                f"controller {node_id} is running with controller.quorum.auto.join.enable=true, and would join again: "
                "stop it first"
            )
        await client.remove_voter(node_id, chosen)

    _run(address, remove)
    click.echo(f"Controller {node_id} is no longer a voter.")
