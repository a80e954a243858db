"""A file system in memory that can lose power; the simulator's `Disk`.

Every file and directory has two states: what programs see (the page cache), and what the device holds (`inodes`).
Between them are the operations that are not synced yet, in order. `crash(power_loss=True)` forgets the page cache, and
`power_loss` decides what the device keeps of the unsynced operations. Names that are created, renamed or removed are
durable once their directory is synced. So a synced file in an unsynced directory may be lost, as POSIX allows.
`crash(power_loss=False)` is the end of a process: its open files and locks are gone, the page cache stays. A failed
fsync drops the file's dirty pages but leaves them readable until the crash, as Linux does, so that a second fsync would
succeed without having written them.

Each directory in the root is the mount point of a file system of its own, as log directories are on several disks: it
has its own journal, and nothing is renamed to another one.
"""

from __future__ import annotations

import asyncio
import copy
import errno
import random
from collections.abc import Callable, Sequence

from ....runtime.files.open_files import OpenFiles
from ....runtime.files.pending_writes import PendingWrites
from ....runtime.ports import Buffer, File
from ..kernel.transport import send_some
from .dir_lock import SimDirLock
from .inodes import Directory, DiskCopy, Inode, Relink, Write, link
from .interruption import Interruption, Operation
from .ordered_renames import SimOrderedRenames
from .power_loss import lose_power
from .sim_file import OpenInode, SimFile

_UNLIMITED = 1 << 60


