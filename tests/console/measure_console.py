"""`PYTHONPATH=tests python tests/console/measure_console.py`: what the console costs, and how smooth its page is.

Three nodes with 2,000 partitions, to which 100 records a second are written, each to another partition. The console's
processor time and memory are measured without a page and with one in Chromium; in the page, the times between frames.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

from confluent_kafka import Producer
from playwright.sync_api import Page, sync_playwright
from support.console.browser import CHROMIUM
from support.console.console_process import console

from raftwerk.cluster.local.processes import command_line, cpu_seconds, memory_bytes, process_ids
from raftwerk.testkit.process_cluster import TestCluster

TOPICS, PARTITIONS = 20, 100
UPDATES_PER_S = 100
FRAMES = """(ms) => new Promise((done) => {
  const times = [], began = performance.now();
  let last = began;
  const frame = (now) => {
    times.push(now - last);
    last = now;
    if (now - began < ms) requestAnimationFrame(frame); else done(times.slice(1));
  };
  requestAnimationFrame(frame);
})"""


@contextmanager
def load(bootstrap: str, topics: list[str]) -> Iterator[None]:
    """Records to one partition after the other, until the context ends."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "log_level": 0})
    ends = Event()

    def write() -> None:
        places = itertools.cycle((topic, one) for one in range(PARTITIONS) for topic in topics)
        while not ends.wait(1 / UPDATES_PER_S):
            topic, partition = next(places)
            producer.produce(topic, b"x" * 100, partition=partition)
            producer.poll(0)

    thread = Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()
        producer.flush(30)


def console_pid(directory: str) -> int:
    """The process of the console of this cluster."""
    return next(one for one in process_ids() if {"console", directory} <= set(command_line(one)))


def cost(pid: int, seconds: float) -> str:
    """The percentage of a core, and the memory."""
    before, began = cpu_seconds(pid) or 0.0, time.monotonic()
    time.sleep(seconds)
    used = (cpu_seconds(pid) or 0.0) - before
    mib = (memory_bytes(pid) or 0) / 2**20
    return f"{100 * used / (time.monotonic() - began):.2f} % of a core, {mib:.0f} MiB"


def frames(page: Page, seconds: float) -> str:
    """The times between frames."""
    times = sorted(page.evaluate(FRAMES, seconds * 1000))
    at = {name: times[min(int(part * len(times)), len(times) - 1)] for name, part in (("median", 0.5), ("99 %", 0.99))}
    told = ", ".join(f"{name} {value:.0f} ms" for name, value in at.items())
    return f"{told}, longest {times[-1]:.0f} ms, {1000 / statistics.mean(times):.0f} frames a second"


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--picture", type=Path, help="A file for a picture of the page.")
    asked = parser.parse_args()
    with TestCluster.start(3) as cluster, console(cluster) as url:
        pid = console_pid(cluster.plan.directory)
        print(f"at the start: {cost(pid, 5)}")
        topics = [cluster.create_topic(f"measured-{one}", partitions=PARTITIONS, replicas=3) for one in range(TOPICS)]
        with load(cluster.bootstrap_servers, topics):
            print(f"without a page: {cost(pid, asked.seconds)}")
            with sync_playwright() as driver:
                browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
                page = browser.new_page(viewport={"width": 1300, "height": 900})
                for path in ("/", "/topics", "/groups"):
                    page.goto(f"{url}/#{path}")
                    page.wait_for_timeout(5000)
                    print(f"frames of {path}: {frames(page, asked.seconds / 2)}")
                page.goto(f"{url}/#/")
                page.wait_for_timeout(5000)
                print(f"with a page: {cost(pid, asked.seconds)}")
                if asked.picture:
                    page.screenshot(path=str(asked.picture))
                browser.close()
            time.sleep(2)
            print(f"without a page again: {cost(pid, asked.seconds)}")


if __name__ == "__main__":
    main()
