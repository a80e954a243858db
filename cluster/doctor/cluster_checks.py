"""Looks for common mistakes in a cluster, as a client on this machine sees it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeAlias

from ...runtime.clock import SystemClock
from ...wire.api_keys import ApiKey
from ...wire.client import RequestTimedOutError, connect
from ...wire.errors import ErrorCode
from ..client.access.bootstrap import parse_bootstrap
from ..client.access.current_login import CURRENT_LOGIN
from ..client.access.expected_cluster import WrongClusterError, check_cluster, way_out_if_down
from ..client.access.needed_rights import Asked
from ..client.admin_client import AdminClient
from ..client.client_errors import (
    CONTROLLER_LISTENER,
    NAME_A_BROKER,
    Address,
    ClientError,
    NotLoggedInError,
    OtherClusterError,
    RefusedError,
    UnreachableError,
)
from ..client.cluster_client import NO_ANSWER, ClusterClient, ClusterView
from ..client.peer_protocol import (
    REFUSES,
    TIMES_OUT,
    WAYS_OUT,
    explained,
    is_controller_listener,
    login_way_out,
    no_answer_reason,
    spoken_protocol,
)
from ..client.quorum_client import (
    PUT_BACK,
    REPLACED,
    SILENT_VOTER_MS,
    DownVoter,
    NoLeaderError,
    QuorumClient,
    SilentVoter,
)
from ..client.reassignment import with_reassignments
from ..command_line.plural import counted
from ..settings.network_addresses import is_loopback
from .disk_checks import examine_disks
from .findings import FAILURE, OK, WARNING, Finding, exposed, ids, some
from .hidden_topics import HIDDEN_TOPICS, WHO_SEES_ALL, may_miss_topics
from .internal_topic_checks import missing_internal_topics
from .silent_nodes import (
    NO_TROUBLES,
    NOBODY_WAITS,
    WAITS,
    WAITS_IN_VAIN,
    BrokerTroubles,
    WaitingBrokers,
    bring_back,
    fenced,
    in_sync_without,
)
from .transaction_checks import examine_transactions

_TIMEOUT_S = 3.0
_TOPIC_RESOURCE = 2
_NAMED_PARTITIONS = 5
_CLOCK_OFF_MS = 5_000
_IF_RUNNING = "; if that runs, its port is not published here, or advertised.listeners is wrong"

Apis: TypeAlias = frozenset[tuple[int, int, int]]
"""The key, lowest and highest version of every API that a broker serves."""


@dataclass(frozen=True, slots=True)
class LeaderlessPartition:
    """A partition without a leader, with the ids of brokers.

    The `eligible` are in the ISR or the ELR and hold all committed records (KIP-966). `last_known` led it last, if none
    is eligible. The `offline` do not run, or run without the log directory of their replica.
    """

    name: str
    replicas: tuple[int, ...]
    eligible: tuple[int, ...]
    last_known: tuple[int, ...]
    offline: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Reached:
    """What was found at an address: how it went on, after the address, and the APIs that are served there, if any.

    `why` is why a node there is silent: `REFUSES`, `TIMES_OUT` or something else. `pid` is its process, if it is known
    that it runs.
    """

    told: str
    level: str = FAILURE
    way_out: str = ""
    apis: Apis | None = None
    why: str = ""
    pid: int | None = None


async def examine_cluster(
    bootstrap: str,
    way_out: str = "start the cluster with raftwerk up",
    controllers: Mapping[int, Address] = MappingProxyType({}),
    local_options: str | None = None,
    silence_way_out: str | None = None,
    waiting: WaitingBrokers = NOBODY_WAITS,
) -> list[Finding]:
    """Check addresses, advertised addresses, versions, the controller, clocks, partitions and transactions.

    `way_out` is the remedy when no broker answers, `silence_way_out` where nothing listens at any address. The
    `controllers` are those that are known without asking. `local_options` is what commands about single nodes need
    behind them if the cluster is local, and `waiting` its brokers that run and do not listen.
    """
    asked = parse_bootstrap(bootstrap)
    reached = dict(zip(asked, await asyncio.gather(*(_reach(*at) for at in asked)), strict=True))
    async with ClusterClient(bootstrap, timeout_s=_TIMEOUT_S) as client:
        try:
            addresses, fenced_ids = await _broker_addresses(client)
        except ClientError as error:
            return await _unreachable(
                [*_bootstrap_addresses(reached, silence_way_out)], error, way_out, silence_way_out
            )
        others = [at for at in addresses.values() if at not in reached]
        reached |= zip(others, await asyncio.gather(*(_reach(*at) for at in others)), strict=True)
        for one, pid in waiting.pids.items():
            at = addresses.get(one)
            if at is not None and reached[at].why == REFUSES:
                reached[at] = replace(reached[at], why=waiting.why, pid=pid)
        not_brokers = {at: reached[at] for at in asked if at not in addresses.values()}
        found = [*_bootstrap_addresses(not_brokers)]
        found += _advertised({(one, at): reached[at] for one, at in addresses.items()}, local_options)
        apis = {one: reached[at].apis for one, at in addresses.items()}
        served = {one: answer for one, answer in apis.items() if answer is not None}
        silent = {one: reached[at].why for one, at in addresses.items() if one not in served}
        found += _versions(served)
        is_led, of_quorum = await _controller(bootstrap, controllers, local_options)
        found += of_quorum
        found += await _controller_listeners(client) if is_led else [_stale()]
        of_disks, full = await examine_disks(client, {one: addresses[one] for one in served})
        found += [*of_disks, *fenced(fenced_ids & served.keys(), full)]
        try:  # what was asked above took time: a node that is silent may have lost what it led
            view = await client.metadata()
        except ClientError as error:
            return [*found, Finding(FAILURE, str(error), way_out)]
        if is_led:
            view = await with_reassignments(client, view)
        troubles = BrokerTroubles(silent, bring_back("broker", silent, local_options), full, is_led)
        found += [*_unled(view, troubles), *_leaderless(await _leaderless_partitions(client, view), served)]
        seen = in_sync_without(view, silent)
        found += _partitions(seen, troubles)
        found += await missing_internal_topics(client, view) if is_led else []
        if await may_miss_topics(client):
            found.append(Finding(WARNING, HIDDEN_TOPICS, WHO_SEES_ALL))
        try:
            wanted, hidden = await _min_isr_by_topic(client, view)
            if hidden:
                what = f"this user may not see min.insync.replicas of {counted(len(hidden), 'topic')}: {some(hidden)}"
                found.append(Finding(WARNING, what, "it needs the right DescribeConfigs on the topics"))
            found += _min_isr(seen, wanted, troubles)
        except (ClientError, *NO_ANSWER):
            found.append(Finding(WARNING, "the topics' configuration cannot be read", "look at the brokers' logs"))
        found += await examine_transactions(client, view, silent)
    return found


async def _broker_addresses(client: ClusterClient) -> tuple[dict[int, Address], set[int]]:
    """Where the registered brokers say that they are, the fenced ones, too; and which ones are fenced."""
    found = {one.node_id: (one.host, one.port) for one in (await client.metadata(())).brokers}
    try:
        registered = await AdminClient(client).registered_brokers()
    except (ClientError, *NO_ANSWER):
        return found, set()
    found |= {one.node_id: (one.host, one.port) for one in registered}
    return found, {one.node_id for one in registered if one.is_fenced}


async def _unreachable(
    found: list[Finding], error: ClientError, way_out: str, silence_way_out: str | None
) -> list[Finding]:
    """What is told where no broker answers."""
    if isinstance(error, UnreachableError):
        error = await explained(error, CURRENT_LOGIN.get())
    if isinstance(error, NotLoggedInError | OtherClusterError):
        told = {finding.way_out for finding in found}
        return found if error.way_out in told else [*found, Finding(FAILURE, str(error), error.way_out)]
    # No broker is there at all, or what is there has been told.
    is_explained = all(finding.way_out in (*WAYS_OUT.values(), NAME_A_BROKER, silence_way_out) for finding in found)
    return found if is_explained else [*found, Finding(FAILURE, str(error), way_out)]


def _bootstrap_addresses(reached: Mapping[Address, Reached], silence_way_out: str | None = None) -> Iterator[Finding]:
    """What was found at each; addresses of which the same is to be said have one line."""
    alike: dict[tuple[str, str, str], list[str]] = {}
    for (host, port), one in reached.items():
        way_out = (silence_way_out if one.why == REFUSES else None) or one.way_out
        alike.setdefault((one.level, one.told, way_out), []).append(f"{host}:{port}")
    for (level, told, way_out), addresses in alike.items():
        who = "bootstrap address" if len(addresses) == 1 else "each of the bootstrap addresses"
        yield Finding(level, f"{who} {', '.join(addresses)}: {told}", way_out)


def _advertised(reached: Mapping[tuple[int, Address], Reached], local_options: str | None) -> Iterator[Finding]:
    """What was found where brokers say that they are; brokers of which the same is to be said have one line."""
    alike: dict[tuple[str, str, str, str], list[tuple[int, Address]]] = {}
    for broker, one in reached.items():
        alike.setdefault((one.level, one.told, one.way_out, one.why), []).append(broker)
    for (level, told, way_out, why), brokers in alike.items():
        brokers.sort()
        at = ", ".join(f"{host}:{port}" for _, (host, port) in brokers)
        who = f"broker {brokers[0][0]} advertises itself as {at}"
        if len(brokers) > 1:
            who = f"brokers {ids(one for one, _ in brokers)} advertise themselves as {at}"
        pids = [str(pid) for at in brokers if (pid := reached[at].pid) is not None]
        if pids:
            processes = "its process" if len(pids) == 1 else "their processes"
            told = f"{told}, but {processes} {', '.join(pids)} {'runs' if len(pids) == 1 else 'run'}"
        if why in (REFUSES, TIMES_OUT, WAITS, WAITS_IN_VAIN):
            found = bring_back("broker", {one: why for one, _ in brokers}, local_options)
            way_out = f"{found}{_IF_RUNNING if why == REFUSES and local_options is None else ''}"
        elif way_out in (WAYS_OUT["HTTP"], WAYS_OUT["SSH"]):
            way_out = "another program has the port: stop it, or give the broker another port or advertised.listeners"
        yield Finding(level, f"{who}: {told}", way_out)


async def _reach(host: str, port: int) -> Reached:
    """Whether a broker answers there, and the APIs that it serves, if it does."""
    try:
        connection = await connect(
            host, port, client_id="raftwerk-doctor", timeout_s=_TIMEOUT_S, login=CURRENT_LOGIN.get()
        )
    except socket.gaierror:
        way_out = (
            "use a name that resolves here; for brokers in containers add a listener that is advertised to the host"
        )
        return Reached(f"the name {host} does not resolve on this machine", way_out=way_out)
    except ConnectionRefusedError:
        told = "nothing listens there, as seen from this machine"
        return Reached(told, way_out=f"start the node{_IF_RUNNING}", why=REFUSES)
    except OSError as error:
        in_login = login_way_out(error)
        if in_login is not None:
            return Reached(no_answer_reason(error), way_out=way_out_if_down([(host, port)]) or in_login)
        way_out = "look at firewalls and at advertised.listeners: clients are told to connect there"
        return Reached(f"cannot be reached from here ({no_answer_reason(error)})", way_out=way_out)
    try:
        await check_cluster(connection, (host, port), _TIMEOUT_S)
        answer = await connection.request(ApiKey.API_VERSIONS, 0, {}, timeout_s=_TIMEOUT_S)
    except WrongClusterError as error:
        return Reached(error.reason, way_out=error.way_out)
    except NO_ANSWER as error:
        return await _no_answer(host, port, error)
    finally:
        connection.close()
    apis = frozenset((row.api_key, row.min_version, row.max_version) for row in answer.api_keys)
    if is_controller_listener([row.api_key for row in answer.api_keys]):
        return Reached(CONTROLLER_LISTENER, way_out=NAME_A_BROKER, apis=apis)
    return Reached("reached", OK, apis=apis)


async def _no_answer(host: str, port: int, error: Exception) -> Reached:
    protocol = await spoken_protocol(host, port)
    if protocol is not None:
        way_out = (way_out_if_down([(host, port)]) if protocol == "TLS" else None) or WAYS_OUT[protocol]
        return Reached(f"speaks {protocol} instead of Kafka's protocol", way_out=way_out)
    if isinstance(error, RequestTimedOutError):
        way_out = (
            "the process is paused, hangs or is overloaded: raftwerk status shows the first, raftwerk kill N --signal "
            "CONT ends it; its log shows the others"
        )
        return Reached(
            f"accepts the connection but does not answer within {_TIMEOUT_S:g} s", way_out=way_out, why=TIMES_OUT
        )
    way_out = way_out_if_down([(host, port)]) or "does the port belong to another service?"
    return Reached(no_answer_reason(error), way_out=way_out)


def _versions(served: Mapping[int, Apis]) -> Iterator[Finding]:
    """Report brokers that run another version of the software: they serve other APIs than most brokers."""
    if not served:
        return
    usual = max(served.values(), key=lambda apis: sum(one == apis for one in served.values()))
    others = [broker_id for broker_id, apis in served.items() if apis != usual]
    if others:
        what = f"brokers {ids(others)} serve other versions of Kafka's APIs than the rest: versions are mixed"
        yield Finding(WARNING, what, "bring all brokers to one version; during an upgrade this is normal")
    elif len(served) > 1:
        yield Finding(OK, f"Kafka's APIs have the same versions on {counted(len(served), 'broker')}")


async def _controller(
    bootstrap: str, controllers: Mapping[int, Address], local_options: str | None
) -> tuple[bool, list[Finding]]:
    """Whether a controller is active that a majority follows, and whether its clock agrees with this machine's.

    The connections are not those of other requests, which would wait behind one that no controller answers.
    """
    async with ClusterClient(bootstrap, timeout_s=_TIMEOUT_S) as client:
        return await _controller_by(client, controllers, local_options)


async def _controller_by(
    client: ClusterClient, controllers: Mapping[int, Address], local_options: str | None
) -> tuple[bool, list[Finding]]:
    topics = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    quorum = QuorumClient(client, controllers=controllers)
    clock = SystemClock()
    asked_ms = clock.wall_ms()
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            answer = await client.request(ApiKey.DESCRIBE_QUORUM, 1, {"topics": topics})
    except (ClientError, *NO_ANSWER):
        answer = None
    answered_ms = clock.wall_ms()
    if answer is not None and answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        asked = Asked(ApiKey.DESCRIBE_QUORUM)
        return True, [_unseen(RefusedError(answer.error_code, "the quorum cannot be seen", asked=asked))]
    row = answer.topics[0].partitions[0] if answer is not None and not answer.error_code else None
    if row is None or row.error_code or row.leader_id < 0:
        return False, [_no_controller((await quorum.no_leader()).silent, local_options)]
    replicas = (*row.current_voters, *row.observers)
    reported_ms = next((one.last_fetch_timestamp for one in replicas if one.replica_id == row.leader_id), -1)
    found = [Finding(OK, f"node {row.leader_id} is the active controller")]
    if reported_ms >= 0:
        found.append(_clock(row.leader_id, reported_ms, asked_ms, answered_ms))
    try:
        view = await quorum.describe()
    except NoLeaderError as error:
        return False, [_no_controller(error.silent, local_options)]
    except (ClientError, *NO_ANSWER):
        return True, found
    try:
        down = await quorum.down_voters(view, are_all_asked=True)
        late = await quorum.silent_voters() if view.has_majority(down) else []
    except (ClientError, *NO_ANSWER):  # it led a moment ago
        return False, [_no_controller((await quorum.no_leader()).silent, local_options)]
    if not view.has_majority(down):
        return False, [_no_controller(down, local_options)]
    return True, [*found, *_voters(len(row.current_voters), late, down, local_options)]


def _unseen(error: RefusedError) -> Finding:
    """This user may not see the quorum. That metadata changes is taken for granted then."""
    return Finding(WARNING, f"whether a controller is active is not known: {error}")


def _no_controller(silent: Sequence[DownVoter], local_options: str | None) -> Finding:
    """There is no majority, or there soon will be none: a leader gives up when no majority has fetched for a while."""
    what = "no controller is active: topics and leaders cannot change"
    if not silent:
        way_out = "a majority of the controllers must run and reach each other: raftwerk status, and their logs"
        return Finding(FAILURE, what, way_out)
    away = {one.node_id: one.why for one in silent if one.why != REPLACED}
    ways = [f"{bring_back('node', away, local_options)}: a majority of the voters must run"] * bool(away)
    ways += [PUT_BACK] * (len(away) < len(silent))  # without a leader no voter is removed or added
    down = ", ".join(f"voter {one}" for one in silent)
    return Finding(FAILURE, f"{what}; {down}", "; ".join(ways))


def _stale() -> Finding:
    """Without a controller nobody notes which brokers are down."""
    return Finding(WARNING, "what follows is the last known metadata: only an active controller changes it")


def _voters(
    count: int, late: Sequence[SilentVoter], down: Sequence[DownVoter] = (), local_options: str | None = None
) -> Iterator[Finding]:
    """Report voters of the quorum that are down or have never joined. They count for the majority all the same.

    The `late` do not fetch, the `down` do not answer either.
    """
    silent = {one.node_id: one.since for one in late}
    silent |= {one.node_id: one.since for one in down}
    whys = {one.node_id: one.why for one in down}
    spare = (count - 1) // 2 - len(silent)
    more = f"{spare} more may fail" if spare > 0 else "if one more fails, topics and leaders cannot change"
    for node_id, told in silent.items():
        gone = f"raftwerk quorum remove-controller {node_id} takes it out of the quorum"
        if whys.get(node_id) == REPLACED:
            way_out = bring_back("controller", {node_id: REPLACED}, local_options)
        elif node_id in whys:
            way_out = (
                f"{bring_back('controller', {node_id: whys[node_id]}, local_options)}; if it is gone for good, {gone}"
            )
        else:
            way_out = (
                f"start controller {node_id}; if it is gone for good, {gone}; if its process runs, it is paused, hangs "
                f"or is cut off (raftwerk status shows a paused one, raftwerk kill {node_id} --signal "
                f"CONT{local_options or ''} wakes it)"
            )
        yield Finding(WARNING, f"controller {node_id}, a voter of the quorum, {told}: {more}", way_out)
    if not silent:
        all_follow = f"all {count} voters of the quorum have followed it within {SILENT_VOTER_MS // 1000} s"
        yield Finding(OK, all_follow if count > 1 else "the quorum has one voter")


async def _controller_listeners(client: ClusterClient) -> list[Finding]:
    """Warn of controllers that answer on an address that is not a loopback address."""
    topics = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    try:
        answer = await client.request(ApiKey.DESCRIBE_QUORUM, 2, {"topics": topics})
    except (ClientError, *NO_ANSWER):
        return []
    found = []
    for node in answer.nodes:
        for one in node.listeners:
            if is_loopback(one.host):
                continue
            if (await _reach(one.host, one.port)).apis is not None:
                found.append(exposed(f"the listener {one.host}:{one.port} of controller {node.node_id} answers here"))
    return found


def _clock(node_id: int, reported_ms: int, asked_ms: int, answered_ms: int) -> Finding:
    """Compare the time that a node reported with two readings of this machine's clock, before and after the answer."""
    off_ms = reported_ms - answered_ms if reported_ms > answered_ms else min(0, reported_ms - asked_ms)
    if abs(off_ms) < _CLOCK_OFF_MS:
        return Finding(OK, f"the clock of node {node_id} agrees with this machine's")
    ahead = "ahead of" if off_ms > 0 else "behind"
    what = f"the clock of node {node_id} is {abs(off_ms) / 1000:.0f} s {ahead} this machine's"
    return Finding(WARNING, what, "let NTP set both clocks: retention, offsets by time and logs depend on them")


