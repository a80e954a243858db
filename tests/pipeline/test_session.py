"""How Spark is started, and what is said when it cannot be."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from raftwerk.pipeline.errors import PipelineError
from raftwerk.pipeline.session import (
    check_java,
    connector_coordinates,
    has_connector,
    java_major,
    session_settings,
    spark_session,
)

JAVA_17 = 'openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment'
JAVA_8 = 'java version "1.8.0_402"'
JAVA_21 = 'openjdk version "21" 2023-09-19'


def fake_java(directory: Path, says: str, code: int = 0) -> Path:
    java = directory / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{says}\nEND\nexit {code}\n")
    java.chmod(0o755)
    return directory


@pytest.mark.parametrize(("text", "major"), [(JAVA_17, 17), (JAVA_8, 8), (JAVA_21, 21), ("Killed", None)])
def test_major_version_of_java(text: str, major: int | None) -> None:
    assert java_major(text) == major


def test_java_home_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, JAVA_17)))
    assert check_java() == 17


@pytest.mark.parametrize(
    ("says", "sentence"),
    [
        (JAVA_8, r"Spark needs Java 17 or later, and .*/bin/java is Java 8: install a JRE of 17 or later .*\."),
        ("no such thing", r".*/bin/java -version does not tell a version: install .*\."),
    ],
)
def test_java_too_old_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, sentence: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, says)))
    with pytest.raises(PipelineError, match=f"^{sentence}$"):
        spark_session("t")


def test_java_missing_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PipelineError, match=r"^Spark needs Java 17 or later, and there is none in the path: install"):
        check_java()


def test_pyspark_missing_is_one_sentence() -> None:
    program = (
        "import sys; sys.modules['pyspark'] = None\n"
        "from raftwerk.pipeline.session import spark_session\n"
        "try: spark_session('t')\n"
        "except Exception as error: print(error)\n"
    )
    answer = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert answer.stdout.startswith("PySpark is not installed: ")
    assert " install " in answer.stdout and "pyspark" in answer.stdout


def test_connector_is_of_sparks_version() -> None:
    assert connector_coordinates("4.0.0") == "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"


def test_times_are_utc_also_under_spark_submit() -> None:
    submitted = session_settings("a", "local[2]", "1g", None, submitted=True)
    assert submitted == {"spark.app.name": "a", "spark.sql.session.timeZone": "UTC"}
    launched = session_settings("a", "local[2]", "1g", "g:a:v", submitted=False)
    assert launched.items() >= {**submitted, "spark.master": "local[2]", "spark.jars.packages": "g:a:v"}.items()


def test_a_session_counts(spark: Any) -> None:
    assert has_connector(spark)
    assert spark.range(1000).count() == 1000
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark_session("again", kafka_connector=True) is not None
