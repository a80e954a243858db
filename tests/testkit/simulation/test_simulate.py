"""What the simulator for applications controls, refuses and tells."""

from __future__ import annotations

import asyncio
import datetime
import gc
import itertools
import logging
import os
import random
import re
import secrets
import selectors
import socket
import subprocess
import sys
import textwrap
import threading
import time
import uuid
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka.admin import AdminClient as ConfluentAdminClient
from kafka import KafkaProducer

from raftwerk.cluster.settings.node_config import ConfigError
from raftwerk.testing import SimCluster, simulate
from raftwerk.testkit.simulation.application_loop import ApplicationLoop
from raftwerk.testkit.simulation.escapes import EscapeError
from raftwerk.testkit.simulation.simulate import NotDeterministicError
from raftwerk.testkit.simulation.simulated_run import SimulationFailed

quiet = simulate(seeds=2, faults="")


def failure_of(test: Callable[[], None], kind: type[BaseException]) -> str:
    with pytest.raises(kind) as failed:
        test()
    return f"{failed.value}\n" + "\n".join(getattr(failed.value, "__notes__", ()))


@pytest.mark.long
@simulate(seeds=1, faults="", limit_s=4_000.0)
async def test_an_hour_is_virtual(cluster: SimCluster) -> None:
    before = (time.time(), time.monotonic(), time.perf_counter_ns(), datetime.datetime.now(datetime.UTC), cluster.now_s)
    await asyncio.sleep(3600.0)
    assert time.time() - before[0] == pytest.approx(3600.0, abs=0.01)
    assert time.monotonic() - before[1] == pytest.approx(3600.0, abs=0.01)
    assert time.perf_counter_ns() - before[2] == pytest.approx(3.6e12, rel=1e-5)
    assert (datetime.datetime.now(datetime.UTC) - before[3]).total_seconds() == pytest.approx(3600.0, abs=0.01)
    assert cluster.now_s - before[4] == pytest.approx(3600.0, abs=0.01)


@quiet
async def test_a_sleep_blocks_the_process_and_not_the_cluster(cluster: SimCluster) -> None:
    ticks: list[float] = []

    async def tick() -> None:
        while True:
            ticks.append(time.monotonic())
            await asyncio.sleep(1.0)

    ticking = asyncio.create_task(tick())
    await cluster.create_topic("t")
    leader = await cluster.leader_of("t")
    await cluster.kill(leader)
    time.sleep(30.0)  # noqa: ASYNC251
    assert await cluster.leader_of("t") not in (leader, -1)
    await asyncio.sleep(2.5)
    ticking.cancel()
    assert max(later - earlier for earlier, later in itertools.pairwise(ticks)) >= 29.0


@quiet
async def test_a_sleep_in_another_thread_blocks_nobody(cluster: SimCluster) -> None:
    def compute() -> str:
        time.sleep(5.0)
        return "done"

    began = time.monotonic()
    computing = asyncio.create_task(asyncio.to_thread(compute))
    await asyncio.sleep(1.0)
    assert not computing.done()
    assert await computing == "done"
    assert time.monotonic() - began == pytest.approx(5.0, abs=0.01)
    with pytest.raises(ZeroDivisionError):
        await asyncio.to_thread(lambda: 1 / 0)


def test_threads_from_before_stay_in_the_real_world() -> None:
    ended, failures, slept = threading.Event(), list[BaseException](), list[float]()

    def poll() -> None:
        try:
            while not ended.is_set():
                began = time.monotonic()
                time.sleep(0.001)
                slept.append(time.monotonic() - began)
                os.urandom(8)
                socket.getaddrinfo("127.0.0.1", 9)
        except BaseException as error:
            failures.append(error)

    @simulate(seeds=2, faults="kill")
    async def test(cluster: SimCluster) -> None:
        await cluster.create_topic("t")
        for number in range(20):
            await cluster.produce("t", f"{number}")
            sum(range(300_000))  # longer than Python lets a thread run, so that the other one runs within this

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        test()
    finally:
        ended.set()
        thread.join()
    assert not failures
    assert slept and min(slept) > 0.0


