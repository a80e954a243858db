"""`raftwerk log`: dumps, verifies and repairs the files of a node. It needs no running node."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import click

from ...cluster.command_line.text_table import folded
from ...runtime.os_errors import os_reason
from ..options import Group, WrongConfiguration, counted, is_reader_gone, json_option, print_json, tell_none

if TYPE_CHECKING:
    from ...runtime.ports import Disk

_EXISTING = click.Path(exists=True, resolve_path=True)
_EXISTING_DIR = click.Path(exists=True, file_okay=False, resolve_path=True)
_directories = click.argument("directories", type=_EXISTING_DIR, nargs=-1, required=True, metavar="DIRECTORY...")


@click.group(cls=Group)
def log() -> None:
    """Show, check and repair the files of a node.

    \b
    Examples:
      raftwerk log dump raftwerk-data/node-1/flights-0 --records
      raftwerk log dump raftwerk-data/node-1/flights-0/00000000000000000000.timeindex
      raftwerk log verify raftwerk-data/node-1
      raftwerk log repair raftwerk-data/node-1               shows what would be cut off
      raftwerk log repair raftwerk-data/node-1 --execute
    """


@log.command()
@click.argument("path", type=_EXISTING)
@click.option("--records", is_flag=True, help="Show the records of each batch too.")
@json_option
def dump(path: str, records: bool, as_json: bool) -> None:
    """Show the batches, indexes, checkpoints and producers' snapshots in PATH: a log directory, a partition's
    directory, or a file. The kind of a file is told by its name.

    Records of the metadata log are shown as what they say, among them the voters of the quorum.

    \b
    Examples:
      raftwerk log dump raftwerk-data/node-1/flights-0 --records
      raftwerk log dump raftwerk-data/node-1/__cluster_metadata-0 --records
    """
    from ...log.tools.inspection import KNOWN_FILES, describe, is_describable
    from ...runtime.files.real_disk import RealDisk
    from .metadata_rows import metadata_row

    last_file, is_empty, disk = None, True, RealDisk(is_read_only=True)
    with _refusals():
        if not is_describable(disk, path):
            what = "has no file" if disk.is_dir(path) else "is not"
            raise WrongConfiguration(f"{path} {what} of a kind that log dump shows, by these names: {KNOWN_FILES}")
        for row in describe(disk, path, with_records=records, read_metadata=metadata_row):
            is_empty = False
            if as_json:
                print_json(row)
                continue
            if row["file"] != last_file:
                last_file = row["file"]
                click.echo(last_file)
            click.echo(_line(row))
    if is_empty:
        tell_none(f"{path} has no entries.")


@log.command()
@_directories
@json_option
@click.pass_context
def verify(ctx: click.Context, directories: tuple[str, ...], as_json: bool) -> None:
    """Check every byte in DIRECTORY, a log directory or a partition's directory. Exit code 1 if records are damaged.

    Of a node that runs, all is checked but the indexes of the last segments, which it has in memory.

    \b
    Examples:
      raftwerk log verify raftwerk-data/node-1
      raftwerk log verify raftwerk-data/node-*
    """
    from ...log.tools.verification import verify_dir, verify_open_partition, verify_partition
    from ...runtime.files.real_disk import RealDisk

    disk = RealDisk(is_read_only=True)
    with _refusals():
        paths = _partitions_in_all(disk, directories)
        in_use = _in_use(disk, directories)
        for root, pid in in_use.items():
            click.echo(folded(f"Note: {_not_checked(root, pid)}", to=sys.stderr), err=True)
        findings = [one for directory in dict.fromkeys(directories) for one in verify_dir(disk, directory)]
        for path in paths:
            is_open = path.rpartition("/")[0] in in_use
            findings += verify_open_partition(disk, path) if is_open else verify_partition(disk, path)
    for one in findings:
        if as_json:
            print_json(one._asdict())
        else:
            click.echo(f"{'DAMAGE' if one.is_fatal else 'note  '}  {one.file}: {one.what}")
    fatal = sum(one.is_fatal for one in findings)
    if not as_json:
        click.echo(
            f"{counted(len(paths), 'partition')} checked, {fatal} damaged, {counted(len(findings) - fatal, 'note')}."
        )
    ctx.exit(1 if fatal else 0)


@log.command()
@_directories
@click.option("--execute", is_flag=True, help="Do it; without this, only show what would be done.")
@json_option
def repair(directories: tuple[str, ...], execute: bool, as_json: bool) -> None:
    """Truncate the logs in DIRECTORY before their first damage, and rebuild their indexes.

    What is cut off is lost on this node. If other replicas have it, remove the partition's directory instead: the node
    then fetches all records from them. Stop the node first.

    \b
    Examples:
      raftwerk log repair raftwerk-data/node-1               shows what would be cut off
      raftwerk log repair raftwerk-data/node-1 --execute
      raftwerk log repair raftwerk-data/node-1/flights-0 raftwerk-data/node-1/flights-1 --execute
    """
    from ...log.tools.repair import plan_repair, repair_partition
    from ...runtime.files.real_disk import RealDisk

    disk = RealDisk()
    sound = damaged = 0
    with _refusals(), _locked(disk, directories):
        for path in _partitions_in_all(disk, directories):
            result = repair_partition(disk, path) if execute else plan_repair(disk, path)
            damaged += bool(result.lost_bytes)
            if as_json:
                print_json({"partition": path, "executed": execute, **result._asdict()})
            elif result.lost_bytes:
                done = "cut off" if execute else "would be cut off"
                click.echo(
                    f"{path}: ends at {result.log_end_offset}, {counted(result.kept_bytes, 'byte')} kept, "
                    f"{counted(result.lost_bytes, 'byte')} {done}"
                )
            else:
                sound += 1
    if not as_json:
        if sound:
            click.echo(f"{counted(sound, 'partition')} without damage.")
        if damaged and not execute:
            click.echo("Nothing was changed; --execute does it.")


def _partitions_in_all(disk: Disk, directories: Iterable[str]) -> list[str]:
    """As `_partitions_in`, of several directories; a partition that is named twice is there once."""
    return list(dict.fromkeys(path for directory in directories for path in _partitions_in(disk, directory)))


def _partitions_in(disk: Disk, directory: str) -> list[str]:
    """The partitions below a node's directory, or the one that it is. Any other directory is refused."""
    from ...log.segment.segment import base_offsets
    from ...log.tools.inspection import partition_dirs

    paths = partition_dirs(disk, directory)
    has_logs = any(base_offsets(disk.listdir(path)) for path in paths)
    if not has_logs and not disk.exists(f"{directory}/meta.properties"):
        raise WrongConfiguration(
            f"{directory} is neither a node's log directory, such as raftwerk-data/node-1, nor a partition's directory"
        )
    return paths


