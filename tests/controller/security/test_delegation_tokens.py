"""Delegation tokens: Kafka's answers, and the records that they make. Each error is one that Apache Kafka 4.2 gave."""

from __future__ import annotations

import asyncio
import hmac
import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.controller.controller_harness import Harness, decided, decoded, scenario
from support.controller.snapshots import restored_from_snapshot

from raftwerk.controller.metadata.features import update_features
from raftwerk.controller.metadata.metadata_image import MetadataDelta, MetadataImage
from raftwerk.controller.metadata.metadata_records import (
    DelegationTokenRecord,
    FeatureLevelRecord,
    RemoveDelegationTokenRecord,
    decode_record,
    encode_record,
)
from raftwerk.controller.metadata.metadata_snapshot import difference, snapshot_records
from raftwerk.controller.result import ControllerResult
from raftwerk.controller.security.delegation_tokens import (
    TokenRequester,
    TokenSettings,
    create_token,
    expire_token,
    remove_expired_tokens,
    renew_token,
)
from raftwerk.controller.security.rights import allows_all
from raftwerk.controller.settings import ControllerSettings
from raftwerk.raft.types import LeaderAndEpoch
from raftwerk.security.authorizer.acl_binding import AclOperation, ResourceType
from raftwerk.security.delegation_token import TokenKey
from raftwerk.security.principals import KafkaPrincipal
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.errors import ErrorCode, ProtocolError

NOW = 1_700_000_000_000
SETTINGS = TokenSettings(TokenKey("sesame"), max_lifetime_ms=3_600_000, expiry_time_ms=600_000)
OWNER, BOB = "User:alice", "User:bob"


def image_of(*, record_level: int = 2, metadata_version: int = 29) -> MetadataImage:
    image = MetadataImage("c")
    image.replay(FeatureLevelRecord("raftwerk.record.version", record_level), 0, MetadataDelta())
    image.replay(FeatureLevelRecord("metadata.version", metadata_version), 1, MetadataDelta())
    return image


class Tokens:
    """The tokens of an image, and who asks for what when."""

    def __init__(self, image: MetadataImage | None = None, settings: TokenSettings = SETTINGS) -> None:
        self.image = image or image_of()
        self.settings = settings
        self.now_ms = NOW
        self.rights: set[tuple[str, str]] = set()
        """(who, of whom) may make tokens."""
        self._rng = random.Random(1)

    def create(
        self,
        who: str = "alice",
        owner: str | None = None,
        renewers: Sequence[str] = (),
        lifetime_ms: int = -1,
        kinds: tuple[str | None, str] = ("User", "User"),
    ) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "owner_principal_type": None if owner is None else kinds[0],
            "owner_principal_name": owner,
            "renewers": [{"principal_type": kinds[1], "principal_name": name} for name in renewers],
            "max_lifetime": lifetime_ms,
        }
        request = decoded(ApiKey.CREATE_DELEGATION_TOKEN, **fields)
        return self._replayed(create_token(self.image, self.settings, request, self._requester(who), self._rng))

    def renew(self, secret: bytes, period_ms: int, who: str = "alice") -> int:
        request = decoded(ApiKey.RENEW_DELEGATION_TOKEN, hmac=secret, renew_period=period_ms)
        return self._change(decided(renew_token(self.image, self.settings, request, self._requester(who))))

    def expire(self, secret: bytes, period_ms: int, who: str = "alice") -> int:
        request = decoded(ApiKey.EXPIRE_DELEGATION_TOKEN, hmac=secret, expiry_time_period=period_ms)
        return self._change(decided(expire_token(self.image, self.settings, request, self._requester(who))))

    def remove_expired(self) -> list[str]:
        result = decided(remove_expired_tokens(self.image, self.now_ms))
        self._replayed(result)
        return [record.token_id for record in result.records if isinstance(record, RemoveDelegationTokenRecord)]

    def _change(self, result: ControllerResult) -> int:
        return int(self._replayed(result)["expiry_timestamp"]) - NOW

    def _requester(self, who: str) -> TokenRequester:
        def is_allowed(
            operation: AclOperation, resource_type: ResourceType, name: str, *, logs_denial: bool = True
        ) -> bool:
            assert (operation, resource_type) == (AclOperation.CREATE_TOKENS, ResourceType.USER)
            return (who, name) in self.rights

        return TokenRequester(KafkaPrincipal("User", who), is_allowed, self.now_ms)

    def _replayed(self, result: ControllerResult) -> dict[str, Any]:
        for record in result.records:
            assert decode_record(encode_record(record, 2)) == record
            self.image.replay(record, self.image.offset + 1, MetadataDelta())
        return result.response


