"""The SCRAM users that a new cluster begins with (KIP-900). They are given when its controllers are formatted.

The file `bootstrap.users` beside `meta.properties` holds them; Kafka keeps them in `bootstrap.checkpoint`. The first
controller that leads a new quorum writes those of its own file into the metadata log, so all controllers must be
formatted with the same users. Controllers that log in to each other by SCRAM need a credential before they know any
metadata, at each start: until then those of the file count. The file follows the metadata log, so a password that was
changed counts there, too.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence

from ...controller.metadata.metadata_image import MetadataDelta, MetadataImage
from ...controller.metadata.metadata_records import UserScramCredentialRecord
from ...log.state.checkpoints import remove_durably
from ...runtime.ports import Disk
from ...security.sasl.scram_credential import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    MECHANISM_NUMBERS,
    FindCredential,
    ScramCredential,
    credential_of,
    salted,
)

_FILE = "bootstrap.users"
_SALT_BYTES = 24
_ARGUMENT = re.compile(r"(?P<mechanism>[^=]+)=\[(?P<pairs>.*)\]", re.DOTALL)
_PAIR = re.compile(r'\s*(?P<key>\w+)=(?:"(?P<quoted>[^"]*)"|(?P<plain>[^,]*))(?:,|$)')
_KEYS = ("name", "password", "salt", "saltedpassword", "iterations")
_EXAMPLE = "write for example SCRAM-SHA-512=[name=alice,password=...]"


def choose_users(
    arguments: Iterable[str], secret_bytes: Callable[[int], bytes]
) -> tuple[UserScramCredentialRecord, ...]:
    """The users that each `--add-scram MECHANISM=[name=...,password=...]` asks for.

    Raises ValueError, whose text has no password.
    """
    found: dict[tuple[str, int], UserScramCredentialRecord] = {}
    for argument in arguments:
        match = _ARGUMENT.fullmatch(argument.strip())
        if match is None:
            raise ValueError(f"it is not MECHANISM=[key=value,...]: {_EXAMPLE}")
        if match["mechanism"] not in MECHANISM_NUMBERS:
            raise ValueError(f"{match['mechanism']} is not one of {', '.join(MECHANISM_NUMBERS)}")
        record = _user(match["mechanism"], _pairs_of(match["pairs"]), secret_bytes)
        if (record.name, record.mechanism) in found:
            raise ValueError(f"{record.name} is given twice for {match['mechanism']}")
        found[record.name, record.mechanism] = record
    return tuple(found.values())


def _pairs_of(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    at = 0
    while at < len(text):
        match = _PAIR.match(text, at)
        if match is None or match["key"] not in _KEYS:
            raise ValueError(f"between the brackets are {', '.join(_KEYS)}, each with =value: {_EXAMPLE}")
        found[match["key"]] = match["quoted"] if match["quoted"] is not None else match["plain"]
        at = match.end()
    return found


def _user(mechanism: str, pairs: Mapping[str, str], secret_bytes: Callable[[int], bytes]) -> UserScramCredentialRecord:
    if not pairs.get("name"):
        raise ValueError("You must supply 'name' to add-scram")
    if bool(pairs.get("password")) == bool(pairs.get("saltedpassword")):
        raise ValueError("You must supply one of 'password' or 'saltedpassword' to add-scram")
    if "saltedpassword" in pairs and not pairs.get("salt"):
        raise ValueError("You must supply 'salt' with 'saltedpassword' to add-scram")
    text = pairs.get("iterations", str(ITERATIONS_MIN))
    if not text.isdecimal() or not ITERATIONS_MIN <= int(text) <= ITERATIONS_MAX:
        raise ValueError(f"iterations={text} is not between {ITERATIONS_MIN} and {ITERATIONS_MAX}")
    iterations = int(text)
    salt = _base64(pairs, "salt") if pairs.get("salt") else secret_bytes(_SALT_BYTES)
    if "saltedpassword" in pairs:
        password = _base64(pairs, "saltedpassword")
    else:
        password = salted(mechanism, pairs["password"], salt, iterations)
    made = credential_of(mechanism, password, salt, iterations)
    return UserScramCredentialRecord(pairs["name"], MECHANISM_NUMBERS[mechanism], *made)


def _base64(pairs: Mapping[str, str], key: str) -> bytes:
    try:
        return b64decode(pairs[key], validate=True)
    except ValueError:
        raise ValueError(f"the value of {key} is not base64") from None


def write_users(disk: Disk, log_dir: str, users: Sequence[UserScramCredentialRecord]) -> None:
    """Write the users into an existing directory, in place of others; OSError when the disk refuses."""
    path = f"{log_dir}/{_FILE}"
    if users:
        disk.write_atomic(path, _encode(users))
    else:
        remove_durably(disk, path)


def _encode(users: Iterable[UserScramCredentialRecord]) -> bytes:
    rows = [
        {
            "name": one.name,
            "mechanism": one.mechanism,
            "iterations": one.iterations,
            **{key: b64encode(getattr(one, key)).decode() for key in ("salt", "stored_key", "server_key")},
        }
        for one in users
    ]
    return json.dumps(rows, indent=1).encode()


def read_users(disk: Disk, log_dir: str) -> tuple[UserScramCredentialRecord, ...]:
    """The users that were given; empty when none were."""
    path = f"{log_dir}/{_FILE}"
    if not disk.exists(path):
        return ()
    return tuple(
        UserScramCredentialRecord(
            row["name"],
            row["mechanism"],
            b64decode(row["salt"]),
            b64decode(row["stored_key"]),
            b64decode(row["server_key"]),
            row["iterations"],
        )
        for row in json.loads(disk.read_bytes(path))
    )


class BootstrapUsers:
    """The users of the file, for logins at a controller that does not know the metadata yet."""

    def __init__(self, disk: Disk, log_dir: str, find: FindCredential, image: Callable[[], MetadataImage]) -> None:
        self._disk = disk
        self._log_dir = log_dir
        self._find = find
        self._image = image
        self.users = read_users(disk, log_dir)
        """Those of the file."""
        self._keys = tuple((one.mechanism, one.name) for one in self.users)
        """Of the users that the file had at the start; one that is deleted may be added again."""

    def find(self, mechanism: str, user: str) -> ScramCredential | None:
        """The credential of a user: by the metadata log, or by the file as long as that is empty."""
        if self._image().features:
            return self._find(mechanism, user)
        number = MECHANISM_NUMBERS[mechanism]
        return next((_credential(one) for one in self.users if (one.name, one.mechanism) == (user, number)), None)

    def on_metadata(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Write the file anew when a credential of one of its users has changed, was deleted or added again."""
        if not any(key in delta.changed_credentials for key in self._keys):
            return
        known = ((key, image.scram_credentials.get(key)) for key in self._keys)
        self.users = tuple(
            UserScramCredentialRecord(name, mechanism, *found)
            for (mechanism, name), found in known
            if found is not None
        )
        # A failed disk shows by itself; the former file lets the same controllers log in.
        self._disk.write_atomic_soon(f"{self._log_dir}/{_FILE}", _encode(self.users)).add_done_callback(
            lambda done: done.cancelled() or done.exception()
        )


def _credential(record: UserScramCredentialRecord) -> ScramCredential:
    return ScramCredential(record.salt, record.stored_key, record.server_key, record.iterations)
