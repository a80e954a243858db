"""A file system in memory that can lose power.

Every file and directory has two states: what running programs see (the page cache) and what the device holds. Between
them stand the operations not yet synced, in order. `crash(power_loss=True)` throws the cache away and lets the device
keep, for each file, a random prefix of those operations, the last of them torn or zero-filled. Sometimes writes were
reordered as well: the file is as long as the prefix says, but of each write in it the data may have stayed behind, with
zeros or what was there before in their place. Creations, renames and removals are journalled for the whole file system
and are durable once the directory was synced; of the others a random prefix survives. A file that was synced in a
directory that was not may therefore be gone, which POSIX allows.
`crash(power_loss=False)` is the death of a process: handles and locks go, the page cache stays. A failed fsync drops
the file's dirty pages but leaves them readable until the crash, as Linux does: who retries it is deceived.
"""

from __future__ import annotations

import asyncio
import copy
import errno
import random
from collections.abc import Callable, Sequence

from ....runtime.files.open_files import OpenFiles
from ....runtime.ports import Buffer, File
from ..kernel.transport import send_some
from .inodes import Directory, DiskCopy, Inode, Relink, link
from .ordered_renames import SimOrderedRenames
from .power_loss import lose_power
from .sim_file import OpenInode, SimFile

_UNLIMITED = 1 << 60