def refused(code: ErrorCode) -> Any:
    return pytest.raises(ProtocolError, check=lambda error: error.code is code)


def test_a_token_is_made_without_its_secret_in_the_log() -> None:
    tokens = Tokens()
    made = tokens.create(renewers=["bob"])
    assert made["hmac"] == hmac.digest(b"sesame", made["token_id"].encode(), "sha512")
    assert (made["issue_timestamp"], made["expiry_timestamp"], made["max_timestamp"]) == (
        NOW,
        NOW + 600_000,
        NOW + 3_600_000,
    )
    kept = tokens.image.delegation_tokens[made["token_id"]]
    assert (kept.owner, kept.requester, kept.renewers) == (OWNER, OWNER, (BOB,))
    assert len(made["token_id"]) == 22
    (record,) = (one for one in snapshot_records(tokens.image) if isinstance(one, DelegationTokenRecord))
    assert made["hmac"] not in encode_record(record, 2)
    assert "sesame" not in repr(tokens.settings)


@pytest.mark.parametrize(
    ("asked_ms", "life_ms", "expiry_ms"),
    [
        (60_000, 60_000, 60_000),
        (1_000_000, 1_000_000, 600_000),
        (1, 1, 1),
        (0, 3_600_000, 600_000),
        (-5, 3_600_000, 600_000),
        (2**63 - 1, 3_600_000, 600_000),
    ],
)
def test_how_long_a_token_lives(asked_ms: int, life_ms: int, expiry_ms: int) -> None:
    made = Tokens().create(lifetime_ms=asked_ms)
    assert (made["max_timestamp"] - NOW, made["expiry_timestamp"] - NOW) == (life_ms, expiry_ms)


def test_times_stay_within_64_bits() -> None:
    settings = TokenSettings(TokenKey("s"), max_lifetime_ms=2**63 - 1, expiry_time_ms=2**63 - 1)
    made = Tokens(settings=settings).create()
    assert made["max_timestamp"] == made["expiry_timestamp"] == 2**63 - 1


def test_a_token_for_another_owner_needs_a_right_to_that_user() -> None:
    tokens = Tokens()
    with refused(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED):
        tokens.create(owner="bob", renewers=["x"], kinds=("User", "Group"))
    tokens.rights.add(("alice", BOB))
    made = tokens.create(owner="bob")
    assert (made["principal_name"], made["token_requester_principal_name"]) == ("bob", "alice")
    assert tokens.create(owner="alice")["principal_name"] == "alice"
    assert tokens.create(owner="")["principal_name"] == "alice"


def test_principals_that_are_none() -> None:
    tokens = Tokens()
    tokens.rights.add(("alice", "Group:bob"))
    for kinds, owner in (
        (("User", "Group"), None),
        ((None, "User"), "bob"),
        (("", "User"), "bob"),
        (("a:b", "User"), "bob"),
    ):
        with refused(ErrorCode.INVALID_PRINCIPAL_TYPE):
            tokens.create(owner=owner, renewers=["x"], kinds=kinds)
    assert tokens.create(owner="bob", kinds=("Group", "User"))["principal_type"] == "Group"  # as in Apache Kafka
    with refused(ErrorCode.INVALID_REQUEST):
        tokens.create(renewers=["x" * 30_000] * 3)
    with refused(ErrorCode.INVALID_REQUEST):
        tokens.create(renewers=["x"] * 1_001)


