"""A broker that died and was fenced stays listed for some seconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from support.broker.broker_harness import LISTENER, make_image

from raftwerk.broker.apis.metadata.recently_fenced_brokers import LISTED_S, RecentlyFencedBrokers
from raftwerk.broker.topic_view import broker_rows
from raftwerk.controller.metadata.metadata_image import MetadataDelta, MetadataImage
from raftwerk.controller.metadata.metadata_records import BrokerChangeRecord


def tracker() -> tuple[MetadataImage, RecentlyFencedBrokers]:
    image, recently_fenced = make_image(), RecentlyFencedBrokers()
    seen = MetadataDelta()
    seen.changed_brokers.update(dict.fromkeys(image.brokers))
    recently_fenced.on_metadata(image, seen, 0.0, lost=(), is_running=True)
    return image, recently_fenced


def change(
    image: MetadataImage,
    recently_fenced: RecentlyFencedBrokers,
    now: float,
    is_running: bool = True,
    lost: Sequence[int] = (2,),
    **fields: Any,
) -> None:
    delta = MetadataDelta()
    epoch = image.brokers[2].epoch
    image.replay(BrokerChangeRecord(2, epoch, **fields), image.offset + 1, delta)
    recently_fenced.on_metadata(image, delta, now, lost=lost, is_running=is_running)


def listed(image: MetadataImage, ids: Sequence[int]) -> list[int]:
    return [row["node_id"] for row in broker_rows(image, LISTENER, ids)]


def test_a_fenced_broker_is_listed_for_nine_seconds() -> None:
    image, recently_fenced = tracker()
    change(image, recently_fenced, 5.0, fenced=True)
    assert listed(image, recently_fenced.ids(5.0)) == [1, 2, 3]
    assert listed(image, recently_fenced.ids(5.0 + LISTED_S)) == [1, 3]


def test_a_broker_that_comes_back_is_only_unfenced() -> None:
    image, recently_fenced = tracker()
    change(image, recently_fenced, 5.0, fenced=True)
    change(image, recently_fenced, 6.0, fenced=False)
    assert recently_fenced.ids(6.0) == []


def test_a_broker_after_controlled_shutdown_is_not_listed() -> None:
    image, recently_fenced = tracker()
    change(image, recently_fenced, 4.0, in_controlled_shutdown=True)
    change(image, recently_fenced, 5.0, fenced=True)
    assert recently_fenced.ids(5.0) == []


def test_metadata_replayed_at_a_start_is_ignored() -> None:
    image, recently_fenced = tracker()
    change(image, recently_fenced, 5.0, is_running=False, fenced=True)
    assert recently_fenced.ids(5.0) == []


def test_a_silent_broker_is_not_listed() -> None:
    image, recently_fenced = tracker()
    change(image, recently_fenced, 5.0, lost=(3,), fenced=True)
    assert recently_fenced.ids(5.0) == []
