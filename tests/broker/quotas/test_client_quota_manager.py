"""Which quota holds for whom, who shares it, and what is forgotten."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from raftwerk.broker.quotas.client_limits import LIMITS_MAX
from raftwerk.broker.quotas.client_quota_manager import ClientQuotaManager
from raftwerk.broker.quotas.quota_entities import Bucket, limit_of
from raftwerk.broker.quotas.sampled_rate import QuotaWindow
from raftwerk.controller.metadata.metadata_image import QuotaEntity

KEY = "producer_byte_rate"
NAMES = st.sampled_from(["a", "b", None])


def entity(user: str | None = "", client_id: str | None = "") -> QuotaEntity:
    """An entity; the empty name leaves the type out."""
    rows = (("client-id", client_id), ("user", user))
    return tuple((kind, name) for kind, name in rows if name != "")


ORDER = ("u/c", "u/default", "u", "default/c", "default/default", "default", "c alone", "default alone")
ENTITIES = (
    entity("u", "c"),
    entity("u", None),
    entity("u"),
    entity(None, "c"),
    entity(None, None),
    entity(None),
    entity("", "c"),
    entity("", None),
)


def test_the_order_of_precedence() -> None:
    """Each entity gives way to those before it."""
    quotas = {one: {KEY: float(rank)} for rank, one in enumerate(ENTITIES)}
    both, user, client = Bucket("u", "c"), Bucket("u", None), Bucket(None, "c")
    for rank, bucket in enumerate((both, both, user, both, both, user, client, client)):
        assert limit_of(quotas, KEY, "u", "c") == (float(rank), bucket), ORDER[rank]
        del quotas[ENTITIES[rank]]
    assert limit_of(quotas, KEY, "u", "c") is None


@given(st.sets(st.sampled_from(ENTITIES)), st.sampled_from("uv"), st.sampled_from("cd"))
def test_the_first_entity_that_matches_and_has_the_quota(chosen: set[QuotaEntity], user: str, client_id: str) -> None:
    quotas = {one: {KEY if one in chosen else "another": float(rank)} for rank, one in enumerate(ENTITIES)}

    def matches(one: QuotaEntity) -> bool:
        own = {"user": user, "client-id": client_id}
        return all(name is None or own[kind] == name for kind, name in one)

    expected = next((rank for rank, one in enumerate(ENTITIES) if one in chosen and matches(one)), None)
    found = limit_of(quotas, KEY, user, client_id)
    assert (None if found is None else found[0]) == expected


def manager_of(quotas: dict[QuotaEntity, dict[str, float]]) -> ClientQuotaManager:
    manager = ClientQuotaManager(KEY, QuotaWindow())
    manager.on_change(quotas)
    return manager


def test_who_shares_a_quota() -> None:
    """All client ids of a user; with a default for client ids, each by itself."""
    manager = manager_of({entity("u"): {KEY: 10.0}, entity("", None): {KEY: 10.0}})
    assert manager.record("u", "c", 100, 0) == 0
    assert manager.record("u", "d", 100, 0) == 10_000
    assert manager.record("v", "c", 100, 0) == 0
    assert manager.record("w", "c", 100, 0) == 10_000
    assert manager.record("w", "d", 100, 0) == 0
    assert [one.bucket for one in manager.usage(0, 2)] == [Bucket(None, "c"), Bucket(None, "d")]


def test_a_change_counts_for_what_is_already_used() -> None:
    quotas = {entity("u"): {KEY: 10.0}}
    manager = manager_of(quotas)
    assert manager.record("u", "c", 200, 0) == 10_000
    manager.on_change({entity("u"): {KEY: 20.0}})
    assert manager.record("u", "c", 0, 0) == 0
    manager.on_change({entity("u"): {"consumer_byte_rate": 1.0}})
    assert not manager.is_on
    assert manager.record("u", "c", 10**9, 0) == 0
    manager.on_change(quotas)
    assert manager.record("u", "c", 100, 0) == 0, "nothing was measured meanwhile"


def test_clients_that_are_gone_are_forgotten() -> None:
    manager = manager_of({entity("", None): {KEY: 10.0}})
    for number in range(2 * LIMITS_MAX):
        manager.record("u", f"client-{number}", 1, number)
    assert len(manager.usage(2 * LIMITS_MAX, 10**6)) == 11_000 - 1
    assert len(manager.usage(10**6, 10**6)) == 0


def test_the_largest_burst() -> None:
    manager = manager_of({entity("u"): {KEY: 10.0}})
    assert (manager.window_max("u", "c"), manager.window_max("v", "c")) == (100, None)
    assert manager.record("u", "c", 10**12, 0) == 2**31 - 1