def test_who_may_renew_and_end_a_token() -> None:
    tokens = Tokens()
    tokens.rights.add(("carol", OWNER))
    secret = tokens.create("carol", owner="alice", renewers=["bob"])["hmac"]
    assert tokens.renew(secret, 120_000, "bob") == 120_000
    assert tokens.renew(secret, 10**15, "alice") == 600_000
    assert tokens.renew(secret, 0) == tokens.renew(secret, -1) == 600_000
    for change in (tokens.renew, tokens.expire):
        with refused(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH):
            change(secret, 1, "carol")
        with refused(ErrorCode.DELEGATION_TOKEN_NOT_FOUND):
            change(b"", 1)
    assert tokens.expire(secret, 10**15, "bob") == 3_600_000
    assert tokens.expire(secret, 0) == 0
    assert tokens.expire(secret, -1, "bob") == 0
    with refused(ErrorCode.DELEGATION_TOKEN_NOT_FOUND):
        tokens.expire(secret, -1)


def test_a_token_is_looked_for_in_steps_and_only_by_what_may_be_its_secret() -> None:
    tokens = Tokens()
    secrets = [tokens.create()["hmac"] for _ in range(1_000)]
    request = decoded(ApiKey.RENEW_DELEGATION_TOKEN, hmac=secrets[-1], renew_period=1)
    requester = TokenRequester(KafkaPrincipal("User", "alice"), allows_all, NOW)
    decision = renew_token(tokens.image, SETTINGS, request, requester)
    assert len(list(decision)) > 5
    with refused(ErrorCode.DELEGATION_TOKEN_NOT_FOUND):
        tokens.renew(secrets[0] + bytes(10_000_000), 1)


def test_an_expired_token_is_renewed_until_its_longest_life_is_over() -> None:
    tokens = Tokens()
    secret = tokens.create(lifetime_ms=1_000)["hmac"]
    tokens.expire(secret, 10)
    tokens.now_ms = NOW + 500
    assert tokens.renew(secret, 600_000) == 1_000
    tokens.now_ms = NOW + 1_001
    with refused(ErrorCode.DELEGATION_TOKEN_EXPIRED):
        tokens.renew(secret, 1, "bob")
    with refused(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH):
        tokens.expire(secret, 1, "bob")
    with refused(ErrorCode.DELEGATION_TOKEN_EXPIRED):
        tokens.expire(secret, 1)
    assert tokens.expire(secret, -1) == 1_001


def test_expired_tokens_are_removed() -> None:
    tokens = Tokens()
    first, second = (tokens.create(lifetime_ms=ms)["token_id"] for ms in (1_000, 2_000))
    tokens.now_ms = NOW + 1_000
    assert not tokens.remove_expired()
    tokens.now_ms += 1
    assert tokens.remove_expired() == [first]
    assert list(tokens.image.delegation_tokens) == [second]


def test_without_a_key_there_are_no_tokens() -> None:
    tokens = Tokens(settings=TokenSettings())
    for ask in (tokens.create, lambda: tokens.renew(b"x", 1), lambda: tokens.expire(b"x", 1)):
        with refused(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED):
            ask()
    with refused(ErrorCode.INVALID_PRINCIPAL_TYPE):
        tokens.create(renewers=["x"], kinds=("User", "Group"))


@pytest.mark.parametrize("image", [image_of(record_level=1), image_of(metadata_version=13)], ids=["records", "kafka"])
def test_no_record_that_older_software_cannot_read(image: MetadataImage) -> None:
    with refused(ErrorCode.UNSUPPORTED_VERSION):
        Tokens(image).create()


def test_the_record_version_goes_down_only_without_tokens() -> None:
    tokens = Tokens()
    secret = tokens.create()["hmac"]

    def lower() -> Any:
        update = {"feature": "raftwerk.record.version", "max_version_level": 1, "upgrade_type": 2}
        request = decoded(ApiKey.UPDATE_FEATURES, feature_updates=[update], validate_only=True)
        ranges = {"raftwerk.record.version": (0, 2)}
        return decided(update_features(tokens.image, request, _NoVoters(), ranges, 1)).response

    assert "delegation tokens" in lower()["error_message"]
    tokens.expire(secret, -1)
    assert lower()["error_code"] == 0


class _NoVoters:
    level = 1
    voter_ids: Sequence[int] = ()

    def upgrade(self, level: int, *, validate_only: bool) -> int:
        raise AssertionError