def _unled(view: ClusterView, troubles: BrokerTroubles) -> Iterator[Finding]:
    """Report partitions that metadata gives to leaders that do not answer."""
    found = [
        (f"{topic.name}-{one.partition} (broker {one.leader})", one.leader)
        for topic in view.topics
        for one in topic.partitions
        if one.leader in troubles.why_silent
    ]
    if found:
        are = "is" if len(found) == 1 else "are"
        what = f"{counted(len(found), 'partition')} {are} offline, since the leader does not answer"
        way_out = f"{troubles.way_out}; only an active controller lets other replicas lead"
        if troubles.is_led:
            way_out = (
                "within broker.session.timeout.ms (9 s by default) the controller lets other replicas lead that are in "
                f"sync; {troubles.way_out}"
            )
        yield Finding(FAILURE, f"{what}: {some([name for name, _ in found])}", way_out)


async def _leaderless_partitions(client: ClusterClient, view: ClusterView) -> list[LeaderlessPartition]:
    """The partitions without a leader. A cluster without DescribeTopicPartitions knows of no eligible replicas."""
    without = {(topic.name, one.partition): one for topic in view.topics for one in topic.partitions if one.leader < 0}
    found = {
        key: LeaderlessPartition(f"{key[0]}-{key[1]}", one.replicas, one.isr, (), ()) for key, one in without.items()
    }
    topics = sorted({topic for topic, _ in without})
    cursor = None
    while topics:
        fields = {"topics": [{"name": name} for name in topics], "response_partition_limit": 2000, "cursor": cursor}
        try:
            answer = await client.request(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, fields)
        except (ClientError, *NO_ANSWER):
            break
        for topic in answer.topics:
            for row in topic.partitions:
                key = (topic.name, row.partition_index)
                if key in without:
                    eligible = tuple(dict.fromkeys((*row.isr_nodes, *(row.eligible_leader_replicas or ()))))
                    last_known = tuple(row.last_known_elr or ())
                    offline = tuple(row.offline_replicas)
                    found[key] = LeaderlessPartition(
                        f"{key[0]}-{key[1]}", tuple(row.replica_nodes), eligible, last_known, offline
                    )
        cursor = answer.next_cursor and {
            "topic_name": answer.next_cursor.topic_name,
            "partition_index": answer.next_cursor.partition_index,
        }
        if cursor is None:
            break
    return list(found.values())