def test_randomness_follows_from_the_seed() -> None:
    drawn: list[tuple[Any, ...]] = []

    @simulate(seeds=[7, 8], faults="")
    async def test(cluster: SimCluster) -> None:
        assert cluster.now_s > 0
        fresh = random.Random().random()
        drawn.append((random.random(), fresh, uuid.uuid4(), uuid.uuid1(), os.urandom(4), secrets.token_hex()))

    state = random.getstate()
    test()
    assert random.getstate() == state
    assert drawn[0] == drawn[1] != drawn[2]  # the first seed runs twice
    assert os.urandom(8) != os.urandom(8)
    assert time.time() > 1_760_000_000


def test_a_module_begins_each_run_with_its_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    @quiet
    async def test(cluster: SimCluster) -> None:
        producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap)
        await producer.start()
        await producer.stop()
        seen.append(AIOKafkaProducer._PRODUCER_CLIENT_ID_SEQUENCE)

    test()
    assert len(set(seen)) == 1


# -- what leaves the simulation


@pytest.mark.parametrize(
    ("leave", "what"),
    [
        (lambda: threading.Thread(target=print).start(), "a thread was asked for"),
        (lambda: socket.create_connection(("127.0.0.1", 9)), "the real name service was asked for"),
        (lambda: subprocess.run(["true"], check=True), "a process was asked for"),
        (socket.socket, "a real socket was asked for"),
        (lambda: selectors.DefaultSelector().select(60), "a wait for real sockets was asked for"),
        (lambda: KafkaProducer(bootstrap_servers="127.0.0.1:9"), " was asked for"),
        (lambda: ConfluentProducer({"bootstrap.servers": "127.0.0.1:9"}), "a client of librdkafka was asked for"),
        (lambda: ConfluentAdminClient({"bootstrap.servers": "127.0.0.1:9"}), "a client of librdkafka was asked for"),
        (lambda: import_module("confluent_kafka").Consumer({"group.id": "g"}), "a client of librdkafka was asked for"),
    ],
)
def test_what_leaves_the_simulation_is_refused_and_told(leave: Callable[[], object], what: str) -> None:
    @quiet
    async def test(cluster: SimCluster) -> None:
        assert cluster.node_ids == [1, 2, 3]
        try:
            leave()
        except Exception:
            logging.getLogger("app").info("an application may catch it")

    told = failure_of(test, EscapeError)
    assert what in told
    assert "test_simulate.py:" in told
    assert "app: info" not in told
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()


def test_processes_of_asyncio_are_refused() -> None:
    @quiet
    async def test(cluster: SimCluster) -> None:
        assert cluster.node_ids == [1, 2, 3]
        await asyncio.create_subprocess_exec("true")

    @quiet
    async def serves(cluster: SimCluster) -> None:
        assert cluster.node_ids == [1, 2, 3]
        await asyncio.get_running_loop().create_datagram_endpoint(asyncio.DatagramProtocol)

    assert "a process was asked for" in failure_of(test, EscapeError)
    assert "loop.create_datagram_endpoint() was asked for" in failure_of(serves, EscapeError)
    assert not hasattr(ApplicationLoop, "no_such_method")


def test_real_clients_can_be_made_between_runs() -> None:
    @quiet
    async def test(cluster: SimCluster) -> None:
        assert cluster.node_ids == [1, 2, 3]

    test()
    assert ConfluentProducer({"bootstrap.servers": "127.0.0.1:9"}).flush(0) == 0


def test_a_run_that_differs_from_itself_is_told() -> None:
    runs: list[int] = []

    @quiet
    async def test(cluster: SimCluster) -> None:
        runs.append(1)
        await asyncio.sleep(len(runs))
        await cluster.create_topic("t")

    assert "two runs of seed 0 took different ways" in failure_of(test, NotDeterministicError)


# -- failures and their report


