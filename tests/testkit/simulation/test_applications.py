"""Applications with a usual bug, and the same without it: the simulator finds the one and passes the other."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from support.testkit.applications.invoices import write_invoices
from support.testkit.applications.payments import pay
from support.testkit.applications.reports import make_reports
from support.testkit.applications.shipping import ship_orders
from support.testkit.applications.streaming import run_application

from raftwerk.testing import SimCluster, simulate

Test = Callable[[SimCluster], Coroutine[Any, Any, None]]


def found_by(test: Test, *, seeds: int, **options: Any) -> AssertionError:
    """The failure of a test with a bug."""
    with pytest.raises(AssertionError) as failed:
        simulate(seeds=seeds, **options)(test)()
    return failed.value


def note_of(error: AssertionError) -> str:
    return "\n".join(error.__notes__)


# -- commits before it has processed


def shipping(*, commits_first: bool) -> Test:
    async def test(cluster: SimCluster) -> None:
        shipped: list[bytes] = []
        await cluster.create_topic("orders", partitions=2)
        cluster.start(lambda: ship_orders(cluster.bootstrap, shipped, commits_first=commits_first), name="shipping")
        orders = [b"%d" % number for number in range(20)]
        for order in orders:
            await cluster.produce("orders", order)
            await asyncio.sleep(1.0)
        await cluster.heal()
        await cluster.until(lambda: set(shipped) == set(orders), what="every order is shipped")

    return test


SHIPPING_FAULTS = "kill-application,kill,pause-application"


def test_orders_that_are_committed_before_they_are_shipped_are_lost() -> None:
    note = note_of(found_by(shipping(commits_first=True), seeds=30, faults=SHIPPING_FAULTS))
    assert "kill application" in note
    assert "shipping     KILLED" in note
    assert "Replay: RAFTWERK_SIMULATE_SEED=" in note


def test_orders_that_are_committed_afterwards_are_not() -> None:
    simulate(seeds=15, faults=f"{SHIPPING_FAULTS},cut,slow,reset")(shipping(commits_first=False))()


# -- repeats what may have been written


def payments(*, idempotent: bool) -> Test:
    async def test(cluster: SimCluster) -> None:
        await cluster.create_topic("payments")
        await cluster.start(lambda: pay(cluster.bootstrap, 30, idempotent=idempotent), name="payer").ended()
        await cluster.heal()
        paid = Counter(await cluster.values("payments"))
        assert paid == Counter({b"%d" % number: 1 for number in range(30)})

    return test


def test_retries_without_idempotence_pay_twice() -> None:
    note = note_of(found_by(payments(idempotent=False), seeds=30, faults="kill,pause,cut,slow,reset"))
    assert "Faults without which it does not fail" in note


def test_retries_with_idempotence_pay_once() -> None:
    simulate(seeds=15, faults="kill,pause,cut,slow,reset")(payments(idempotent=True))()


# -- blocks the event loop


def reports(*, blocks: bool) -> Test:
    async def test(cluster: SimCluster) -> None:
        made: list[bytes] = []
        await cluster.create_topic("wanted", partitions=2)
        for number in (1, 2):
            cluster.start(lambda: make_reports(cluster.bootstrap, made, blocks=blocks), name=f"worker-{number}")
        await asyncio.sleep(10.0)
        await cluster.produce("wanted", "long", "a", partition=0)
        await cluster.produce("wanted", "b", partition=1)
        await cluster.until(lambda: {b"long", b"a", b"b"} <= set(made), 120.0)
        await asyncio.sleep(30.0)
        assert sorted(made) == [b"a", b"b", b"long"]

    return test


def test_a_computation_in_the_event_loop_is_fenced_and_done_twice() -> None:
    note = note_of(found_by(reports(blocks=True), seeds=1, faults=""))
    assert "time.sleep(25) blocks the event loop" in note
    assert "It fails without any fault." in note


def test_a_computation_in_a_thread_is_done_once() -> None:
    simulate(seeds=2, faults="")(reports(blocks=False))()


# -- reads, processes, writes


def invoices(*, transactional: bool) -> Test:
    async def test(cluster: SimCluster) -> None:
        for topic in ("orders", "invoices"):
            await cluster.create_topic(topic)
        cluster.start(lambda: write_invoices(cluster.bootstrap, transactional=transactional), name="invoices")
        orders = [b"%d" % number for number in range(15)]
        for order in orders:
            await cluster.produce("orders", order)
            await asyncio.sleep(1.0)
        await cluster.heal()
        written: list[bytes | None] = []
        for _ in range(60):
            written = await cluster.values("invoices")
            if set(written) >= set(orders):
                break
            await asyncio.sleep(1.0)
        assert Counter(written) == Counter(orders)

    return test


@pytest.mark.long
def test_invoices_without_a_transaction_are_written_twice() -> None:
    found_by(invoices(transactional=False), seeds=30, faults="kill-application,kill,cut")


@pytest.mark.long
def test_invoices_with_transactions_are_written_once() -> None:
    simulate(seeds=15, faults="kill-application,kill,cut,reset,slow")(invoices(transactional=True))()


# -- a framework


@simulate(seeds=5, faults="kill,reset,slow")
async def test_an_application_of_faststream(cluster: SimCluster) -> None:
    for topic in ("words", "loud"):
        await cluster.create_topic(topic)
    cluster.start(run_application, cluster.bootstrap, name="shouter")
    words = ["kafka", "raft", "python"]
    for word in words:
        await cluster.produce("words", word)
        await asyncio.sleep(5.0)
    await cluster.heal()
    found: list[bytes | None] = []
    for _ in range(60):
        found = await cluster.values("loud")
        if len(set(found)) == len(words):
            break
        await asyncio.sleep(1.0)
    assert {value for value in found if value is not None} == {word.upper().encode() for word in words}