def _leaderless(partitions: Sequence[LeaderlessPartition], live: Collection[int]) -> Iterator[Finding]:
    """Report partitions without a leader: those that a broker can lead if it returns, and those that none can.

    The `live` brokers answer. Metadata names one that died for some seconds more.
    """
    waiting = [one for one in partitions if one.eligible]
    if waiting:
        told = some([f"{one.name} (eligible to lead: {ids(one.eligible)})" for one in waiting])
        down = sorted({broker for one in waiting for broker in one.eligible if broker not in live})
        elsewhere = sorted(
            {broker for one in waiting for broker in one.eligible if broker in live and broker in one.offline}
        )
        ways = [f"start broker {' or '.join(map(str, down))}: an eligible replica has all acked records"] * bool(down)
        ways += [
            f"broker {broker} runs without the log directory of its replica: start it with that directory"
            for broker in elsewhere
        ]
        ways = ways or ["wait a moment: an eligible broker runs and will lead; if none does, see the controllers' logs"]
        alone = [one for one in waiting if len(one.replicas) == 1]
        others = [one for one in waiting if len(one.replicas) > 1]
        if others:
            ways.append(f"if the eligible brokers are gone for good, {_unclean_election(others)}")
        if alone:
            what = f"no other broker has a replica of {some([one.name for one in alone])}"
            ways.append(f"{what}: if its broker is gone for good, so are the records; make the topic anew")
        yield Finding(FAILURE, f"{counted(len(waiting), 'partition')} without a leader: {told}", "; ".join(ways))
    lost = [one for one in partitions if not one.eligible]
    if lost:
        names = [f"{one.name} (replicas: {ids(one.replicas)}; led last by: {ids(one.last_known)})" for one in lost]
        what = f"{counted(len(lost), 'partition')} without a leader and without a replica that may lead"
        cause = (
            "no replica is known to have all acked records, as after a start with an empty or another log directory "
            "under the same node.id: if the former directory exists, start the broker with it first"
        )
        yield Finding(FAILURE, f"{what}: {some(names)}", f"{cause}; then {_unclean_election(lost)}")


