"""A small file system of its own for the data of each node, so that it can be full, or lose its power.

`close` removes everything, also when it is called twice or when `open` has failed half-way.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct

from ....cluster.local.layout import ClusterPlan
from .machine_capabilities import CommandFailed, run_tool

_EXT4_IOC_SHUTDOWN = 0x8004587D
_SHUTDOWN_NO_FLUSH = 2
_BALLAST = "ballast"
IMAGE_SUFFIX = ".ext4"


class NodeFilesystems:
    """A file system for each node's data: tmpfs, or ext4 on a loop device if the power is to be cut."""

    def __init__(self, plan: ClusterPlan, *, ext4: bool, size_mb: int) -> None:
        self._directories = {node.node_id: node.data_dir for node in plan.nodes}
        self._ext4 = ext4
        self._size_mb = size_mb

    def open(self) -> None:
        """Create and mount all of them. `CommandFailed` if the machine refuses."""
        for node_id, directory in self._directories.items():
            os.makedirs(directory, exist_ok=True)
            if self._ext4:
                with open(self._image(node_id), "wb") as file:
                    file.truncate(self._size_mb << 20)
                run_tool(["mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=0", self._image(node_id)])
            self.mount(node_id)

    def close(self) -> None:
        """Unmount and remove everything."""
        for node_id in self._directories:
            with contextlib.suppress(CommandFailed, OSError):
                self.unmount(node_id)
            with contextlib.suppress(OSError):
                os.unlink(self._image(node_id))

    def mount(self, node_id: int) -> None:
        """Mount the file system of a node."""
        directory = self._directories[node_id]
        if self._ext4:
            run_tool(["mount", "-o", "loop", self._image(node_id), directory])
            with contextlib.suppress(OSError):
                os.rmdir(os.path.join(directory, "lost+found"))
        else:
            run_tool(["mount", "-t", "tmpfs", "-o", f"size={self._size_mb}m", "raftwerk", directory])

    def unmount(self, node_id: int) -> None:
        """Unmount the file system of a node, if it is mounted."""
        if os.path.ismount(self._directories[node_id]):
            run_tool(["umount", self._directories[node_id]])

    def cut_power(self, node_id: int) -> None:
        """Let nothing more reach the device; what was not synced is lost when it is mounted again."""
        fd = os.open(self._directories[node_id], os.O_RDONLY)
        try:
            fcntl.ioctl(fd, _EXT4_IOC_SHUTDOWN, struct.pack("I", _SHUTDOWN_NO_FLUSH))
        finally:
            os.close(fd)

    def fill(self, node_id: int) -> None:
        """Fill the file system completely."""
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
        """Free the space that `fill` took."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self._directories[node_id], _BALLAST))

    def _image(self, node_id: int) -> str:
        return self._directories[node_id] + IMAGE_SUFFIX