def test_a_test_that_does_not_end_tells_where_it_waits() -> None:
    @simulate(seeds=1, faults="", limit_s=10.0)
    async def test(cluster: SimCluster) -> None:
        await never(cluster)

    async def never(cluster: SimCluster) -> None:
        await asyncio.get_running_loop().create_future()

    told = failure_of(test, SimulationFailed)
    assert "did not end within 10 virtual seconds (limit_s); these tasks wait:" in told
    assert re.search(r"test: test waits at .*test_simulate.py:\d+ in never", told)


def test_an_application_that_ends_with_an_error_fails_the_test() -> None:
    async def program() -> None:
        await asyncio.sleep(0.5)
        raise KeyError("gone")

    @quiet
    async def test(cluster: SimCluster) -> None:
        cluster.start(program)
        await asyncio.sleep(1.0)

    @quiet
    async def expects(cluster: SimCluster) -> None:
        with pytest.raises(KeyError, match="gone"):
            await cluster.start(program).ended()

    assert "program-1 ended with KeyError('gone')" in failure_of(test, SimulationFailed)
    expects()


async def takes_a_word(word: str) -> None:
    await asyncio.sleep(1.0)


@pytest.mark.parametrize(
    ("start", "sentence"),
    [
        (lambda cluster: cluster.start(takes_a_word), "start(takes_a_word): missing a required argument: 'word'"),
        (lambda cluster: cluster.start(takes_a_word("x")), "and not start(takes_a_word(...))"),
        (lambda cluster: cluster.start("takes_a_word"), "and not 'takes_a_word'"),
    ],
    ids=["an argument is missing", "a coroutine", "a text"],
)
def test_what_cannot_be_started_is_refused_at_once(start: Callable[[Any], object], sentence: str) -> None:
    @quiet
    async def test(cluster: SimCluster) -> None:
        start(cluster)

    assert sentence in failure_of(test, TypeError)


@pytest.mark.parametrize("program", [lambda: 5, lambda: 1 / 0], ids=["returns 5", "raises"])
def test_a_program_that_is_no_coroutine_fails_the_test(program: Callable[[], Any]) -> None:
    @quiet
    async def test(cluster: SimCluster) -> None:
        application = cluster.start(program, name="app")
        await asyncio.sleep(1.0)
        assert not application.is_running

    told = failure_of(test, SimulationFailed)
    assert "app ended with ZeroDivisionError" in told or "takes an `async def`; this function has returned 5" in told


def test_two_programs_of_one_name_are_refused() -> None:
    @quiet
    async def test(cluster: SimCluster) -> None:
        for _ in range(2):
            cluster.start(takes_a_word, "x", name="app")

    assert "there is a process 'app' already: give this one another `name`" in failure_of(test, ValueError)


@quiet
async def test_a_condition_may_be_a_coroutine_function(cluster: SimCluster) -> None:
    await cluster.create_topic("t")

    async def are_there() -> bool:
        return len(await cluster.values("t")) == 2

    async def write() -> None:
        for word in ("a", "b"):
            await asyncio.sleep(1.0)
            await cluster.produce("t", word)

    writing = asyncio.create_task(write())
    await cluster.until(are_there)
    assert await cluster.values("t") == [b"a", b"b"]
    await writing


def test_a_wait_tells_of_programs_that_died() -> None:
    async def dies() -> None:
        raise KeyError("gone")

    @quiet
    async def test(cluster: SimCluster) -> None:
        cluster.start(dies, name="app")
        await cluster.until(lambda: False, timeout_s=5.0, what="it")

    @simulate(seeds=1, faults="", limit_s=5.0)
    async def waits(cluster: SimCluster) -> None:
        cluster.start(dies, name="app")
        await asyncio.sleep(1_000.0)

    died = "app ended with KeyError('gone')"
    assert failure_of(test, AssertionError).startswith(f"it did not hold within 5 virtual seconds; {died}\n")
    assert f"within 5 virtual seconds (limit_s); {died}; these tasks wait:" in failure_of(waits, SimulationFailed)


def test_coroutines_of_killed_processes_are_closed_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)

    async def program() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await asyncio.sleep(1.0)

    @quiet
    async def test(cluster: SimCluster) -> None:
        application = cluster.start(program)
        await asyncio.sleep(1.0)
        application.kill()

    test()
    gc.collect()
    assert told == []


