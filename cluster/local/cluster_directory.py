"""The directory of a local cluster: which of its files are the cluster's, and how they are removed."""

from __future__ import annotations

import os
import re
import shutil

from .client_files import AUTHORITY_FILE, SECURITY_DIR
from .layout import INITIAL_CONTROLLERS, LEAVING
from .local_console import CONSOLE_LOG
from .running_up import CONSOLE_PID, TEST_PID, UP_PID

_CLUSTER_FILE = re.compile(
    rf"node-\d+|s\d+\.properties({re.escape(LEAVING)})?|n\d+\.(log|pid|progress)|{INITIAL_CONTROLLERS}|"
    + "|".join(map(re.escape, (UP_PID, TEST_PID, CONSOLE_PID, CONSOLE_LOG)))
)
_GITIGNORE = ".gitignore"
_IGNORE_ALL = "# Made by raftwerk up: the data of a local cluster.\n*\n"
_NEUTRAL_FILES = (_GITIGNORE, "lost+found")
_NAMED_FILES = 3


def check_not_foreign(directory: str) -> None:
    """Raise ValueError when the directory holds files that are not a local cluster's."""
    names = sorted(os.listdir(directory)) if os.path.isdir(directory) else []
    foreign = [name for name in names if name not in _NEUTRAL_FILES and not _is_cluster_file(directory, name)]
    if foreign:
        shown = ", ".join(foreign[:_NAMED_FILES]) + (", ..." if len(foreign) > _NAMED_FILES else "")
        raise ValueError(
            f"{os.path.abspath(directory)} holds other files ({shown}): name a new or an empty directory, for example "
            f"{os.path.join(directory, 'raftwerk-data')}"
        )


def make_directory(directory: str) -> None:
    """Make the directory, with a `.gitignore` that leaves it out of version control, unless it has one."""
    os.makedirs(directory, exist_ok=True)
    path = os.path.join(directory, _GITIGNORE)
    if not os.path.exists(path):
        with open(path, "w", encoding="utf-8") as file:
            file.write(_IGNORE_ALL)


def delete_files(directory: str) -> None:
    """Remove the cluster's files, and the directory if nothing else is in it."""
    for name in os.listdir(directory):
        path = os.path.join(directory, name)
        if not _is_cluster_file(directory, name) and not _is_our_gitignore(path):
            continue
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.remove(path)
    if not os.listdir(directory):
        os.rmdir(directory)


def size_bytes(directory: str) -> int:
    """The size of all files under the directory."""
    return sum(
        os.path.getsize(os.path.join(parent, name))
        for parent, _, names in os.walk(directory)
        for name in names
        if not os.path.islink(os.path.join(parent, name))
    )


def _is_cluster_file(directory: str, name: str) -> bool:
    if name == SECURITY_DIR:  # a name that others use, too
        return os.path.exists(os.path.join(directory, name, AUTHORITY_FILE))
    return _CLUSTER_FILE.fullmatch(name) is not None


def _is_our_gitignore(path: str) -> bool:
    if os.path.basename(path) != _GITIGNORE:
        return False
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read() == _IGNORE_ALL