class SimDisk:
    """`Disk` in memory. `sync_latency_s` are the bounds of an fsync's duration on the running loop."""

    def __init__(
        self,
        rng: random.Random,
        *,
        capacity_bytes: int = _UNLIMITED,
        sync_latency_s: tuple[float, float] = (0.0, 0.0),
    ) -> None:
        self._rng = rng
        self._pending_writes = PendingWrites()
        self.on_blocking: Callable[[str, str], None] = lambda operation, path: None
        """Called for each operation that blocks its caller for the duration of a device access, with its path."""
        self._capacity_bytes = capacity_bytes
        self._used_bytes = 0
        self._sync_latency_s = sync_latency_s
        self._warm_ends: dict[Inode, int] | None = None
        """Up to where each file is in the page cache; None: everything is."""
        self._root = Directory()
        self._journals: dict[str, list[Relink]] = {}
        """The unsynced changes of names, for each file system; see `_mount_point`."""
        self._locks: dict[str, None] = {}
        self._failing_prefix: str | None = None
        self.failed_dirs: dict[str, None] = {}
        self.lies = self.has_lied = False
        """Whether an fsync is answered and not done. What it covers is durable with the next one that is done."""
        self.incarnation = 0
        self.descriptors_max = _UNLIMITED
        """How many files may have a descriptor at a time."""
        self.interruption: Interruption | None = None
        """The end of the process in the midst of an event, which may be still to come."""
        self.has_lost_pages = False
        """Whether an fsync has failed since the host was booted: the device may lack what the page cache shows."""
        self.open_files = self._no_open_files()
        self.failed_operations = 0
        """How many operations failed because of a fault (EIO, ENOSPC)."""

    # -- faults

    def crash(self, *, power_loss: bool = True) -> None:
        """Invalidate all open files and locks; with `power_loss` also lose what was not synced."""
        self.incarnation += 1
        self.open_files = self._no_open_files()
        self._pending_writes = PendingWrites()
        self._locks.clear()
        if not power_loss:
            return
        self.has_lost_pages = False
        lose_power(self._root, self._journals.values(), self._rng)
        self._journals.clear()
        self._used_bytes = sum(len(node.data) for node in self._root.walk() if isinstance(node, Inode))

    def fail_fsync(self, path_prefix: str | None = "") -> None:
        """Let every fsync of files below `path_prefix` fail with EIO; None ends the fault."""
        self._failing_prefix = path_prefix

    def fail_dir(self, path: str) -> None:
        """Let every operation in the directory fail with EIO, as when its disk has failed."""
        self.failed_dirs[path] = None

    def repair_dirs(self) -> bool:
        """End what `fail_dir` began; whether a directory had failed."""
        was_broken = bool(self.failed_dirs)
        self.failed_dirs.clear()
        return was_broken

    def wipe_dir(self, path: str) -> None:
        """Replace the directory by an empty disk. Call `crash` before."""
        directory = self._directory(path)
        for node in directory.walk():
            self._release_space(node)
        directory.entries.clear()
        directory.durable.clear()
        self._journals.pop(_mount_point(path), None)

    def set_capacity(self, capacity_bytes: int = _UNLIMITED) -> None:
        """Writes beyond this fail with ENOSPC."""
        self._capacity_bytes = capacity_bytes

    def fill(self, left_bytes: int) -> None:
        """Leave only `left_bytes` of free space."""
        self._capacity_bytes = self._used_bytes + left_bytes

    def wipe(self) -> None:
        """Replace the disk by an empty one. Call `crash` before."""
        self.restore(Directory())

    def take_copy(self) -> DiskCopy:
        """A copy of all files as programs see them now, for one `restore`."""
        root = copy.deepcopy(self._root)
        for directory in (root, *(node for node in root.walk() if isinstance(node, Directory))):
            directory.durable = dict(directory.entries)
        for node in root.walk():
            if isinstance(node, Inode):
                node.unsynced.clear()
                node.durable = bytearray(node.data)
        return root

    def restore(self, taken: DiskCopy) -> None:
        """Replace the disk by a copy. Call `crash` before."""
        self.incarnation += 1
        self.has_lost_pages = False
        self.open_files = self._no_open_files()
        self._root = taken
        self._journals.clear()
        self._locks.clear()
        self._used_bytes = sum(len(node.data) for node in taken.walk() if isinstance(node, Inode))

    def flip_bit(self, path: str, offset: int, bit: int) -> None:
        """Flip one bit of a file, on the device and in the page cache."""
        node = self._file(path)
        for data in (node.data, node.durable):
            if offset < len(data):
                data[offset] ^= 1 << bit

    def cut(self, path: str, size_bytes: int) -> None:
        """Let a file end early, on the device and in the page cache. Call `crash` before."""
        node = self._file(path)
        self._used_bytes -= len(node.data[size_bytes:])
        node.unsynced.clear()
        node.data, node.durable = node.data[:size_bytes], node.data[:size_bytes]

    def set_sync_latency(self, low_s: float, high_s: float) -> None:
        """Set the bounds of an fsync's duration."""
        self._sync_latency_s = (low_s, high_s)

    def make_cold(self) -> None:
        """Empty the page cache; only `warm_soon` fills it again."""
        self._warm_ends = {}

    def is_cached(self, inode: Inode, offset: int, length: int) -> bool:
        """Whether the range is in the page cache."""
        return self._warm_ends is None or offset + length <= self._warm_ends.get(inode, 0)

    # -- the port

    def open(self, path: str, *, create: bool = False) -> SimFile:
        """Open for reading and writing. `FileNotFoundError` if it does not exist and `create` is False."""
        self.check_dir(path)
        directory, name = self._parent(path)
        node = directory.entries.get(name)
        if isinstance(node, Directory):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        if node is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file or directory", path)
            self.before_operation(path, Operation.NAMES)
            node = Inode()
            self._relink(path, [(directory, name, node)])
        return SimFile(self, self.open_files.add(OpenInode(path, node, self._find)), path)

    def exists(self, path: str) -> bool:
        """Whether a file or directory has this path."""
        return self._find(path) is not None

    def is_dir(self, path: str) -> bool:
        """Whether a directory has this path."""
        return isinstance(self._find(path), Directory)

    def listdir(self, path: str) -> list[str]:
        """Names in the directory, sorted."""
        self.check_dir(path)
        return sorted(self._directory(path).entries)

    def makedirs(self, path: str) -> None:
        """Make the directory and those above it."""
        self.check_dir(path)
        directory, below = self._root, ""
        for name in _parts(path):
            node, below = directory.entries.get(name), f"{below}/{name}"
            if node is None:
                self.before_operation(below, Operation.NAMES)
                node = Directory()
                self._relink(below, [(directory, name, node)])
            if not isinstance(node, Directory):
                raise FileExistsError(errno.EEXIST, "file exists", path)
            directory = node

    def rename(self, source: str, target: str) -> None:
        """Rename; replaces an existing file. A directory replaces only an empty directory."""
        self.on_blocking("rename", source)
        self._pending_writes.renaming(source, target, lambda: self._rename(source, target))

    def _rename(self, source: str, target: str) -> None:
        self.check_dir(source)
        self.check_dir(target)
        from_directory, from_name = self._parent(source)
        to_directory, to_name = self._parent(target)
        node = from_directory.entries.get(from_name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file or directory", source)
        if _mount_point_above(source) != _mount_point_above(target):
            raise OSError(errno.EXDEV, "invalid cross-device link", target)
        replaced = to_directory.entries.get(to_name)
        if isinstance(replaced, Directory) and replaced.entries:
            raise OSError(errno.ENOTEMPTY, "directory not empty", target)
        if replaced is not node:
            self.before_operation(source, Operation.RENAME)
            self.open_files.keep(target)
            self._release_space(replaced)
            self._relink(target, [(from_directory, from_name, None), (to_directory, to_name, node)])
            self.open_files.renamed(source, target)

    def remove(self, path: str) -> None:
        """Remove a file."""
        self.on_blocking("remove", path)
        self._remove(path)

    def _remove(self, path: str) -> None:
        self.check_dir(path)
        directory, name = self._parent(path)
        node = directory.entries.get(name)
        if not isinstance(node, Inode):
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        self.before_operation(path, Operation.NAMES)
        self.open_files.keep(path)
        self._release_space(node)
        self._relink(path, [(directory, name, None)])

    def remove_tree(self, path: str) -> None:
        """Remove everything in a directory, one after the other and in any order, and then the directory."""
        self.on_blocking("remove_tree", path)
        self._pending_writes.renaming(path, None, lambda: self._remove_tree(path))

    def remove_soon(self, path: str) -> asyncio.Future[None]:
        """`remove` or `remove_tree` after the disk's latency."""

        def remove() -> None:
            if self.is_dir(path):
                self._remove_tree(path)
            elif self.exists(path):
                self._remove(path)

        return self._after_latency(remove)

    def _remove_tree(self, path: str) -> None:
        self.check_dir(path)
        self.open_files.keep(path)
        names = sorted(self._directory(path).entries)
        for name in self._rng.sample(names, len(names)):
            below = f"{path}/{name}"
            if self.is_dir(below):
                self._remove_tree(below)
            else:
                self._remove(below)
        self.before_operation(path, Operation.NAMES)
        directory, name = self._parent(path)
        self._relink(path, [(directory, name, None)])

    def read_bytes(self, path: str, *, size_bytes_max: int | None = None) -> bytes:
        """The contents of a file, which may be required to have at most `size_bytes_max` bytes."""
        self.check_dir(path)
        node = self._file(path)
        if size_bytes_max is not None and len(node.data) > size_bytes_max:
            raise OSError(errno.EFBIG, f"it has more than {size_bytes_max} bytes", path)
        return bytes(node.data)

    def durable_bytes(self, path: str) -> bytearray | None:
        """What a file holds after a loss of power, by its durable name; None if there is no such file. Not a copy."""
        node = self._durable_file(path)
        return None if node is None else node.durable

    def lasting_bytes(self, path: str) -> bytearray:
        """The beginning of a file that any loss of power leaves as it is; empty if there is no such file."""
        node = self._durable_file(path)
        return bytearray() if node is None else node.lasting

    def _durable_file(self, path: str) -> Inode | None:
        node: Inode | Directory | None = self._root
        for name in _parts(path):
            node = node.durable.get(name) if isinstance(node, Directory) else None
        return node if isinstance(node, Inode) else None

    def write_atomic(self, path: str, data: Buffer) -> None:
        """Replace the file durably: after a crash it has either the old or the new contents."""
        self.on_blocking("write_atomic", path)
        pending, content = self._pending_writes, bytes(data)
        write = pending.begin(path)
        try:
            pending.carry_out(write, str, lambda place: self._replace(place, content))
        finally:
            pending.end(write)

    def _replace(self, path: str, content: bytes) -> None:
        self.check_dir(path)
        directory, name = self._parent(path)
        self.check_fsync(path, self.fsync_fails(path))
        self.before_operation(path, Operation.NAMES)
        replaced = directory.entries.get(name)
        self.use_bytes(len(content), path)
        self._release_space(replaced)
        inode = Inode()
        inode.perform(Write(0, content))
        if not self.lies:
            inode.sync(list(inode.unsynced))
        self._relink(path, [(directory, name, inode)])
        self._sync_directory(_mount_point_above(path), directory)

    def write_atomic_soon(self, path: str, data: Buffer) -> asyncio.Future[None]:
        """`write_atomic` after the disk's latency. A later write to the same path replaces it."""
        pending, content = self._pending_writes, bytes(data)
        write = pending.begin(path)

        def replace() -> None:
            try:
                pending.carry_out(write, str, lambda place: self._replace(place, content))
            finally:
                pending.end(write)

        return self._after_latency(replace)

    def fsync_dir(self, path: str) -> None:
        """Make the names in this directory durable."""
        self.on_blocking("fsync_dir", path)
        self._fsync_dir(path)

    def _fsync_dir(self, path: str) -> None:
        self.check_dir(path)
        self.check_fsync(path, self.fsync_fails(path))
        self.before_operation(path, Operation.NAMES)
        self._sync_directory(_mount_point(path), self._directory(path))

    def fsync_dir_soon(self, path: str) -> asyncio.Future[None]:
        """`fsync_dir` after the disk's latency."""
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
                self.before_operation(path, Operation.NAMES)
                self._sync_directory(_mount_point(path), directory)
                future.set_result(None)

        low, high = self._sync_latency_s
        if high > 0:
            loop.call_later(self._rng.uniform(low, high), finish)
        else:
            finish()
        return future

    def rename_in_order_soon(self, directory: str, renames: Sequence[tuple[str, str]]) -> SimOrderedRenames:
        """The renames after the disk's latency, then an fsync of the directory."""

        def rename() -> None:
            for source, target in renames:
                self._rename(source, target)

        return SimOrderedRenames((rename, lambda: self._fsync_dir(directory)), self._after_latency)

    def _after_latency(self, work: Callable[[], None]) -> asyncio.Future[None]:
        """Do the work after the disk's latency."""
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
        """Send bytes of the file as they are now, as many as the connection's window allows; how many."""
        return send_some(file, offset, length, transport)

    def warm_soon(self, file: File, offset: int, length: int) -> asyncio.Future[None]:
        """Bring a range of the file into the page cache; takes as long as an fsync."""
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
        """`file.fsync()` after the disk's latency; it covers what was written before the call."""
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
        """The free space in bytes."""
        return self.free_space

    def total_bytes(self, path: str) -> int:
        """The capacity in bytes."""
        return self._capacity_bytes

    @property
    def free_space(self) -> int:
        """The free space in bytes."""
        return max(0, self._capacity_bytes - self._used_bytes)

    def use_bytes(self, growth: int, path: str) -> None:
        """Count `growth` more bytes as used (negative: fewer). ENOSPC when they do not fit."""
        if growth > self.free_space:
            raise self.fault_error(errno.ENOSPC, "no space left on device", path)
        self._used_bytes += growth

    def fsync_fails(self, path: str) -> bool:
        """Whether an fsync of the path fails now."""
        return self._failing_prefix is not None and path.startswith(self._failing_prefix)

    def check_dir(self, path: str) -> None:
        """Raise EIO if the path is in a directory that has failed."""
        if self.failed_dirs and any(path == one or path.startswith(f"{one}/") for one in self.failed_dirs):
            raise self.fault_error(errno.EIO, "input/output error", path)

    def check_fsync(self, path: str, failed: bool) -> None:
        """Raise EIO if an fsync of this file has failed before."""
        if failed:
            self.has_lost_pages = True
            raise self.fault_error(errno.EIO, "input/output error", path)

    def before_operation(self, path: str, operation: Operation) -> None:
        """The process is about to change a file, or names; see `Interruption`."""
        if self.interruption is not None:
            self.interruption.before_operation(path, operation)

    @property
    def interrupted_at(self) -> str | None:
        """The path of the operation before which the process was ended in the midst of an event; None if it was not."""
        return None if self.interruption is None else self.interruption.path

    def fault_error(self, number: int, text: str, path: str) -> OSError:
        """The error of an operation that a fault lets fail; counts it."""
        self.failed_operations += 1
        return OSError(number, text, path)

    def release_lock(self, key: str) -> None:
        """Release the lock of a directory."""
        self._locks.pop(key, None)

    # -- names

    def _relink(self, path: str, changes: list[tuple[Directory, str, Inode | Directory | None]]) -> None:
        """Change names in the file system that has the name `path`."""
        for directory, name, node in changes:
            link(directory.entries, name, node)
        self._journals.setdefault(_mount_point_above(path), []).append(Relink(changes))

    def _sync_directory(self, mount_point: str, directory: Directory) -> None:
        """Make durable the journal entries of the directory, and of directories that a rename ties to it."""
        if self.lies:
            return
        journal = self._journals.get(mount_point, [])
        tied = [directory]
        for entry in reversed(journal):
            if entry.touches(tied):
                tied.extend(changed for changed, _, _ in entry.changes)
        not_tied: list[Relink] = []
        for entry in journal:
            if entry.touches(tied):
                entry.apply_durably()
            else:
                not_tied.append(entry)
        self._journals[mount_point] = not_tied

    def _no_open_files(self) -> OpenFiles:
        return OpenFiles(lambda: self.descriptors_max)

    def _release_space(self, node: Inode | Directory | None) -> None:
        if isinstance(node, Inode):
            self._used_bytes -= len(node.data)

    def _find(self, path: str) -> Inode | Directory | None:
        node: Inode | Directory | None = self._root
        for name in _parts(path):
            if not isinstance(node, Directory):
                return None
            node = node.entries.get(name)
        return node

    def _file(self, path: str) -> Inode:
        node = self._find(path)
        if not isinstance(node, Inode):
            raise FileNotFoundError(errno.ENOENT, "no such file or directory", path)
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


def _mount_point(path: str) -> str:
    """The file system that what is in the directory `path` is in: a directory in the root, or the root itself ("")."""
    return next(iter(_parts(path)), "")


def _mount_point_above(path: str) -> str:
    """The file system that has the name `path`."""
    parts = _parts(path)
    return parts[0] if len(parts) > 1 else ""