def test_values_that_are_no_records_are_refused() -> None:
    @quiet
    async def test(cluster: SimCluster) -> None:
        await cluster.produce("t", 5)  # type: ignore[arg-type]

    @quiet
    async def triple(cluster: SimCluster) -> None:
        await cluster.produce("t", ("k", "v", "x"))  # type: ignore[arg-type]

    assert "produce(5): a value is a text or bytes, or a pair of key and value" in failure_of(test, TypeError)
    assert "a pair of key and value" in failure_of(triple, TypeError)


def test_a_failing_seed_is_small_and_tells_its_story(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[int] = []

    @simulate(seeds=50, faults="kill,slow,reset", settings={"min.insync.replicas": 2})
    async def test(cluster: SimCluster) -> None:
        runs.append(1)
        await cluster.create_topic("t")
        first = await cluster.leader_of("t")
        for _ in range(20):
            await asyncio.sleep(1.0)
            logging.getLogger("app").info("the leader is looked at")
            assert await cluster.leader_of("t") == first, "another leader"

    told = failure_of(test, AssertionError)
    assert "another leader" in told
    assert re.search(r"Faults without which it does not fail \(1 of \d+ drawn\):\n  \d+\.\d+ kill ", told)
    assert "info: the leader is looked at" in told
    assert re.search(r"n\d           KILLED", told)
    seed = re.search(r"Seed (\d+) failed", told)
    assert seed is not None
    monkeypatch.setenv("RAFTWERK_SIMULATE_SEED", seed[1])
    runs.clear()
    assert told.partition("; ")[0] == failure_of(test, AssertionError).partition("; ")[0]
    monkeypatch.setenv("RAFTWERK_SIMULATE_SEED", "x")
    assert "RAFTWERK_SIMULATE_SEED is 'x'" in failure_of(test, ValueError)


@quiet
async def test_a_killed_application_runs_nothing_more_and_starts_again(cluster: SimCluster) -> None:
    steps: list[str] = []

    async def program(word: str) -> None:
        try:
            steps.append(word)
            await asyncio.sleep(1.0)
            steps.append("after")
        finally:
            steps.append("finally")

    application = cluster.start(program, "began", name="app")
    await asyncio.sleep(0.5)
    application.kill()
    await asyncio.sleep(2.0)
    assert steps == ["began"] and not application.is_running
    application.start()
    with pytest.raises(RuntimeError, match="app runs already"):
        application.start()
    await application.ended()
    assert steps == ["began", "began", "after", "finally"] and application.starts == 2
    application.start()
    await asyncio.sleep(0.5)
    await application.stop()
    assert steps[4:] == ["began", "finally"]


@quiet
async def test_faults_of_the_test_itself(cluster: SimCluster) -> None:
    await cluster.create_topic("t", partitions=2, config={"min.insync.replicas": 1})
    await cluster.produce("t", "one", (b"key", None), partition=1)
    killed = await cluster.kill("leader", "t", 1)
    paused = await cluster.pause(killed % 3 + 1)
    cut = await cluster.cut(paused % 3 + 1)
    assert {killed, paused, cut} == {1, 2, 3}
    await cluster.heal()
    assert [(one.key, one.value, one.offset) for one in await cluster.records("t")] == [
        (None, b"one", 0),
        (b"key", None, 1),
    ]
    assert await cluster.controller() in cluster.node_ids
    for wrong in (7, "nobody"):
        with pytest.raises(ValueError, match=r"there is no node 7|'nobody' is none of"):
            await cluster.kill(wrong)
    with pytest.raises(ValueError, match="the leader of which topic"):
        await cluster.kill("leader")


@simulate(seeds=1, faults="")
async def test_a_cluster_that_is_written_to_heals(cluster: SimCluster) -> None:
    await cluster.create_topic("t", partitions=8)
    producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap)
    await producer.start()

    async def write() -> None:
        while True:
            for partition in range(8):
                await producer.send("t", b"x", partition=partition)
            await asyncio.sleep(0.001)

    writing = asyncio.create_task(write())
    await cluster.kill("leader", "t")
    await asyncio.sleep(2.0)
    began = cluster.now_s
    await cluster.heal()
    assert cluster.now_s - began < 0.5
    writing.cancel()
    await producer.stop()


