"""Where the files of a user are, by the XDG Base Directory Specification."""

from __future__ import annotations

import os


def user_directory(variable: str, default: str) -> str:
    """The directory that the environment variable names; by default, or if that is no absolute path, one in the home.

    A relative path would be another directory for each command, and is ignored, as the specification says.
    """
    named = os.environ.get(variable, "")
    return named if os.path.isabs(named) else os.path.join(os.path.expanduser("~"), default)
