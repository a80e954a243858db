"""`raftwerk profile` and `raftwerk env`: names for clusters elsewhere, and the environment that names a cluster."""

from __future__ import annotations

import os
import shlex

import click

from ...cluster.command_line.cluster_address import (
    BOOTSTRAP_VARIABLE,
    DIR_VARIABLE,
    AddressError,
    normal_bootstrap,
    state_dir,
)
from ...cluster.command_line.cluster_options import (
    COMMAND_CONFIG_VARIABLE,
    check_login_file,
    check_name,
    choose_address,
    cluster_options,
    own_login_file,
)
from ...cluster.command_line.profiles import Profiles, ProfilesError, load_profiles, save_profiles
from ...cluster.local.client_files import ADMIN_PROPERTIES
from ..options import Command, Group, WrongConfiguration, json_option, print_json, tell_none


@click.group(cls=Group)
def profile() -> None:
    """Name remote clusters, for --name, and choose the one that commands use.

    The profiles are in ~/.config/raftwerk/profiles.toml, or in $XDG_CONFIG_HOME/raftwerk.

    \b
    Examples:
      raftwerk profile add staging broker-1:9092,broker-2:9092
      raftwerk profile add live broker-1:9093 --command-config live.properties
      raftwerk topics list --name staging
      raftwerk profile use staging               from now on, without --name
      raftwerk profile use --none
    """


@profile.command()
@click.argument("name", callback=check_name)
@click.argument("bootstrap", metavar="HOST:PORT,...")
@click.option(
    "--command-config",
    "login_file",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="How to log in there, in the properties of Kafka's clients. The profile has the path, and no password.",
)
def add(name: str, bootstrap: str, login_file: str | None) -> None:
    """Add the profile NAME, or replace it.

    \b
    Examples:
      raftwerk profile add staging broker-1:9092,broker-2:9092
      raftwerk profile add live broker-1:9093 --command-config live.properties
    """
    if os.path.isdir(os.path.join(state_dir(), name)):
        raise WrongConfiguration(f"{name} is a local cluster (raftwerk clusters lists them): take another name")
    try:
        servers = normal_bootstrap(bootstrap)
    except AddressError as error:
        raise click.BadParameter(str(error), param_hint="HOST:PORT,...") from None
    path = None if login_file is None else os.path.abspath(login_file)
    if path is not None:
        check_login_file(path)
    before = _load()
    _save(before.with_profile(name, servers, path))
    done = "Replaced" if name in before.bootstraps else "Added"
    click.echo(f"{done} the profile {name}; --name {name} names it, raftwerk profile use {name} makes it the default.")
    if path is not None:
        click.echo(f"Its commands log in as {path} says, which has to stay there.")
        _warn_of_relative_paths(path)
    elif name in before.login_files:
        click.echo(
            f"Its commands log in no more as {before.login_files[name]} says: --command-config keeps that.", err=True
        )


def _warn_of_relative_paths(path: str) -> None:
    """Tell what a command would look for in its own directory, which is another one each time."""
    from ...cluster.settings.client_properties import relative_paths
    from ...runtime.loop import real_runtime

    for setting, value in relative_paths(path, real_runtime()).items():
        click.echo(
            f"Warning: {setting}={value} in that file is a relative path, which each command looks for in its own "
            f"directory: write {os.path.abspath(value)}",
            err=True,
        )


@profile.command("list")
@json_option
def list_profiles(as_json: bool) -> None:
    """List the profiles; a star marks the one in use.

    \b
    Example:
      raftwerk profile list
    """
    profiles = _load()
    for name, bootstrap in profiles.bootstraps.items():
        is_used = name == profiles.current
        login_file = profiles.login_files.get(name)
        if as_json:
            print_json({"profile": name, "bootstrap": bootstrap, "used": is_used, "command_config": login_file})
        else:
            login = "" if login_file is None else f"  logs in as {login_file} says"
            click.echo(f"{'*' if is_used else ' '} {name:20}  {bootstrap}{login}")
    if not profiles.bootstraps:
        tell_none("There are no profiles; raftwerk profile add NAME HOST:PORT,... adds one.")


@profile.command()
@click.argument("name", required=False)
@click.option("--none", "is_none", is_flag=True, help="Stop using a profile.")
def use(name: str | None, is_none: bool) -> None:
    """Use the profile NAME whenever no option and no environment variable names a cluster.

    \b
    Examples:
      raftwerk profile use staging
      raftwerk profile use --none
    """
    if (name is None) != is_none:
        raise click.UsageError("Give the name of a profile, or --none.")
    profiles = _load()
    if name is not None:
        _check_there(profiles, name)
    _save(profiles.using(name))
    click.echo("No profile is in use." if name is None else f"Commands now use {name}: {profiles.bootstraps[name]}.")


@profile.command()
@click.argument("name")
def remove(name: str) -> None:
    """Remove the profile NAME. The cluster is not touched.

    \b
    Example:
      raftwerk profile remove staging
    """
    profiles = _load()
    if name not in profiles.bootstraps:
        raise click.ClickException(_missing(profiles, name))
    _save(profiles.without(name))
    click.echo(f"Removed the profile {name}.")
    if name == profiles.current:
        click.echo("It was in use: commands now find the cluster of this directory, or else that at localhost:9092.")


@click.command(cls=Command)
@click.argument("cluster", metavar="[NAME]", required=False, callback=check_name)
@cluster_options
def env(cluster: str | None, bootstrap_server: str | None, cluster_name: str | None, cluster_dir: str | None) -> None:
    """Print shell exports that select a cluster: the local cluster or profile NAME, or the one used in this directory.

    \b
    Examples:
      eval "$(raftwerk env)"                     use the cluster of this directory everywhere
      eval "$(raftwerk env orders)"
      unset RAFTWERK_BOOTSTRAP RAFTWERK_DIR RAFTWERK_COMMAND_CONFIG      undo it
    """
    if cluster is not None and cluster_name is not None:
        raise click.UsageError("NAME and --name both name a cluster: give one of them")
    address = choose_address(bootstrap_server, cluster or cluster_name, cluster_dir)
    click.echo(f"export {BOOTSTRAP_VARIABLE}={shlex.quote(address.bootstrap)};")
    click.echo(f"export {DIR_VARIABLE}={shlex.quote(address.directory or '')};")
    login_file = address.login_file if address.directory is None else own_login_file(address.directory)
    former = os.environ.get(COMMAND_CONFIG_VARIABLE, "")
    is_of_another = former.endswith(ADMIN_PROPERTIES) or former in _load().login_files.values()
    if login_file is not None or is_of_another:
        click.echo(f"export {COMMAND_CONFIG_VARIABLE}={shlex.quote(login_file or '')};")
    click.echo(f"# The address is from {address.origin}.")


def _load() -> Profiles:
    try:
        return load_profiles()
    except ProfilesError as error:
        raise WrongConfiguration(str(error)) from None


def _save(profiles: Profiles) -> None:
    try:
        save_profiles(profiles)
    except ProfilesError as error:
        raise click.ClickException(str(error)) from None


def _check_there(profiles: Profiles, name: str) -> None:
    if name not in profiles.bootstraps:
        raise WrongConfiguration(_missing(profiles, name))


def _missing(profiles: Profiles, name: str) -> str:
    others = f"there are: {', '.join(profiles.bootstraps)}" if profiles.bootstraps else "there are no profiles"
    return f"there is no profile {name}; {others}"
