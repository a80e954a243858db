"""The packages of the extras, which commands of some kind need, and the command that installs them."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import shlex
import sys
from collections.abc import Sequence

_PACKAGE = "raftwerk"
_PACKAGE_OF_MODULE = {
    "confluent_kafka": "confluent-kafka",
    "google.protobuf": "protobuf",
    "google.type": "googleapis-common-protos",
}
"""Where the name of the package is not that of the module."""


def missing_packages(*modules: str) -> list[str]:
    """The packages, by the names with which they are installed, of those modules that this Python cannot import."""
    return [_PACKAGE_OF_MODULE.get(name, name) for name in modules if not _is_there(name)]


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package around it
        return False


def not_installed(missing: Sequence[str], extra: str) -> str:
    """A sentence about packages of an extra that are missing: which, and the command that installs them.

    A command that needs them ends with exit code 1: its command line is right.
    """
    packages = "the package" if len(missing) == 1 else "the packages"
    are = "is" if len(missing) == 1 else "are"
    return f"{packages} {', '.join(missing)} {are} not installed: {how_to_install(extra)}"


def how_to_install(extra: str) -> str:
    """The command that installs the packages of an extra into this Python.

    It names them one by one, since `raftwerk[extra]` is known to no index when this package came from a checkout or
    from a file.
    """
    wanted = requirements(extra)
    installer = [sys.executable, "-m", "pip", "install"]
    if importlib.util.find_spec("pip") is None:
        installer = ["uv", "pip", "install", "--python", sys.executable]
    return shlex.join([*installer, *wanted])


def requirements(extra: str) -> list[str]:
    """What the extra requires, as `name>=version`, by the metadata of the installed package.

    In a checkout that is not installed, or was before there was this extra, pip reads its pyproject.toml.
    """
    try:
        lines = importlib.metadata.requires(_PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        lines = []
    ours = re.compile(rf"(?P<requirement>[^;]+);\s*extra == ['\"]{re.escape(extra)}['\"]")
    found = (ours.fullmatch(line.strip()) for line in lines)
    return [match["requirement"].strip() for match in found if match is not None] or ["-e", f".[{extra}]"]
