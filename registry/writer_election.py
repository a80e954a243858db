"""Which of the registries of a topic writes, by the protocol of groups: they are the members of one group.

The group's leader is the writer, so it stays the same while it lives. With the assignment it tells the others where it
is reached. Members and assignments are written down as those of Confluent's registry. That only one writes follows from
the transactional id, not from here: a writer that is paused may believe for a while that it still is one.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from ..cluster.client.client_errors import ClientError
from ..cluster.client.cluster_client import NO_ANSWER, ClusterClient
from ..cluster.client.peer_protocol import no_answer_reason
from ..cluster.client.requests.coordinator_requests import CoordinatorRequests, CoordinatorType
from ..wire.api_keys import ApiKey
from ..wire.codec import Struct
from ..wire.errors import ErrorCode, error_name
from .errors import unknown_writer

_logger = logging.getLogger(__name__)
_PROTOCOL_TYPE, _PROTOCOL = "sr", "v0"
_SESSION_TIMEOUT_MS = 6000
_HEARTBEAT_S = 1.5
_RETRY_S = 0.5
_ELECTION_TIMEOUT_S = 10.0
"""How long a write waits for an election that is going on."""
_JOIN_VERSION, _SYNC_VERSION, _HEARTBEAT_VERSION, _LEAVE_VERSION = 9, 5, 4, 5
_LOST_MEMBERSHIP = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
_LEAVE_TIMEOUT_S = 3.0


@dataclass(frozen=True, slots=True)
class Writer:
    """The registry that writes: where it is reached, and whether it is this one."""

    url: str
    is_here: bool


class WriterElection:
    """The membership of one registry in the group of its topic. An async context manager, which leaves the group.

    `url` is where the other registries reach this one.
    """

    def __init__(self, client: ClusterClient, group: str, url: str) -> None:
        self._group = group
        self._coordinators = CoordinatorRequests(client, CoordinatorType.GROUP)
        self._url = url
        self._member_id = ""
        self._generation = -1
        self._must_join = True
        self._writer: Writer | None = None
        self._changed = asyncio.Condition()
        self._woken = asyncio.Event()
        self._membership: asyncio.Task[None] | None = None
        self._has_told = False
        self._reason = "the members of the group have not all come together"

    async def __aenter__(self) -> WriterElection:
        self._membership = asyncio.ensure_future(self._stay())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._membership is not None:
            self._membership.cancel()
            await asyncio.gather(self._membership, return_exceptions=True)
        await self._leave()

    async def writer(self) -> Writer:
        """The writer. Raises `RegistryError` 50004 when none is elected within some seconds."""
        try:
            async with asyncio.timeout(_ELECTION_TIMEOUT_S), self._changed:
                await self._changed.wait_for(lambda: self._writer is not None)
        except TimeoutError:
            pass
        if self._writer is None:
            raise unknown_writer(f"none is elected: {self._reason}; try again in a moment")
        return self._writer

    async def is_replaced(self, writer: Writer) -> None:
        """Return when this is not the writer any more."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._writer != writer)

    async def lose(self) -> None:
        """Forget the writer, which is another one than was known here, and take part in an election."""
        await self._set(None)
        await self._leave()
        self._member_id, self._must_join = "", True
        self._woken.set()

    # -- membership

    async def _stay(self) -> None:
        while True:
            self._woken.clear()
            pause_s = _HEARTBEAT_S
            try:
                await (self._join() if self._must_join else self._heartbeat())
            except (ClientError, *NO_ANSWER) as error:
                self._tell(str(error) if isinstance(error, ClientError) else no_answer_reason(error))
            if self._must_join:
                pause_s = _RETRY_S
            try:
                await asyncio.wait_for(self._woken.wait(), pause_s)
            except TimeoutError:
                continue

    def _tell(self, reason: str) -> None:
        self._reason = reason
        if not self._has_told:
            self._has_told = True
            _logger.warning("the registries of %s elect no writer for now: %s", self._group, reason)

    async def _join(self) -> None:
        joined = await self._ask(
            ApiKey.JOIN_GROUP,
            _JOIN_VERSION,
            session_timeout=_SESSION_TIMEOUT_MS,
            rebalance_timeout=_SESSION_TIMEOUT_MS,
            member_id=self._member_id,
            protocol_type=_PROTOCOL_TYPE,
            protocols=[{"name": _PROTOCOL, "metadata": _identity(self._url)}],
        )
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = joined.member_id
            self._woken.set()
            return
        if self._is_refused(joined.error_code):
            return
        self._member_id, self._generation = joined.member_id, joined.generation_id
        synced = await self._ask(
            ApiKey.SYNC_GROUP,
            _SYNC_VERSION,
            generation_id=self._generation,
            member_id=self._member_id,
            protocol_type=_PROTOCOL_TYPE,
            protocol_name=_PROTOCOL,
            assignments=_assignments(joined.leader, joined.members),
        )
        if self._is_refused(synced.error_code):
            return
        member_id, url = _assigned(bytes(synced.assignment))
        self._must_join = self._has_told = False
        await self._set(Writer(url, is_here=member_id == self._member_id))

    async def _heartbeat(self) -> None:
        answer = await self._ask(
            ApiKey.HEARTBEAT, _HEARTBEAT_VERSION, generation_id=self._generation, member_id=self._member_id
        )
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._must_join = True
            self._woken.set()
        elif self._is_refused(answer.error_code):
            self._woken.set()
        else:
            self._has_told = False

    def _is_refused(self, code: int) -> bool:
        """Whether an answer is a refusal, after which this registry joins the group again."""
        if code:
            self._must_join = True
            if code in _LOST_MEMBERSHIP:
                self._member_id = ""
            elif code != ErrorCode.REBALANCE_IN_PROGRESS:
                self._tell(f"the coordinator answers {error_name(code)}")
        return bool(code)

    async def _leave(self) -> None:
        """Leave the group, so that the others need not wait for the end of the session."""
        if not self._member_id:
            return
        try:
            async with asyncio.timeout(_LEAVE_TIMEOUT_S):
                await self._ask(ApiKey.LEAVE_GROUP, _LEAVE_VERSION, members=[{"member_id": self._member_id}])
        except (ClientError, *NO_ANSWER) as error:
            _logger.debug("the group %s was not left: %s", self._group, error)

    async def _ask(self, api: ApiKey, version: int, **fields: Any) -> Struct:
        return await self._coordinators.ask(
            self._group, api, version, {"group_id": self._group, **fields}, lambda answer: [answer.error_code]
        )

    async def _set(self, writer: Writer | None) -> None:
        async with self._changed:
            self._writer = writer
            self._changed.notify_all()


def _identity(url: str) -> bytes:
    parts = urlsplit(url)
    named = {"host": parts.hostname, "port": parts.port, "master_eligibility": True, "scheme": parts.scheme}
    return json.dumps({"version": 1, **named}).encode()


def _assignments(leader: str, members: Sequence[Struct]) -> list[dict[str, Any]]:
    """What the leader, who alone knows the members, tells each of them; nothing for the others."""
    identity = next((json.loads(bytes(one.metadata)) for one in members if one.member_id == leader), None)
    told = json.dumps({"version": 1, "error": 0, "master": leader, "master_identity": identity}).encode()
    return [{"member_id": one.member_id, "assignment": told} for one in members]


def _assigned(data: bytes) -> tuple[str, str]:
    """The member that writes, and its URL. Raises `ClientError` for an assignment that is none."""
    try:
        told = json.loads(data)
        identity = told["master_identity"]
        host = f"[{identity['host']}]" if ":" in identity["host"] else identity["host"]
        return str(told["master"]), f"{identity['scheme']}://{host}:{int(identity['port'])}"
    except (KeyError, TypeError, ValueError):
        raise ClientError("the leader of the group is no schema registry of this kind") from None
