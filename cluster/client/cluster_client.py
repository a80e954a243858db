"""A small client of any Kafka-compatible cluster: its connections and its metadata.

It knows nothing of the inside of a node. `AdminClient`, `GroupClient`, `QuorumClient`, `Producer` and `Consumer` send
their requests through it.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

from ...security.client_login import ClientLogin, CredentialsRefusedError
from ...wire.api_keys import ApiKey
from ...wire.client import Connection, ConnectionLostError, OtherProtocolError, RequestTimedOutError, connect
from ...wire.codec import Struct
from ...wire.errors import ErrorCode, WireFormatError
from ...wire.types import is_under_replicated
from .access.bootstrap import bootstrap_text, parse_bootstrap
from .access.current_login import CURRENT_LOGIN
from .access.expected_cluster import WrongClusterError, check_cluster, is_broker_checked, way_out_if_down
from .access.needed_rights import Asked
from .client_errors import (
    CONTROLLER_APIS,
    NO_LEADER,
    QUORUM_APIS,
    Address,
    NoControllerError,
    NotLoggedInError,
    OtherClusterError,
    RefusedError,
    SilentNodesError,
    UnreachableError,
    WrongCredentialsError,
    is_retriable,
    no_such_topic,
    partitions_text,
)
from .peer_protocol import (
    WAITS_FOR_CONTROLLER,
    ControllerListenerError,
    UnknownBrokerError,
    is_controller_listener,
    login_way_out,
    no_answer_reason,
    served_apis,
    speaks,
    spoken_protocol,
)
from .requests.throttling import Throttling

T = TypeVar("T")
WaitsFor: TypeAlias = Callable[[], Awaitable[str | None]]
"""Finds out for whom a broker waits before it answers; None if for nobody."""
OnSilence: TypeAlias = Callable[[], None] | None
"""What is called for a broker that got a request and gave no answer."""

CLIENT_ID = "raftwerk-cli"
_METADATA_VERSION = 12
NO_ANSWER = (OSError, WireFormatError)
"""What a request raises when it got no proper answer; a lost connection and a time-out are `OSError`s."""
_HTTP = "HTTP"
PROBE_TIMEOUT_S = 1.0
NOTICE_AFTER_S = 2.0
"""After this time without an answer it is said what is waited for."""
_ALIVE_TIMEOUT_S = 2.0
_BROKERS_SHARE = 0.8
"""How much of the time for a request a leader waits for replicas, so that it says so before the time is over."""

_logger = logging.getLogger("raftwerk.cluster.client")


@dataclass(frozen=True, slots=True)
class BrokerView:
    """A broker as clients see it."""

    node_id: int
    host: str
    port: int
    rack: str | None


@dataclass(frozen=True, slots=True)
class PartitionView:
    """A partition as clients see it; `leader` -1 when there is none.

    `adding` has the replicas that a reassignment is adding. Metadata does not tell them: `with_reassignments` does.
    """

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    adding: tuple[int, ...] = ()

    @property
    def is_under_replicated(self) -> bool:
        """Whether replicas are out of sync that no reassignment is adding."""
        return is_under_replicated(self.isr, self.replicas, self.adding)

    @property
    def out_of_sync(self) -> list[int]:
        """The replicas that are out of sync and that no reassignment is adding."""
        return [one for one in self.replicas if one not in self.isr and one not in self.adding]


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic as clients see it."""

    name: str
    topic_id: uuid.UUID | None
    internal: bool
    partitions: tuple[PartitionView, ...]

    def partition(self, number: int) -> PartitionView:
        """The partition of this number.

        One that the topic does not have, as after it was created anew with fewer, has no leader and no replicas.
        """
        if 0 <= number < len(self.partitions):
            return self.partitions[number]
        return PartitionView(number, -1, -1, (), ())

    def after(self, former: TopicView) -> TopicView:
        """This answer after a former one, of which a partition stays as it was whose leader is a later one there.

        A broker that is cut off from the others answers, too, with leaders from before. A topic that was created anew
        has nothing to do with the former one.
        """
        if self.topic_id is None or self.topic_id != former.topic_id:
            return self
        rows = {one.partition: one for one in former.partitions}
        rows |= {
            one.partition: one
            for one in self.partitions
            if one.leader_epoch >= rows.get(one.partition, one).leader_epoch
        }
        return replace(self, partitions=tuple(rows[number] for number in sorted(rows)))


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The answer to a Metadata request. `may_lack_topics`: whether topics may be hidden from this user, if known."""

    cluster_id: str | None
    controller_id: int
    brokers: tuple[BrokerView, ...]
    topics: tuple[TopicView, ...]
    may_lack_topics: bool = False

    def topic(self, name: str) -> TopicView:
        """The topic of this name. Raises `RefusedError` when there is none."""
        for topic in self.topics:
            if topic.name == name:
                return topic
        raise no_such_topic(name)

    def counts_of(self, node_id: int) -> dict[str, int]:
        """How many partitions a node leads (`leads`), has (`replicas`), and has in sync (`in_sync`)."""
        partitions = [one for topic in self.topics for one in topic.partitions]
        return {
            "leads": sum(one.leader == node_id for one in partitions),
            "replicas": sum(node_id in one.replicas for one in partitions),
            "in_sync": sum(node_id in one.isr for one in partitions),
        }


@dataclass(frozen=True, slots=True)
class Gathered(Generic[T]):
    """What brokers were asked for one by one. `missing` has a sentence for each that gave no answer."""

    rows: list[T]
    missing: list[str]

    def whole(self) -> list[T]:
        """The rows of all brokers. Raises `SilentNodesError` when one gave none."""
        if self.missing:
            raise SilentNodesError("; ".join(self.missing))
        return self.rows


class ClusterClient:
    """Connections to the brokers of one cluster; an async context manager, after which it opens none any more.

    A broker that is asked first has `probe_timeout_s` to answer to ApiVersions; after that the next one is asked, and
    the silent one has the whole `timeout_s` only if no other answers. Later requests go to it last, so that it costs
    the time of one probe, not of one for each request. With None nothing is sent before the request.
    Without a `login` connections log in as the running command does. With `is_silent` it is not said that a broker
    answers late, for requests that wait on purpose. With `is_interactive` somebody waits at a page: brokers are probed
    before each request, also on an open connection and by `request_node`, so that one that hangs costs a probe's time.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str = CLIENT_ID,
        timeout_s: float = 10.0,
        probe_timeout_s: float | None = PROBE_TIMEOUT_S,
        login: ClientLogin | None = None,
        is_silent: bool = False,
        is_interactive: bool = False,
    ) -> None:
        self.bootstrap = parse_bootstrap(bootstrap)
        self.client_id = client_id
        self.timeout_s = timeout_s
        self._probe_timeout_s = probe_timeout_s
        self._login = login
        self._connections: dict[tuple[str, int], Connection] = {}
        self._brokers: dict[int, BrokerView] = {}
        self._added: dict[int, BrokerView] = {}
        """Brokers that metadata leaves out."""
        self._unanswering: set[Address] = set()
        self._answered: dict[Address, None] = {}
        """Who answered to `request`; last the one that did so last."""
        self._is_interactive = is_interactive
        self._has_told = is_silent
        self.throttling = Throttling(is_silent=is_silent)
        self._is_closed = False

    async def __aenter__(self) -> ClusterClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_closed = True
        self.throttling.close()
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    @property
    def scram_user(self) -> tuple[str, str] | None:
        """The mechanism and the name as which connections log in by a password that the cluster keeps; None if not."""
        login = self._login or CURRENT_LOGIN.get()
        return None if login is None else login.scram_user

    @property
    def leader_wait_s(self) -> float:
        """For so long the leader of a partition is asked that does not answer, and that may be another one soon."""
        return min(self.timeout_s, PROBE_TIMEOUT_S) if self._is_interactive else self.timeout_s

    def apart(self, timeout_s: float | None = None) -> ClusterClient:
        """A client with connections of its own, where nothing waits for earlier answers. Both ask silent ones last."""
        other = ClusterClient(
            bootstrap_text(self.bootstrap),
            client_id=self.client_id,
            timeout_s=self.timeout_s if timeout_s is None else timeout_s,
            probe_timeout_s=self._probe_timeout_s,
            login=self._login,
            is_silent=self.throttling.is_silent,
            is_interactive=self._is_interactive,
        )
        other._unanswering = self._unanswering
        return other

    async def metadata(
        self, topics: Iterable[str] | None = None, *, asks_another: bool = False, purpose: ApiKey = ApiKey.METADATA
    ) -> ClusterView:
        """The brokers and these topics, or all topics for None. An unknown topic is left out.

        With `asks_another` see `request`. A refusal names the right that the `purpose` needs, the API to be called.
        """
        wanted = None if topics is None else [{"name": name, "topic_id": None} for name in topics]
        fields = {"topics": wanted, "allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
        answer = await self.request(ApiKey.METADATA, _METADATA_VERSION, fields, asks_another=asks_another)
        view = _cluster_view(answer, purpose)
        self._brokers = self._added | {broker.node_id: broker for broker in view.brokers}
        return view

    async def topic_again(self, name: str, former: TopicView | None) -> TopicView:
        """A topic by another broker than told its `former` view, after what was done by that has failed.

        One that does not know the topic may be behind: `RefusedError` if none knows it.
        """
        for _ in self._in_order(asks_another=True):
            topics = (await self.metadata([name], asks_another=True)).topics
            if topics:
                return topics[0] if former is None else topics[0].after(former)
        raise no_such_topic(name)

    @property
    def connected(self) -> list[Address]:
        """The addresses to which a connection is open."""
        return [at for at, connection in self._connections.items() if not connection.is_closed]

    def ask_last(self, silent: Iterable[Address]) -> None:
        """Ask these last: somebody knows that they do not answer now."""
        self._unanswering.update(silent)

    def add_brokers(self, brokers: Iterable[BrokerView]) -> None:
        """These brokers, which metadata leaves out, can be asked, too, also after other requests for metadata."""
        self._added |= {broker.node_id: broker for broker in brokers}
        self._brokers = self._added | self._brokers

    def _in_order(self, *, asks_another: bool) -> list[Address]:
        """All addresses, in the order in which they are to be asked."""
        known = [(broker.host, broker.port) for broker in self._brokers.values()]
        found = list(dict.fromkeys((*self._connections, *self.bootstrap, *known)))
        if asks_another:
            answered = list(self._answered)
            found.sort(key=lambda one: answered.index(one) if one in self._answered else -1)
        return sorted(found, key=self._unanswering.__contains__)

    async def request(
        self,
        api: ApiKey,
        version: int,
        fields: Mapping[str, Any],
        on_no_answer: OnSilence = None,
        *,
        asks_another: bool = False,
    ) -> Struct:
        """Ask the brokers one after the other until one answers; last those that gave no answer before.

        `on_no_answer` is called for each that got the request, and may have done something, but gave no answer. With
        `asks_another` those come first that have not answered here for the longest time: what the last one said has
        turned out wrong. Raises `ClientError` when none answers.
        """
        reasons: dict[Address, str] = {}
        silent: list[Address] = []
        closing: list[Address] = []
        ways_out: dict[Address, str] = {}
        are_wrong = False
        of_other_cluster: WrongClusterError | None = None
        left = self._in_order(asks_another=asks_another)
        was_slow: set[tuple[str, int]] = set()
        is_waiting = False
        while left:
            host, port = left.pop(0)
            is_last_try = (host, port) in was_slow
            may_wait = is_last_try and not is_waiting
            is_asked = False
            if may_wait and await spoken_protocol(host, port, PROBE_TIMEOUT_S) == _HTTP:
                reasons[host, port] = speaks(_HTTP)
                continue
            peer = f"{host}:{port}{', which asks the active controller,' if api in CONTROLLER_APIS else ''}"
            try:
                with self._notice(peer):
                    await self._probe(host, port, api, may_wait=may_wait, asks_another=asks_another)
                    is_asked = True
                    answer = await self._request_to(host, port, api, version, fields, on_no_answer)
                self._on_answer((host, port))
                return answer
            except NO_ANSWER as error:
                self._unanswering.add((host, port))
                if not is_last_try and not is_asked and isinstance(error, TimeoutError | RequestTimedOutError):
                    was_slow.add((host, port))
                    left.append((host, port))
                    continue
                reasons[host, port] = no_answer_reason(error)
                way_out = login_way_out(error)
                if isinstance(error, WrongClusterError):
                    of_other_cluster = error
                elif way_out is not None:
                    ways_out[host, port] = way_out
                    are_wrong = are_wrong or isinstance(error, CredentialsRefusedError)
                elif isinstance(error, RequestTimedOutError):
                    silent.append((host, port))
                    if is_asked and api in CONTROLLER_APIS and await self._still_answers(host, port):
                        reasons[host, port] = WAITS_FOR_CONTROLLER
                        is_waiting = True
                elif isinstance(error, ConnectionLostError) and not isinstance(error.__cause__, OtherProtocolError):
                    closing.append((host, port))
        unknown = [*ways_out, *(one for one in closing if one not in self._connections)]  # others have told their id
        of_other = of_other_cluster.way_out if of_other_cluster else way_out_if_down(unknown)
        if of_other is not None:
            raise OtherClusterError(reasons, of_other)
        if ways_out:
            raise (WrongCredentialsError if are_wrong else NotLoggedInError)(reasons, next(iter(ways_out.values())))
        raise (NoControllerError if is_waiting else UnreachableError)(reasons, silent=silent, closing=closing)

    def _on_answer(self, address: Address) -> None:
        self._unanswering.discard(address)
        self._answered.pop(address, None)
        self._answered[address] = None

    async def _still_answers(self, host: str, port: int) -> bool:
        """Whether a peer that did not answer a request in time still answers others."""
        if self._probe_timeout_s is None:
            return False
        try:
            connection = await self._connect(host, port, self._probe_timeout_s)
            await connection.api_versions(timeout_s=self._probe_timeout_s)
        except NO_ANSWER:
            return False
        return True

    @contextmanager
    def _notice(self, peer: str, waits_for: WaitsFor | None = None) -> Iterator[None]:
        """Say what is waited for, if it takes long and will take as long again; once for all brokers.

        `waits_for` finds out for whom a peer waits itself, which answers other requests.
        """
        if self.timeout_s < 2 * NOTICE_AFTER_S or self._has_told:
            yield
            return
        telling: list[asyncio.Task[None]] = []

        async def tell() -> None:
            await self.throttling.wait(NOTICE_AFTER_S)
            if self._has_told:
                return  # of another request that waits at the same time
            self._has_told = True
            others = None if waits_for is None else await waits_for()
            since = "" if others is None else f", since it waits for {others}"
            text = "%s has not answered for %g s%s; waiting for up to %g s"
            _logger.warning(text, peer, NOTICE_AFTER_S, since, self.timeout_s)

        loop = asyncio.get_running_loop()
        timer = loop.call_later(NOTICE_AFTER_S, lambda: telling.append(loop.create_task(tell())))
        try:
            yield
        finally:
            timer.cancel()
            for task in telling:
                task.cancel()

    async def _probe(self, host: str, port: int, api: ApiKey, *, may_wait: bool, asks_another: bool) -> None:
        """Whether a peer that was not asked before, or not lately, answers, and serves this API to clients."""
        connection = self._connections.get((host, port))
        is_open = connection is not None and not connection.is_closed
        if self._probe_timeout_s is None or (is_open and not (asks_another or self._is_interactive)):
            return
        timeout_s = self.timeout_s if may_wait else min(self._probe_timeout_s, self.timeout_s)
        connection = await self._connect(host, port, timeout_s)
        if not is_open and is_broker_checked((host, port)):
            return  # it has just answered
        served = await served_apis(connection, timeout_s)
        if is_controller_listener(served) and not (api in QUORUM_APIS and api in served):
            raise ControllerListenerError  # a topic would be made there, and not be found then

    async def request_node(
        self,
        node_id: int,
        api: ApiKey,
        version: int,
        fields: Mapping[str, Any],
        waits_for: WaitsFor | None = None,
    ) -> Struct:
        """Ask one broker. Raises one of `NO_ANSWER` when it does not answer.

        If that takes long, it is said for which brokers it `waits_for` itself, in the case that it finds any.
        """
        try:
            with self._notice(self.broker_text(node_id), waits_for):
                connection = await self.connection(node_id)
                if self._is_interactive and not connection.in_flight:
                    await connection.api_versions(timeout_s=self.leader_wait_s)
                return await connection.request(api, version, fields, timeout_s=self.timeout_s)
        except NO_ANSWER:
            if (broker := self._brokers.get(node_id)) is not None:
                self._unanswering.add((broker.host, broker.port))
            raise

    def replicas_timeout_ms(self, limit_s: float) -> int:
        """How long a leader may wait for acks of replicas before it answers, at most this limit."""
        return int(min(limit_s, self.timeout_s * _BROKERS_SHARE) * 1000)

    async def gather(self, brokers: Iterable[int], ask: Callable[[int], Awaitable[list[T]]], what: str) -> Gathered[T]:
        """What `ask` gets from each of the brokers; a sentence says that `what` of those without an answer is missing.

        `ask` raises one of `NO_ANSWER` when its broker does not answer.
        """

        async def rows_of(broker: int) -> list[T] | str:
            try:
                return await ask(broker)
            except NO_ANSWER as error:
                return f"{self.broker_text(broker)} {no_answer_reason(error)}: {what} are missing"

        found = await asyncio.gather(*map(rows_of, brokers))
        rows = [row for one in found if not isinstance(one, str) for row in one]
        return Gathered(rows, [one for one in found if isinstance(one, str)])

    async def may_have_topic(self, topic: str) -> bool:
        """Whether there may be such a topic: one that this user may not describe may be there."""
        try:
            return bool((await self.metadata([topic])).topics)
        except RefusedError as error:
            if error.code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise
            return True

    async def without_leader(self, topic: str, what: str) -> list[str]:
        """A sentence that `what` of a topic's partitions without a leader is missing; none if there are none.

        Who may not describe the topic is told nothing.
        """
        try:
            topics = (await self.metadata([topic])).topics
        except RefusedError:
            return []
        why = {row.partition: NO_LEADER for one in topics for row in one.partitions if row.leader < 0}
        return [f"{partitions_text(topic, why)}, and {what} are missing"] if why else []

    async def silences(self, brokers: Iterable[int]) -> dict[int, str]:
        """Why some of these brokers do not answer, in words that follow their names; asked all at once."""
        known = [self._brokers[one] for one in brokers if one in self._brokers]
        reasons = await asyncio.gather(*(silence_of(one.host, one.port) for one in known))
        return {one.node_id: reason for one, reason in zip(known, reasons, strict=True) if reason is not None}

    def broker_text(self, node_id: int) -> str:
        """A broker with its address, as the last metadata named it: `broker 2 (localhost:9092)`."""
        broker = self._brokers.get(node_id)
        at = "" if broker is None else f" ({bootstrap_text([(broker.host, broker.port)])})"
        return f"broker {node_id}{at}"

    async def request_at(
        self, endpoint: Address, api: ApiKey, version: int, fields: Mapping[str, Any], on_no_answer: OnSilence = None
    ) -> Struct:
        """Ask the node at an address. Raises one of `NO_ANSWER` when it does not answer; see `request`."""
        return await self._request_to(*endpoint, api, version, fields, on_no_answer)

    async def connection(self, node_id: int) -> Connection:
        """The connection to a broker that the last metadata named; it is opened if there is none."""
        broker = self._brokers.get(node_id)
        if broker is None:
            raise UnknownBrokerError
        return await self._connect(broker.host, broker.port, self.leader_wait_s)

    async def _connect(self, host: str, port: int, timeout_s: float | None = None) -> Connection:
        connection = self._connections.get((host, port))
        if connection is None or connection.is_closed:
            self._connections.pop((host, port), None)
            self._check_open()
            limit_s = self.timeout_s if timeout_s is None else timeout_s
            login = self._login or CURRENT_LOGIN.get()
            connection = await connect(host, port, client_id=self.client_id, timeout_s=limit_s, login=login)
            await check_cluster(connection, (host, port), limit_s)
            if self._is_closed:
                connection.close()
                self._check_open()
            other = self._connections.get((host, port))
            if other is not None and not other.is_closed:  # made by another request meanwhile
                connection.close()
                return other
            connection.on_throttled = partial(self.throttling.on_throttled, bootstrap_text([(host, port)]))
            self._connections[host, port] = connection
        return connection

    def _check_open(self) -> None:
        """Refuse requests that go on after the client was closed: nobody would close what they open."""
        if self._is_closed:
            raise ConnectionLostError("the client was closed")

    async def _request_to(
        self, host: str, port: int, api: ApiKey, version: int, fields: Mapping[str, Any], on_no_answer: OnSilence = None
    ) -> Struct:
        connection = await self._connect(host, port)
        try:
            return await connection.request(api, version, fields, timeout_s=self.timeout_s)
        except NO_ANSWER:
            if on_no_answer is not None:
                on_no_answer()
            raise


async def silence_of(host: str, port: int, timeout_s: float = _ALIVE_TIMEOUT_S) -> str | None:
    """Why a node gives no answer, in words that follow its address; None if it answers."""
    try:
        connection = await connect(host, port, client_id=CLIENT_ID, timeout_s=timeout_s, login=CURRENT_LOGIN.get())
    except OSError as error:
        return no_answer_reason(error)
    try:
        await check_cluster(connection, (host, port), timeout_s)
        await connection.api_versions(timeout_s=timeout_s)
    except NO_ANSWER as error:
        return no_answer_reason(error)
    finally:
        connection.close()
    return None


def _cluster_view(answer: Struct, purpose: ApiKey) -> ClusterView:
    brokers = tuple(BrokerView(one.node_id, one.host, one.port, one.rack) for one in answer.brokers)
    topics = []
    for topic in answer.topics:
        if topic.error_code and not is_retriable(topic.error_code):
            raise RefusedError(topic.error_code, f"topic {topic.name}", asked=Asked(purpose, topic=topic.name))
        if topic.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
            continue
        partitions = [
            PartitionView(
                one.partition_index, one.leader_id, one.leader_epoch, (*one.replica_nodes,), (*one.isr_nodes,)
            )
            for one in sorted(topic.partitions, key=lambda one: one.partition_index)
        ]
        topics.append(TopicView(topic.name, topic.topic_id, topic.is_internal, tuple(partitions)))
    brokers = tuple(sorted(brokers, key=lambda one: one.node_id))
    return ClusterView(answer.cluster_id, answer.controller_id, brokers, tuple(sorted(topics, key=lambda t: t.name)))
