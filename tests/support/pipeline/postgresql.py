"""A PostgreSQL server, and Debezium in a worker of Kafka Connect, each in a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from support.ports import free_port

_BINARIES = Path("/usr/lib/postgresql")
_USER = "postgres"
_TIMEOUT_S = 60.0


def server_binaries() -> Path | None:
    """Where PostgreSQL's server is, None where it is not installed."""
    found = sorted(_BINARIES.glob("*/bin/initdb"))
    path = shutil.which("initdb")
    return found[-1].parent if found else None if path is None else Path(path).parent


class Postgres:
    """A server with logical decoding, and one database. It refuses to run as root, so then it runs as its own user."""

    def __init__(self, binaries: Path) -> None:
        self._binaries = binaries
        self._user = _USER if os.geteuid() == 0 else None
        self.port = free_port()
        self._address = ["-h", "127.0.0.1", "-p", str(self.port), "-U", _USER, "-d", "postgres"]
        self._data = tempfile.mkdtemp(prefix="raftwerk-postgres-")  # where that user reaches it
        if self._user:
            shutil.chown(self._data, self._user)
        self._run("initdb", "-D", self._data, "-U", _USER, "-A", "trust", "-E", "UTF8", "--no-sync")
        settings = {"wal_level": "logical", "port": self.port, "listen_addresses": "127.0.0.1", "fsync": "off"}
        options = [f"-c{name}={value}" for name, value in {**settings, "unix_socket_directories": ""}.items()]
        self._process = subprocess.Popen(
            [str(binaries / "postgres"), "-D", self._data, *options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            user=self._user,
        )
        self._wait()

    def sql(self, text: str) -> str:
        """What psql prints for these statements, without headers."""
        return self._run("psql", *self._address, "-qAtX", "-v", "ON_ERROR_STOP=1", "-c", text)

    def begin(self, text: str) -> OpenTransaction:
        """A transaction in a session of its own that has carried out these statements."""
        command = [str(self._binaries / "psql"), *self._address, "-qAtX", "-v", "ON_ERROR_STOP=1"]
        session = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/", user=self._user
        )
        return OpenTransaction(session, text)

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows of a table as JSON, by their key."""
        return [json.loads(line) for line in self.sql(f"SELECT row_to_json(t) FROM {table} t ORDER BY id").splitlines()]

    def stop(self) -> None:
        """End the server at once, and its connections."""
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait(_TIMEOUT_S)
        shutil.rmtree(self._data)

    def _run(self, program: str, *words: str) -> str:
        command = [str(self._binaries / program), *words]
        done = subprocess.run(command, check=False, capture_output=True, text=True, cwd="/", user=self._user)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _wait(self) -> None:
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            with suppress(AssertionError):
                self.sql("SELECT 1")
                return
            assert time.monotonic() < deadline and self._process.poll() is None, "PostgreSQL did not start"
            time.sleep(0.1)


class OpenTransaction:
    """A transaction of a session, which is open until it is committed."""

    def __init__(self, session: subprocess.Popen[str], text: str) -> None:
        assert session.stdin is not None and session.stdout is not None
        self._session = session
        session.stdin.write(f"BEGIN; {text};\n\\echo done\n")
        session.stdin.flush()
        assert session.stdout.readline() == "done\n"

    def commit(self) -> None:
        """Commit it, and end the session."""
        self._session.communicate("COMMIT;\n", timeout=_TIMEOUT_S)
        assert self._session.returncode == 0


class DebeziumWorker:
    """A worker of Kafka Connect with Debezium's connector, which can be killed and started again."""

    def __init__(
        self, java_command: list[str], plugins: Path, bootstrap: str, database: Postgres, directory: Path
    ) -> None:
        self._log = directory / "connect.log"
        converters = {}
        for what in ("key", "value"):
            converters[f"{what}.converter"] = "org.apache.kafka.connect.json.JsonConverter"
            converters[f"{what}.converter.schemas.enable"] = "true"
        worker = {
            **converters,
            "bootstrap.servers": bootstrap,
            "offset.storage.file.filename": directory / "offsets",
            "offset.flush.interval.ms": 2000,
            "plugin.path": plugins,
            "listeners": f"HTTP://127.0.0.1:{free_port()}",
        }
        connector = {
            "name": "shop",
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "plugin.name": "pgoutput",
            "database.hostname": "127.0.0.1",
            "database.port": database.port,
            "database.user": _USER,
            "database.password": "none",
            "database.dbname": "postgres",
            "topic.prefix": "shop",
            "table.include.list": "public.orders",
            "skipped.operations": "none",
            "errors.retry.timeout": -1,
        }
        files = [_properties(directory / name, each) for name, each in (("worker", worker), ("connector", connector))]
        self._command = [*java_command, "org.apache.kafka.connect.cli.ConnectStandalone", *files]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process."""
        log = self._log.open("ab")
        self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def kill(self) -> None:
        """Kill the process, if there is one."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def log(self) -> str:
        """The end of what it has printed."""
        return self._log.read_text(errors="replace")[-3000:] if self._log.exists() else ""


def _properties(path: Path, settings: dict[str, Any]) -> str:
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return str(path)
