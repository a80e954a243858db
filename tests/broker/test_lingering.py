"""A broker that died without a word stays listed for some seconds."""

from __future__ import annotations

from support.broker.broker_harness import LISTENER, make_image

from raftwerk.broker.to_controller.recently_fenced_brokers import LINGER_S, RecentlyFencedBrokers
from raftwerk.broker.topic_view import broker_rows
from raftwerk.controller.metadata.metadata_image import MetadataDelta
from raftwerk.controller.metadata.metadata_records import BrokerChangeRecord


def tracker():
    image, lingering = make_image(), RecentlyFencedBrokers()
    seen = MetadataDelta()
    seen.changed_brokers.update(dict.fromkeys(image.brokers))
    lingering.on_metadata(image, seen, 0.0, is_running=True)
    return image, lingering


def change(image, lingering, now, is_running=True, **fields):
    delta = MetadataDelta()
    epoch = image.brokers[2].epoch
    image.replay(BrokerChangeRecord(2, epoch, **fields), image.offset + 1, delta)
    lingering.on_metadata(image, delta, now, is_running=is_running)


def listed(image, ids):
    return [row["node_id"] for row in broker_rows(image, LISTENER, ids)]


def test_the_dead_linger_and_then_go():
    image, lingering = tracker()
    change(image, lingering, 5.0, fenced=True)
    assert listed(image, lingering.ids(5.0)) == [1, 2, 3]
    assert listed(image, lingering.ids(5.0 + LINGER_S)) == [1, 3]


def test_one_that_comes_back_is_simply_alive():
    image, lingering = tracker()
    change(image, lingering, 5.0, fenced=True)
    change(image, lingering, 6.0, fenced=False)
    assert lingering.ids(6.0) == []


def test_one_that_said_good_bye_is_gone_at_once():
    image, lingering = tracker()
    change(image, lingering, 4.0, in_controlled_shutdown=True)
    change(image, lingering, 5.0, fenced=True)
    assert lingering.ids(5.0) == []


def test_history_read_at_a_start_is_no_news():
    image, lingering = tracker()
    change(image, lingering, 5.0, is_running=False, fenced=True)
    assert lingering.ids(5.0) == []
