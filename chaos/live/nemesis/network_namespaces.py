"""What the nodes stand on while they are tormented: a network namespace each, and a small file system each.

Both undo themselves in `close`, and leave nothing when they are closed twice or were only half made.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ....cluster.local.layout import ClusterPlan
from .machine_capabilities import CommandFailed, run_tool

_EXT4_IOC_SHUTDOWN = 0x8004587D
_SHUTDOWN_NO_FLUSH = 2
_BALLAST = "ballast"


class NetworkNamespaces:
    """A namespace with an address of its own for each node, joined by a bridge. Clients stay outside.

    The bridge stands in a namespace too, so that no rule of the machine (Docker's, say) touches its packets.
    """

    def __init__(self, node_ids: Sequence[int]) -> None:
        self._node_ids = list(node_ids)
        self._tag = f"rw{os.getpid() % 100_000}"
        self._hub = f"{self._tag}hub"
        self._subnet = f"10.{64 + os.getpid() // 250 % 64}.{os.getpid() % 250}"
        self.client_address = f"{self._subnet}.254"

    def open(self) -> None:
        """Make it; `CommandFailed` when the machine refuses."""
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
        """Make a cable: one end is a port of the hub, the other a device outside."""
        run_tool(["ip", "link", "add", device, "type", "veth", "peer", "name", port, "netns", self._hub])
        run_tool(["ip", "-n", self._hub, "link", "set", port, "master", "hub", "up"])

    def close(self) -> None:
        for name in (self._hub, *(self.namespace(node_id) for node_id in self._node_ids)):
            run_tool(["ip", "netns", "del", name], check=False)
        run_tool(["ip", "link", "del", self._tag], check=False)

    def namespace(self, node_id: int) -> str:
        return f"{self._tag}n{node_id}"

    def address(self, node_id: int) -> str:
        return f"{self._subnet}.{node_id}"

    def prefixes(self) -> dict[int, list[str]]:
        """What to put before each node's command."""
        return {node_id: ["nsenter", f"--net=/run/netns/{self.namespace(node_id)}"] for node_id in self._node_ids}

    def inside(self, node_id: int, *command: str) -> None:
        """Run a tool in a node's namespace."""
        run_tool(["ip", "netns", "exec", self.namespace(node_id), *command])

    def heal(self, node_id: int) -> None:
        """Take back every rule in a node's namespace."""
        self.inside(node_id, "iptables", "-F")
        run_tool(["tc", "-n", self.namespace(node_id), "qdisc", "del", "dev", "eth0", "root"], check=False)

    def placed(self, plan: ClusterPlan) -> ClusterPlan:
        """The plan with every node at its own address; ports stay."""
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


class NodeFilesystems:
    """A small file system under each node's data: tmpfs, or ext4 on a loop device where power is to be cut."""

    def __init__(self, plan: ClusterPlan, *, ext4: bool, size_mb: int) -> None:
        self._directories = {node.node_id: node.data_dir for node in plan.nodes}
        self._ext4 = ext4
        self._size_mb = size_mb

    def open(self) -> None:
        """Make and mount all; `CommandFailed` when the machine refuses."""
        for node_id, directory in self._directories.items():
            os.makedirs(directory, exist_ok=True)
            if self._ext4:
                with open(self._image(node_id), "wb") as file:
                    file.truncate(self._size_mb << 20)
                run_tool(["mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=0", self._image(node_id)])
            self.mount(node_id)

    def close(self) -> None:
        for node_id in self._directories:
            with contextlib.suppress(CommandFailed, OSError):
                self.unmount(node_id)
            with contextlib.suppress(OSError):
                os.unlink(self._image(node_id))

    def mount(self, node_id: int) -> None:
        directory = self._directories[node_id]
        if self._ext4:
            run_tool(["mount", "-o", "loop", self._image(node_id), directory])
            with contextlib.suppress(OSError):
                os.rmdir(os.path.join(directory, "lost+found"))
        else:
            run_tool(["mount", "-t", "tmpfs", "-o", f"size={self._size_mb}m", "raftwerk", directory])

    def unmount(self, node_id: int) -> None:
        run_tool(["umount", self._directories[node_id]])

    def cut_power(self, node_id: int) -> None:
        """From this moment on nothing more reaches the device, and what was not synced is lost at the next mount."""
        fd = os.open(self._directories[node_id], os.O_RDONLY)
        try:
            fcntl.ioctl(fd, _EXT4_IOC_SHUTDOWN, struct.pack("I", _SHUTDOWN_NO_FLUSH))
        finally:
            os.close(fd)

    def fill(self, node_id: int) -> None:
        """Leave no room."""
        directory = self._directories[node_id]
        status = os.statvfs(directory)
        fd = os.open(os.path.join(directory, _BALLAST), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            with contextlib.suppress(OSError):
                os.posix_fallocate(fd, 0, max(1, status.f_bavail * status.f_frsize))
            at = os.fstat(fd).st_size
            with contextlib.suppress(OSError):
                while True:
                    at += os.pwrite(fd, bytes(1 << 16), at)
        finally:
            os.close(fd)

    def make_room(self, node_id: int) -> None:
        """Take the ballast away."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self._directories[node_id], _BALLAST))

    def _image(self, node_id: int) -> str:
        return self._directories[node_id] + ".ext4"
