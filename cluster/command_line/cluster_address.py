"""How a command finds its cluster.

The first of these that says something: the options `--bootstrap-server`, `--name` and `--dir`; the environment's
`RAFTWERK_BOOTSTRAP` and `RAFTWERK_DIR`; the profile in use; the cluster in `./raftwerk-data`; `localhost:9092`. A local
cluster gives the addresses of all its brokers. The result remembers its origin, so that an error can say why just these
brokers were asked.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...runtime.os_errors import os_reason
from .profiles import ProfilesError, load_profiles
from .user_directories import user_directory

DEFAULT_BOOTSTRAP = "localhost:9092"
DEFAULT_DIR = "raftwerk-data"
BOOTSTRAP_VARIABLE = "RAFTWERK_BOOTSTRAP"
DIR_VARIABLE = "RAFTWERK_DIR"
_NAME_ANOTHER = "-b, --name or --dir names another"


class AddressError(Exception):
    """No cluster has this name or this directory, or an address is malformed; the text says what to do."""


@dataclass(frozen=True, slots=True)
class ClusterAddress:
    """The brokers that a command asks first, and where their addresses came from.

    `directory` is that of a local cluster. `is_explicit` tells whether an option of the command line named the cluster.
    """

    bootstrap: str
    origin: str
    way_out: str
    directory: str | None = None
    is_explicit: bool = False
    at_controllers: bool = False
    """Whether these are the listeners of controllers."""
    controllers: Mapping[int, tuple[str, int]] = field(default_factory=dict)
    """The controllers of a local cluster, by their node ids."""
    login_file: str | None = None
    """The file of client properties that the profile of this cluster names."""

    def of_file(self, controllers: Sequence[tuple[str, int]], file: str) -> ClusterAddress:
        """The `controllers` that a node's file names; this one if an option names it, or if they are its own."""
        if self.is_explicit or not controllers or set(controllers) <= set(self.controllers.values()):
            return self
        from ..client.access.bootstrap import bootstrap_text

        origin = f"controller.quorum.bootstrap.servers in {file}"
        way_out = "start one of those controllers, or name brokers with -b"
        return ClusterAddress(bootstrap_text(controllers), origin, way_out, at_controllers=True)

    @property
    def local_options(self) -> str | None:
        """What a command about single nodes needs behind it to find this local cluster; None if it is not local."""
        return None if self.directory is None else options_of(self.directory)

    @property
    def paused(self) -> str | None:
        """What to do where all brokers of a local cluster that run are paused; otherwise None."""
        if self.directory is None:
            return None
        from ..local.layout import load_plan
        from ..local.supervisor import why_no_broker_can_answer

        return why_no_broker_can_answer(load_plan(self.directory), self.local_options or "")

    @property
    def lost_login(self) -> str | None:
        """What to do where the login of the commands for a secured local cluster was deleted; otherwise None."""
        if self.directory is None:
            return None
        from ..local.layout import load_plan
        from ..local.secured import lost_login

        return lost_login(load_plan(self.directory))

    @property
    def lost_files(self) -> str | None:
        """As `lost_login`, only where the certificates are gone as well, without which no node starts."""
        if self.directory is None:
            return None
        from ..local.layout import load_plan
        from ..local.secured import lost_files

        return lost_files(load_plan(self.directory))

    @property
    def silence_advice(self) -> str | None:
        """What to do where nothing listens at the addresses of a local cluster, of which nodes run; otherwise None.

        A node that runs listens for clients when it knows the metadata, which it has from the quorum's leader.
        """
        if self.directory is None:
            return None
        from ..local.layout import load_plan
        from ..local.supervisor import node_pid

        brokers = load_plan(self.directory).brokers
        running = [str(node.node_id) for node in brokers if node_pid(node) is not None]
        if not running:
            return None
        who = (
            f"node {running[0]} runs, and listens"
            if len(running) == 1
            else f"nodes {', '.join(running)} run, and listen"
        )
        rest = f"; {start_advice(self.directory)}" if len(running) < len(brokers) else ""
        return f"{who} for clients when the quorum has a leader: a majority of its voters must run{rest}"

    @property
    def advice(self) -> str:
        """Where the address came from, and what to do when nobody answers there."""
        return f"the address is from {self.origin}: {self.way_out}"


