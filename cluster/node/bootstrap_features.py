"""The feature levels that a new cluster begins with. They are chosen when its controllers are formatted.

The file `bootstrap.features` beside `meta.properties` holds them; Kafka keeps them in `bootstrap.checkpoint`. The first
controller that leads a new quorum reads its own file, so all controllers must be formatted with the same choice. Later
levels are in the metadata log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...controller.metadata.features import FIXED_LEVELS, SUPPORTED_FEATURES
from ...controller.metadata.metadata_image import ELR_FEATURE, METADATA_VERSION_FEATURE, TRANSACTION_VERSION_FEATURE
from ...log.state.checkpoints import remove_durably
from ...raft.messages.voter_messages import KRAFT_VERSION_FEATURE
from ...runtime.ports import Disk
from ..settings.properties import format_properties, parse_properties

_FILE = "bootstrap.features"
_ELR_SINCE = 26
"""4.1-IV0: the level of `metadata.version` from which Kafka begins with eligible leader replicas."""
_TRANSACTION_VERSION_2_SINCE = 24
"""4.0-IV2: the level of `metadata.version` from which Kafka begins with `transaction.version` 2; below it, with 1."""


def choose_levels(release: str | None, features: Iterable[str]) -> dict[str, int]:
    """The levels that `--release-version` (4.2 or 4.2-IV1) and each `--feature NAME=LEVEL` ask for; ValueError says
    what is wrong.
    """
    from ..client.feature_client import METADATA_RELEASES

    levels: dict[str, int] = {}
    if release is not None:
        known = [level for level, name in METADATA_RELEASES.items() if release in (name, name.partition("-")[0])]
        if not known:
            names = METADATA_RELEASES.values()
            shown = dict.fromkeys([*(name.partition("-")[0] for name in names), *names])
            older = f"; for levels of older ones give --feature {METADATA_VERSION_FEATURE}=LEVEL"
            raise ValueError(f"release {release} is unknown: {', '.join(shown)} are known{older}")
        levels = {
            METADATA_VERSION_FEATURE: known[-1],
            ELR_FEATURE: int(known[-1] >= _ELR_SINCE),
            TRANSACTION_VERSION_FEATURE: 2 if known[-1] >= _TRANSACTION_VERSION_2_SINCE else 1,
        }
    for given in features:
        name, _, text = given.partition("=")
        if not text.isdecimal():
            raise ValueError(f"{given!r} is not NAME=LEVEL, for example {ELR_FEATURE}=1")
        if name == KRAFT_VERSION_FEATURE:
            raise ValueError(f"{name} is 1 with --standalone and --initial-controllers, else 0: leave it out")
        if name == METADATA_VERSION_FEATURE and release is not None:
            raise ValueError(f"{name} is what --release-version says: leave one of them out")
        low, high = SUPPORTED_FEATURES.get(name, (0, -1))
        if not low <= int(text) <= high:
            can_be = f"levels {low} to {high}" if high >= 0 else "no such feature"
            raise ValueError(f"{given}: this software has {can_be}")
        levels[name] = int(text)
    return {name: level for name, level in levels.items() if name not in FIXED_LEVELS}


def write_levels(disk: Disk, log_dir: str, levels: Mapping[str, int]) -> None:
    """Write the levels into an existing directory, in place of others; OSError when the disk refuses."""
    path = f"{log_dir}/{_FILE}"
    if levels:
        text = format_properties({name: str(level) for name, level in levels.items()})
        disk.write_atomic(path, text.encode())
    else:
        remove_durably(disk, path)


def read_levels(disk: Disk, log_dir: str) -> dict[str, int]:
    """The levels that were chosen; empty when none were."""
    path = f"{log_dir}/{_FILE}"
    if not disk.exists(path):
        return {}
    return {name: int(level) for name, level in parse_properties(disk.read_bytes(path).decode()).items()}
