"""The options with which every command names its cluster, for click."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from .cluster_address import (
    BOOTSTRAP_VARIABLE,
    DEFAULT_DIR,
    DIR_VARIABLE,
    AddressError,
    ClusterAddress,
    default_directory,
    find_address,
    name_of,
    named_directory,
    way_out_of_other_cluster,
)
from .commands import WHICH_CLUSTER, Option, WrongConfiguration

if TYPE_CHECKING:
    from ..settings.client_properties import ClientProperties

F = TypeVar("F", bound=Callable[..., Any])

BOOTSTRAP_NAMES = ("-b", "--bootstrap-server")
BOOTSTRAP_ALIASES = ("--bootstrap", "--bootstrap-servers", "--broker-list")
_ADDRESS = f"{__name__}.address"
_COMMAND_CONFIG = f"{__name__}.command_config"
_FROM_ENVIRONMENT = f"{__name__}.command_config_of_environment"
_LOGIN_FILE = f"{__name__}.login_file"
COMMAND_CONFIG_VARIABLE = "RAFTWERK_COMMAND_CONFIG"


def bootstrap_option(function: F) -> F:
    """Add `--bootstrap-server`, `--name` and `--dir`. The function gets the `bootstrap` that they name.

    Without any of them it is what `find_address` finds. In a subcommand, an option of its group holds too.
    """

    @functools.wraps(function)
    def with_bootstrap(*args: Any, bootstrap_server: str | None, **rest: Any) -> Any:
        name, directory = rest.pop("cluster_name"), rest.pop("cluster_dir")
        address = choose_address(bootstrap_server, name, directory)
        if address.paused is not None:  # it would be waited for until all time limits are over
            raise click.ClickException(f"no broker answers: {address.paused}")
        if chosen_client_properties() is None and address.lost_login is not None:
            raise click.ClickException(address.lost_login)
        return function(*args, bootstrap=address.bootstrap, **rest)

    return cluster_options(with_bootstrap)  # type: ignore[return-value]


def cluster_options(function: F) -> F:
    """Add `--bootstrap-server`, `--name`, `--dir`: the parameters `bootstrap_server`, `cluster_name`, `cluster_dir`.

    `--command-config` holds for all connections of the command, and is no parameter.
    """
    for option in (_command_config(), _directory("cluster_dir"), _name(), _bootstrap()):
        function = option(function)
    return function


def choose_address(
    bootstrap: str | None, name: str | None, directory: str | None, controllers: str | None = None
) -> ClusterAddress:
    """The cluster that the options name, kept for `chosen_address`; a usage error when more than one is given."""
    count = sum(one is not None for one in (bootstrap, name, directory, controllers))
    if count > 1:
        also = "" if controllers is None else "--bootstrap-controller, "
        raise click.UsageError(f"{also}--bootstrap-server, --name and --dir all name a cluster: give one of them")
    meta = click.get_current_context().meta
    former = meta.get(_ADDRESS)
    if former is not None and former.is_explicit and not count:
        return former  # type: ignore[no-any-return]
    try:
        address = find_address(bootstrap, name, directory, controllers)
    except AddressError as error:
        raise WrongConfiguration(str(error)) from None
    keep_address(address)
    expect_cluster(address.directory)
    if address.directory is not None:
        use_own_login(address.directory, is_named=name is not None or directory is not None)
    elif address.login_file is not None:
        _use_profile_login(address.login_file, is_named=name is not None)
    return address


def keep_address(address: ClusterAddress) -> None:
    """Let this be the cluster of the command that is running."""
    click.get_current_context().meta[_ADDRESS] = address


def expect_cluster(directory: str | None) -> None:
    """Let all connections of this command to a local cluster notice when another cluster has its addresses.

    None: the cluster is named by addresses, where any cluster may be.
    """
    from ..client.access.expected_cluster import EXPECTED_CLUSTER, ExpectedCluster
    from ..local.layout import broker_endpoints, controller_endpoints, load_plan
    from ..local.supervisor import has_running_nodes

    if directory is None:
        EXPECTED_CLUSTER.set(None)
        return
    plan = load_plan(directory)
    brokers, controllers = tuple(broker_endpoints(plan).values()), tuple(controller_endpoints(plan).values())
    EXPECTED_CLUSTER.set(
        ExpectedCluster(
            plan.cluster_id,
            name_of(plan.directory),
            brokers,
            controllers,
            way_out=lambda: way_out_of_other_cluster(plan.directory),
            is_down=lambda: not has_running_nodes(plan.directory),
        )
    )


def use_own_login(directory: str, *, is_named: bool = False) -> None:
    """Let all connections of this command log in as the local cluster in `directory` says.

    `--command-config` says it before. So does the environment, which may mean another cluster, unless an option names
    this one (`is_named`), and it has a login of its own or needs none.
    """
    meta = click.get_current_context().meta
    if _COMMAND_CONFIG in meta and not (is_named and login_is_of_environment()):
        return
    own = own_login_file(directory)
    if own is not None:
        _use_login(own)
    elif _COMMAND_CONFIG in meta and not _needs_login(directory):
        _use_no_login()


def _use_profile_login(path: str, *, is_named: bool) -> None:
    """Let all connections of this command log in as the profile says, unless an option says it.

    So does the environment, unless an option names the profile.
    """
    if _COMMAND_CONFIG not in click.get_current_context().meta or (is_named and login_is_of_environment()):
        _use_login(path)


def _needs_login(directory: str) -> bool:
    """Whether the local cluster in `directory` is secured by settings that it was given (`raftwerk up -o`)."""
    from ..local.layout import load_plan
    from ..local.secured import has_secured_listener

    return any(has_secured_listener(node) for node in load_plan(directory).brokers)


def own_login_file(directory: str) -> str | None:
    """The file by which commands log in to the secured local cluster in `directory`; None if it is not secured."""
    from ..local.client_files import ADMIN_PROPERTIES

    path = os.path.join(directory, ADMIN_PROPERTIES)
    return path if os.path.exists(path) else None


def chosen_address() -> ClusterAddress | None:
    """The cluster of the command that is running; None if it has none."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.meta.get(_ADDRESS)


