"""Consumer instances of version 2 with a consumer of our own in librdkafka's place: errors and rebalances."""

from __future__ import annotations

import asyncio
import json
import secrets
from typing import Any, cast

import confluent_kafka
import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException
from support.rest.scripted_consumer import ScriptedConsumer, ScriptedMessage
from support.rest.tokens import token

from raftwerk.cluster.http_logins.credentials import Credentials
from raftwerk.cluster.http_logins.user_login import UserLogins
from raftwerk.rest.errors import AUTHENTICATION_FAILED, AUTHORIZATION_FAILED, RestError
from raftwerk.rest.v2.consumer_instance import ConsumerInstance
from raftwerk.rest.v2.consumer_instances import ConsumerInstances, ConsumerLimits, instance_options
from raftwerk.rest.v2.shown_records import shown_by

ALL = 1 << 20
REFUSED = ScriptedMessage("u", 0, -1, KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))


class ReadInstance:
    """An instance that reads the topics `t` and `u`."""

    def __init__(self) -> None:
        settings = {"enable.auto.commit": True}
        self.instance = ConsumerInstance(settings, "json", shown_by("json", None), min_bytes=1)
        self.consumer = cast(ScriptedConsumer, self.instance._consumer)
        self.instance.subscribe(["t", "u"], None)

    def read(self, max_bytes: int = ALL, timeout_s: float = 0.0) -> list[tuple[str, int, int]]:
        """The places of the records of a read."""
        rows = json.loads(self.instance.read(timeout_s, max_bytes))
        return [(one["topic"], one["partition"], one["offset"]) for one in rows]


@pytest.fixture(autouse=True)
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confluent_kafka, "Consumer", ScriptedConsumer)


def test_an_error_of_another_partition_loses_no_record_that_came_before() -> None:
    here = ReadInstance()
    here.consumer.arriving = [ScriptedMessage("t", 0, 0), None, REFUSED, None, ScriptedMessage("t", 0, 1)]
    assert here.read(timeout_s=5.0) == [("t", 0, 0)]
    assert here.consumer.stored == {("t", 0): 1}
    with pytest.raises(RestError) as caught:
        here.read()
    assert caught.value.code == AUTHORIZATION_FAILED
    assert here.read() == [("t", 0, 1)]


def test_a_failure_of_librdkafka_loses_no_record_that_came_before() -> None:
    here = ReadInstance()
    failure = KafkaException(KafkaError(KafkaError._FAIL))
    here.consumer.arriving = [ScriptedMessage("t", 0, 0), ScriptedMessage("t", 0, 1), failure]
    with pytest.raises(KafkaException):
        here.read()
    assert here.read() == [("t", 0, 0), ("t", 0, 1)]


def test_a_record_that_cannot_be_shown_loses_none() -> None:
    here = ReadInstance()
    here.consumer.arriving = [ScriptedMessage("t", 0, -1), ScriptedMessage("t", 0, 0), ScriptedMessage("t", 0, 1)]
    shown = here.instance._show

    def refuse_zero(data: bytes | None, where: str) -> Any:
        if data == b"0":
            raise RestError(50002, where)
        return shown(data, where)

    here.instance._show = refuse_zero
    assert here.read() == [("t", 0, -1)]  # those before it are delivered: to seek beyond it would lose them
    assert here.consumer.stored == {("t", 0): 0}
    for _ in range(2):
        with pytest.raises(RestError, match="t-0 at offset 0"):
            here.read()
    assert here.consumer.stored == {("t", 0): 0}
    here.instance._show = shown
    assert here.read() == [("t", 0, 0), ("t", 0, 1)]


def test_who_seeks_beyond_a_record_that_cannot_be_shown_has_all_others() -> None:
    here = ReadInstance()
    values = (b"0", b"\xff", b"2")
    here.consumer.arriving = [ScriptedMessage("t", 0, offset, value=one) for offset, one in enumerate(values)]
    assert here.read() == [("t", 0, 0)]
    with pytest.raises(RestError, match="t-0 at offset 1 is no JSON"):
        here.read()
    here.instance.seek({("t", 0): 2})
    here.consumer.arriving = [ScriptedMessage("t", 0, 2)]
    assert here.read() == [("t", 0, 2)]


@pytest.mark.parametrize("value", [b"1e400", b"-1e400", b'{"a":[1e999]}', b"NaN"])
def test_numbers_that_json_has_not_are_not_shown(value: bytes) -> None:
    here = ReadInstance()
    here.consumer.arriving = [ScriptedMessage("t", 0, 0, value=value)]
    with pytest.raises(RestError, match="t-0 at offset 0 is no JSON"):
        here.read()


def test_a_commit_of_all_leaves_partitions_alone_that_were_taken_away() -> None:
    """Another member has them by now, and commits its own progress."""
    here = ReadInstance()
    here.consumer.arriving = [ScriptedMessage("t", 0, 5), ScriptedMessage("t", 1, 7)]
    assert here.read() == [("t", 0, 5), ("t", 1, 7)]
    here.consumer.revoke(("t", 0))
    assert here.read() == []
    here.instance.commit(None)
    assert here.consumer.committed_offsets == {("t", 1): 8}


def test_records_of_a_partition_that_was_taken_away_are_not_delivered_any_more() -> None:
    """Another member begins at the committed offset, and has them."""
    here = ReadInstance()
    here.consumer.arriving = [ScriptedMessage("t", one, offset) for offset in range(3) for one in (0, 1)]
    assert here.read(max_bytes=2) == [("t", 0, 0), ("t", 1, 0)]
    here.consumer.revoke(("t", 0))
    assert here.read() == [("t", 1, 1), ("t", 1, 2)]


