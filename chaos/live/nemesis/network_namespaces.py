"""A network namespace of its own for each node, so that packet filters can cut one node off from the others.

`close` removes everything, also when it is called twice or when `open` has failed half-way.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ....cluster.local.layout import ClusterPlan
from .machine_capabilities import run_tool


class NetworkNamespaces:
    """A namespace with an address of its own for each node, joined by a bridge. Clients are outside of them.

    The bridge is in a namespace too, so that packet filters of the machine (Docker's, for example) do not affect it.
    """

    def __init__(self, node_ids: Sequence[int], pid: int | None = None) -> None:
        """The namespaces of the process `pid`, by default of this one."""
        pid = os.getpid() if pid is None else pid
        self._node_ids = list(node_ids)
        self._tag = f"rw{pid}"
        self._hub = f"{self._tag}hub"
        self._subnet = f"10.{64 + pid // 250 % 64}.{pid % 250}"
        self.client_address = f"{self._subnet}.254"

    def open(self) -> None:
        """Create the namespaces. `CommandFailed` if the machine refuses."""
        run_tool(["ip", "netns", "add", self._hub])
        run_tool(["ip", "-n", self._hub, "link", "add", "hub", "type", "bridge"])
        run_tool(["ip", "-n", self._hub, "link", "set", "hub", "up"])
        self._plug("c", self._tag)
        run_tool(["ip", "addr", "add", f"{self.client_address}/24", "dev", self._tag])
        run_tool(["ip", "link", "set", self._tag, "up"])
        for node_id in self._node_ids:
            name, inner = self.namespace(node_id), f"{self._tag}i{node_id}"
            run_tool(["ip", "netns", "add", name])
            self._plug(f"p{node_id}", inner)
            run_tool(["ip", "link", "set", inner, "netns", name, "name", "eth0"])
            run_tool(["ip", "-n", name, "addr", "add", f"{self.address(node_id)}/24", "dev", "eth0"])
            run_tool(["ip", "-n", name, "link", "set", "eth0", "up"])
            run_tool(["ip", "-n", name, "link", "set", "lo", "up"])

    def _plug(self, port: str, device: str) -> None:
        """Create a pair of connected devices: one is a port of the bridge, the other is outside of it."""
        run_tool(["ip", "link", "add", device, "type", "veth", "peer", "name", port, "netns", self._hub])
        run_tool(["ip", "-n", self._hub, "link", "set", port, "master", "hub", "up"])

    def close(self) -> None:
        """Remove everything."""
        for name in (self._hub, *(self.namespace(node_id) for node_id in self._node_ids)):
            run_tool(["ip", "netns", "del", name], check=False)
        run_tool(["ip", "link", "del", self._tag], check=False)

    def namespace(self, node_id: int) -> str:
        """The name of a node's namespace."""
        return f"{self._tag}n{node_id}"

    def owns(self, name: str) -> bool:
        """Whether a namespace of this name is one of them, whatever nodes there are."""
        return name == self._hub or re.fullmatch(rf"{self._tag}n\d+", name) is not None

    def address(self, node_id: int) -> str:
        """The IP address of a node."""
        return f"{self._subnet}.{node_id}"

    def prefixes(self) -> dict[int, list[str]]:
        """The command prefix that runs each node in its namespace."""
        return {node_id: ["nsenter", f"--net=/run/netns/{self.namespace(node_id)}"] for node_id in self._node_ids}

    def inside(self, node_id: int, *command: str) -> None:
        """Run a command in a node's namespace."""
        run_tool(["ip", "netns", "exec", self.namespace(node_id), *command])

    def heal(self, node_id: int) -> None:
        """Remove all packet filters and limits from a node's namespace."""
        self.inside(node_id, "iptables", "-F")
        run_tool(["tc", "-n", self.namespace(node_id), "qdisc", "del", "dev", "eth0", "root"], check=False)

    def placed(self, plan: ClusterPlan) -> ClusterPlan:
        """The plan with an address of its own for each node; the ports stay."""
        moves = {}
        for node in plan.nodes:
            for port in (node.port, node.controller_port):
                moves[f"127.0.0.1:{port}"] = f"{self.address(node.node_id)}:{port}"
        nodes = []
        for node in plan.nodes:
            properties = {key: _moved(value, moves) for key, value in node.properties.items()}
            nodes.append(replace(node, properties=properties))
        voters = None if plan.first_voters is None else _moved(plan.first_voters, moves)
        return replace(plan, nodes=tuple(nodes), first_voters=voters)


def _moved(text: str, moves: Mapping[str, str]) -> str:
    for old, new in moves.items():
        text = text.replace(old, new)
    return text
