"""Describes the metadata quorum, and adds and removes voters (DescribeQuorum, AddRaftVoter, RemoveRaftVoter)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any
from uuid import UUID

from ...raft.types import ReplicaKey
from ...raft.voters.voter_set import Voter
from ...wire.api_keys import ApiKey
from ...wire.codec import Struct
from ...wire.errors import ErrorCode
from .access.bootstrap import bootstrap_text, parse_bootstrap
from .access.needed_rights import Asked
from .admin_client import BROKER, AdminClient
from .client_errors import (
    CONTROLLER_LISTENER,
    Address,
    ClientError,
    NoControllerError,
    RefusedError,
    UnreachableError,
    is_retriable,
    raise_if_refused,
)
from .cluster_client import NO_ANSWER, ClusterClient, silence_of
from .peer_protocol import no_answer_reason
from .requests.attempts import Attempts

_LEADER_VERSION, _DESCRIBE_VERSION, _ADD_VERSION, _REMOVE_VERSION = 1, 2, 1, 0
_TOPICS = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
_TEMPORARY = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_CONTROLLER)
_AUTO_JOIN_KEY = "controller.quorum.auto.join.enable"
_CONTROLLERS_KEY = "controller.quorum.bootstrap.servers"
_PAUSE_S = 0.1
SILENT_VOTER_MS = 3_000
"""A voter fetches at least twice a second; one that has not for this long is down or cut off."""
_LOOK_AGAIN_S = 1.0
_ROUNDING_MS = 100
"""The time of the same fetch differs by so much at most, since the leader derives it anew from two clocks."""
_PROBED_MS = 1_000
"""A voter that has not fetched for this long is asked whether it is there."""
_ANSWER_S = 2.0
"""How long a controller is asked whether it leads."""
_NO_DIRECTORY = UUID(int=0)
REPLACED = "is back with another log directory, which does not vote"
"""Why a voter is gone although its node answers: the voter is a node id together with a directory id."""
PUT_BACK = (
    "so many voters have lost their log directories that no majority is left, and none can be removed or added: put "
    "the former directories back, or see docs/voters.md, under 'A majority has lost its directories'"
)
"""What to do where a quorum has no majority since voters are back with other log directories."""
MAKE_DYNAMIC = "raftwerk features set kraft.version=1 makes the voters dynamic, while all controllers run, for good"


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """A voter or observer. Times are milliseconds of the wall clock, -1 when unknown."""

    node_id: int
    directory_id: UUID
    is_voter: bool
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


@dataclass(frozen=True, slots=True)
class QuorumView:
    """The answer to DescribeQuorum."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    replicas: tuple[QuorumReplica, ...]
    endpoints: Mapping[int, Address]

    @property
    def voters(self) -> list[QuorumReplica]:
        """The replicas that vote."""
        return [replica for replica in self.replicas if replica.is_voter]

    @property
    def replaced(self) -> list[QuorumReplica]:
        """The voters of which the node is back with another log directory: with that it follows, and does not vote."""
        there = {one.node_id for one in self.replicas if not one.is_voter and not self.is_late(one)}
        return [one for one in self.voters if one.node_id in there and self.is_late(one)]

    def has_majority(self, down: Sequence[DownVoter]) -> bool:
        """Whether the leader and the voters that are not down are a majority."""
        return 2 * len(down) < len(self.voters)

    def is_late(self, one: QuorumReplica) -> bool:
        """Whether a replica, not the leader, has not fetched for so long that it has to be asked."""
        silent_ms = self.silent_ms(one)
        return one.node_id != self.leader_id and (silent_ms is None or silent_ms >= _PROBED_MS)

    def silent_ms(self, one: QuorumReplica) -> int | None:
        """For how long a replica has not fetched, by the leader's clock; None if it never has."""
        return None if one.last_fetch_ms < 0 else _now_ms(self) - one.last_fetch_ms


@dataclass(frozen=True, slots=True)
class SilentVoter:
    """A voter of the quorum that does not fetch. `silent_ms` is None if it never has, as its leader knows."""

    node_id: int
    silent_ms: int | None

    @property
    def since(self) -> str:
        """How long it has been silent, in words that follow its name."""
        if self.silent_ms is None:
            return "has never fetched from the quorum's leader"
        return f"has not fetched from the quorum's leader for {self.silent_ms / 1000:.0f} s"


@dataclass(frozen=True, slots=True)
class DownVoter:
    """A voter that does not answer at `address` (`host:port`), or is replaced there; `why` follows its name."""

    node_id: int
    address: str
    why: str

    @property
    def since(self) -> str:
        """Why it is silent, and where it was asked, in words that follow its name."""
        return f"{self.why} ({self.address})"

    def __str__(self) -> str:
        return f"{self.node_id} ({self.address}) {self.why}"