def find_address(
    bootstrap: str | None = None,
    name: str | None = None,
    directory: str | None = None,
    controllers: str | None = None,
) -> ClusterAddress:
    """The cluster that the options name; without any, the one that the environment, a profile or a directory names.

    Raises `AddressError`.
    """
    try:
        if bootstrap is not None:
            return _listed(bootstrap, "--bootstrap-server", f"start that cluster, or correct the address ({bootstrap})")
        if controllers is not None:
            way_out = f"start those controllers, or correct the address ({controllers})"
            return replace(_listed(controllers, "--bootstrap-controller", way_out), at_controllers=True)
        if name is not None:
            return _named(name)
        if directory is not None:
            return _local(directory, "--dir", is_explicit=True)
        return _implied()
    except ProfilesError as error:
        raise AddressError(str(error)) from None


def normal_bootstrap(text: str) -> str:
    """`host:port,host:port` of a list in which ports may be missing. Raises `AddressError`."""
    from ..client.access.bootstrap import bootstrap_text, parse_bootstrap
    from ..client.client_errors import ClientError  # here, so that a command without a client starts quickly

    try:
        return bootstrap_text(parse_bootstrap(text))
    except ClientError as error:
        raise AddressError(str(error)) from None


def state_dir() -> str:
    """The directory of clusters with names: `$XDG_STATE_HOME/raftwerk`, by default `~/.local/state/raftwerk`."""
    return os.path.join(user_directory("XDG_STATE_HOME", ".local/state"), "raftwerk")


def default_directory() -> str:
    """The directory of the local cluster when no option names one: `RAFTWERK_DIR`, or `./raftwerk-data`."""
    return os.environ.get(DIR_VARIABLE) or DEFAULT_DIR


def options_of(directory: str) -> str:
    """What a command needs behind it to find the local cluster in `directory`; empty if it finds that by itself."""
    path = os.path.abspath(directory)
    if path == os.path.abspath(default_directory()):
        return ""
    is_named = os.path.dirname(path) == os.path.abspath(state_dir())
    return f" --name {os.path.basename(path)}" if is_named else f" -d {shlex.quote(path)}"


def start_advice(directory: str) -> str:
    """What starts the local cluster in `directory`, or its nodes that are down: `up` is refused while one runs."""
    from ..local.running_up import running_up
    from ..local.supervisor import has_running_nodes

    options = options_of(directory)
    if running_up(directory) is not None or has_running_nodes(directory):
        return f"raftwerk start{options} starts its nodes that are down"
    return f"raftwerk up{options} or raftwerk start{options} starts it"


def name_of(directory: str) -> str:
    """A local cluster in words that fit into a sentence: `the one in ./raftwerk-data`."""
    path = os.path.abspath(directory)
    if os.path.dirname(path) == os.path.abspath(state_dir()):
        return f"the local cluster {os.path.basename(path)}"
    return f"the one in {f'./{DEFAULT_DIR}' if path == os.path.abspath(DEFAULT_DIR) else path}"


def way_out_of_other_cluster(directory: str) -> str:
    """What to do where another cluster has addresses of the local cluster in `directory`."""
    from ..local.free_ports import taken_controller_ports
    from ..local.layout import load_plan
    from ..local.supervisor import has_running_nodes

    options, by_address = options_of(directory), "-b names the other cluster by its address"
    if has_running_nodes(directory):
        return f"raftwerk status{options} shows which of its nodes run; {by_address}"
    if taken_controller_ports(load_plan(directory)):
        start = f"stop the other cluster, which has its controllers' ports, too, then raftwerk up{options} starts it"
    else:
        start = f"raftwerk up{options} --port 0 starts it on free ports"
    return f"it is down: {start}; {by_address}"


def named_directory(name: str) -> str:
    """The directory of the local cluster of this name, be it there or not. Raises `AddressError` for a profile."""
    directory = os.path.join(state_dir(), name)
    try:
        there = None if os.path.isdir(directory) else load_profiles().bootstraps.get(name)
    except ProfilesError as error:
        raise AddressError(str(error)) from None
    if there is not None:
        raise AddressError(f"{name} is a profile of a cluster elsewhere ({there}), and this command needs a local one")
    return directory


def missing_cluster(directory: str, origin: str | None = None) -> str:
    """What to say where `directory` holds no local cluster: its name or its whole path, and where there is one."""
    from ..local.layout import load_plan

    path = os.path.abspath(directory)
    name = os.path.basename(path)
    if os.path.dirname(path) == os.path.abspath(state_dir()):
        return f"there is no cluster {name}: raftwerk clusters lists them, raftwerk up --name {name} creates it"
    what = f"there is no cluster in {path}" + ("" if origin is None else f" ({origin})")
    for near, where in ((os.path.join(path, DEFAULT_DIR), "in it"), (os.path.dirname(path), "above it")):
        try:
            load_plan(near)
        except (OSError, ValueError):
            continue
        return f"{what}, but there is one {where}: --dir {near}"
    return f"{what}: name one with --dir or --name, or start one with raftwerk up"


