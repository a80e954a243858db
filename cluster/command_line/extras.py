"""The packages of the extras, which commands of some kind need, and the command that installs them."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import shlex
import sys

_PACKAGE = "raftwerk"


def missing_modules(*modules: str) -> list[str]:
    """Those of the modules that this Python cannot import."""
    return [name for name in modules if importlib.util.find_spec(name) is None]


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
