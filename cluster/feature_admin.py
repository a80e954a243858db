"""What operators ask about features: which levels there are, which is in force, and to change it (KIP-584)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..wire.apis import ApiKey
from .admin import ClusterClient
from .client_errors import RefusedError

_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE = 1, 2, 3
_TIMEOUT_MS = 30_000


@dataclass(frozen=True, slots=True)
class Feature:
    """One feature; `level` is None where none is in force."""

    name: str
    lowest: int
    highest: int
    level: int | None


async def features(client: ClusterClient) -> list[Feature]:
    """The features that the broker asked supports, and the levels that the cluster has."""
    answer = await client.request(
        ApiKey.API_VERSIONS, 4, {"client_software_name": "raftwerk", "client_software_version": "0"}
    )
    levels = {one.name: one.max_version_level for one in answer.finalized_features}
    return [
        Feature(one.name, one.min_version, one.max_version, levels.get(one.name))
        for one in sorted(answer.supported_features, key=lambda row: str(row.name))
    ]


async def set_features(
    client: ClusterClient, levels: Mapping[str, int], *, downgrade: bool = False, unsafe: bool = False, dry_run: bool
) -> None:
    """Bring features to levels, all or none; with `dry_run` only find whether that could be. `RefusedError`."""
    kind = _UNSAFE_DOWNGRADE if unsafe else _SAFE_DOWNGRADE if downgrade else _UPGRADE
    updates = [{"feature": name, "max_version_level": level, "upgrade_type": kind} for name, level in levels.items()]
    fields = {"timeout": _TIMEOUT_MS, "feature_updates": updates, "validate_only": dry_run}
    answer = await client.request(ApiKey.UPDATE_FEATURES, 2, fields)
    if answer.error_code:
        raise RefusedError(answer.error_code, "the features", answer.error_message)
