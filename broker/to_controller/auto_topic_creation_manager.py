"""Creates topics that clients ask the metadata of (auto.create.topics.enable), and internal topics."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from ...wire.api_keys import ApiKey
from ...wire.codec import Struct
from ...wire.errors import ErrorCode, ProtocolError, error_name
from ..config import TopicDefaults
from ..coordinators.coordinator_topic import InternalTopicConfig
from ..log_limiter import LogLimiter
from ..network.request import Request
from .controller_channel import ControllerChannel

logger = logging.getLogger("raftwerk.broker")

CREATE_TOPICS_VERSION = 7
TIMEOUT_MS = 5_000
TOPICS_UNDER_WAY_MAX = 1_000
TOPICS_PER_REQUEST = 50
"""The answer names all settings of each topic, and is decoded in one piece."""


class AutoTopicCreationManager:
    """Asks the controller to create topics; only once for a topic that several clients ask for at the same time."""

    def __init__(
        self, channel: ControllerChannel, defaults: TopicDefaults, internal: Mapping[str, InternalTopicConfig]
    ) -> None:
        self._channel = channel
        self._defaults = defaults
        self._internal = internal
        self._under_way: dict[str, None] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._limiter = LogLimiter()

    def request_topics(self, names: Iterable[str], client: Request | None = None) -> None:
        """Begin to create the topics that are not being created yet. Returns at once.

        `client` is the request by which a client has asked for them: its principal creates them, by its rights and
        quotas. None: the broker does so by itself. Of very many, some are left out: clients ask again.
        """
        free = TOPICS_UNDER_WAY_MAX - len(self._under_way)
        fresh = list(islice((name for name in names if name not in self._under_way), max(free, 0)))
        if not fresh:
            return
        self._under_way |= dict.fromkeys(fresh)
        task = asyncio.get_running_loop().create_task(self._create_all(fresh, client))
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._finished(done, fresh))

    def close(self) -> None:
        """Cancel all creations."""
        for task in list(self._tasks):
            task.cancel()

    async def _create_all(self, names: list[str], client: Request | None) -> None:
        for start in range(0, len(names), TOPICS_PER_REQUEST):
            await self._create(names[start : start + TOPICS_PER_REQUEST], client)

    async def _create(self, names: list[str], client: Request | None) -> None:
        fields = {"topics": [self._row(name) for name in names], "timeout": TIMEOUT_MS, "validate_only": False}
        try:
            response = await self._ask(fields, client)
        except ProtocolError as error:
            self._log(f"{len(names)} topics, among them {names[0]}", error.code, str(error))
            return
        for topic in response.topics:
            if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                reason = topic.error_message or error_name(topic.error_code)
                self._log(f"topic {topic.name}", topic.error_code, reason)

    async def _ask(self, fields: dict[str, Any], client: Request | None) -> Struct:
        what = ApiKey.CREATE_TOPICS, CREATE_TOPICS_VERSION, fields
        if client is None:
            return await self._channel.request(*what, timeout_ms=TIMEOUT_MS)
        return await self._channel.request_for(client, *what)

    def _log(self, what: str, code: int, reason: str) -> None:
        """Log each error code once in a while: clients choose how often they ask, and for which names."""
        if self._limiter.should_log(str(code), "could not create topics", asyncio.get_running_loop().time()):
            logger.warning("could not create %s: %s", what, reason)

    def _row(self, name: str) -> dict[str, Any]:
        internal = self._internal.get(name)
        sizes = self._defaults if internal is None else internal
        configs = {} if internal is None else internal.topic_configs()
        return {
            "name": name,
            "assignments": [],
            "configs": [{"name": key, "value": value} for key, value in configs.items()],
            "num_partitions": sizes.partitions,
            "replication_factor": sizes.replication_factor,
        }

    def _finished(self, task: asyncio.Task[None], names: list[str]) -> None:
        self._tasks.pop(task, None)
        for name in names:
            self._under_way.pop(name, None)
