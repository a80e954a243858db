"""Whether the ports that a local cluster needs are free, before any of its nodes is started."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...runtime.os_errors import os_words

if TYPE_CHECKING:
    from .layout import ClusterPlan, NodePlan

_CONTROLLER = "controller"
_CONSOLE = "console"
_OPTIONS = {
    "broker": "--port chooses other ports (0: free ones)",
    _CONTROLLER: "--controller-port chooses other ports for controllers",
    "metrics": "--metrics-port chooses other ports for metrics",
    _CONSOLE: "--console-port chooses another port for the console (0: a free one)",
}
_NO_ADDRESS, _NO_NAME = "no such address here", "no host has this name"
_KEPT = "the controllers of a cluster that is there keep their ports, which no option changes"
WRONG_HOST = (_NO_ADDRESS, _NO_NAME)
"""Why no port of a host is free."""


class PortTakenError(ValueError):
    """A port that a plan needs is not free."""


def why_not_free(host: str, port: int) -> str | None:
    """Why nobody can listen on a port now, in the words of the operating system; None when it is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except socket.gaierror:
            return _NO_NAME
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                return _NO_ADDRESS
            return os_words(error)
    return None


def taken_controller_ports(plan: ClusterPlan) -> list[int]:
    """The ports of controllers of a cluster that is down which others have."""
    ports = [(host, port) for node in plan.nodes for use, host, port in _ports(node) if use == _CONTROLLER]
    return [port for host, port in ports if why_not_free(host, port) is not None]


def check_ports(plan: ClusterPlan, *, is_new: bool, console: tuple[str, int] | None = None) -> None:
    """Raise `PortTakenError` when a port of the plan is not free, and ValueError when one is planned twice.

    Its text names the option that changes the port. The controllers of a cluster that is not new keep their ports.
    `console` is the host and port of the console that is to run beside the nodes.
    """
    planned: dict[tuple[str, int], str] = {}
    twice: list[str] = []
    refused: dict[str, list[str]] = {}
    ways_out: dict[str, None] = {}
    other_ports: dict[str, None] = {}
    taken: list[int] = []
    has_fixed = False
    for user, use, host, port in _users(plan, console):
        other = planned.setdefault((host, port), user)
        reason = why_not_free(host, port) if other == user else None
        if other != user:
            twice.append(f"port {port} is planned for {other} and for {user}")
        elif reason is not None:
            refused.setdefault(reason, []).append(f"port {port} for {user}")
        else:
            continue
        if reason in WRONG_HOST:
            ways_out[f"{host} is not of this machine: --host chooses another"] = None
            continue
        is_fixed = use == _CONTROLLER and not is_new
        if reason is None:
            ways_out[_OPTIONS["broker" if is_fixed else use]] = None
            continue
        other_ports[_OPTIONS[use]] = None
        taken.append(port)
        has_fixed = has_fixed or is_fixed
    # Other ports for the rest do not help where a controller's port is taken.
    ways_out |= {f"{_KEPT}: {_end_users_of(taken)}": None} if has_fixed else other_ports
    wrong = twice + [f"cannot listen on {', '.join(ports)}: {reason}" for reason, ports in refused.items()]
    if wrong:
        error = ValueError if twice else PortTakenError
        raise error(f"{'; '.join(wrong)}; {', '.join(ways_out)}")


def _end_users_of(ports: list[int]) -> str:
    which = "the process that has it" if len(ports) == 1 else "the processes that have them"
    return f"end {which} (ss -ltnp '{' or '.join(f'sport = :{port}' for port in ports)}')"


def _users(plan: ClusterPlan, console: tuple[str, int] | None) -> Iterator[tuple[str, str, str, int]]:
    """Who needs each port: in words, its use, the host and the number."""
    for node in plan.nodes:
        for use, host, port in _ports(node):
            yield f"the {use} of node {node.node_id}", use, host, port
    if console is not None and console[1]:
        yield "the console", _CONSOLE, *console


def _ports(node: NodePlan) -> Iterator[tuple[str, str, int]]:
    """The use, host and number of each port of a node; port 0, which the system chooses, is left out."""
    for entry in node.properties["listeners"].split(","):
        name, _, at = entry.partition("://")
        yield from _address(_CONTROLLER if name == node.properties["controller.listener.names"] else "broker", at)
    if node.metrics_address is not None:
        yield from _address("metrics", node.metrics_address)


def _address(use: str, at: str) -> Iterator[tuple[str, str, int]]:
    host, _, port = at.rpartition(":")
    if port.isdigit() and int(port):
        yield use, host.strip("[]"), int(port)