# -- the decorator


@pytest.fixture
def number() -> int:
    return 5


class TestMethods:
    @quiet
    async def test_a_method(self, cluster: SimCluster) -> None:
        assert cluster.node_ids == [1, 2, 3]


@pytest.mark.parametrize("word", ["a", "b"])
@simulate(seeds=1, nodes=1, faults="")
async def test_fixtures_and_parameters_are_pytests(word: str, cluster: SimCluster, number: int) -> None:
    assert word in "ab" and number == 5 and cluster.node_ids == [1]


def test_what_cannot_be_is_refused_when_the_test_is_read() -> None:
    with pytest.raises(ValueError, match="there is no fault 'kil'; there are kill, "):
        simulate(faults="kil")
    with pytest.raises(ValueError, match="nodes=0"):
        simulate(nodes=0)
    with pytest.raises(ValueError, match=r"node\.id is the simulator's own"):
        simulate(settings={"node.id": 4})
    with pytest.raises(ConfigError, match="many"):
        simulate(settings={"min.insync.replicas": "many"})
    with pytest.raises(ConfigError, match=r"did you mean min\.insync\.replicas\?"):
        simulate(settings={"min.insync.replica": 2})
    for seeds in (0, -3, [], "10", [-1], ["1"], True, None):
        with pytest.raises(ValueError, match="how many, from 1 on, or a list"):
            simulate(seeds=seeds)  # type: ignore[arg-type]
    for options in ({"mean_gap_s": 0}, {"limit_s": 0}, {"faults_for_s": -1}, {"faults": ["kill"]}):
        with pytest.raises(ValueError, match=f"{next(iter(options))}="):
            simulate(**options)
    with pytest.raises(TypeError, match="with its parentheses"):
        simulate(lambda: None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="with a parameter `cluster`"):
        simulate()(lambda: None)  # type: ignore[arg-type, return-value]


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "time_machine", None)

    @quiet
    async def test(cluster: SimCluster) -> None:
        assert cluster

    assert "pip install 'raftwerk[simulate]'" in failure_of(test, ImportError)


def test_two_processes_take_the_same_way(tmp_path: Path) -> None:
    """The digest of a run with aiokafka is that of another process, given the hash seed."""
    script = tmp_path / "digest.py"
    script.write_text(
        textwrap.dedent(
            """
            import asyncio
            from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
            from raftwerk.testkit.simulation.fault_names import names_of
            from raftwerk.testkit.simulation.simulated_run import SimulationOptions, Simulator

            async def test(cluster):
                await cluster.create_topic("t", partitions=3)
                producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, enable_idempotence=True)
                consumer = AIOKafkaConsumer("t", bootstrap_servers=cluster.bootstrap, group_id="g")
                await producer.start()
                await consumer.start()
                for number in range(20):
                    await producer.send_and_wait("t", b"%d" % number)
                    await asyncio.sleep(0.5)
                await consumer.getmany(timeout_ms=1000)
                await producer.stop()
                await consumer.stop()

            with Simulator() as simulator:
                outcome = simulator.run(test, 3, SimulationOptions(faults=names_of("kill,cut,slow,reset")))
                print(outcome.failure, outcome.digest)
            """
        )
    )
    fixed = ["setarch", "-R"] if sys.version_info < (3, 12) else []  # the hash of None is its address
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    told = [
        subprocess.run(
            [*fixed, sys.executable, str(script)],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout.splitlines()[-1]
        for _ in range(2)
    ]
    assert told[0] == told[1]
    assert told[0].startswith("None ")


def test_clients_that_were_never_closed_warn_of_nothing_later(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)

    async def program(bootstrap: str) -> None:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
        await producer.start()
        await asyncio.sleep(100.0)

    @quiet
    async def test(cluster: SimCluster) -> None:
        application = cluster.start(program, cluster.bootstrap)
        await asyncio.sleep(1.0)
        application.kill()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        test()
        gc.collect()
    assert told == []
