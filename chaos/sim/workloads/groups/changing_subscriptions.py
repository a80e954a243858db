"""A group whose members subscribe to other topics, while topics are created, grow and are deleted.

Members of the consumer protocol name topics, or give a regular expression (KIP-848), or both, and change that at any
time. Members of the classic protocol offer several protocols in an order of their own, all of which have one in common.
What they are told is judged where it is answered: "the protocol of a generation has the most votes", "a target
assignment has the partitions of subscribed topics".

In some runs members give expressions alone. Each asks for an assignor of the coordinator, and for another one later.

In the end no subscription changes any more. Then each partition of each topic that a member subscribes to is read by
one member, which subscribes to it, and nobody reads another: also when topics have grown or were created, and when all
of them were deleted and created anew with as many partitions.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any
from uuid import UUID

from .....cluster.client.admin_client import NewTopic
from .....cluster.client.client_errors import ClientError
from .....cluster.client.cluster_client import NO_ANSWER, ClusterView
from .....runtime.loop import TaskSet
from .....wire.api_keys import ApiKey
from .....wire.codec import Struct
from ..administrator import RepeatedChange, RetryingAdmin
from ..clients import ClientContext
from ..workload import create_topic_until_done
from .hasty_group import ASSIGNORS, HastyClassicMember, HastyConsumerMember, HastyGroup, HastyMember

_NAMED = ("sub-a", "sub-ab", "sub-b")
_TOPICS = (*_NAMED, "other-a", "other-ab")
"""The last ones are found by regular expressions alone."""
_PATTERNS = ("sub-a", "sub-a.*", "other-a", "other-.*", "(sub|other)-[ab]+", "none")
_PROTOCOLS = ("range", "roundrobin", "sticky")
_COMMON = "common"
_CHANGE_PROBABILITY = 0.2
_CREATE_PARTITIONS, _DELETE_TOPICS = 3, 6
_PARTITIONS_MAX = 5
_PAUSE_S = 0.1
_TIMEOUT_S = 2.0
_MEAN_PAUSE_S = 0.25
_METADATA_S = 0.5
"""In this time every broker that is alive hears of a change of topics."""
_Partitions = dict[tuple[UUID, int], None]


class ChangingSubscriptions(HastyGroup):
    """The members, beside a `SubscribedTopics` of the same run. A `Workload`."""

    name = "changing subscriptions"
    is_described = False

    def __init__(self, context: ClientContext) -> None:
        super().__init__(context)
        self._topics = SubscribedTopics(context)
        self._waits_for = "its members act"

    def kinds(self) -> tuple[type[HastyMember], ...]:
        """See `HastyGroup`."""
        return ChoosyClassicMember, ChoosyConsumerMember, PatternMember

    def stop(self) -> None:
        """See `Workload`."""
        super().stop()
        self._topics.stop()

    def why_not_settled(self) -> str | None:
        """See `Workload`."""
        return self._waits_for or None

    async def run(self) -> None:
        """See `Workload`."""
        await asyncio.gather(super().run(), self._topics.run())
        members = [one for one in self.members if isinstance(one, ChoosyConsumerMember)]
        await self._until_shared(members)
        # Now nothing but the topics themselves can begin another epoch.
        for change in (self._topics.change_all, self._topics.replace_all):
            self._waits_for = "its topics change once more"
            changing = TaskSet()
            changing.spawn(change(), "last changes of topics")
            while len(changing):
                await asyncio.gather(*(member.stay() for member in members), return_exceptions=True)
                await asyncio.sleep(_PAUSE_S)
            await self._until_shared(members)
        self._waits_for = ""

    async def _until_shared(self, members: list[ChoosyConsumerMember]) -> None:
        why_not = "it was not looked yet"
        while why_not:
            self._waits_for = why_not
            try:
                await asyncio.gather(*(member.stay() for member in members))
                why_not = await self._why_not_shared(members)
            except (ClientError, *NO_ANSWER) as error:
                why_not = repr(error)
                for member in members:
                    member.give_up_waiting()
            await asyncio.sleep(_PAUSE_S)

    async def _why_not_shared(self, members: list[ChoosyConsumerMember]) -> str:
        """What is read by none, by several, or by one that does not subscribe to it. Raises `ClientError`."""
        view = await self._topics.admin.cluster.metadata(None)
        counts = {one.name: (one.topic_id, len(one.partitions)) for one in view.topics if one.topic_id is not None}
        wanted: _Partitions = {}
        for name, (topic_id, count) in counts.items():
            if any(member.subscribes_to(name) for member in members):
                wanted |= dict.fromkeys((topic_id, index) for index in range(count))
        names = {topic_id: name for name, (topic_id, _) in counts.items()}
        readers: dict[tuple[UUID, int], str] = {}
        for member in members:
            for part in member.assigned:
                if part in readers or not member.subscribes_to(names.get(part[0], "")):
                    return f"{names.get(part[0])}-{part[1]} is read by {member}"
                readers[part] = str(member)
        missing = [f"{names[one[0]]}-{one[1]}" for one in wanted if one not in readers]
        return f"{missing} are not read by {[str(one) for one in members]}" if missing else ""


class SubscribedTopics(RepeatedChange):
    """Creates, grows and deletes the topics. In the end at least one exists."""

    name = "subscribed topics"
    mean_pause_s = _MEAN_PAUSE_S

    def __init__(self, context: ClientContext) -> None:
        super().__init__(context)
        self.admin = RetryingAdmin(context, self.name)

    async def change(self) -> None:
        """Change one topic, whatever it is like now."""
        rng = self.context.rng
        name = rng.choice(_TOPICS)
        await rng.choice((self._create, self._create, self._grow, self._delete))(name)

    async def finish(self) -> None:
        """See `RepeatedChange`."""
        await self._create(_TOPICS[0])

    async def change_all(self) -> None:
        """Let the topics that exist grow, and create the others."""
        for name in _TOPICS:
            await self._grow(name, _PARTITIONS_MAX + 1)
            await self._create(name)
        await asyncio.sleep(_METADATA_S)

    async def replace_all(self) -> None:
        """Put others in the place of the topics, which have as many partitions."""
        view = await self._view()
        counts = {one.name: len(one.partitions) for one in view.topics if one.name in _TOPICS}
        for name, count in counts.items():
            await self._delete(name)
            await self._create(name, count)
        await asyncio.sleep(_METADATA_S)

    async def _view(self) -> ClusterView:
        view: ClusterView | None = None
        while view is None:
            try:
                view = await self.admin.cluster.metadata(None)
            except ClientError:
                await asyncio.sleep(_PAUSE_S)
        return view

    async def _create(self, name: str, count: int = 0) -> None:
        drawn = self.context.rng.randrange(1, _PARTITIONS_MAX - 1)
        await create_topic_until_done(self.admin.cluster, NewTopic(name, count or drawn, -1, {}))

    async def _grow(self, name: str, count: int = 0) -> None:
        drawn = self.context.rng.randrange(2, _PARTITIONS_MAX + 1)
        row = {"name": name, "count": count or drawn, "assignments": None}
        fields = {"topics": [row], "validate_only": False}
        await self.admin.ask(
            ApiKey.CREATE_PARTITIONS, _CREATE_PARTITIONS, fields, lambda answer: answer.results[0].error_code
        )

    async def _delete(self, name: str) -> None:
        fields = {"topics": [{"name": name, "topic_id": None}]}
        await self.admin.ask(
            ApiKey.DELETE_TOPICS, _DELETE_TOPICS, fields, lambda answer: answer.responses[0].error_code
        )


class ChoosyConsumerMember(HastyConsumerMember):
    """A member by ConsumerGroupHeartbeat that subscribes to other topics now and then, or by another expression."""

    has_patterns_alone = False

    def __init__(self, group: HastyGroup, name: str) -> None:
        super().__init__(group, name)
        self._names: tuple[str, ...] = ()
        self._pattern = ""
        self._must_send_all = False
        self._choose()

    def __str__(self) -> str:
        return f"{self._id} in {self._generation} ({list(self._names)}, {self._pattern!r})"

    @property
    def assigned(self) -> tuple[tuple[UUID, int], ...]:
        """The partitions that it was told to read."""
        return self._owned

    def subscribes_to(self, name: str) -> bool:
        """Whether a topic of this name is to be read by this or another member that subscribes to it."""
        return name in self._names or bool(self._pattern and re.fullmatch(self._pattern, name))

    async def act(self) -> None:
        """See `HastyMember`."""
        if self._rng.random() < _CHANGE_PROBABILITY:
            self._choose()
        await super().act()

    async def stay(self) -> None:
        """Join or heartbeat, and change nothing."""
        self._must_leave, self._waits_s = False, (_TIMEOUT_S,)
        await super().act()
        self._must_leave = False

    def give_up_waiting(self) -> None:
        """See `HastyMember`. A subscription whose answer was lost is sent again."""
        super().give_up_waiting()
        self._must_send_all = True

    def _choose(self) -> None:
        rng = self._rng
        names = tuple(name for name in _NAMED if rng.random() < 0.4)
        self._names = () if self.has_patterns_alone else names
        self._pattern = rng.choice(("", *_PATTERNS))
        self._assignor = rng.choice(ASSIGNORS)
        self._must_send_all = True

    async def _heartbeat(self, epoch: int, *, has_all_fields: bool) -> Struct:
        must_send_all, self._must_send_all = self._must_send_all, False
        answer = await super()._heartbeat(epoch, has_all_fields=has_all_fields or (must_send_all and epoch > 0))
        self._must_send_all |= bool(answer.error_code)
        return answer

    def _subscription(self) -> dict[str, Any]:
        # An empty expression takes the place of the one before; without this field that one stays.
        names = {"subscribed_topic_names": list(self._names), "subscribed_topic_regex": self._pattern}
        return {**names, "server_assignor": self._assignor}


class PatternMember(ChoosyConsumerMember):
    """A member that names no topics."""

    has_patterns_alone = True


class ChoosyClassicMember(HastyClassicMember):
    """A member of the classic protocol with several protocols, in an order that changes."""

    def _protocols(self) -> list[dict[str, Any]]:
        rng = self._rng
        names = [name for name in _PROTOCOLS if rng.random() < 0.6]
        names.insert(rng.randrange(len(names) + 1), _COMMON)
        return [{"name": one, "metadata": f"{one} of {self._id} {rng.getrandbits(32)}".encode()} for one in names]