changes = st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 3)), max_size=12)


@given(changes)
def test_a_snapshot_restores_the_tokens(times: list[tuple[str, int]]) -> None:
    image = image_of()
    for token_id, expiry in times:
        if expiry:
            record = DelegationTokenRecord(token_id, OWNER, BOB, (BOB,), 1, 3, expiry)
            image.replay(record, image.offset + 1, MetadataDelta())
        elif token_id in image.delegation_tokens:
            image.replay(RemoveDelegationTokenRecord(token_id), image.offset + 1, MetadataDelta())
    restored = restored_from_snapshot(image)
    assert restored == image
    assert list(restored.delegation_tokens) == list(image.delegation_tokens)
    assert difference(MetadataImage("c"), image).changed_tokens.keys() == image.delegation_tokens.keys()


@scenario
async def test_the_active_controller_removes_expired_tokens() -> None:
    """It looks at the interval, and only as long as there are tokens."""
    interval_s = 60
    settings = TokenSettings(TokenKey("s"), 7_200_000, 600_000, expiry_check_interval_ms=interval_s * 1_000)
    harness = Harness(ControllerSettings(1, tokens=settings))
    who = KafkaPrincipal("User", "alice")
    request = decoded(ApiKey.CREATE_DELEGATION_TOKEN, owner_principal_type=None, owner_principal_name=None, renewers=[],
                      max_lifetime=90_000)  # fmt: skip
    made = await harness.controller.create_token(request, who)
    assert made["error_code"] == 0
    await asyncio.sleep(interval_s + 10)
    assert list(harness.image.delegation_tokens) == [made["token_id"]]
    harness.quorum.elect(None, 2)
    harness.quorum.elect(1, 3)
    await asyncio.sleep(interval_s + 1)
    assert not harness.image.delegation_tokens
    assert not harness.quorum.loader.image.delegation_tokens
    before = len(harness.quorum.batches)
    await asyncio.sleep(10 * interval_s)
    assert len(harness.quorum.batches) == before
    again = decoded(ApiKey.RENEW_DELEGATION_TOKEN, hmac=made["hmac"], renew_period=1)
    assert (await harness.controller.renew_token(again, who))["error_code"] == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    gone = decoded(ApiKey.EXPIRE_DELEGATION_TOKEN, hmac=made["hmac"], expiry_time_period=-1)
    assert (await harness.controller.expire_token(gone, who))["error_code"] == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def test_tokens_live_as_long_as_in_apache_kafka() -> None:
    settings = TokenSettings()
    assert (settings.max_lifetime_ms, settings.expiry_time_ms) == (604_800_000, 86_400_000)
    assert settings.expiry_check_interval_ms == 3_600_000


def test_an_id_can_stand_in_a_command_line() -> None:
    """It begins with no hyphen. One drawn id in sixty-four would."""
    tokens = Tokens()
    ids = [tokens.create()["token_id"] for _ in range(300)]
    assert not [one for one in ids if one.startswith("-")]
    assert len(set(ids)) == 300


@scenario
async def test_a_term_that_ends_in_its_token_check_leaves_no_timer() -> None:
    """The timer would keep the whole image of each such term, and begin again every hour."""
    settings = TokenSettings(TokenKey("s"), 7_200_000, 600_000, expiry_check_interval_ms=10_000)
    harness = Harness(ControllerSettings(1, tokens=settings))
    for lifetime_ms in (1_000, -1):
        request = decoded(ApiKey.CREATE_DELEGATION_TOKEN, renewers=[], max_lifetime=lifetime_ms)
        made = await harness.controller.create_token(request, KafkaPrincipal("User", "alice"))
        assert made["error_code"] == ErrorCode.NONE
    harness.quorum.leader = LeaderAndEpoch(2, 2)  # the controller learns of it when its records are refused
    await asyncio.sleep(11)
    assert not harness.controller.active
    harness.controller.close()
    loop: Any = asyncio.get_running_loop()
    assert not [one for one in loop._scheduled if not one.cancelled() and "_on_token_check" in repr(one)]
