"""Finalized features: what the whole cluster has agreed to use.

`metadata.version` is the level that Apache Kafka 4.2 finalizes (4.2-IV1). `kraft.version` (0: static voters, 1: dynamic
ones, KIP-853) is the quorum's own: it stands in a control record of the log, not in the image, and the quorum says
whether it can be raised. A feature at level 0 is not listed as finalized, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from ..raft.voter_messages import KRAFT_VERSION_FEATURE
from ..raft.voters import DYNAMIC_VERSION, STATIC_VERSION
from ..wire.errors import ErrorCode, ProtocolError
from .image import ELR_FEATURE, METADATA_VERSION_FEATURE, MetadataImage
from .records import FeatureLevelRecord, PartitionChangeRecord, Record
from .result import ControllerResult, Response, error_response

METADATA_VERSION_MIN = 7
METADATA_VERSION = 29
SUPPORTED_FEATURES: Mapping[str, tuple[int, int]] = {
    METADATA_VERSION_FEATURE: (METADATA_VERSION_MIN, METADATA_VERSION),
    KRAFT_VERSION_FEATURE: (STATIC_VERSION, DYNAMIC_VERSION),
    ELR_FEATURE: (0, 1),
}
"""Lowest and highest level of each feature that this node knows; for ApiVersions and registrations."""


def bootstrap_records(image: MetadataImage) -> list[Record]:
    """The first records of a new cluster; none when there are any already."""
    if image.features:
        return []
    return [
        FeatureLevelRecord(METADATA_VERSION_FEATURE, METADATA_VERSION),
        FeatureLevelRecord(ELR_FEATURE, 1),
    ]


def check_supported(image: MetadataImage, offered: Any) -> None:
    """Raise `ProtocolError(UNSUPPORTED_VERSION)` when a finalized level is outside the range that a node offers.

    A feature that the node does not name is not held against it: versions 0 to 3 of BrokerRegistration cannot name
    those whose range starts at 0.
    """
    for one in offered:
        level = image.features.get(one.name, 0)
        low, high = one.min_supported_version, one.max_supported_version
        if level and not low <= level <= high:
            raise ProtocolError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Unable to register because the broker does not support finalized version {level} of {one.name}. "
                f"The broker wants a version between {low} and {high}, inclusive.",
            )


# -- UpdateFeatures ------------------------------------------------------------------------------------------------

_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE = 1, 2, 3


class KRaftVersions(Protocol):
    """The quorum's part in UpdateFeatures."""

    @property
    def level(self) -> int:
        """The `kraft.version` of now."""
        ...

    def upgrade(self, level: int, *, validate_only: bool) -> int:
        """Raise it, or see whether that could be done; returns the offset of the record. Raises `ProtocolError`."""
        ...


def update_features(image: MetadataImage, request: Any, kraft: KRaftVersions) -> ControllerResult:
    """UpdateFeatures 0-2: all of the updates, or none. The response has a result for each (not sent in version 2).

    `metadata.version` names the level of Apache Kafka that this node's records are equal to; it has one level only, so
    it cannot move. `eligible.leader.replicas.version` can be switched on, and off again as long as no partition depends
    on an eligible replica.
    """
    records: list[Record] = []
    results: list[Response] = []
    names = [update.feature for update in request.feature_updates]
    failure: ProtocolError | None = None
    for update in request.feature_updates:
        try:
            if names.count(update.feature) > 1:
                raise ProtocolError(ErrorCode.INVALID_REQUEST, f"The feature {update.feature} is named twice.")
            records += _update_one(image, update, kraft)
            results.append({"feature": update.feature, "error_code": 0, "error_message": None})
        except ProtocolError as error:
            failure = failure or error
            results.append(
                {"feature": update.feature, "error_code": int(error.code), "error_message": error.message or None}
            )
    if failure is not None:
        message = f"The update failed for all features since the following feature had an error: {failure.message}"
        return ControllerResult([], {**error_response(failure.code, message), "results": results})
    response = {**error_response(ErrorCode.NONE), "results": results}
    if request.get("validate_only", False):
        return ControllerResult([], response)
    levels = [one.max_version_level for one in request.feature_updates if one.feature == KRAFT_VERSION_FEATURE]
    upgrades = [kraft.upgrade(level, validate_only=False) for level in levels if level != kraft.level]
    return ControllerResult(records, response, max(upgrades, default=-1))


def _update_one(image: MetadataImage, update: Any, kraft: KRaftVersions) -> list[Record]:
    name, level = update.feature, update.max_version_level
    supported = SUPPORTED_FEATURES.get(name)
    current = kraft.level if name == KRAFT_VERSION_FEATURE else image.features.get(name, 0)
    if supported is None or not supported[0] <= level <= supported[1]:
        known = "does not support the feature" if supported is None else f"supports {supported[0]} to {supported[1]}"
        message = f"Invalid update version {level} for feature {name}. Local controller {known}."
        raise ProtocolError(ErrorCode.INVALID_UPDATE_VERSION, message)
    _check_direction(update, current, level)
    if level == current:
        return []
    if name == METADATA_VERSION_FEATURE:
        message = f"Invalid metadata.version {level}. The records of this cluster are those of {current} alone."
        raise ProtocolError(ErrorCode.INVALID_UPDATE_VERSION, message)
    _check_brokers(image, name, level)
    if name == KRAFT_VERSION_FEATURE:
        kraft.upgrade(level, validate_only=True)
        return []
    records: list[Record] = []
    if name == ELR_FEATURE and level == 0:
        records += _without_elr(image)
    return [*records, FeatureLevelRecord(name, level)]


def _check_direction(update: Any, current: int, level: int) -> None:
    allowed = update.get("upgrade_type", _UNSAFE_DOWNGRADE if update.get("allow_downgrade", False) else _UPGRADE)
    if allowed not in (_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE):
        message = "The controller does not support the given upgrade type."
        raise ProtocolError(ErrorCode.INVALID_UPDATE_VERSION, message)
    if level < current and allowed == _UPGRADE:
        message = (
            f"Invalid update version {level} for feature {update.feature}. Can't downgrade the version of this feature "
            "without setting the upgrade type to either safe or unsafe downgrade."
        )
        raise ProtocolError(ErrorCode.INVALID_UPDATE_VERSION, message)
    if level > current and allowed != _UPGRADE:
        message = f"Invalid update version {level} for feature {update.feature}. Can't upgrade to a higher level so."
        raise ProtocolError(ErrorCode.INVALID_UPDATE_VERSION, message)


def _check_brokers(image: MetadataImage, name: str, level: int) -> None:
    for broker in image.brokers.values():
        for offered, low, high in broker.features:
            if offered == name and not low <= level <= high:
                message = f"Broker {broker.broker_id} supports {name} from {low} to {high}, not {level}."
                raise ProtocolError(ErrorCode.INVALID_UPDATE_VERSION, message)


def _without_elr(image: MetadataImage) -> list[Record]:
    for topic in image.topics_by_id.values():
        for index, partition in topic.partitions.items():
            if not partition.isr:
                message = f"{topic.name}-{index} has eligible leader replicas and no ISR: bring one of them back first."
                raise ProtocolError(ErrorCode.INVALID_UPDATE_VERSION, message)
    return [
        PartitionChangeRecord(topic.topic_id, index, elr=(), last_known_elr=())
        for topic in image.topics_by_id.values()
        for index, partition in topic.partitions.items()
        if partition.elr or partition.last_known_elr
    ]