class NoLeaderError(ClientError):
    """No leader of the quorum answers. `silent` has the voters that do not answer."""

    def __init__(self, text: str, silent: Sequence[DownVoter]) -> None:
        super().__init__(text)
        self.silent = silent


class QuorumClient:
    """Asks the quorum through brokers; with `at_controllers` it asks the controllers, and finds the leader among them.

    `controllers` are the addresses of voters that are known anyhow; they are asked where brokers know of no leader.
    Every method raises `ClientError` with the reason.
    """

    def __init__(
        self,
        client: ClusterClient,
        *,
        at_controllers: bool = False,
        controllers: Mapping[int, Address] = MappingProxyType({}),
    ) -> None:
        self._client = client
        self._at_controllers = at_controllers
        self._controllers = controllers

    async def describe(self) -> QuorumView:
        """The quorum, as its leader describes it. `NoLeaderError` when none answers within the client's time-out."""
        try:
            async with asyncio.timeout(self._client.timeout_s + _PAUSE_S):
                answer = await self._ask(ApiKey.DESCRIBE_QUORUM, _DESCRIBE_VERSION, {"topics": _TOPICS})
        except TimeoutError:  # several brokers were asked, one after the other
            raise await self.no_leader() from None
        raise_if_refused(answer.error_code, "the quorum", answer.get("error_message"), Asked(ApiKey.DESCRIBE_QUORUM))
        return _view(answer)

    async def leader_id(self) -> int | None:
        """The node id of the active controller; None while there is none. It asks once, without retries."""
        answer = await self._client.request(ApiKey.DESCRIBE_QUORUM, _LEADER_VERSION, {"topics": _TOPICS})
        if answer.error_code:
            raise RefusedError(answer.error_code, "the quorum", asked=Asked(ApiKey.DESCRIBE_QUORUM))
        row = answer.topics[0].partitions[0]
        return row.leader_id if not row.error_code and row.leader_id >= 0 else None

    async def is_led(self) -> bool:
        """Whether the brokers reach an active controller; True for who may not ask that. It asks once."""
        try:
            return await self.leader_id() is not None
        except RefusedError as error:
            return error.code not in _TEMPORARY and not is_retriable(error.code)
        except ClientError:
            return False

    async def silent_voters(self) -> list[SilentVoter]:
        """The voters that do not fetch. A new leader has not heard of all yet, so it is asked twice."""
        found = silent_in(await self.describe())
        if found:
            await asyncio.sleep(_LOOK_AGAIN_S)
            found = silent_in(await self.describe())
        return found

    async def down_voters(self, view: QuorumView, *, are_all_asked: bool = False) -> list[DownVoter]:
        """The voters that have not fetched of late and do not answer.

        With `are_all_asked` also those that fetched a moment ago, do not answer, and have not fetched a second later: a
        voter that fetches runs, even if it cannot be reached from here.
        """
        late = {one.node_id for one in view.voters if view.is_late(one)}
        replaced = [one.node_id for one in view.replaced]
        asked = {one.node_id for one in view.voters if one.node_id != view.leader_id} if are_all_asked else late
        _, silent = await _asked({one: at for one, at in view.endpoints.items() if one in asked.difference(replaced)})
        silent += [DownVoter(one, bootstrap_text([view.endpoints[one]]), REPLACED) for one in replaced]
        if all(one.node_id in late for one in silent):
            return silent
        await asyncio.sleep(_LOOK_AGAIN_S)  # the leader may have held a fetch of a voter that has died since
        seen = await self.describe()
        await asyncio.sleep(_LOOK_AGAIN_S)
        fetching = _fetching(seen, await self.describe())
        return [one for one in silent if one.node_id in late or one.node_id not in fetching]

    async def no_leader(self) -> NoLeaderError:
        """What to say where no leader is known, after the voters that are known were asked."""
        voters = self._controllers or await self._voters()
        if voters:
            return await _no_leader(voters)
        if self._at_controllers:
            return NoLeaderError(
                "the quorum has no leader: a majority of the controllers must run and reach each other", ()
            )
        return NoLeaderError(
            "the quorum has no leader that the brokers reach: a majority of the controllers must run and reach each "
            "other; raftwerk quorum --bootstrap-controller HOST:PORT says which of them answer",
            (),
        )

    async def _voters(self) -> Mapping[int, Address]:
        """The voters as a controller knows them that is asked or that a broker's settings name; empty if none tells."""
        if self._at_controllers:
            try:
                answer = await self._client.request(ApiKey.DESCRIBE_QUORUM, _DESCRIBE_VERSION, {"topics": _TOPICS})
            except (ClientError, *NO_ANSWER):
                return {}
            return _endpoints(answer)
        async with self._client.apart() as client:
            for address in await _listed_controllers(client):
                try:
                    answer = await client.request_at(
                        address, ApiKey.DESCRIBE_QUORUM, _DESCRIBE_VERSION, {"topics": _TOPICS}
                    )
                except NO_ANSWER:
                    continue
                if found := _endpoints(answer):
                    return found
        return {}

    async def add_voter(self, voter: Voter, cluster_id: str | None = None) -> None:
        """Make a controller that follows the quorum a voter; returns when the change is committed."""
        fields = {
            "cluster_id": cluster_id,
            "timeout": int(self._client.timeout_s * 1000),
            "voter_id": voter.key.id,
            "voter_directory_id": voter.key.directory_id,
            "listeners": [listener._asdict() for listener in voter.listeners],
            "ack_when_committed": True,
        }
        attempts = Attempts()
        answer = await self._ask(ApiKey.ADD_RAFT_VOTER, _ADD_VERSION, fields, attempts.on_no_answer)
        code = attempts.error_of(answer.error_code, ErrorCode.DUPLICATE_VOTER)
        if code != answer.error_code and not await self._votes(voter.key):
            code = answer.error_code
        _raise_if_change_refused(ApiKey.ADD_RAFT_VOTER, code, answer.error_message, voter.key.id)

    async def _votes(self, key: ReplicaKey) -> bool:
        """Whether the voter of this node id has this directory, too."""
        return any(
            (one.node_id, one.directory_id) == (key.id, key.directory_id) for one in (await self.describe()).voters
        )

    async def remove_voter(self, node_id: int, directory_id: UUID, cluster_id: str | None = None) -> None:
        """Remove a voter from the quorum; returns when the change is committed."""
        fields = {"cluster_id": cluster_id, "voter_id": node_id, "voter_directory_id": directory_id}
        attempts = Attempts()
        answer = await self._ask(ApiKey.REMOVE_RAFT_VOTER, _REMOVE_VERSION, fields, attempts.on_no_answer)
        code = attempts.error_of(answer.error_code, ErrorCode.VOTER_NOT_FOUND)
        _raise_if_change_refused(ApiKey.REMOVE_RAFT_VOTER, code, answer.error_message, node_id)

    async def joins_by_itself(self, node_id: int) -> bool:
        """Whether a controller would join again at once if it were removed: it runs with `auto.join.enable`.

        Only a controller that is a broker, too, can be asked. False when it does not answer.
        """
        if self._at_controllers:
            return False
        try:
            settings = await AdminClient(self._client).describe_configs(BROKER, str(node_id), everything=True)
        except (ClientError, *NO_ANSWER):
            return False
        return any(one.name == _AUTO_JOIN_KEY and one.value == "true" for one in settings)

    # -- requests

    async def _ask(
        self, api: ApiKey, version: int, fields: Mapping[str, Any], on_no_answer: Callable[[], None] | None = None
    ) -> Struct:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._client.timeout_s
        is_checked = self._at_controllers
        while True:
            voters: Mapping[int, Address] = {}
            try:
                if self._at_controllers:
                    answer = await self._ask_leader(api, version, fields, on_no_answer)
                else:
                    answer = await self._client.request(api, version, fields, on_no_answer)
            except NO_ANSWER as error:
                reason: Exception = ClientError(f"the leader of the quorum {no_answer_reason(error)}")
            except UnreachableError as error:
                raise await self._why_unreachable(error) from None
            except _RemovedLeaderError as error:
                reason = error
            else:
                code = _code_of(answer)
                if code not in _TEMPORARY:
                    return answer
                if not is_checked:
                    await self._check_brokers()
                    is_checked = True
                reason = RefusedError(code, "the quorum")
                voters = _endpoints(answer) if _knows_no_leader(answer) else {}
            if loop.time() > deadline:
                raise await _no_leader(voters) if voters else reason
            await asyncio.sleep(_PAUSE_S)

    async def _check_brokers(self) -> None:
        """Raise `UnreachableError` where controllers were named for brokers: those that follow never ask the leader."""
        try:
            async with self._client.apart() as client:
                await client.metadata([])
        except UnreachableError as error:
            if CONTROLLER_LISTENER in error.reasons.values():
                raise

    async def _why_unreachable(self, error: UnreachableError) -> ClientError:
        """A broker that answers, but not what only the quorum knows, waits for the quorum's leader."""
        waiting = () if self._at_controllers else error.silent
        if all([await silence_of(*at) is not None for at in waiting]):
            return error
        return await self.no_leader()

    async def _ask_leader(
        self, api: ApiKey, version: int, fields: Mapping[str, Any], on_no_answer: Callable[[], None] | None
    ) -> Struct:
        answer = await self._client.request(ApiKey.DESCRIBE_QUORUM, _DESCRIBE_VERSION, {"topics": _TOPICS})
        # A controller that is stopping, or whose disk has failed, knows no topics.
        leader_id: int = answer.topics[0].partitions[0].leader_id if answer.topics else -1
        endpoint = _endpoints(answer).get(leader_id)
        if endpoint is not None:
            return await self._client.request_at(endpoint, api, version, fields, on_no_answer)
        if api == ApiKey.DESCRIBE_QUORUM or _code_of(answer):
            return answer
        raise _RemovedLeaderError(f"controller {leader_id}, which leads the quorum, is no voter any more; it resigns")


