"""Profiles: names for clusters on other machines, kept in a small file of the user.

The file is `$XDG_CONFIG_HOME/raftwerk/profiles.toml`, by default in `~/.config`. It may be edited by hand:

    current = "staging"

    [profiles.staging]
    bootstrap-servers = "broker-1:9092,broker-2:9092"
    command-config = "/home/ann/staging.properties"

`command-config` is the path of the file that says how to log in there. What is in that file is never copied.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field

from .user_directories import user_directory

_KEY = "bootstrap-servers"
_LOGIN_KEY = "command-config"


class ProfilesError(Exception):
    """The file of profiles cannot be used, with the reason."""


@dataclass(frozen=True, slots=True)
class Profiles:
    """The bootstrap servers of each profile by name, and the name of the profile in use.

    `login_files` has the files of client properties by which commands log in, of the profiles that have one.
    """

    bootstraps: Mapping[str, str] = field(default_factory=dict)
    current: str | None = None
    login_files: Mapping[str, str] = field(default_factory=dict)

    def with_profile(self, name: str, bootstrap: str, login_file: str | None = None) -> Profiles:
        """These profiles and one more; one of the same name is replaced."""
        others = self.without(name)
        login_files = {**others.login_files} if login_file is None else {**others.login_files, name: login_file}
        return Profiles({**self.bootstraps, name: bootstrap}, self.current, login_files)

    def without(self, name: str) -> Profiles:
        """These profiles without one. If it was in use, none is in use."""
        rest, login_files = (
            {one: value for one, value in values.items() if one != name}
            for values in (self.bootstraps, self.login_files)
        )
        return Profiles(rest, None if self.current == name else self.current, login_files)

    def using(self, name: str | None) -> Profiles:
        """These profiles, with this one in use, or none."""
        return Profiles(self.bootstraps, name, self.login_files)


def profiles_file() -> str:
    """The path of the file."""
    return os.path.join(user_directory("XDG_CONFIG_HOME", ".config"), "raftwerk", "profiles.toml")


def load_profiles() -> Profiles:
    """The user's profiles; none when there is no file. Raises `ProfilesError` for a file that is malformed."""
    path = profiles_file()
    try:
        with open(path, "rb") as file:
            return _parse(tomllib.load(file))
    except FileNotFoundError:
        return Profiles()
    except OSError as error:
        raise ProfilesError(f"the profiles in {path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ProfilesError(f"{path} is malformed ({error}): correct it or remove it") from None


def save_profiles(profiles: Profiles) -> None:
    """Replace the file. Raises `ProfilesError` when it cannot be written."""
    path = os.path.realpath(profiles_file())  # a link, as to a directory of dotfiles, stays one
    draft = f"{path}.{os.getpid()}"
    try:
        data = _format(profiles).encode()
    except UnicodeEncodeError:
        raise ProfilesError(f"the profiles in {path} cannot be written: a path in them is no Unicode text") from None
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(draft, "wb") as file:
            file.write(data)
        os.replace(draft, path)
    except OSError as error:
        raise ProfilesError(f"the profiles in {path} cannot be written: {error.strerror}") from None


def _parse(document: Mapping[str, object]) -> Profiles:
    rows = document.get("profiles", {})
    if not isinstance(rows, dict):
        raise ValueError("profiles is not a table")
    bootstraps, login_files = {}, {}
    for name, row in rows.items():
        bootstrap = row.get(_KEY) if isinstance(row, dict) else None
        if not isinstance(bootstrap, str):
            raise ValueError(f"the profile {name} has no {_KEY}")
        bootstraps[name] = bootstrap
        login_file = row.get(_LOGIN_KEY)
        if login_file is not None:
            if not isinstance(login_file, str):
                raise ValueError(f"{_LOGIN_KEY} of the profile {name} is not the path of a file")
            login_files[name] = login_file
    current = document.get("current")
    if current is not None and current not in bootstraps:
        raise ValueError(f"current is {current!r}, and there is no such profile")
    return Profiles(bootstraps, None if current is None else str(current), login_files)


def _format(profiles: Profiles) -> str:
    """The file's text."""
    lines = [] if profiles.current is None else [f"current = {_quoted(profiles.current)}", ""]
    for name, bootstrap in profiles.bootstraps.items():
        lines += [f"[profiles.{_quoted(name)}]", f"{_KEY} = {_quoted(bootstrap)}"]
        if name in profiles.login_files:
            lines.append(f"{_LOGIN_KEY} = {_quoted(profiles.login_files[name])}")
        lines.append("")
    return "\n".join(lines)


def _quoted(text: str) -> str:
    """A string of TOML: one of JSON without escaped halves of surrogate pairs, and with DEL escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
