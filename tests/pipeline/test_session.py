"""How Spark is started, and what is said when it cannot be."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from raftwerk.pipeline.errors import PipelineError
from raftwerk.pipeline.jobs import job_command
from raftwerk.pipeline.jobs.job_command import RunSettings, starting_spark
from raftwerk.pipeline.running_query import ProgressLog
from raftwerk.pipeline.session import (
    JarSettings,
    check_java,
    has_class,
    java_major,
    session_settings,
    spark_session,
)
from raftwerk.pipeline.spark_jars import (
    connector_coordinates,
    kafka_connector,
    may_hold_python,
    settings_of,
    table_format_jars,
)
from raftwerk.pipeline.topics import Topics

JAVA_17 = 'openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment'
JAVA_8 = 'java version "1.8.0_402"'
JAVA_21 = 'openjdk version "21" 2023-09-19'


def fake_java(directory: Path, says: str, code: int = 0) -> Path:
    java = directory / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{says}\nEND\nexit {code}\n")
    java.chmod(0o755)
    return directory


@pytest.mark.parametrize(
    ("names", "comment", "is_python"),
    [
        (["org/Flight.class"], b"", False),
        ([], b"", False),
        (["org/Flight.class"], b"x.py PK" * 9_000, False),
        (["org/Flight.class", "flights/__init__.py"], b"", True),
        (["flights/board.pyc"], b"a comment", True),
    ],
)
def test_which_jars_may_hold_python(tmp_path: Path, names: list[str], comment: bytes, is_python: bool) -> None:
    path = tmp_path / "some.jar"
    with zipfile.ZipFile(path, "w") as jar:
        jar.comment = comment
        for name in names:
            jar.writestr(name, "import a.py")
    assert may_hold_python(str(path)) == is_python


def test_what_is_no_archive_stays_on_the_path(tmp_path: Path) -> None:
    path = tmp_path / "some.jar"
    assert may_hold_python(str(path))
    for content in (b"", b"no archive", b"PK\x05\x06", b"PK\x05\x06" + bytes(8) + b"\xff" * 8 + bytes(2)):
        path.write_bytes(content)
        assert may_hold_python(str(path))


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


@pytest.mark.parametrize(
    ("run_settings", "table_format", "fetched"),
    [
        (RunSettings("local[2]", "1g", None, False), None, ""),
        (
            RunSettings("spark://host:7077", "1g", None, False),
            "iceberg",
            "the jars for Spark's Kafka connector, Iceberg",
        ),
        (RunSettings("local[2]", "1g", None, False, ("a.jar",)), "iceberg", ""),
    ],
)
def test_a_job_says_that_spark_starts_and_with_json_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_settings: RunSettings, table_format: str | None, fetched: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, JAVA_8)))  # it ends there
    topics = None if table_format is None else Topics("127.0.0.1:1", ("orders",), "kafka")
    for is_quiet in (False, True):
        said = StringIO()
        log = ProgressLog(quiet=is_quiet, out=said)
        session = run_settings.session("lake", log, topics=topics, table_format=table_format)
        with pytest.raises(PipelineError, match="is Java 8"), session:
            pass
        assert (f"starting Spark ({run_settings.master}) ..." in said.getvalue()) != is_quiet
        assert ("fetches" in said.getvalue()) == (bool(fetched) and not is_quiet)
        assert fetched in said.getvalue() or is_quiet


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
    assert answer.stdout.startswith("the package pyspark is not installed: ")
    assert " install " in answer.stdout and "pyspark" in answer.stdout


def test_connector_is_of_sparks_version() -> None:
    assert connector_coordinates("4.0.0") == "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"


def test_jars_of_a_format_are_of_sparks_version() -> None:
    (iceberg,) = table_format_jars("iceberg", "4.0.0")
    assert iceberg.coordinates.startswith("org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:")
    assert table_format_jars("delta", "4.0.1")[0].coordinates == "io.delta:delta-spark_2.13:4.0.0"
    assert table_format_jars("parquet", "9.9.9") == []
    for table_format in ("iceberg", "delta"):
        with pytest.raises(
            PipelineError, match=r"has jars for Spark 4\.0 and 4\.1, and this is Spark 9\.9\.9: .*parquet"
        ):
            table_format_jars(table_format, "9.9.9")


def test_a_job_tells_what_it_fetches_or_cannot_have_before_spark_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(job_command, "pyspark_version", lambda: "4.1.2")
    assert "it fetches the jars for Iceberg if" in starting_spark("local[2]", JarSettings(False, ("iceberg",)))
    assert "fetches" not in starting_spark("local[2]", JarSettings(False, ("parquet",)))
    monkeypatch.setattr(job_command, "pyspark_version", lambda: "4.3.0")
    with pytest.raises(PipelineError, match=r"this is Spark 4\.3\.0: .*pip install 'pyspark==4\.1\.\*'"):
        starting_spark("local[2]", JarSettings(False, ("iceberg",)))


def test_the_extensions_of_two_formats_are_one_setting() -> None:
    packages = [one for name in ("iceberg", "delta") for one in table_format_jars(name, "4.0.0")]
    extensions = settings_of(packages)["spark.sql.extensions"].split(",")
    assert [name.rpartition(".")[2] for name in extensions] == [
        "IcebergSparkSessionExtensions",
        "DeltaSparkSessionExtension",
    ]


def test_times_are_utc_also_under_spark_submit() -> None:
    submitted = session_settings("a", "local[2]", "1g", [], submitted=True)
    assert submitted == {"spark.app.name": "a", "spark.sql.session.timeZone": "UTC"}
    packages = [kafka_connector("4.0.0"), *table_format_jars("iceberg", "4.0.0")]
    launched = session_settings("a", "local[2]", "1g", packages, submitted=False)
    assert launched.items() >= {**submitted, "spark.master": "local[2]"}.items()
    assert launched["spark.jars.packages"] == ",".join(one.coordinates for one in packages)


def test_no_job_makes_a_directory_for_tables_in_the_present_one() -> None:
    """Delta makes it, beside it if its path has a blank."""
    launched = session_settings("a", "local[2]", "1g", [], submitted=False)
    assert launched["spark.sql.warehouse.dir"].startswith(f"{tempfile.gettempdir()}/raftwerk-warehouse-")


def test_jar_files_stand_for_what_spark_would_fetch() -> None:
    settings = session_settings(
        "a", "local[2]", "1g", [kafka_connector("4.0.0")], paths=["a.jar", "b.jar"], submitted=False
    )
    assert settings["spark.jars"] == "a.jar,b.jar" and "spark.jars.packages" not in settings


def test_a_session_counts(spark: Any) -> None:
    assert spark.range(1000).count() == 1000
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark_session("again", jars=JarSettings(True, ("iceberg", "delta"))) is not None
    assert has_class(spark, kafka_connector("4.0.0").class_name) and not has_class(spark, "no.such.Class")


def test_of_the_fetched_jars_only_those_with_python_code_are_on_the_path(spark: Any) -> None:
    """Delta's jar has its Python package, and others would only be searched through in each process."""
    group, artifact, version = table_format_jars("delta", spark.version)[0].coordinates.split(":")
    paths = spark.sparkContext.parallelize([0], 1).flatMap(lambda _: __import__("sys").path).collect()
    for found in (paths, sys.path):
        fetched = [Path(path).name for path in found if "userFiles" in path and path.endswith(".jar")]
        assert fetched == [f"{group}_{artifact}-{version}.jar"]