class _RemovedLeaderError(ClientError):
    """The leader was just removed from the voters, and nobody says at which address it is. It resigns soon."""


async def _listed_controllers(client: ClusterClient) -> list[Address]:
    """The addresses of `controller.quorum.bootstrap.servers` at the first broker that tells them."""
    try:
        brokers = (await client.metadata(())).brokers
    except ClientError:
        return []
    for broker in brokers:
        try:
            settings = await AdminClient(client).describe_configs(BROKER, str(broker.node_id), everything=True)
            listed = next((one.value for one in settings if one.name == _CONTROLLERS_KEY), None)
            return parse_bootstrap(listed) if listed else []
        except (ClientError, *NO_ANSWER):
            continue
    return []


async def followed_leader(controllers: Mapping[int, Address], *, timeout_s: float = _ANSWER_S) -> int | None:
    """The controller that leads the quorum and that a majority of its voters follows; None if there is none.

    The controllers themselves are asked, all at once. One that is cut off from the others takes itself for the leader
    for some time; then it is asked again who leads, until none does or `timeout_s` is over.
    """
    bootstrap = bootstrap_text(controllers.values())
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    async with ClusterClient(bootstrap, timeout_s=min(timeout_s, _ANSWER_S), probe_timeout_s=None) as client:
        while True:
            views = await asyncio.gather(*(_leads(client, node_id, at) for node_id, at in controllers.items()))
            leading = [view for view in views if view is not None]
            followed = followed_view(leading)
            if followed is not None or not leading or loop.time() > deadline:
                return None if followed is None else followed.leader_id
            await asyncio.sleep(_PAUSE_S)


