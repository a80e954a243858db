"""`python -m raftwerk.bench acls`: what access control lists cost requests of one record.

Two single nodes to whose SASL/PLAIN listeners the same client is connected: one without an authorizer, one with
10,000 access control lists, of which a few dozen are for the topic of the client and one allows what it does. They are
measured in turn, in an order that changes. A row is the processor time of the broker's process for each request, and
the requests a second, both of the best of many short rounds: whatever else uses the machine only adds to them. Two
processes with the same work differ by a few percent for as long as they run, so both are started several times: the
loss is the mean over the starts. `--acls 0` compares two nodes without an authorizer, and tells the error of that.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..security.authorizer.acl_binding import AclOperation, AclPermissionType, PatternType, ResourceType
from ..wire.api_keys import ApiKey
from ..wire.codec import decode_response, encode_request
from ..wire.records import encode_batch
from .cached_reads import Served, start_raftwerk
from .common.raw_client import RawClient

TOPIC = "orders-of-the-bench"
ADMIN, CLIENT, PASSWORD = "admin", "client", "pw"
_PER_REQUEST = 500
_LOGIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_USERS = f'user_{ADMIN}="{PASSWORD}" user_{CLIENT}="{PASSWORD}"'
_LOGIN = f'{_LOGIN_MODULE} username="{ADMIN}" password="{PASSWORD}" {_USERS};'
_SASL = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": _LOGIN,
}
_AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:{ADMIN};User:ANONYMOUS",
}


@dataclass
class Node:
    """A node, the client that is measured, and the figures of the rounds."""

    served: Served
    client: RawClient
    cpu_us: list[float] = field(default_factory=list)
    requests_per_s: list[float] = field(default_factory=list)

    def measure(self, batches: Sequence[bytes]) -> None:
        """Send each batch in a request of its own."""
        cpu_s, began_s = self.served.cpu_s, time.perf_counter()
        self.client.produce(TOPIC, 0, batches)
        self.requests_per_s.append(len(batches) / (time.perf_counter() - began_s))
        self.cpu_us.append((self.served.cpu_s - cpu_s) / len(batches) * 1e6)


def log_in(port: int, user: str) -> RawClient:
    """A connection of the user."""
    client = RawClient(port)
    client.call(ApiKey.SASL_HANDSHAKE, 1, encode_request(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}))
    _ask(client, ApiKey.SASL_AUTHENTICATE, 1, {"auth_bytes": f"\0{user}\0{PASSWORD}".encode()})
    return client


def _ask(client: RawClient, key: ApiKey, version: int, fields: dict[str, Any]) -> Any:
    return decode_response(key, version, client.call(key, version, encode_request(key, version, fields)))


def _bindings(count: int) -> Iterator[dict[str, Any]]:
    """Of the client one entry, which allows it a prefix of the topic; of other users entries of all kinds."""
    yield _binding("orders-", CLIENT, AclOperation.WRITE, PatternType.PREFIXED)
    operations = (AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.ALL)
    for number in range(1, count):
        operation, user = operations[number % 4], f"user-{number}"
        if number % 250 == 0:
            yield _binding(TOPIC, user, operation)
        elif number % 250 == 1:
            yield _binding("*", user, operation)
        elif number % 3 == 0:
            yield _binding(f"team-{number}-", user, operation, PatternType.PREFIXED)
        else:
            yield _binding(f"topic-{number}", user, operation)


def _binding(
    name: str, user: str, operation: AclOperation, pattern: PatternType = PatternType.LITERAL
) -> dict[str, Any]:
    return {
        "resource_type": ResourceType.TOPIC,
        "resource_name": name,
        "resource_pattern_type": pattern,
        "principal": f"User:{user}",
        "host": "*",
        "operation": operation,
        "permission_type": AclPermissionType.ALLOW,
    }


def start(name: str, directory: Path, acl_count: int) -> Node:
    """A node with the topic and, if `acl_count` is not 0, with an authorizer and so many access control lists."""
    served = start_raftwerk(name, directory, {**_SASL, **_AUTHORIZER} if acl_count else _SASL)
    admin = log_in(served.port, ADMIN)
    topic = {"name": TOPIC, "num_partitions": 1, "replication_factor": 1}
    created = _ask(admin, ApiKey.CREATE_TOPICS, 5, {"topics": [topic], "timeout": 30_000})
    codes = [row.error_code for row in created.topics]
    bindings = list(_bindings(acl_count)) if acl_count else []
    for at in range(0, len(bindings), _PER_REQUEST):
        answer = _ask(admin, ApiKey.CREATE_ACLS, 1, {"creations": bindings[at : at + _PER_REQUEST]})
        codes += [row.error_code for row in answer.results]
    if any(codes):
        raise RuntimeError(f"{name} answers with error {max(codes)}")
    admin.wait_until_leader(TOPIC, 0)
    admin.close()
    return Node(served, log_in(served.port, CLIENT))


def measure_pair(directory: Path, acl_count: int, rounds: int, batches: Sequence[bytes], *, acls_first: bool) -> float:
    """Start both nodes, measure them and print; the loss of processor time, as a fraction."""
    nodes: list[Node] = []
    kinds = (("none", 0), ("acls", acl_count))
    try:
        for name, count in reversed(kinds) if acls_first else kinds:
            nodes.append(start(name, directory / name, count))
        for number in range(rounds + 1):
            for node in nodes if number % 2 else reversed(nodes):
                node.measure(batches)
            if number == 0:  # warm-up
                for node in nodes:
                    node.cpu_us.clear()
                    node.requests_per_s.clear()
        none, acls = reversed(nodes) if acls_first else nodes
        for node, what in ((none, "no authorizer"), (acls, f"{acl_count:,} ACLs")):
            cpu_us, rate = min(node.cpu_us), max(node.requests_per_s)
            print(f"{what:<16}{cpu_us:8.1f} us of processor time a request{rate:10,.0f} requests/s", flush=True)
        return min(acls.cpu_us) / min(none.cpu_us) - 1
    finally:
        for node in nodes:
            node.client.close()
            node.served.stop()


def run(directory: Path, acl_count: int, starts: int, rounds: int, requests: int) -> float:
    """Measure and print; the mean loss of processor time, as a fraction."""
    now_ms = int(time.time() * 1000)
    batches = [bytes(encode_batch([(None, os.urandom(100), [], now_ms)]))] * requests
    losses = []
    for number in range(starts):
        loss = measure_pair(directory / str(number), acl_count, rounds, batches, acls_first=number % 2 == 1)
        losses.append(loss)
        print(f"loss of processor time: {loss:+.1%}", flush=True)
    mean = statistics.mean(losses)
    error = statistics.stdev(losses) / math.sqrt(len(losses)) if len(losses) > 1 else 0.0
    print(f"mean loss of processor time over {starts} starts: {mean:+.1%} (standard error {error:.1%})")
    return mean


def main(arguments: list[str]) -> int:
    """Run the benchmark; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m raftwerk.bench acls", description=__doc__)
    parser.add_argument("--acls", type=int, default=10_000, help="how many access control lists there are")
    parser.add_argument("--starts", type=int, default=8, help="how many times both nodes are started")
    parser.add_argument("--rounds", type=int, default=20, help="measurements of each start")
    parser.add_argument("--requests", type=int, default=5_000, help="requests of each round")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        run(Path(directory), options.acls, options.starts, options.rounds, options.requests)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
