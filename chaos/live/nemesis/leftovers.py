"""What a run leaves on the machine when it is killed, found and removed by the next run or by `raftwerk chaos clean`.

Each run has a record in `$XDG_STATE_HOME/raftwerk-chaos` (by default in `~/.local/state`), which it keeps locked. The
lock of a run that was killed is free. Its clients have ended with it; nodes that were paused, mounts and network
namespaces are still there.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass

from ....cluster.command_line.plural import counted
from ....cluster.command_line.user_directories import user_directory
from ....cluster.local.supervisor import stop_nodes_in
from ....runtime.os_errors import os_reason
from .machine_capabilities import CommandFailed, probe_namespace, run_tool
from .network_namespaces import NetworkNamespaces
from .node_filesystems import IMAGE_SUFFIX

_SUFFIX = ".json"
_STOP_LIMIT_S = 10.0


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run: its process, its directory, and the directory of its nodes, or the cluster that it uses."""

    pid: int
    directory: str
    nodes: str | None
    cluster: str | None
    topic: str


@contextlib.contextmanager
def recorded(record: RunRecord) -> Iterator[None]:
    """Keep the record while the run goes on, and remove what is still there at its end, however it ends."""
    with contextlib.ExitStack() as stack:
        path = _write(record, stack)
        try:
            yield
        finally:
            with contextlib.suppress(CommandFailed, OSError):
                _remove_leftovers(record)
                if path is not None:
                    os.remove(path)


def remove_of_killed_runs() -> list[str]:
    """Remove what killed runs have left; a sentence for each of them that had left something."""
    told = []
    for path in _records():
        with contextlib.suppress(OSError, ValueError, TypeError), open(path, "r+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.fstat(file.fileno()).st_nlink:
                continue  # somebody else has just removed it
            record = RunRecord(**json.load(file))
            try:
                told.append(_remove_and_tell(record))
                os.remove(path)
            except (CommandFailed, OSError) as error:
                why = os_reason(error) if isinstance(error, OSError) else error
                told.append(f"{_who(record)}, and what it left could not be removed: {why}")
    return [sentence for sentence in told if sentence]


def process_of_run(paths: Iterable[str]) -> int | None:
    """The process of a run that goes on in one of these directories, or of which one of these files is; else None."""
    places = [os.path.realpath(path) for path in paths]
    for path in _records():
        with contextlib.suppress(OSError, ValueError, TypeError), open(path, encoding="utf-8") as file:
            record = RunRecord(**json.load(file))
            directory = os.path.realpath(record.directory)
            if any(directory in (place, os.path.dirname(place)) for place in places):
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    return record.pid
    return None


def _remove_and_tell(record: RunRecord) -> str:
    if record.cluster is not None:
        return (
            f"{_who(record)}: in the cluster at {record.cluster} it may have left nodes that are paused or dead, which "
            f"raftwerk status shows, and topics and groups with names that begin with {record.topic}"
        )
    removed = _remove_leftovers(record)
    return f"{_who(record)}; removed what it had left: {', '.join(removed)}" if removed else ""


def _who(record: RunRecord) -> str:
    return f"the run of process {record.pid} in {record.directory} was killed"


def _remove_leftovers(record: RunRecord) -> list[str]:
    """Remove what belongs to a run with nodes of its own; what that was, in words. Raises `CommandFailed`."""
    if record.nodes is None:
        return []
    removed = []
    if nodes := stop_nodes_in(record.nodes, _STOP_LIMIT_S).pids:
        removed.append(counted(len(nodes), "node"))
    if mounts := _mounts_below(record.nodes):
        for mount in reversed(mounts):
            run_tool(["umount", mount])
        removed.append(counted(len(mounts), "mount"))
    for name in os.listdir(record.nodes) if os.path.isdir(record.nodes) else ():
        if name.endswith(IMAGE_SUFFIX):
            os.remove(os.path.join(record.nodes, name))
    if namespaces := _namespaces(record.pid):
        for name in namespaces:
            run_tool(["ip", "netns", "del", name])
        NetworkNamespaces([], record.pid).close()
        removed.append(counted(len(namespaces), "network namespace"))
    return removed


def _mounts_below(directory: str) -> list[str]:
    with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as file:
        places = [_unescaped(line.split(" ")[1]) for line in file]
    return [place for place in places if place.startswith(os.path.realpath(directory) + os.sep)]


def _unescaped(text: str) -> str:
    """A path of /proc/self/mounts, which has blanks and the like as octal numbers."""
    for octal in ("\\040", "\\011", "\\012", "\\134"):
        text = text.replace(octal, chr(int(octal[1:], 8)))
    return text


def _namespaces(pid: int) -> list[str]:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return []
    names = [line.split()[0] for line in run_tool(["ip", "netns", "list"], check=False).splitlines() if line.strip()]
    of_nodes = NetworkNamespaces([], pid)
    return [name for name in names if of_nodes.owns(name) or name == probe_namespace(pid)]


def _home() -> str:
    return os.path.join(user_directory("XDG_STATE_HOME", ".local/state"), "raftwerk-chaos")


def _records() -> list[str]:
    try:
        return sorted(os.path.join(_home(), name) for name in os.listdir(_home()) if name.endswith(_SUFFIX))
    except OSError:
        return []


def _write(record: RunRecord, stack: contextlib.ExitStack) -> str | None:
    """The path of the record, which is locked until the stack is closed. None where none can be written."""
    try:
        os.makedirs(_home(), mode=0o700, exist_ok=True)
        number, path = tempfile.mkstemp(dir=_home())
        file = stack.enter_context(os.fdopen(number, "w", encoding="utf-8"))
        fcntl.flock(file, fcntl.LOCK_EX)
        json.dump(asdict(record), file)
        file.flush()
        os.rename(path, path + _SUFFIX)
    except OSError:
        return None
    return path + _SUFFIX