@contextmanager
def _locked(disk: Disk, directories: Iterable[str]) -> Iterator[None]:
    """Hold the locks of the log directories, each of which is one of `directories` or the parent of one."""
    with ExitStack() as stack:
        for root in _log_dirs(disk, directories):
            stack.callback(disk.lock_dir(root).release)
        yield


def _log_dirs(disk: Disk, directories: Iterable[str]) -> list[str]:
    """The log directories, each of which is one of `directories` or the parent of one."""
    around = ((directory, directory.rpartition("/")[0]) for directory in directories)
    roots = (next((one for one in paths if disk.exists(f"{one}/meta.properties")), None) for paths in around)
    return list(dict.fromkeys(root for root in roots if root is not None))


def _in_use(disk: Disk, directories: Iterable[str]) -> dict[str, int]:
    """The log directories that running nodes have locked, with a process that holds the lock."""
    from ...cluster.local.processes import lock_holders
    from ...runtime.files.real_disk import LOCK_FILE

    holders = {root: lock_holders(f"{root}/{LOCK_FILE}") for root in _log_dirs(disk, directories)}
    return {root: pids[0] for root, pids in holders.items() if pids}


def _not_checked(root: str, pid: int) -> str:
    return (
        f"a node runs in {root} (process {pid}): it has the indexes of the last segment of each log in memory, and "
        "these are not checked; the rest is checked as it is now. Stop the node to have everything checked."
    )


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except BlockingIOError as error:
        raise click.ClickException(f"{error.filename or 'The directory'} is in use: stop the node first.") from None
    except OSError as error:
        if isinstance(error, BrokenPipeError) and is_reader_gone():
            raise  # see LazyGroup
        raise click.ClickException(os_reason(error)) from None


def _line(row: dict[str, Any]) -> str:
    """A row as text: its kind, then its fields."""
    indent = "    " if row["kind"] == "record" else "  "
    fields = " ".join(
        f"{key}={_show(value)}" for key, value in row.items() if key not in ("file", "kind") and _says(value)
    )
    return f"{indent}{row['kind']} {fields}"


def _says(value: object) -> bool:
    return value is not None and value is not False and value != {}


def _show(value: object) -> str:
    return (
        repr(value) if isinstance(value, str) and (" " in value or not value.isprintable() or not value) else str(value)
    )
