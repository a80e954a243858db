"""`changes` on what Debezium reads from PostgreSQL: the table equals the database's after kills of all between them."""

from __future__ import annotations

import datetime
import os
import random
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from support.pipeline.postgresql import DebeziumWorker, Postgres, server_binaries

from raftwerk.pipeline.change_data.change_rows import POSITION
from raftwerk.pipeline.jobs.changes import Changes, ChangesOptions
from raftwerk.pipeline.jobs.job_command import ReadSettings
from raftwerk.pipeline.lakehouse.open_table import open_maintained
from raftwerk.pipeline.lakehouse.table import MaintainedTable
from raftwerk.pipeline.running_query import Metrics, ProgressLog, RunningQuery
from raftwerk.pipeline.topics import Topics
from raftwerk.testkit.process_cluster import TestCluster

TOPIC = "shop.public.orders"
_TIMEOUT_S = 240.0
_NO_COLUMN = object()
_COLUMNS = "id, name, amount, placed, day, note, paid, seen"
_TABLE = """
CREATE TABLE orders (
  id bigint PRIMARY KEY, name text, amount numeric(10,2), placed timestamp, day date, note text,
  tags text[] DEFAULT ARRAY['a', NULL], numbers int[],
  paid boolean, seen timestamptz)
"""


@pytest.fixture
def database() -> Iterator[Postgres]:
    binaries = server_binaries()
    if binaries is None:
        pytest.skip("PostgreSQL is not installed: changes of a real database are NOT tested")
    server = Postgres(binaries)
    yield server
    server.stop()


@pytest.fixture
def connect(
    cluster: TestCluster, java_command: list[str], database: Postgres, tmp_path: Path
) -> Iterator[DebeziumWorker]:
    libs = Path(os.environ.get("DEBEZIUM_LIBS") or os.path.expanduser("~/.cache/debezium-3.6.1"))
    if not libs.is_dir():
        pytest.skip(f"no jars of Debezium in {libs} (make debezium-jars gets them): it is NOT tested")
    plugins = tmp_path / "plugins"
    plugins.mkdir()
    (plugins / "debezium").symlink_to(libs)
    worker = DebeziumWorker(java_command, plugins, cluster.bootstrap_servers, database, tmp_path)
    yield worker
    worker.kill()


def write(database: Postgres, rng: random.Random, keys: list[int]) -> None:
    """A transaction of inserts, updates and deletions; large notes compress badly and are kept apart."""
    statements = []
    for _ in range(30):
        key = rng.randrange(1, 60)
        if key not in keys:
            note = f"'{rng.randbytes(4000).hex()}'" if rng.random() < 0.3 else "NULL"
            times = "timestamp '2024-02-29 23:59:59.123456', date '1969-12-31'"
            amount = rng.randrange(10**8) / 100
            values = f"{key}, 'n''{key}', {amount}, {times}, {note}, true, now()"
            statements.append(f"INSERT INTO orders ({_COLUMNS}) VALUES ({values})")
            keys.append(key)
        elif rng.random() < 0.2:
            statements.append(f"DELETE FROM orders WHERE id = {key}")
            keys.remove(key)
        elif rng.random() < 0.1 and key + 100 not in keys:
            statements.append(f"UPDATE orders SET id = {key + 100}, note = NULL WHERE id = {key}")
            keys[keys.index(key)] = key + 100
        else:
            statements.append(f"UPDATE orders SET amount = -amount, paid = NOT paid WHERE id = {key}")
    database.sql(f"BEGIN; {'; '.join(statements)}; COMMIT")


def of_table(value: Any) -> Any:
    """A value of the table as PostgreSQL writes it in JSON."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.UTC).replace(tzinfo=None)
    return value.isoformat() if isinstance(value, datetime.date) else value


def of_database(name: str, value: Any) -> Any:
    if name in ("placed", "seen") and value is not None:
        at = datetime.datetime.fromisoformat(value)
        return at if at.tzinfo is None else at.astimezone(datetime.UTC).replace(tzinfo=None)
    return value


def test_the_table_equals_the_database_s(
    spark: Any, cluster: TestCluster, database: Postgres, connect: DebeziumWorker, tmp_path: Path
) -> None:
    topics = Topics(cluster.bootstrap_servers, (TOPIC,))
    topics.create(2, {})
    rng, keys = random.Random(7), list[int]()
    options = ChangesOptions(str(tmp_path / "orders"))
    table = open_maintained(spark, options.out, options.table_format)

    def job() -> RunningQuery:
        changes = Changes(spark, topics, options)
        return changes.start(ReadSettings(once=True), ProgressLog(quiet=True), Metrics("changes", None))

    database.sql(_TABLE)
    database.sql("ALTER TABLE orders ALTER numbers SET STORAGE EXTERNAL")
    database.sql("INSERT INTO orders (id, name) VALUES (1001, 'old'), (1002, 'gone')")
    database.sql("INSERT INTO orders (id, numbers) SELECT 1003, array_agg(n) FROM generate_series(1, 3000) n")
    # As an administrator prepares it: else the connector waits for the transaction before it takes its snapshot.
    database.sql("CREATE PUBLICATION dbz_publication FOR ALL TABLES")
    database.sql("SELECT pg_create_logical_replication_slot('debezium', 'pgoutput')")
    over_snapshot = database.begin("UPDATE orders SET name = 'new' WHERE id = 1001; DELETE FROM orders WHERE id = 1002")
    write(database, rng, keys)  # the connector reads it as a snapshot
    connect.start()
    await_equal(job, table, database, connect)
    write(database, rng, keys)
    over_snapshot.commit()
    connect.kill()  # what it had sent since it noted its place comes once more
    write(database, rng, keys)
    database.sql("ALTER TABLE orders ADD COLUMN discount double precision, DROP COLUMN tags")
    connect.start()
    database.sql("UPDATE orders SET discount = id / 4.0")
    running = job()
    cluster.kill(cluster.leader_of(TOPIC))
    running.stop()  # in the middle of a batch, as it may be
    write(database, rng, keys)
    await_equal(job, table, database, connect)
    cluster.heal()
    database.sql("TRUNCATE orders")
    keys.clear()
    write(database, rng, keys)
    await_equal(job, table, database, connect)


def await_equal(
    job: Callable[[], RunningQuery], table: MaintainedTable, database: Postgres, connect: DebeziumWorker
) -> None:
    """Run the job to the end of the topic, until the table has what the database has."""
    wanted = [{name: of_database(name, value) for name, value in row.items()} for row in database.rows("orders")]
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        job().follow()
        found = [{name: row.get(name, _NO_COLUMN) for name in wanted[0]} for row in rows_of(table)]
        if found == wanted:
            return
        wrong = [row for row in found if row not in wanted], [row for row in wanted if row not in found]
        assert time.monotonic() < deadline, (len(found), len(wanted), wrong, connect.log())


def rows_of(table: MaintainedTable) -> list[dict[str, Any]]:
    if not table.exists():
        return []
    rows = table.read().drop(POSITION).orderBy("id").collect()
    return [{name: of_table(value) for name, value in row.asDict().items()} for row in rows]
