"""Kills a container of this compose project, starts it again, and goes on with another one.

One node is down at a time: the next round begins when the killed node serves again. On SIGTERM the program ends at once
and leaves the node down, because `docker compose down` lists the running containers before it stops any, and Compose 1
overlooks a container that is started later.

The program talks to the Docker engine's HTTP API with the standard library alone: it runs in the image of the nodes,
whose Python has no Docker SDK and shall need none.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import random
import signal
import socket
import sys
import time
import urllib.parse
from typing import Any

SOCKET = "/var/run/docker.sock"


class EngineError(RuntimeError):
    """The engine answered with an error; `status` is the HTTP status."""

    def __init__(self, what: str, status: int) -> None:
        super().__init__(what)
        self.status = status


class _EngineConnection(http.client.HTTPConnection):
    """HTTP over the engine's Unix socket."""

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(SOCKET)


def call(method: str, path: str) -> Any:
    """One request to the engine; its answer as JSON, or None. `EngineError` when the engine answers with an error."""
    engine = _EngineConnection("engine", timeout=30)
    try:
        engine.request(method, path)
        answer = engine.getresponse()
        body = answer.read()
    finally:
        engine.close()
    if answer.status >= 300 and answer.status != 304:
        raise EngineError(f"{method} {path}: {answer.status} {body.decode(errors='replace').strip()}", answer.status)
    return json.loads(body) if body else None


def containers(filters: dict[str, list[str]]) -> list[dict[str, Any]]:
    """The containers that match the filters, stopped ones too."""
    found: list[dict[str, Any]] = call(
        "GET", f"/containers/json?all=1&filters={urllib.parse.quote(json.dumps(filters))}"
    )
    return found


def own_project() -> str:
    """The compose project that this container belongs to."""
    labels = call("GET", f"/containers/{socket.gethostname()}/json")["Config"]["Labels"]
    return str(labels["com.docker.compose.project"])


def wait_until_healthy(container: str, limit_s: float = 60.0) -> None:
    """Return when the container's health check passes, or after the limit."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        health = call("GET", f"/containers/{container}/json")["State"].get("Health")
        if health is None or health["Status"] == "healthy":
            return
        time.sleep(0.5)
    say(f"{container[:12]} is not healthy after {limit_s:g} s")


def say(text: str) -> None:
    """One line on standard output."""
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stdout.flush()


def kill_and_restart(container: str, service: str, down_s: float) -> None:
    """Kill the container, wait, start it, and wait until it serves. Does nothing if it was stopped or removed."""
    kill = f"/containers/{container}/kill?signal=KILL"
    try:
        say(f"killing {service}")
        call("POST", kill)
        time.sleep(down_s)
        call("POST", f"/containers/{container}/start")
        wait_until_healthy(container)
        say(f"{service} serves again")
    except EngineError as error:
        if error.status not in (404, 409):
            raise
        say(f"{service} is left alone: {error}")
    except SystemExit:
        with contextlib.suppress(EngineError):
            call("POST", kill)
        raise


def main() -> None:
    """Kill containers until the rounds are over, or until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # process 1 of a container has no default for it
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=float, default=30.0, help="seconds between kills")
    parser.add_argument("--down", type=float, default=8.0, help="seconds that a killed node stays down")
    parser.add_argument("--services", required=True, help="services to kill, joined by commas")
    parser.add_argument("--project", default=os.environ.get("COMPOSE_PROJECT_NAME"), help="default: this container's")
    parser.add_argument("--rounds", type=int, default=0, help="how many kills; 0: until SIGTERM")
    options = parser.parse_args()
    services = options.services.split(",")
    project = options.project or own_project()
    done = 0
    while not options.rounds or done < options.rounds:
        service = random.choice(services)
        labels = [f"com.docker.compose.project={project}", f"com.docker.compose.service={service}"]
        for found in containers({"label": labels}):
            kill_and_restart(found["Id"], service, options.down)
        done += 1
        time.sleep(options.every)


if __name__ == "__main__":
    main()
