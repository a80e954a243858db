"""Finalized features: what the whole cluster has agreed to use.

`metadata.version` is the level that Apache Kafka 4.2 finalizes (4.2-IV1). `kraft.version` (0: static voters, 1: dynamic
voters, KIP-853) belongs to the quorum: it is in a control record of the log, not in the image, and the quorum decides
whether it can be raised. `raftwerk.record.version` exists only here: it is the version of metadata records
(`metadata_records.py`). `group.version` is always 1: KIP-848 is part of the software, and no record says so. A feature
at level 0 is not listed as finalized, as in Kafka. `transaction.version` is Kafka's: at 1 the records of transactions
have tagged fields; at 2 each end of a transaction bumps the producer's epoch, and partitions are added to a transaction
by the first write (KIP-890). A new cluster begins with 2, a cluster of older software keeps 0 until it is raised.
`share.version` and `streams.version` are not served, so they do not exist.

How a cluster changes to new software. The nodes are restarted with it one by one. Meanwhile every record is written at
the finalized level, which the old nodes read too. Then a level is raised. All registered brokers and all voters must
have said that they know it; controllers register for that (KIP-919). From then on a node with older software is refused
when it registers, and stops when it reads a record that it does not know. To go back, the level is lowered first, if no
metadata are lost by that. Each node then writes a snapshot at the lower level and can be restarted with older software.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from ...raft.messages.voter_messages import KRAFT_VERSION_FEATURE
from ...raft.voters.voter_set import DYNAMIC_VERSION, STATIC_VERSION
from ...runtime.incremental_work import PLAIN_STEP, Pace, Work, count_in_steps
from ...wire.errors import ErrorCode, ProtocolError
from ..partitions.eligible_leader_replicas import ELRS_PER_BATCH, make_elr_safe, switch_off_elr
from ..result import ControllerResult, Decision, Response, error_response
from .metadata_image import (
    ELR_FEATURE,
    METADATA_VERSION_FEATURE,
    RECORD_VERSION_FEATURE,
    TRANSACTION_VERSION_FEATURE,
    MetadataImage,
)
from .metadata_records import (
    PLAIN_RECORDS,
    SECURITY_RECORDS,
    FeatureLevelRecord,
    NewerMetadataError,
    Record,
)

if TYPE_CHECKING:
    from ...wire.message_types.brokers import (
        BrokerRegistrationRequest,
        ControllerRegistrationRequest,
        UpdateFeaturesRequest,
    )

OfferedFeature: TypeAlias = "BrokerRegistrationRequest.Feature | ControllerRegistrationRequest.Feature"
"""A feature and its levels, as a node that registers offers it."""

GROUP_VERSION_FEATURE = "group.version"
FIXED_LEVELS: Mapping[str, int] = {GROUP_VERSION_FEATURE: 1}
"""Levels that belong to the software and cannot be changed."""
METADATA_VERSION_MIN = 7
METADATA_VERSION = 29
METADATA_VERSION_WITH_TOKENS = 14
"""3.6-IV2: the first level with delegation tokens."""
METADATA_VERSION_WITH_ELR = 23
"""4.0-IV1: the last level that changed Kafka's records; below it metadata could be lost."""

TRANSACTION_VERSION = 2
_NAMED_BY_ALL = (RECORD_VERSION_FEATURE, TRANSACTION_VERSION_FEATURE)
"""A node that does not name one of these when it registers has software without that feature."""

VersionRanges = Mapping[str, tuple[int, int]]

SUPPORTED_FEATURES: VersionRanges = {
    METADATA_VERSION_FEATURE: (METADATA_VERSION_MIN, METADATA_VERSION),
    KRAFT_VERSION_FEATURE: (STATIC_VERSION, DYNAMIC_VERSION),
    ELR_FEATURE: (0, 1),
    RECORD_VERSION_FEATURE: (PLAIN_RECORDS, SECURITY_RECORDS),
    TRANSACTION_VERSION_FEATURE: (0, TRANSACTION_VERSION),
    **{name: (level, level) for name, level in FIXED_LEVELS.items()},
}
"""Lowest and highest level of each feature that this node knows, as ApiVersions and registrations say it."""


def bootstrap_records(image: MetadataImage, supported: VersionRanges, chosen: Mapping[str, int]) -> list[Record]:
    """The first records of a new cluster: the chosen levels, else the highest. None for a cluster that has features."""
    if image.features:
        return []
    first = {
        METADATA_VERSION_FEATURE: METADATA_VERSION,
        ELR_FEATURE: 1,
        RECORD_VERSION_FEATURE: supported.get(RECORD_VERSION_FEATURE, (0, PLAIN_RECORDS))[1],
        TRANSACTION_VERSION_FEATURE: supported.get(TRANSACTION_VERSION_FEATURE, (0, 0))[1],
        **chosen,
    }
    return [FeatureLevelRecord(name, level) for name, level in first.items() if level]