def _listed(bootstrap: str, origin: str, way_out: str, *, is_explicit: bool = True) -> ClusterAddress:
    try:
        return ClusterAddress(normal_bootstrap(bootstrap), origin, way_out, None, is_explicit)
    except AddressError as error:
        raise AddressError(f"{error} (from {origin})") from None


def _named(name: str) -> ClusterAddress:
    directory = os.path.join(state_dir(), name)
    if os.path.isdir(directory):
        return _local(directory, f"the local cluster {name}", is_explicit=True)
    profiles = load_profiles()
    profile = profiles.bootstraps.get(name)
    if profile is None:
        raise AddressError(
            f"there is no cluster {name}: raftwerk clusters and raftwerk profile list show the names, and raftwerk up "
            f"--name {name} creates a local one"
        )
    way_out = f"start that cluster, or correct the profile with raftwerk profile add {name}"
    return replace(_listed(profile, f"the profile {name}", way_out), login_file=profiles.login_files.get(name))


def _local(directory: str, origin: str, *, is_explicit: bool) -> ClusterAddress:
    found = _local_if_any(directory, origin, is_explicit=is_explicit)
    if found is None:
        raise AddressError(missing_cluster(directory, origin))
    return found


def _local_if_any(directory: str, origin: str, *, is_explicit: bool) -> ClusterAddress | None:
    from ..local.layout import controller_endpoints, load_plan

    try:
        plan = load_plan(directory)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise AddressError(f"cannot read {os_reason(error)} (from {origin})") from None
    except ValueError as error:
        raise AddressError(f"{error} (from {origin})") from None
    start = start_advice(plan.directory)
    way_out = f"{start}{'' if is_explicit else f', {_NAME_ANOTHER}'}"
    controllers = controller_endpoints(plan)
    return ClusterAddress(plan.bootstrap, origin, way_out, plan.directory, is_explicit, controllers=controllers)


def _directory_of(bootstrap: str) -> str | None:
    """The directory of the local cluster that has all these brokers, if it is the one that would be used otherwise."""
    from ..local.layout import load_plan
    from ..local.supervisor import has_running_nodes

    try:
        plan = load_plan(default_directory())
    except (OSError, ValueError):
        return None
    if not os.environ.get(DIR_VARIABLE) and not has_running_nodes(plan.directory):
        return None  # the address is all that was named, and another cluster may have it while this one is down
    asked, there = (
        {re.sub(r"^(localhost|\[::1\]):", "127.0.0.1:", at) for at in text.split(",")}
        for text in (bootstrap, plan.bootstrap)
    )
    return plan.directory if asked <= there else None


def _implied() -> ClusterAddress:
    environ = os.environ
    if environ.get(BOOTSTRAP_VARIABLE):
        way_out = f"start that cluster, or correct {BOOTSTRAP_VARIABLE}; {_NAME_ANOTHER}"
        listed = _listed(environ[BOOTSTRAP_VARIABLE], BOOTSTRAP_VARIABLE, way_out, is_explicit=False)
        return replace(listed, directory=_directory_of(listed.bootstrap))
    if environ.get(DIR_VARIABLE):
        return _local(environ[DIR_VARIABLE], DIR_VARIABLE, is_explicit=False)
    profiles = load_profiles()
    if profiles.current is not None:
        way_out = f"start that cluster, or stop using the profile with raftwerk profile use --none; {_NAME_ANOTHER}"
        origin = f"the profile {profiles.current}, which is in use"
        listed = _listed(profiles.bootstraps[profiles.current], origin, way_out, is_explicit=False)
        return replace(listed, login_file=profiles.login_files.get(profiles.current))
    found = _local_if_any(DEFAULT_DIR, f"the cluster in ./{DEFAULT_DIR}", is_explicit=False)
    if found is not None:
        return found
    origin = f"the default, since there is no cluster in ./{DEFAULT_DIR}"
    return ClusterAddress(DEFAULT_BOOTSTRAP, origin, f"raftwerk up starts a cluster, {_NAME_ANOTHER}")
