"""The garbage collector of a server: what stays is frozen; cycles among it are found later, if it has doubled."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from raftwerk.runtime.process import garbage_collection
from raftwerk.runtime.process.garbage_collection import WHOLE_INTERVAL_S, YOUNG_OBJECTS, ServerCollections


class Node:
    """An object that can be in a reference cycle."""

    def __init__(self) -> None:
        self.itself: Node | None = self


@pytest.fixture(autouse=True)
def _collector_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    threshold = gc.get_threshold()
    monkeypatch.setattr(garbage_collection, "_GROWTH_MIN", 0)
    yield
    gc.set_threshold(*threshold)
    gc.unfreeze()


class Watched:
    """A server's collections at a time that the test sets."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.collections = ServerCollections(lambda: self.now_s)
        self.kept: list[list[int]] = []

    def grow(self, objects: int) -> None:
        self.kept += [[] for _ in range(objects)]


def test_what_stays_is_frozen_while_it_comes() -> None:
    async def main() -> None:
        watched = Watched()
        before = gc.get_freeze_count()
        watched.grow(40 * YOUNG_OBJECTS)
        frozen, left = gc.get_freeze_count(), sum(len(gc.get_objects(generation)) for generation in range(3))
        watched.collections.close()
        assert frozen - before > 20 * YOUNG_OBJECTS
        # The collector has that left to traverse, and no more.
        assert left < 15 * YOUNG_OBJECTS

    asyncio.run(main())


def test_garbage_that_is_young_is_freed() -> None:
    async def main() -> None:
        watched = Watched()
        garbage = weakref.ref(Node())
        watched.grow(2 * YOUNG_OBJECTS)
        watched.collections.close()
        assert garbage() is None

    asyncio.run(main())


def test_frozen_garbage_is_freed_once_an_hour_when_the_objects_have_doubled() -> None:
    async def main() -> None:
        watched = Watched()
        node = Node()
        watched.grow(gc.get_freeze_count() + 40 * YOUNG_OBJECTS)
        garbage = weakref.ref(node)
        del node
        watched.grow(400 * YOUNG_OBJECTS)
        await asyncio.sleep(0)
        assert garbage() is not None, "it was traversed though it was frozen"
        watched.now_s = WHOLE_INTERVAL_S
        watched.grow(400 * YOUNG_OBJECTS)
        await asyncio.sleep(0)  # the loop collects it all
        watched.collections.close()
        assert garbage() is None

    asyncio.run(main())


def test_the_collector_is_as_before_when_the_server_has_stopped() -> None:
    """What is left of it is garbage, though it was frozen."""

    async def main() -> None:
        before = gc.get_threshold(), gc.callbacks[:]
        node = Node()
        garbage = weakref.ref(node)
        watched = Watched()
        watched.collections.close()
        assert (gc.get_threshold(), gc.callbacks) == before
        del node
        gc.collect()
        assert garbage() is None

    asyncio.run(main())