def transaction_version(image: MetadataImage) -> int:
    """The finalized level of `transaction.version`: 0, 1 or 2."""
    return image.features.get(TRANSACTION_VERSION_FEATURE, 0)


def check_level_is_known(supported: VersionRanges, record: FeatureLevelRecord) -> None:
    """Raise `NewerMetadataError` when this node does not know the finalized level."""
    low, high = supported.get(record.name, (0, 0))
    if record.level and not low <= record.level <= high:
        raise NewerMetadataError(
            f"the cluster has finalized {record.name} at level {record.level}, and this node knows "
            f"{f'levels {low} to {high}' if high else 'no such feature'}: upgrade this node before it joins"
        )


def check_supported(image: MetadataImage, offered: Iterable[OfferedFeature], who: str) -> None:
    """Raise `ProtocolError(UNSUPPORTED_VERSION)` when a finalized level is outside the range that a node offers.

    A feature of Kafka that the node does not name is not checked: versions 0 to 3 of BrokerRegistration cannot name
    those whose range starts at 0. A node that does not name `raftwerk.record.version` or `transaction.version` has
    older software.
    """
    ranges = {one.name: (one.min_supported_version, one.max_supported_version) for one in offered}
    for name, level in image.features.items():
        if name not in ranges and name not in _NAMED_BY_ALL:
            continue
        low, high = ranges.get(name, (0, 0))
        if not low <= level <= high:
            raise ProtocolError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Unable to register because the {who} does not support finalized version {level} of {name}. "
                f"The {who} wants a version between {low} and {high}, inclusive.",
            )


# -- UpdateFeatures ------------------------------------------------------------------------------------------------

_ELR_OFF, _ELR_ON = (ELR_FEATURE, 0), (ELR_FEATURE, 1)
_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE = 1, 2, 3


class KRaftVersions(Protocol):
    """The quorum's part in UpdateFeatures: reads and raises `kraft.version`."""

    @property
    def level(self) -> int:
        """The present `kraft.version`."""
        ...

    def upgrade(self, level: int, *, validate_only: bool) -> int:
        """Raise `kraft.version`, or only check that; returns the offset of the record. Raises `ProtocolError`."""
        ...

    @property
    def voter_ids(self) -> Sequence[int]:
        """The ids of the voters."""
        ...


@dataclass(frozen=True, slots=True)
class _Update:
    """The level that one feature shall have."""

    name: str
    current: int
    level: int
    kind: int

    def refused(self, reason: str) -> ProtocolError:
        """The error to raise, in Kafka's words."""
        message = f"Invalid update version {self.level} for feature {self.name}. {reason}"
        return ProtocolError(ErrorCode.INVALID_UPDATE_VERSION, message)


def update_features(
    image: MetadataImage,
    request: UpdateFeaturesRequest,
    kraft: KRaftVersions,
    supported: VersionRanges,
    static_min_isr: int,
) -> Decision:
    """UpdateFeatures 0-2: all of the updates, or none. The response has a result for each (not sent in version 2).

    `metadata.version` is a level of Apache Kafka. No record here depends on it, so it may go where Kafka lets it go:
    not below the last level that changed Kafka's records. `raftwerk.record.version` may go up and down, since all
    versions of records say the same, but not below 2 while there are records about security. `transaction.version` may
    go up and down, too, since every level reads what the others wrote. `eligible.leader.replicas.version` may be
    switched on, and off again as long as no partition depends on its ELR. With it the cluster gets a value of
    `min.insync.replicas`, unless it has one: `static_min_isr`, that of this controller's settings.
    """
    pace = Pace()
    times = yield from count_in_steps((update.feature for update in request.feature_updates), pace)
    is_validated_only = request.get("validate_only", False)
    while True:
        checked = yield from _check_updates(image, request.feature_updates, times, kraft, supported)
        if checked.failure is not None:
            reason = checked.failure.message
            message = f"The update failed for all features since the following feature had an error: {reason}"
            return ControllerResult([], {**error_response(checked.failure.code, message), "results": checked.results})
        response = {**error_response(ErrorCode.NONE), "results": checked.results}
        if is_validated_only:
            return ControllerResult([], response)
        emptied = list(islice(switch_off_elr(image), ELRS_PER_BATCH)) if checked.sets(_ELR_OFF) else []
        if len(emptied) < ELRS_PER_BATCH:
            break
        # While very many ELRs are emptied, other requests are decided: the updates are checked again after it.
        yield emptied
    levels = [one.max_version_level for one in request.feature_updates if one.feature == KRAFT_VERSION_FEATURE]
    upgrades = [kraft.upgrade(level, validate_only=False) for level in levels if level != kraft.level]
    safe = make_elr_safe(image, static_min_isr) if checked.sets(_ELR_ON) else []
    return ControllerResult([*emptied, *safe, *checked.records], response, max(upgrades, default=-1))