async def no_controller(bootstrap: str) -> NoControllerError | None:
    """The error of brokers that answer and reach no active controller; None if they reach one, or none answers."""
    async with ClusterClient(bootstrap, timeout_s=_ANSWER_S) as client:
        try:
            if await QuorumClient(client).leader_id() is not None:
                return None
        except NoControllerError as error:
            return error
        except ClientError:
            return None
        asked = client.connected
        return NoControllerError(dict.fromkeys(asked, "answers, and knows of none"), silent=asked)


def followed_view(leading: Iterable[QuorumView]) -> QuorumView | None:
    """That of the leader with the latest epoch from which a majority of the voters fetches, itself included."""
    followed = [view for view in leading if 2 * sum(map(view.is_late, view.voters)) < len(view.voters)]
    return max(followed, key=lambda view: view.leader_epoch, default=None)


async def _leads(client: ClusterClient, node_id: int, address: Address) -> QuorumView | None:
    """The quorum as this controller describes it, if it leads."""
    try:
        answer = await client.request_at(address, ApiKey.DESCRIBE_QUORUM, _DESCRIBE_VERSION, {"topics": _TOPICS})
    except NO_ANSWER:
        return None
    if _code_of(answer) or not answer.topics:
        return None
    view = _view(answer)
    return view if view.leader_id == node_id else None


def silent_in(view: QuorumView) -> list[SilentVoter]:
    """The voters that do not fetch, by one answer of the leader, which reports its own time for itself."""
    found = []
    for one in view.voters:
        silent_ms = view.silent_ms(one)
        if one.node_id != view.leader_id and (silent_ms is None or silent_ms >= SILENT_VOTER_MS):
            found.append(SilentVoter(one.node_id, silent_ms))
    return found


def _fetching(before: QuorumView, after: QuorumView) -> set[int]:
    """The voters that have fetched from one view to the next, a second later."""
    former = {one.node_id: one.last_fetch_ms for one in before.voters}
    return {one.node_id for one in after.voters if one.last_fetch_ms - former.get(one.node_id, -1) > _ROUNDING_MS}


