"""What people get wrong, found from where the client is: each finding is a sentence with the way out.

A cluster is asked as a client would ask it, from this machine; a configuration is read as a node would read it, and
what it needs of this machine is tried.
"""

from __future__ import annotations

import os
import resource
import shutil
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..wire.apis import ApiKey
from ..wire.client import connect
from ..wire.errors import ErrorCode
from .admin import LOST, ClusterClient, ClusterView, parse_bootstrap
from .client_errors import ClientError
from .config import ConfigError, Listener, NodeConfig, load_config
from .properties import parse_properties

OK, WARNING, FAILURE = "ok", "warning", "failure"
_FEW_DESCRIPTORS = 4096
_LITTLE_SPACE_BYTES = 2 * 1024**3
_TIMEOUT_S = 3.0
_TOPIC_RESOURCE = 2
_NAMED_PARTITIONS = 5


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at; `way_out` is empty where nothing is wrong."""

    level: str
    what: str
    way_out: str = ""


# ---- a cluster


async def examine_cluster(bootstrap: str) -> list[Finding]:
    """Reachability, advertised addresses, controller, partitions."""
    found = [await _reach(host, port, "bootstrap address") for host, port in parse_bootstrap(bootstrap)]
    async with ClusterClient(bootstrap, timeout_s=_TIMEOUT_S) as client:
        try:
            view = await client.metadata()
        except ClientError as error:
            return [*found, Finding(FAILURE, str(error), "start the cluster (raftwerk up), or correct --bootstrap")]
        found += [
            await _reach(one.host, one.port, f"broker {one.node_id} advertises itself as") for one in view.brokers
        ]
        found += [await _controller(client), *_partitions(view)]
        try:
            found += _min_isr(view, await _min_isr_by_topic(client, view))
        except (ClientError, *LOST):
            found.append(Finding(WARNING, "the topics' configuration cannot be read", "look at the brokers' logs"))
    return found


async def _reach(host: str, port: int, what: str) -> Finding:
    name = f"{what} {host}:{port}"
    try:
        connection = await connect(host, port, client_id="raftwerk-doctor", timeout_s=_TIMEOUT_S)
    except socket.gaierror:
        way_out = (
            "use a name that resolves here; for brokers in containers add a listener that is advertised to the host"
        )
        return Finding(FAILURE, f"{name}: the name {host} does not resolve on this machine", way_out)
    except ConnectionRefusedError:
        way_out = "start the node; if it runs, its port is not published to here, or advertised.listeners names another"
        return Finding(FAILURE, f"{name}: nothing listens there, as seen from this machine", way_out)
    except OSError as error:
        way_out = "look at firewalls and at advertised.listeners: clients are told to connect there"
        return Finding(FAILURE, f"{name}: cannot be reached from here ({error or 'timed out'})", way_out)
    try:
        await connection.request(ApiKey.API_VERSIONS, 0, {}, timeout_s=_TIMEOUT_S)
    except LOST:
        return Finding(
            FAILURE, f"{name}: answers, but not in Kafka's protocol", "is the port another service's, or TLS?"
        )
    finally:
        connection.close()
    return Finding(OK, f"{name}: reached")


async def _controller(client: ClusterClient) -> Finding:
    try:
        leader = await client.quorum_leader()
    except (ClientError, *LOST):
        leader = None
    if leader is None:
        way_out = "a majority of the controllers must run and reach each other: raftwerk status, and their logs"
        return Finding(FAILURE, "no controller is active: topics and leaders cannot change", way_out)
    return Finding(OK, f"node {leader} is the active controller")


def _partitions(view: ClusterView) -> Iterator[Finding]:
    leaderless, behind = [], []
    count = 0
    for topic in view.topics:
        for one in topic.partitions:
            count += 1
            if one.leader < 0:
                leaderless.append(f"{topic.name}-{one.partition} (last in sync: {_ids(one.isr)})")
            elif len(one.isr) < len(one.replicas):
                missing = [replica for replica in one.replicas if replica not in one.isr]
                behind.append(f"{topic.name}-{one.partition} (without {_ids(missing)})")
    if leaderless:
        way_out = "start a broker that was last in sync; nothing is lost meanwhile"
        yield Finding(FAILURE, f"{len(leaderless)} partitions have no leader: {_some(leaderless)}", way_out)
    if behind:
        way_out = "start the missing brokers; if they run, they are too slow or cut off"
        yield Finding(WARNING, f"{len(behind)} partitions lack a replica in sync: {_some(behind)}", way_out)
    if not leaderless and not behind:
        yield Finding(OK, f"all replicas of {count} partitions are in sync")


def _min_isr(view: ClusterView, wanted: Mapping[str, int]) -> Iterator[Finding]:
    for topic in view.topics:
        needed = wanted.get(topic.name, 1)
        replicas = min((len(one.replicas) for one in topic.partitions), default=0)
        lacking = [one.partition for one in topic.partitions if len(one.isr) < min(needed, len(one.replicas))]
        if lacking:
            what = f"{topic.name}: min.insync.replicas={needed}, and fewer are in sync in {len(lacking)} partitions"
            yield Finding(FAILURE, f"{what}: acks=all is refused", "bring brokers back: raftwerk status")
        elif needed > replicas > 0:
            what = f"{topic.name}: min.insync.replicas={needed} is more than its {replicas} replicas"
            yield Finding(WARNING, what, f"set it to {replicas} or less, or give the topic more replicas")
        elif needed == replicas > 1:
            what = f"{topic.name}: min.insync.replicas={needed} is the number of its replicas"
            yield Finding(WARNING, f"{what}: one broker down, and acks=all is refused", f"set it to {replicas - 1}")


async def _min_isr_by_topic(client: ClusterClient, view: ClusterView) -> dict[str, int]:
    names = [topic.name for topic in view.topics]
    if not names:
        return {}
    resources = [
        {"resource_type": _TOPIC_RESOURCE, "resource_name": name, "configuration_keys": ["min.insync.replicas"]}
        for name in names
    ]
    fields = {"resources": resources, "include_synonyms": False, "include_documentation": False}
    answer = await client.request(ApiKey.DESCRIBE_CONFIGS, 4, fields)
    found = {}
    for row in answer.results:
        for config in row.configs if row.error_code == ErrorCode.NONE else ():
            if config.name == "min.insync.replicas" and str(config.value).isdigit():
                found[row.resource_name] = int(config.value)
    return found


# ---- a configuration, and this machine


def examine_config(path: str) -> list[Finding]:
    """What a node with this server.properties would stumble over."""
    try:
        with open(path, encoding="utf-8") as file:
            config = load_config(file.read())
    except OSError as error:
        return [Finding(FAILURE, f"cannot read {path}: {error.strerror}", "name an existing server.properties")]
    except ConfigError as error:
        return [Finding(FAILURE, f"{path}: {one.key}: {one.reason}", one.way_out) for one in error.problems]
    found = [Finding(OK, f"{path}: node {config.node_id}, {','.join(config['process.roles'])}")]
    found += [Finding(WARNING, warning) for warning in config.warnings]
    found += [_port(one) for one in config.listeners if one.port]
    for directory in config.all_dirs:
        found += _directory(directory, config)
    return found


def examine_machine() -> list[Finding]:
    """Limits of this process, which nodes started from here inherit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < _FEW_DESCRIPTORS:
        what = f"a process may open {soft} files: a node needs some for each partition and connection"
        return [
            Finding(WARNING, what, f"ulimit -n {min(hard, 65536) if hard > 0 else 65536}, or LimitNOFILE in systemd")
        ]
    return [Finding(OK, f"a process may open {soft} files")]