def _unclean_election(partitions: Sequence[LeaderlessPartition]) -> str:
    """The last resort, with its command and its price."""
    names = " ".join(one.name for one in partitions[:_NAMED_PARTITIONS])
    command = f"raftwerk partitions elect --unclean {names}" + (" ..." if len(partitions) > _NAMED_PARTITIONS else "")
    return f"as the last resort, {command} makes a live replica the leader: acked records that it lacks are lost"


def _partitions(view: ClusterView, troubles: BrokerTroubles = NO_TROUBLES) -> Iterator[Finding]:
    behind = []
    missing: set[int] = set()
    count = adding = 0
    has_leaders = True
    for topic in view.topics:
        for one in topic.partitions:
            count += 1
            if one.leader < 0:
                has_leaders = False
            elif one.is_under_replicated:
                missing.update(one.out_of_sync)
                behind.append(f"{topic.name}-{one.partition} (without {ids(one.out_of_sync)})")
            elif not set(one.isr).issuperset(one.adding):
                adding += 1
    if behind:
        way_out = (
            "start the missing brokers; if they run, they are too slow or cut off, their disks are full, or their logs "
            "are damaged on the disk (raftwerk_log_damaged, raftwerk doctor -c on their machine)"
        )
        way_out = troubles.remedy(missing) or way_out
        what = f"{counted(len(behind), 'partition')} without all replicas in sync"
        yield Finding(WARNING, f"{what}: {some(behind)}", way_out)
    if has_leaders and not behind:
        but = f", but those that reassignments are adding to {counted(adding, 'partition')}" if adding else ""
        yield Finding(OK, f"all replicas of {counted(count, 'partition')} are in sync{but}")


