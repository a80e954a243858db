"""Topics whose partitions have the same replicas, and came to their ISRs in different ways.

An administrator creates them, some while brokers are down, each with a min.insync.replicas of its own, and with unclean
elections or without. Then it changes these settings, adds partitions, and gives some of them another preferred leader
or fewer replicas. So whatever a controller decides when a broker leaves or returns, it decides for partitions that are
alike in much: in replicas and ISR, but not in ELR, leader, directories or rules. Nobody writes to them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....wire.api_keys import ApiKey
from ....wire.codec import Struct
from .administrator import PAUSE_S, TOPIC, RepeatedChange, RetryingAdmin
from .clients import ClientContext

_CREATE_TOPICS = 7
_CREATE_PARTITIONS = 3
_ALTER_REASSIGNMENTS = 0
_ELECT_LEADERS = 2
_TOPICS_MAX = 6
_PARTITIONS = 2
_MIN_ISR, _UNCLEAN = "min.insync.replicas", "unclean.leader.election.enable"
_CONFIGS = {_MIN_ISR: (None, "1", "2", "3", "3", "3"), _UNCLEAN: (None, "true", "false")}
"""Above the size of an ISR there are eligible replicas, which a change of the minimum forgets."""


class AlikePartitions(RepeatedChange):
    """Creates and changes the topics. A `Workload`."""

    name = "alike partitions"
    mean_pause_s = PAUSE_S / 2

    def __init__(self, context: ClientContext, brokers: list[int], why_reassigning: Callable[[], str | None]) -> None:
        """`why_reassigning` names a partition that is being reassigned, None when there is none."""
        super().__init__(context)
        self._brokers = brokers
        self._why_reassigning = why_reassigning
        self._admin = RetryingAdmin(context, self.name)
        self._sizes: dict[str, int] = {}
        """How many partitions each topic has at least."""

    def why_not_settled(self) -> str | None:
        """See `Workload`."""
        return super().why_not_settled() or self._why_reassigning()

    async def change(self) -> None:
        """Make one change; whether it was possible now does not matter."""
        rng = self.context.rng
        if len(self._sizes) < _TOPICS_MAX and (not self._sizes or rng.random() < 0.5):
            await self._create(f"{self.context.topic}-{len(self._sizes)}")
            return
        topic = rng.choice(list(self._sizes))
        await rng.choice((*(self._configure,) * 3, self._grow, self._reassign, self._elect))(topic)

    async def _create(self, topic: str) -> None:
        rng = self.context.rng
        drawn = {key: rng.choice(values) for key, values in _CONFIGS.items()}
        configs = [{"name": key, "value": value} for key, value in drawn.items() if value is not None]
        rows = [{"partition_index": index, "broker_ids": self._brokers} for index in range(_PARTITIONS)]
        row = {"name": topic, "num_partitions": -1, "replication_factor": -1, "assignments": rows, "configs": configs}
        fields = {"topics": [row], "validate_only": False}
        await self._admin.ask(ApiKey.CREATE_TOPICS, _CREATE_TOPICS, fields, lambda a: a.topics[0].error_code)
        self._sizes[topic] = _PARTITIONS

    async def _configure(self, topic: str) -> None:
        rng = self.context.rng
        key = rng.choice((_MIN_ISR, _MIN_ISR, _UNCLEAN))
        await self._admin.set(TOPIC, topic, key, rng.choice(_CONFIGS[key]))

    async def _grow(self, topic: str) -> None:
        if self._sizes[topic] > _PARTITIONS:
            return
        row = {"name": topic, "count": _PARTITIONS + 1, "assignments": [{"broker_ids": self._brokers}]}
        fields = {"topics": [row], "validate_only": False}
        await self._admin.ask(ApiKey.CREATE_PARTITIONS, _CREATE_PARTITIONS, fields, lambda a: a.results[0].error_code)
        self._sizes[topic] = _PARTITIONS + 1

    async def _reassign(self, topic: str) -> None:
        """Another order, or fewer replicas; or the usual ones again."""
        rng = self.context.rng
        count = rng.choice((len(self._brokers), len(self._brokers), len(self._brokers) - 1))
        replicas: Sequence[int] = rng.choice((self._brokers, rng.sample(self._brokers, count)))
        row = {"partition_index": rng.randrange(self._sizes[topic]), "replicas": replicas}
        moves = {"topics": [{"name": topic, "partitions": [row]}]}
        await self._admin.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, _ALTER_REASSIGNMENTS, moves, _code_of_request)

    async def _elect(self, topic: str) -> None:
        partitions = [self.context.rng.randrange(self._sizes[topic])]
        fields = {"election_type": 0, "topic_partitions": [{"topic": topic, "partitions": partitions}]}
        await self._admin.ask(ApiKey.ELECT_LEADERS, _ELECT_LEADERS, fields, _code_of_request)


def _code_of_request(answer: Struct) -> int:
    """What the request as a whole was answered; the codes of its rows are not looked at."""
    return int(answer.error_code)
