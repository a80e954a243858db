"""The invariant "a decision about many partitions is the one about each alone", checked where controllers decide.

When a broker or a directory leaves, a controller remembers what it has decided for one partition, for others in the
same state. And in each decision about many it looks up the rules of a topic once. Here each decision is made again, for
its partition alone and by rules that are looked up anew. What is noted in an event is raised after it: an error within
a decision would only be an answer to the broker that has asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from unittest.mock import patch
from weakref import WeakKeyDictionary

from .....controller.metadata.metadata_image import MetadataImage, PartitionRegistration, TopicImage
from .....controller.metadata.metadata_records import Record
from .....controller.partitions import broker_departures
from .....controller.partitions.partition_change import Acceptable, Goal, PartitionRules
from .....controller.settings import ControllerSettings
from ..invariant_broken import InvariantBroken

_Affected = tuple[TopicImage, int, PartitionRegistration]


class LoneDecisionChecker:
    """Makes decisions of controllers again, while it is `watching`."""

    def __init__(self) -> None:
        self._wrong: str | None = None

    def check(self) -> None:
        """An event has been run. Raises `InvariantBroken`."""
        if self._wrong is not None:
            raise InvariantBroken("a decision about many partitions is the one about each alone", self._wrong)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Until it is left, the decisions of all controllers are made again."""
        leave, make, goal = broker_departures._replicas_leave, PartitionRules.__init__, PartitionRules.goal
        made = WeakKeyDictionary[PartitionRules, tuple[MetadataImage, ControllerSettings]]()

        def replicas_leave(
            image: MetadataImage,
            settings: ControllerSettings,
            broker_id: int,
            affected: Iterable[_Affected],
            *,
            unclean: bool,
        ) -> Iterator[Record]:
            seen: list[_Affected] = []

            def each() -> Iterator[_Affected]:
                for one in affected:
                    seen.append(one)
                    yield one

            def expected() -> list[Record]:
                alone = [leave(image, settings, broker_id, [one], unclean=unclean) for one in seen]
                seen.clear()
                return [record for records in alone for record in records]

            for record in leave(image, settings, broker_id, each(), unclean=unclean):
                self._compare([record], expected(), f"broker {broker_id} leaves at {image.offset}")
                yield record
            self._compare([], expected(), f"broker {broker_id} leaves at {image.offset}")

        def make_rules(rules: PartitionRules, image: MetadataImage, settings: ControllerSettings) -> None:
            make(rules, image, settings)
            made[rules] = image, settings

        def goal_of(
            rules: PartitionRules,
            topic: str,
            isr: tuple[int, ...],
            acceptable: Acceptable,
            unclean_shutdown: int | None = None,
        ) -> Goal:
            found = goal(rules, topic, isr, acceptable, unclean_shutdown)
            fresh = PartitionRules.__new__(PartitionRules)
            make(fresh, *made[rules])
            anew = goal(fresh, topic, isr, acceptable, unclean_shutdown)
            if found != anew:
                self._note(f"{topic}: {found}, it is {anew}")
            return found

        with (
            patch.object(broker_departures, "_replicas_leave", replicas_leave),
            patch.object(PartitionRules, "__init__", make_rules),
            patch.object(PartitionRules, "goal", goal_of),
        ):
            yield

    def _compare(self, found: list[Record], alone: list[Record], where: str) -> None:
        if found != alone:
            self._note(f"{where}: {found}, alone it is {alone}")

    def _note(self, what: str) -> None:
        self._wrong = self._wrong or what