class SimDirLock:
    """A lock in the disk's table, gone with a crash."""

    def __init__(self, disk: SimDisk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._incarnation = disk.incarnation

    def release(self) -> None:
        if self._incarnation == self._disk.incarnation:
            self._disk.release_lock(self._path)


class SimDisk:
    """`Disk` in memory. `sync_latency_s` bounds how long `fsync_soon` takes on the running loop."""

    def __init__(
        self,
        rng: random.Random,
        *,
        capacity_bytes: int = _UNLIMITED,
        sync_latency_s: tuple[float, float] = (0.0, 0.0),
    ) -> None:
        self._rng = rng
        self._turns: dict[str, dict[int, None]] = {}
        """The replacements of each path that are under way and that no later one has overtaken."""
        self.on_blocking: Callable[[str, str], None] = lambda operation, path: None
        """Told of every operation that holds up its caller for as long as a device takes, and of the path."""
        self._capacity_bytes = capacity_bytes
        self._used_bytes = 0
        self._sync_latency_s = sync_latency_s
        self._warm_ends: dict[Inode, int] | None = None
        """How far each file has been warmed; None: everything is in the page cache."""
        self._root = Directory()
        self._journal: list[Relink] = []
        self._locks: dict[str, None] = {}
        self._failing_prefix: str | None = None
        self.failed_dirs: dict[str, None] = {}
        self.incarnation = 0
        self.descriptors_max = _UNLIMITED
        """How many files may have a descriptor at a time."""
        self.open_files = self._no_open_files()
        self.refusals = 0
        """How many operations a fault has made fail (EIO, ENOSPC)."""

    # -- faults

    def crash(self, *, power_loss: bool = True) -> None:
        """Kill all handles and locks; with `power_loss` also forget what was not synced (see the module's text)."""
        self.incarnation += 1
        self.open_files = self._no_open_files()
        self._locks.clear()
        if not power_loss:
            return
        lose_power(self._root, self._journal, self._rng)
        self._journal.clear()
        self._used_bytes = sum(len(node.data) for node in self._root.walk() if isinstance(node, Inode))

    def fail_fsync(self, path_prefix: str | None = "") -> None:
        """From now on fsync of files below `path_prefix` fails with EIO; None heals the disk."""
        self._failing_prefix = path_prefix

    def fail_dir(self, path: str) -> None:
        """From now on everything in the directory, which may be a disk of its own, fails with EIO."""
        self.failed_dirs[path] = None

    def repair_dirs(self) -> bool:
        """Heal what `fail_dir` did; whether there was anything."""
        was_broken = bool(self.failed_dirs)
        self.failed_dirs.clear()
        return was_broken

    def wipe_dir(self, path: str) -> None:
        """An empty disk in the place of this directory; `crash` first."""
        directory = self._directory(path)
        for node in directory.walk():
            self._forget(node)
        directory.entries.clear()
        directory.durable.clear()
        self._journal = [entry for entry in self._journal if not entry.touches([directory])]

    def set_capacity(self, capacity_bytes: int = _UNLIMITED) -> None:
        """Writes beyond this fail with ENOSPC."""
        self._capacity_bytes = capacity_bytes

    def fill(self, left_bytes: int) -> None:
        """Somebody else takes all the space but this."""
        self._capacity_bytes = self._used_bytes + left_bytes

    def wipe(self) -> None:
        """An empty disk in the place of this one; `crash` first."""
        self.restore(Directory())

    def take_copy(self) -> DiskCopy:
        """All files as programs see them now, for one `restore`."""
        root = copy.deepcopy(self._root)
        for directory in (root, *(node for node in root.walk() if isinstance(node, Directory))):
            directory.durable = dict(directory.entries)
        for node in root.walk():
            if isinstance(node, Inode):
                node.unsynced.clear()
                node.durable = bytearray(node.data)
        return root

    def restore(self, taken: DiskCopy) -> None:
        """Bring back what `take_copy` gave; `crash` first."""
        self.incarnation += 1
        self.open_files = self._no_open_files()
        self._root = taken
        self._journal.clear()
        self._locks.clear()
        self._used_bytes = sum(len(node.data) for node in taken.walk() if isinstance(node, Inode))

    def rot(self, path: str, offset: int, bit: int) -> None:
        """Flip one bit of a file, on the device and in the page cache."""
        node = self._find(path)
        if not isinstance(node, Inode):
            raise FileNotFoundError(errno.ENOENT, "no such file or directory", path)
        for data in (node.data, node.durable):
            if offset < len(data):
                data[offset] ^= 1 << bit

    def set_sync_latency(self, low_s: float, high_s: float) -> None:
        """How long `fsync_soon` takes from now on."""
        self._sync_latency_s = (low_s, high_s)

    def make_cold(self) -> None:
        """Nothing is in the page cache from now on but what is warmed."""
        self._warm_ends = {}

    def is_cached(self, inode: Inode, offset: int, length: int) -> bool:
        return self._warm_ends is None or offset + length <= self._warm_ends.get(inode, 0)

    # -- the port

    def open(self, path: str, *, create: bool = False) -> SimFile:
        """Open for reading and writing; `FileNotFoundError` unless it exists or `create`."""
        self.check_dir(path)
        directory, name = self._parent(path)
        node = directory.entries.get(name)
        if isinstance(node, Directory):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        if node is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file or directory", path)
            node = Inode()
            self._relink([(directory, name, node)])
        return SimFile(self, self.open_files.add(OpenInode(path, node, self._find)), path)

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def is_dir(self, path: str) -> bool:
        return isinstance(self._find(path), Directory)

    def listdir(self, path: str) -> list[str]:
        """Names in the directory, sorted."""
        self.check_dir(path)
        return sorted(self._directory(path).entries)

    def makedirs(self, path: str) -> None:
        self.check_dir(path)
        directory = self._root
        for name in _parts(path):
            node = directory.entries.get(name)
            if node is None:
                node = Directory()
                self._relink([(directory, name, node)])
            if not isinstance(node, Directory):
                raise FileExistsError(errno.EEXIST, "file exists", path)
            directory = node

    def rename(self, source: str, target: str) -> None:
        """Replaces an existing file; a directory may replace only an empty one."""
        self.on_blocking("rename", source)
        self._rename(source, target)

    def _rename(self, source: str, target: str) -> None:
        self.check_dir(source)
        self.check_dir(target)
        from_directory, from_name = self._parent(source)
        to_directory, to_name = self._parent(target)
        node = from_directory.entries.get(from_name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file or directory", source)
        replaced = to_directory.entries.get(to_name)
        if isinstance(replaced, Directory) and replaced.entries:
            raise OSError(errno.ENOTEMPTY, "directory not empty", target)
        if replaced is not node:
            self.open_files.keep(target)
            self._forget(replaced)
            self._relink([(from_directory, from_name, None), (to_directory, to_name, node)])
            self.open_files.renamed(source, target)

    def remove(self, path: str) -> None:
        self.on_blocking("remove", path)
        self._remove(path)

    def _remove(self, path: str) -> None:
        self.check_dir(path)
        directory, name = self._parent(path)
        node = directory.entries.get(name)
        if not isinstance(node, Inode):
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        self.open_files.keep(path)
        self._forget(node)
        self._relink([(directory, name, None)])

    def remove_tree(self, path: str) -> None:
        self.on_blocking("remove_tree", path)
        self._remove_tree(path)

    def remove_soon(self, path: str) -> asyncio.Future[None]:
        """`remove` or `remove_tree` that takes the disk's latency."""

        def remove() -> None:
            if self.is_dir(path):
                self._remove_tree(path)
            elif self.exists(path):
                self._remove(path)

        return self._later(remove)

    def _remove_tree(self, path: str) -> None:
        self.check_dir(path)
        directory, name = self._parent(path)
        self.open_files.keep(path)
        for node in self._directory(path).walk():
            self._forget(node)
        self._relink([(directory, name, None)])

    def read_bytes(self, path: str) -> bytes:
        self.check_dir(path)
        node = self._find(path)
        if not isinstance(node, Inode):
            raise FileNotFoundError(errno.ENOENT, "no such file or directory", path)
        return bytes(node.data)

    def write_atomic(self, path: str, data: Buffer) -> None:
        """Durably replace `path`; after a crash either the old or the new contents are there, never a mixture."""
        self.on_blocking("write_atomic", path)
        self._turns.pop(path, None)
        self._replace(path, bytes(data))

    def _replace(self, path: str, content: bytes) -> None:
        self.check_dir(path)
        directory, name = self._parent(path)
        self.check_fsync(path, self.fsync_fails(path))
        replaced = directory.entries.get(name)
        self.use_bytes(len(content), path)
        self._forget(replaced)
        self._relink([(directory, name, Inode(bytearray(content), bytearray(content)))])
        self._sync_directory(directory)

    def write_atomic_soon(self, path: str, data: Buffer) -> asyncio.Future[None]:
        """`write_atomic` that takes the disk's latency; nothing is there before. A later write to the path wins."""
        content = bytes(data)
        waiting = self._turns.setdefault(path, {})
        turn = max(waiting, default=0) + 1
        waiting[turn] = None

        def replace() -> None:
            if turn in waiting and self._turns.get(path) is waiting:
                for older in [one for one in waiting if one <= turn]:
                    del waiting[older]
                self._replace(path, content)

        return self._later(replace)

    def fsync_dir(self, path: str) -> None:
        """Make the names in this directory durable."""
        self.on_blocking("fsync_dir", path)
        self._fsync_dir(path)

    def _fsync_dir(self, path: str) -> None:
        self.check_dir(path)
        self.check_fsync(path, self.fsync_fails(path))
        self._sync_directory(self._directory(path))

    def fsync_dir_soon(self, path: str) -> asyncio.Future[None]:
        """`fsync_dir` that takes the disk's latency."""
        self.check_dir(path)
        directory, incarnation, loop = self._directory(path), self.incarnation, asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def finish() -> None:
            if future.done() or incarnation != self.incarnation:
                return
            try:
                self.check_fsync(path, self.fsync_fails(path))
            except OSError as error:
                future.set_exception(error)
            else:
                self._sync_directory(directory)
                future.set_result(None)

        low, high = self._sync_latency_s
        if high > 0:
            loop.call_later(self._rng.uniform(low, high), finish)
        else:
            finish()
        return future

    def rearrange_soon(self, directory: str, renames: Sequence[tuple[str, str]]) -> SimOrderedRenames:
        """The renames after some of the disk's latency, durable at its end."""

        def rename() -> None:
            for source, target in renames:
                self._rename(source, target)

        return SimOrderedRenames((rename, lambda: self._fsync_dir(directory)), self._later)

    def _later(self, work: Callable[[], None]) -> asyncio.Future[None]:
        """Carry `work` out when the disk's latency is over."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def carry_out() -> None:
            try:
                work()
            except OSError as error:
                if not future.done():
                    future.set_exception(error)
            else:
                if not future.done():
                    future.set_result(None)

        low, high = self._sync_latency_s
        loop.call_later(self._rng.uniform(low, high) if high > 0 else 0.0, carry_out)
        return future

    def send(self, file: File, offset: int, length: int, transport: asyncio.Transport) -> int:
        """What stands in the file at this moment goes out, as far as the connection's window is open."""
        return send_some(file, offset, length, transport)

    def warm_soon(self, file: File, offset: int, length: int) -> asyncio.Future[None]:
        """Takes as long as an fsync does."""
        if not isinstance(file, SimFile):
            raise TypeError(f"{file!r} was not opened by this disk")
        inode, loop = file.inode, asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def finish() -> None:
            if self._warm_ends is not None:
                self._warm_ends[inode] = max(self._warm_ends.get(inode, 0), offset + length)
            if not future.done():
                future.set_result(None)

        loop.call_later(self._rng.uniform(*self._sync_latency_s), finish)
        return future

    def fsync_soon(self, file: File) -> asyncio.Future[None]:
        """`file.fsync()` that takes the disk's latency; what was written before the call is covered."""
        if not isinstance(file, SimFile):
            raise TypeError(f"{file!r} was not opened by this disk")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        try:
            operations = file.begin_sync()
        except OSError as error:
            future.set_exception(error)
            return future

        def finish() -> None:
            try:
                file.finish_sync(operations)
            except OSError as error:
                if not future.done():
                    future.set_exception(error)
            else:
                if not future.done():
                    future.set_result(None)

        low, high = self._sync_latency_s
        if high > 0:
            loop.call_later(self._rng.uniform(low, high), finish)
        else:
            loop.call_soon(finish)
        return future

    def lock_dir(self, path: str) -> SimDirLock:
        """Take the exclusive lock of `path`; `BlockingIOError` while another holds it."""
        self.check_dir(path)
        self._directory(path)
        key = "/".join(_parts(path))
        if key in self._locks:
            raise BlockingIOError(errno.EWOULDBLOCK, "resource temporarily unavailable", path)
        self._locks[key] = None
        return SimDirLock(self, key)

    def free_bytes(self, path: str) -> int:
        return self.free_space

    def total_bytes(self, path: str) -> int:
        return self._capacity_bytes

    @property
    def free_space(self) -> int:
        return max(0, self._capacity_bytes - self._used_bytes)

    def use_bytes(self, growth: int, path: str) -> None:
        """Account for `growth` more bytes (negative: fewer); ENOSPC when they do not fit."""
        if growth > self.free_space:
            raise self.refusal(errno.ENOSPC, "no space left on device", path)
        self._used_bytes += growth

    def fsync_fails(self, path: str) -> bool:
        return self._failing_prefix is not None and path.startswith(self._failing_prefix)

    def check_dir(self, path: str) -> None:
        """EIO when the path is in a directory that is broken."""
        if self.failed_dirs and any(path == one or path.startswith(f"{one}/") for one in self.failed_dirs):
            raise self.refusal(errno.EIO, "input/output error", path)

    def check_fsync(self, path: str, failed: bool) -> None:
        """EIO when an fsync of this file has failed before."""
        if failed:
            raise self.refusal(errno.EIO, "input/output error", path)

    def refusal(self, number: int, text: str, path: str) -> OSError:
        """The error that a fault makes of an operation."""
        self.refusals += 1
        return OSError(number, text, path)

    def release_lock(self, key: str) -> None:
        self._locks.pop(key, None)

    # -- names

    def _relink(self, changes: list[tuple[Directory, str, Inode | Directory | None]]) -> None:
        for directory, name, node in changes:
            link(directory.entries, name, node)
        self._journal.append(Relink(changes))

    def _sync_directory(self, directory: Directory) -> None:
        """Commit the entries that touch it, and with them those of directories that a rename ties to it."""
        tied = [directory]
        for entry in reversed(self._journal):
            if entry.touches(tied):
                tied.extend(changed for changed, _, _ in entry.changes)
        later: list[Relink] = []
        for entry in self._journal:
            if entry.touches(tied):
                entry.apply_durably()
            else:
                later.append(entry)
        self._journal = later

    def _no_open_files(self) -> OpenFiles:
        return OpenFiles(lambda: self.descriptors_max)

    def _forget(self, node: Inode | Directory | None) -> None:
        if isinstance(node, Inode):
            self._used_bytes -= len(node.data)

    def _find(self, path: str) -> Inode | Directory | None:
        node: Inode | Directory | None = self._root
        for name in _parts(path):
            if not isinstance(node, Directory):
                return None
            node = node.entries.get(name)
        return node

    def _directory(self, path: str) -> Directory:
        node = self._find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file or directory", path)
        if not isinstance(node, Directory):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
        return node

    def _parent(self, path: str) -> tuple[Directory, str]:
        *parents, name = _parts(path)
        return self._directory("/".join(parents)), name


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]