def _min_isr(view: ClusterView, wanted: Mapping[str, int], troubles: BrokerTroubles = NO_TROUBLES) -> Iterator[Finding]:
    for topic in view.topics:
        needed = wanted.get(topic.name, 1)
        replicas = min((len(one.replicas) for one in topic.partitions), default=0)
        lacking = [one for one in topic.partitions if len(one.isr) < min(needed, len(one.replicas))]
        if lacking:
            way_out = troubles.remedy({broker for one in lacking for broker in one.out_of_sync})
            where = counted(len(lacking), "partition")
            what = f"{topic.name}: min.insync.replicas={needed}, and fewer are in sync in {where}"
            yield Finding(FAILURE, f"{what}: acks=all is refused", way_out or "bring brokers back: raftwerk status")
        elif needed > replicas > 0:
            what = f"{topic.name}: min.insync.replicas={needed} is more than its {counted(replicas, 'replica')}"
            yield Finding(WARNING, what, f"set it to {replicas} or less, or give the topic more replicas")
        elif needed == replicas > 1:
            what = f"{topic.name}: min.insync.replicas={needed} is the number of its replicas"
            yield Finding(WARNING, f"{what}: one broker down, and acks=all is refused", f"set it to {replicas - 1}")


async def _min_isr_by_topic(client: ClusterClient, view: ClusterView) -> tuple[dict[str, int], list[str]]:
    """The setting of each topic, and the topics of which this user may not see it."""
    names = [topic.name for topic in view.topics]
    if not names:
        return {}, []
    resources = [
        {"resource_type": _TOPIC_RESOURCE, "resource_name": name, "configuration_keys": ["min.insync.replicas"]}
        for name in names
    ]
    fields = {"resources": resources, "include_synonyms": False, "include_documentation": False}
    answer = await client.request(ApiKey.DESCRIBE_CONFIGS, 4, fields)
    found, hidden = {}, []
    for row in answer.results:
        if row.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            hidden.append(row.resource_name)
        for config in row.configs if row.error_code == ErrorCode.NONE else ():
            if config.name == "min.insync.replicas" and str(config.value).isdigit():
                found[row.resource_name] = int(config.value)
    return found, hidden