def _port(listener: Listener) -> Finding:
    family = socket.AF_INET6 if ":" in listener.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((listener.host, listener.port))
        except OSError as error:
            way_out = f"unless it is this node that runs: find who has it (ss -ltnp 'sport = :{listener.port}')"
            return Finding(WARNING, f"{listener} cannot be listened on: {error.strerror}", way_out)
    return Finding(OK, f"{listener} is free")


def _directory(path: str, config: NodeConfig) -> Iterator[Finding]:
    existing = path
    while not os.path.exists(existing):
        existing = os.path.dirname(existing.rstrip("/")) or "/"
    if not os.access(existing, os.W_OK):
        yield Finding(FAILURE, f"{existing} cannot be written by this user", f"chown it, or set log.dirs (is {path})")
        return
    free = shutil.disk_usage(existing).free
    if free < _LITTLE_SPACE_BYTES:
        way_out = "shorten retention, or add space: a full disk ends the node"
        yield Finding(WARNING, f"{path}: only {free / 1e9:.1f} GB are free", way_out)
    meta: dict[str, Any] = {}
    try:
        with open(os.path.join(path, "meta.properties"), encoding="utf-8") as file:
            meta = parse_properties(file.read())
    except OSError:
        way_out = "run raftwerk format -t CLUSTER_ID -c server.properties, with the cluster's id on every node"
        yield Finding(WARNING, f"{path} is not formatted", way_out)
        return
    if meta.get("node.id") != str(config.node_id):
        what = f"{path} belongs to node {meta.get('node.id')} of cluster {meta.get('cluster.id')}"
        yield Finding(FAILURE, f"{what}, and this is node {config.node_id}", "correct node.id or log.dirs")
    else:
        yield Finding(OK, f"{path}: formatted for cluster {meta.get('cluster.id')}, {free / 1e9:.0f} GB free")


def _ids(ids: Any) -> str:
    return ", ".join(str(one) for one in ids) or "none"


def _some(names: list[str]) -> str:
    more = len(names) - _NAMED_PARTITIONS
    return "; ".join(names[:_NAMED_PARTITIONS]) + (f"; and {more} more" if more > 0 else "")
