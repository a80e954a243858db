"""What a Python worker of Spark's is spared."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from raftwerk.pipeline.source.python_worker import cache_archives


def archive(path: Path, module: str) -> str:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{module}.py", "")
    return str(path)


def test_sparks_archives_are_read_once_and_a_users_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spark = tmp_path / "spark"
    spark.mkdir()
    kept = [archive(spark / "pyspark.zip", "of_spark"), archive(tmp_path / "connector.jar", "of_a_jar")]
    users = archive(tmp_path / "users.zip", "of_a_user")
    monkeypatch.setattr(sys, "path", [*kept, users, *sys.path])
    for module in ("of_spark", "of_a_jar", "of_a_user"):
        importlib.import_module(module)
    cache_archives(str(spark))
    for path in [*kept, users]:
        Path(path).unlink()
        archive(Path(path), "changed")
    importlib.invalidate_caches()
    assert [importlib.util.find_spec("changed").origin] == [f"{users}/changed.py"]  # type: ignore[union-attr]
    for path in [*kept, users]:
        sys.path_importer_cache.pop(path)


def test_a_process_of_a_write_imports_little_and_is_prepared(tmp_path: Path) -> None:
    """Spark plans a write in one process, and ends it in another, for which it calls nothing but `commit`."""
    pytest.importorskip("pyspark")
    jar = archive(tmp_path / "connector.jar", "of_a_jar")
    script = f"""
import sys
sys.path.append({jar!r})
import of_a_jar
from pyspark.sql.types import StringType, StructField, StructType
from raftwerk.pipeline.source import RaftwerkDataSource
source = RaftwerkDataSource({{"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "flights"}})
from raftwerk.pipeline.source.options import parse_write
from raftwerk.pipeline.source.writer import BatchWriter
BatchWriter(parse_write(source.options, streaming=False)).commit([])
print(type(sys.path_importer_cache[{jar!r}]).__name__)
source.writer(StructType([StructField("value", StringType())]), overwrite=False)
slow = ("asyncio", "raftwerk.cluster.settings", "raftwerk.cluster.client", "raftwerk.controller")
print(sorted(name for name in sys.modules if name.startswith(slow)))
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines() == ["_CachedArchive", "[]"]


@pytest.mark.parametrize(
    ("error", "is_told"), [("BrokenPipeError", False), ("ConnectionResetError", False), ("ValueError", True)]
)
def test_the_planner_of_a_query_ends_quietly_with_it(error: str, is_told: bool) -> None:
    script = f"""
from raftwerk.pipeline.source.python_worker import end_quietly_with_query, plans_query
assert not plans_query()
end_quietly_with_query()
raise {error}
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (ended.returncode, "Traceback" in ended.stderr) == (1, is_told)
