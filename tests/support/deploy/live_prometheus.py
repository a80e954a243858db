"""A real Prometheus with our alert rules, and a cluster under load for it to look at."""

from __future__ import annotations

import json
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer
from support.ports import free_port

from raftwerk.cluster.local.layout import ClusterPlan, ClusterShape, plan_cluster

ROOT = Path(__file__).resolve().parents[3]
RULES = ROOT / "deploy" / "prometheus" / "alerts.yml"


def plan_with_metrics(directory: Path, brokers: int = 3) -> ClusterPlan:
    """Three nodes on free ports, with metrics on others."""
    return plan_cluster(str(directory), ClusterShape(brokers, port=0, metrics_port=0))


def wait_for(what: str, condition: Callable[[], Any], limit_s: float = 30.0) -> Any:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"{what}: not within {limit_s:g} s")


class Prometheus:
    """The process; scrapes twice a second."""

    def __init__(self, binary: str, directory: Path, targets: Sequence[str]) -> None:
        self.url = f"http://127.0.0.1:{free_port()}"
        directory.mkdir(parents=True, exist_ok=True)
        config = {
            "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "500ms"},
            "rule_files": [str(RULES)],
            "scrape_configs": [{"job_name": "raftwerk", "static_configs": [{"targets": list(targets)}]}],
        }
        (directory / "prometheus.yml").write_text(json.dumps(config))
        options = {
            "config.file": directory / "prometheus.yml",
            "storage.tsdb.path": directory / "data",
            "web.listen-address": self.url.removeprefix("http://"),
            "log.level": "warn",
        }
        self._process = subprocess.Popen([binary, *(f"--{name}={value}" for name, value in options.items())])
        wait_for("Prometheus", self._is_ready)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(20)

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """An instant query: labels and value of each series."""
        rows = self._get("/api/v1/query?" + urllib.parse.urlencode({"query": expression}))["result"]
        return [(row["metric"], float(row["value"][1])) for row in rows]

    def value(self, expression: str) -> float | None:
        """The value of the only series."""
        rows = self.query(expression)
        return rows[0][1] if len(rows) == 1 else None

    def alerts(self) -> dict[tuple[str, str], str]:
        """State by name and instance."""
        rows = self._get("/api/v1/alerts")["alerts"]
        return {(row["labels"]["alertname"], row["labels"].get("instance", "")): row["state"] for row in rows}

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(self.url + path, timeout=10) as answer:
            body = json.load(answer)
        assert body["status"] == "success", body
        return body["data"]

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(self.url + "/-/ready", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


class Load:
    """A producer and a consumer group on a topic, until `stop`."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._client = {"bootstrap.servers": bootstrap, "log_level": 0}
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=each) for each in (self._produce, self._consume)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _produce(self) -> None:
        producer = Producer({**self._client, "enable.idempotence": True, "linger.ms": 5})
        while not self._stopping.wait(0.005):
            producer.produce(self._topic, b"x" * 200)
            producer.poll(0)
        producer.flush(20)

    def _consume(self) -> None:
        group = {"group.id": "readers", "auto.offset.reset": "earliest", "auto.commit.interval.ms": 500}
        consumer = Consumer({**self._client, **group})
        consumer.subscribe([self._topic])
        while not self._stopping.is_set():
            consumer.consume(1000, 0.1)
        consumer.close()