def test_reads_that_are_answered_by_what_was_fetched_before_poll_too() -> None:
    """A rebalance waits for a poll, and a member that polls too seldom is taken out of its group."""
    here = ReadInstance()
    here.consumer.arriving = [ScriptedMessage("t", 0, offset) for offset in range(10)]
    assert here.read(max_bytes=2) == [("t", 0, 0), ("t", 0, 1)]
    for offset in range(2, 6):
        before = here.consumer.polls
        assert here.read(max_bytes=1) == [("t", 0, offset)]
        assert here.consumer.polls > before
    here.consumer.revoke(("t", 0))
    assert here.read(max_bytes=1) == []


def test_a_subscription_that_is_refused_loses_no_record() -> None:
    here = ReadInstance()
    here.consumer.arriving = [ScriptedMessage("t", 0, offset) for offset in range(3)]
    assert here.read(max_bytes=2) == [("t", 0, 0), ("t", 0, 1)]
    with pytest.raises(RestError) as caught:
        here.instance.subscribe([], "[")
    assert (caught.value.code, here.instance.subscription()) == (422, ["t", "u"])
    assert here.read() == [("t", 0, 2)]


def test_a_topic_that_is_named_twice_is_subscribed_once() -> None:
    here = ReadInstance()
    here.instance.subscribe(["u", "t", "u"], None)
    assert here.instance.subscription() == ["u", "t"]


def test_no_topics_and_no_partitions_end_what_was_read() -> None:
    """As with Java's consumer. Topics and partitions exclude each other no more then."""
    here = ReadInstance()
    here.instance.subscribe([], None)
    with pytest.raises(RestError, match="not subscribed"):
        here.read()
    here.instance.assign([("t", 0)])
    with pytest.raises(RestError, match="mutually exclusive"):
        here.instance.subscribe(["t"], None)
    here.instance.assign([])
    assert here.instance.assignment() == []
    here.instance.subscribe(["t"], None)
    here.instance.assign([])
    assert here.instance.subscription() == []


@pytest.mark.parametrize("had_subscription", [False, True])
def test_partitions_that_stay_assigned_are_read_on(had_subscription: bool) -> None:
    """As with Java's assign. librdkafka itself would begin anew at what was committed, or at the end."""
    here = ReadInstance()
    here.instance.unsubscribe()
    here.consumer.takes_changes = not had_subscription
    here.instance.assign([("t", 0), ("t", 1)])
    here.consumer.arriving = [ScriptedMessage("t", one, offset) for offset in range(3) for one in (0, 1)]
    assert here.read(max_bytes=2) == [("t", 0, 0), ("t", 1, 0)]
    here.instance.assign([("u", 0), ("t", 0), ("u", 0)])
    assert here.instance.assignment() == [("t", 0), ("u", 0)]
    assert here.consumer.assigned_offsets == ({("t", 0): 3, ("u", 0): OFFSET_INVALID} if had_subscription else {})
    assert here.read() == [("t", 0, 1), ("t", 0, 2)]


def test_a_pattern_matches_whole_names_and_no_internal_topics() -> None:
    """As Java's consumer. `__consumer_offsets` holds no JSON, and is of no use beside other topics."""
    here = ReadInstance()
    here.instance.subscribe([], "a|b.*")
    assert here.consumer.subscribed == ["^(a|b.*)$"]
    here.consumer.give(("a", 0), ("__consumer_offsets", 7), ("__transaction_state", 1), ("__share_group_state", 0))
    assert here.instance.subscription() == ["a"]
    here.instance.subscribe(["__consumer_offsets"], None)
    here.consumer.give(("__consumer_offsets", 7))
    assert here.instance.assignment() == [("__consumer_offsets", 7)]


def test_a_login_that_fails_is_told_when_no_records_are_left() -> None:
    """A token has expired, or a password was changed: the instance would read nothing any more in silence."""
    here = ReadInstance()
    here.consumer.arriving = [ScriptedMessage("t", 0, 0)]
    for why in (
        "handshake failed: Local: Broker transport failure",
        "SASL authentication error: the token has expired",
    ):
        here.consumer.settings["error_cb"](KafkaError(KafkaError._AUTHENTICATION, why))
    assert here.read() == [("t", 0, 0)]
    with pytest.raises(RestError, match="the token has expired") as caught:
        here.read()
    assert (caught.value.code, caught.value.status) == (AUTHENTICATION_FAILED, 401)
    assert here.read() == []
    here.consumer.settings["error_cb"](KafkaError(KafkaError._AUTHENTICATION, "handshake failed: Local: Timed out"))
    assert here.read() == []  # it is tried again


def test_an_instance_logs_in_by_the_token_that_holds_longest() -> None:
    """Each request brings the token of its user, and an instance lives longer than the one that made it."""
    logins = UserLogins("OAUTHBEARER", None, {"bootstrap.servers": "x:1"}, secrets.token_bytes, lambda: 1_000_000)
    first, later, opaque = (Credentials("", one) for one in (token(exp=1100), token(exp=1200), "opaque"))

    async def tokens() -> list[tuple[str, float]]:
        found = []
        async with ConsumerInstances(ConsumerLimits()) as instances:
            options, show = instance_options({"format": "json"}, ("json",)), shown_by("json", None)
            await instances.of("alice", logins.settings(first)).create("g", "one", options, show)
            for one in (first, later, first, opaque):
                owned = instances.of("alice", logins.settings(one))
                source = await owned.use("g", "one", lambda it: cast(Any, it._consumer).settings["oauth_cb"])
                found.append(source(""))
        return found

    of_later = (later.secret, 1200.0)
    assert asyncio.run(tokens()) == [(first.secret, 1100.0), of_later, of_later, ("opaque", 1000.0 + 3600.0)]