def chosen_client_properties() -> str | None:
    """The file by which the command that is running logs in; None if it has none."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.meta.get(_LOGIN_FILE)


def login_is_of_environment() -> bool:
    """Whether the environment says how to log in, and no option does."""
    context = click.get_current_context(silent=True)
    return context is not None and context.meta.get(_FROM_ENVIRONMENT, False)


def local_login_option(function: F) -> F:
    """Add `--command-config` to a command on a local cluster, which calls `use_own_login` before it connects."""
    return _command_config()(function)


def directory_option(function: F) -> F:
    """Add `--dir` and `--name`, which name a local cluster. The function gets its `directory`."""

    @functools.wraps(function)
    def with_directory(*args: Any, directory: str | None, cluster_name: str | None, **rest: Any) -> Any:
        if directory is not None and cluster_name is not None:
            raise click.UsageError("--dir and --name both name a cluster: give one of them")
        try:
            where = directory or (default_directory() if cluster_name is None else named_directory(cluster_name))
        except AddressError as error:
            raise WrongConfiguration(str(error)) from None
        return function(*args, directory=where, **rest)

    return _directory("directory")(_name()(with_directory))  # type: ignore[return-value]


def _bootstrap() -> Callable[[F], F]:
    return click.option(
        *BOOTSTRAP_NAMES,
        "bootstrap_server",
        cls=Option,
        aliases=BOOTSTRAP_ALIASES,
        section=WHICH_CLUSTER,
        metavar="HOSTS",
        help=f"Brokers to ask first, as host:port,... (environment: {BOOTSTRAP_VARIABLE}); "
        f"default: those of ./{DEFAULT_DIR}, or localhost:9092.",
    )


def _command_config() -> Callable[[F], F]:
    return click.option(
        "--command-config",
        cls=Option,
        aliases=("--command.config", "--producer.config", "--consumer.config"),
        section=WHICH_CLUSTER,
        metavar="FILE",
        type=click.Path(dir_okay=False),
        envvar=COMMAND_CONFIG_VARIABLE,
        expose_value=False,
        callback=_on_command_config,
        help="How to log in where the cluster is secured, in the properties of Kafka's clients "
        f"(environment: {COMMAND_CONFIG_VARIABLE}).",
    )


def _on_command_config(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None and context.meta.get(_COMMAND_CONFIG) != value:
        is_of_environment = context.get_parameter_source(parameter.name or "") is ParameterSource.ENVIRONMENT
        if is_of_environment and _COMMAND_CONFIG in context.meta:
            return  # the group of this command has the option
        context.meta[_COMMAND_CONFIG], context.meta[_FROM_ENVIRONMENT] = value, is_of_environment
        _use_login(value)


def _use_login(path: str) -> None:
    """Let all connections of this command log in as the file says."""
    from ..client.access.current_login import CURRENT_LOGIN

    CURRENT_LOGIN.set(_loaded(path).login)
    click.get_current_context().meta[_LOGIN_FILE] = path


def check_login_file(path: str) -> None:
    """Refuse a file by which no command can log in, with exit code 2, and print what it would be warned of."""
    _loaded(path)


def _loaded(path: str) -> ClientProperties:
    from ...runtime.loop import real_runtime
    from ..settings.client_properties import ClientPropertiesError, load_properties

    try:
        properties = load_properties(path, real_runtime())
    except ClientPropertiesError as error:
        raise WrongConfiguration(str(error)) from None
    for warning in properties.warnings:
        click.echo(f"Warning: {warning}", err=True)
    return properties


def _use_no_login() -> None:
    from ..client.access.current_login import CURRENT_LOGIN

    CURRENT_LOGIN.set(None)
    click.get_current_context().meta.pop(_LOGIN_FILE, None)


def _name() -> Callable[[F], F]:
    return click.option(
        "--name",
        "cluster_name",
        cls=Option,
        section=WHICH_CLUSTER,
        metavar="NAME",
        callback=check_name,
        help="A local cluster by name, or a profile.",
    )


def _directory(parameter: str) -> Callable[[F], F]:
    return click.option(
        "-d",
        "--dir",
        parameter,
        cls=Option,
        section=WHICH_CLUSTER,
        metavar="DIR",
        type=click.Path(file_okay=False),
        callback=_check_directory,
        help=f"A local cluster by its directory (environment: {DIR_VARIABLE}); default: ./{DEFAULT_DIR}.",
    )


def _check_directory(context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """Check that `-d` has a directory; a usage error for an option that stands there, as after docker's `-d`."""
    if value is not None and value.startswith("-"):
        is_detachable = any(one.name == "detach" for one in context.command.params)
        detach = ", and --detach leaves the nodes running" if is_detachable else ""
        raise click.BadParameter(f"{value!r} is an option; -d names a directory{detach}")
    return value


def check_name(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """Check the name of a cluster; a usage error for one that could not be the name of a directory."""
    if value is not None and not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", value):
        raise click.BadParameter(f"{value!r}: a name has letters, digits, dots, dashes and underscores")
    return value