class _CheckedUpdates(NamedTuple):
    records: list[Record]
    results: list[Response]
    failure: ProtocolError | None
    """What the first of the refused updates was refused for."""

    def sets(self, level: tuple[str, int]) -> bool:
        """Whether this feature gets this level."""
        return any(isinstance(one, FeatureLevelRecord) and (one.name, one.level) == level for one in self.records)


def _check_updates(
    image: MetadataImage,
    updates: Sequence[UpdateFeaturesRequest.FeatureUpdateKey],
    times: Mapping[str, int],
    kraft: KRaftVersions,
    supported: VersionRanges,
) -> Work[_CheckedUpdates]:
    """Check all updates. If none is refused, it is done in one step, since there are few features."""
    pace = Pace()
    records: list[Record] = []
    results: list[Response] = []
    failure: ProtocolError | None = None
    for update in updates:
        code, text = ErrorCode.NONE, None
        try:
            if times[update.feature] > 1:
                raise ProtocolError(ErrorCode.INVALID_REQUEST, f"The feature {update.feature} is named twice.")
            records += _update_one(image, update, kraft, supported)
        except ProtocolError as error:
            failure = failure or error
            code, text = error.code, error.message or None
        results.append({"feature": update.feature, **error_response(code, text)})
        if pace.ends_step():
            yield PLAIN_STEP
    return _CheckedUpdates(records, results, failure)


def _update_one(
    image: MetadataImage,
    request: UpdateFeaturesRequest.FeatureUpdateKey,
    kraft: KRaftVersions,
    supported: VersionRanges,
) -> list[Record]:
    name, level = request.feature, request.max_version_level
    current = kraft.level if name == KRAFT_VERSION_FEATURE else image.features.get(name, FIXED_LEVELS.get(name, 0))
    kind = request.get("upgrade_type", _UNSAFE_DOWNGRADE if request.get("allow_downgrade", False) else _UPGRADE)
    update = _Update(name, current, level, kind)
    known = supported.get(name)
    if known is None:
        raise update.refused("Local controller does not support the feature.")
    if not known[0] <= level <= known[1]:
        raise update.refused(f"Local controller supports {known[0]} to {known[1]}.")
    _check_direction(update)
    if level == current:
        return []
    _check_brokers(image, update)
    if name in _NAMED_BY_ALL:
        _check_voters(image, update, kraft.voter_ids)
    if name == KRAFT_VERSION_FEATURE:
        kraft.upgrade(level, validate_only=True)
        return []
    if name == METADATA_VERSION_FEATURE and level < current:
        _check_nothing_is_lost(update)
    if name == RECORD_VERSION_FEATURE and level < SECURITY_RECORDS:
        _check_no_security(image, update)
    if name == ELR_FEATURE and level == 0:
        switch_off_elr(image)
    return [FeatureLevelRecord(name, level)]


def _check_direction(update: _Update) -> None:
    if update.kind not in (_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE):
        message = "The controller does not support the given upgrade type."
        raise ProtocolError(ErrorCode.INVALID_UPDATE_VERSION, message)
    if update.level < update.current and update.kind == _UPGRADE:
        raise update.refused(
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade."
        )
    if update.level > update.current and update.kind != _UPGRADE:
        raise update.refused("Can't upgrade to a higher level so.")


def _check_nothing_is_lost(update: _Update) -> None:
    """`metadata.version` goes down only as far as no level between changed Kafka's records."""
    if update.level >= METADATA_VERSION_WITH_ELR:
        return
    if update.kind == _UNSAFE_DOWNGRADE:
        raise update.refused("Unsafe metadata downgrade is not supported in this version.")
    raise update.refused("Refusing to perform the requested downgrade because it might delete metadata information.")


def _check_no_security(image: MetadataImage, update: _Update) -> None:
    if image.scram_credentials or image.acls or image.client_quotas or image.delegation_tokens:
        raise update.refused(
            "Refusing to perform the requested downgrade because it would delete users' credentials, ACLs, quotas or "
            "delegation tokens."
        )


def _check_brokers(image: MetadataImage, update: _Update) -> None:
    for broker in image.brokers.values():
        _check_range(update, f"Broker {broker.broker_id}", broker.features)


def _check_voters(image: MetadataImage, update: _Update, voter_ids: Sequence[int]) -> None:
    for voter_id in voter_ids:
        controller = image.controllers.get(voter_id)
        if controller is None:
            reason = f"Controller {voter_id} has not registered: start it with newer software first."
            raise update.refused(reason)
        _check_range(update, f"Controller {voter_id}", controller.features)


def _check_range(update: _Update, who: str, features: Sequence[tuple[str, int, int]]) -> None:
    """A node that does not name a feature of Kafka is not checked, see `check_supported`."""
    ranges = {name: (low, high) for name, low, high in features}
    if update.name not in ranges and update.name not in _NAMED_BY_ALL:
        return
    low, high = ranges.get(update.name, (0, 0))
    if not low <= update.level <= high:
        raise update.refused(f"{who} only supports versions {low}-{high}.")