def _now_ms(view: QuorumView) -> int:
    """The leader's time, which it reports as that of its own last fetch."""
    return max((one.last_fetch_ms for one in view.replicas if one.node_id == view.leader_id), default=-1)


def _knows_no_leader(answer: Struct) -> bool:
    topics: Sequence[Any] = answer.get("topics", ())
    return bool(topics) and topics[0].partitions[0].leader_id < 0


async def _no_leader(voters: Mapping[int, Address]) -> NoLeaderError:
    """What to say where no leader is known: which of the voters answer, and why the others do not."""
    answering, silent = await _asked(voters)
    replaced = await _replaced_among({one: at for one, at in voters.items() if one not in {s.node_id for s in silent}})
    silent += [DownVoter(one, bootstrap_text([voters[one]]), REPLACED) for one in replaced]
    told = [f"{one} ({bootstrap_text([voters[one]])})" for one in answering if one not in replaced]
    of = f"of its voters {', '.join(told) or 'none'} answer{'s' if len(told) == 1 else ''}"
    way_out = "a majority of the voters must run and reach each other"
    if 2 * len(replaced) >= len(voters):
        way_out = PUT_BACK
    return NoLeaderError(f"the quorum has no leader: {'; '.join([of, *map(str, silent)])}; {way_out}", silent)


async def _replaced_among(controllers: Mapping[int, Address]) -> list[int]:
    """Which of these controllers, which answer and do not lead, are back with another directory than the voter's."""
    if not controllers:
        return []
    async with ClusterClient(bootstrap_text(controllers.values()), timeout_s=_ANSWER_S, probe_timeout_s=None) as client:
        found = await asyncio.gather(*(_refusal_of(client, at) for at in controllers.values()))
    rows = {one: row for one, row in zip(controllers, found, strict=True) if row is not None}
    known = max((row for row in rows.values() if row.current_voters), key=lambda row: row.leader_epoch, default=None)
    directories = {} if known is None else {one.replica_id: one.replica_directory_id for one in known.current_voters}
    return [
        node_id
        for node_id, row in rows.items()
        for one in row.observers
        if one.replica_id == node_id and directories.get(node_id, _NO_DIRECTORY) != one.replica_directory_id
    ]


async def _refusal_of(client: ClusterClient, controller: Address) -> Any:
    """What a controller that does not lead knows of the voters and of itself; None if it leads, or tells nothing."""
    try:
        answer = await client.request_at(controller, ApiKey.DESCRIBE_QUORUM, _DESCRIBE_VERSION, {"topics": _TOPICS})
    except NO_ANSWER:
        return None
    row = answer.topics[0].partitions[0] if answer.topics else None
    return row if row is not None and row.error_code in _TEMPORARY else None


async def _asked(voters: Mapping[int, Address]) -> tuple[list[int], list[DownVoter]]:
    """The voters that answer, by id, and those that do not."""
    reasons = await asyncio.gather(*(silence_of(*at) for at in voters.values()))
    answering, silent = [], []
    for (node_id, (host, port)), reason in zip(voters.items(), reasons, strict=True):
        if reason is None:
            answering.append(node_id)
        else:
            silent.append(DownVoter(node_id, f"{host}:{port}", reason))
    return answering, silent


def _view(answer: Struct) -> QuorumView:
    row = answer.topics[0].partitions[0]
    replicas = [
        QuorumReplica(
            one.replica_id,
            one.replica_directory_id or _NO_DIRECTORY,
            is_voter,
            one.log_end_offset,
            one.last_fetch_timestamp,
            one.last_caught_up_timestamp,
        )
        for is_voter, found in ((True, row.current_voters), (False, row.observers))
        for one in found
    ]
    return QuorumView(row.leader_id, row.leader_epoch, row.high_watermark, tuple(replicas), _endpoints(answer))


def _endpoints(answer: Struct) -> dict[int, Address]:
    return {node.node_id: (node.listeners[0].host, node.listeners[0].port) for node in answer.nodes if node.listeners}


def _code_of(answer: Struct) -> int:
    topics: Sequence[Any] = answer.get("topics", ())
    code: int = answer.error_code or (topics[0].partitions[0].error_code if topics else 0)
    return code


def _raise_if_change_refused(api: ApiKey, code: int, message: str | None, node_id: int) -> None:
    if code:
        way_out = MAKE_DYNAMIC if code == ErrorCode.UNSUPPORTED_VERSION else None
        raise RefusedError(code, f"controller {node_id}", message, way_out, asked=Asked(api))
