"""Reads and changes the levels of a cluster's features (KIP-584)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...controller.metadata.metadata_image import METADATA_VERSION_FEATURE
from ...raft.messages.voter_messages import KRAFT_VERSION_FEATURE
from ...wire.api_keys import ApiKey
from ...wire.errors import ErrorCode
from .access.needed_rights import Asked
from .client_errors import RefusedError
from .cluster_client import ClusterClient

METADATA_RELEASES: Mapping[int, str] = {
    23: "4.0-IV1",
    24: "4.0-IV2",
    25: "4.0-IV3",
    26: "4.1-IV0",
    27: "4.1-IV1",
    28: "4.2-IV0",
    29: "4.2-IV1",
}
"""The levels of `metadata.version` that a cluster can have, with the names of Apache Kafka's releases."""
_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE = 1, 2, 3
_TIMEOUT_MS = 30_000


@dataclass(frozen=True, slots=True)
class Feature:
    """One feature, with the range of levels that the broker supports. `level` is None when none is finalized."""

    name: str
    lowest: int
    highest: int
    level: int | None

    @property
    def is_behind(self) -> bool:
        """Whether a higher level is supported."""
        return (self.level or 0) < self.highest

    @property
    def release(self) -> str | None:
        """Apache Kafka's name of the level of `metadata.version`; None for other features."""
        return METADATA_RELEASES.get(self.level or 0) if self.name == METADATA_VERSION_FEATURE else None


async def features(client: ClusterClient) -> list[Feature]:
    """The features that the broker supports, with the levels that the cluster has finalized."""
    answer = await client.request(
        ApiKey.API_VERSIONS, 4, {"client_software_name": "raftwerk", "client_software_version": "0"}
    )
    levels = {one.name: one.max_version_level for one in answer.finalized_features}
    return [
        Feature(one.name, one.min_version, one.max_version, levels.get(one.name))
        for one in sorted(answer.supported_features, key=lambda row: str(row.name))
    ]


async def upgrade_features(
    client: ClusterClient, names: Sequence[str], *, dry_run: bool
) -> tuple[list[Feature], Feature | None]:
    """Raise these features, or all but `kraft.version`, to the highest level that the broker supports.

    Returns the features that were at a lower level, as they were, and `kraft.version` if it is left out and could be
    raised. Raises `RefusedError`, also for an unknown name.
    """
    known = {one.name: one for one in await features(client)}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise RefusedError(ErrorCode.INVALID_UPDATE_VERSION, unknown[0], "there is no such feature")
    chosen = names or [name for name in known if name != KRAFT_VERSION_FEATURE]
    behind = [known[name] for name in chosen if known[name].is_behind]
    if behind:
        await set_features(client, {one.name: one.highest for one in behind}, dry_run=dry_run)
    kraft = None if names else known.get(KRAFT_VERSION_FEATURE)
    return behind, kraft if kraft is not None and kraft.is_behind else None


async def set_features(
    client: ClusterClient, levels: Mapping[str, int], *, downgrade: bool = False, unsafe: bool = False, dry_run: bool
) -> None:
    """Set the levels of features, all or none.

    With `dry_run`, only ask whether it is possible. Raises `RefusedError`.
    """
    kind = _UNSAFE_DOWNGRADE if unsafe else _SAFE_DOWNGRADE if downgrade else _UPGRADE
    updates = [{"feature": name, "max_version_level": level, "upgrade_type": kind} for name, level in levels.items()]
    fields = {"timeout": _TIMEOUT_MS, "feature_updates": updates, "validate_only": dry_run}
    answer = await client.request(ApiKey.UPDATE_FEATURES, 2, fields)
    if answer.error_code:
        asked = Asked(ApiKey.UPDATE_FEATURES)
        raise RefusedError(answer.error_code, "the features", answer.error_message, asked=asked)
