"""Options of jobs that are wrong: told before Spark starts, in one sentence, with exit code 2."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from raftwerk.pipeline.cli import pipeline
from raftwerk.pipeline.errors import PipelineError, WrongOptionError
from raftwerk.pipeline.jobs import job_command
from raftwerk.pipeline.jobs.ddl import field_names, without_colons
from raftwerk.pipeline.jobs.intervals import interval_microseconds
from raftwerk.pipeline.output_directory import check_local_output, locked

PARQUET = ["--format", "parquet"]
LAKE = ["run", "lake", "-t", "t", "--output", "nowhere"]
WINDOWS = ["run", "windows", "-t", "t", "--output", "nowhere"]
JSON = [*LAKE, "--value-format", "json", "--schema"]
CHANGES = ["run", "changes", "-t", "t", "--output", "nowhere"]
MIRROR = ["run", "mirror", "-t", "t", "--target", "127.0.0.1:2", "--state", "nowhere"]


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def started(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(job_command, "spark_session", started)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([*LAKE, "-o", "foo"], "foo is no option: write it as name=value."),
        ([*LAKE, "-o", "startingOfsets=earliest"], "did you mean startingOffsets?"),
        ([*LAKE, "--starting-offsets", "erliest"], "--starting-offsets is 'erliest', and must be"),
        ([*LAKE, "--starting-offsets", "{"], "--starting-offsets is '{', and must be"),
        ([*LAKE, "--source", "kafka", "--starting-offsets", "erliest"], "--starting-offsets is 'erliest', and must be"),
        ([*LAKE, "-o", "failOnDataLoss=perhaps"], "failOnDataLoss is 'perhaps', and must be"),
        ([*LAKE, "-o", "kafka.auto.offset.reset=latest"], "kafka.auto.offset.reset cannot be set"),
        ([*LAKE, "-o", "maxTriggerDelay=soon"], "maxTriggerDelay is 'soon', and must be"),
        ([*LAKE, "--value-format", "json"], "--value-format json needs --schema"),
        ([*LAKE, "--schema", "a INT"], "--schema belongs to values in json or csv or registry"),
        (
            [*LAKE, "--value-format", "json", "--schema", "a"],
            "the schema is not in Spark's DDL ('a' is no name and type)",
        ),
        ([*LAKE, "--value-format", "json", "--schema", "a NUMBER"], "has no type that Spark knows"),
        ([*JSON, "a INT, d DECIMAL(40,2)"], "DECIMAL(40,2) in 'd DECIMAL(40,2)' has more than the 38 digits that"),
        ([*JSON, "s STRUCT<d: dec(3, 4)>"], "has more digits behind the point than it has at all"),
        ([*LAKE, "--value-format", "csv", "--schema", "offset INT"], "a field offset, which is a column of every lake"),
        ([*LAKE, "--partition-by", "dat"], "there is no column dat to partition by: there are topic, partition,"),
        ([*LAKE, "--max-offsets", "0"], "0 is not a whole number of 1 or more"),
        ([*LAKE, "--interval", "-1"], "-1"),
        ([*LAKE, "--metrics-port", "70000"], "Invalid value for '--metrics-port'"),
        ([*WINDOWS, "--starting-offsets", "latest"], "it begins at earliest"),
        ([*WINDOWS, "--window", "1 dya"], "the window (1 dya) is no interval ('dya' is no unit): write"),
        ([*WINDOWS, "--late", "soon"], "the lateness (soon) is no interval"),
        ([*WINDOWS, "-o", "x=1"], "option x is not known"),
        ([*MIRROR, "-o", "x=1"], "option x is not known"),
        ([*MIRROR, "--starting-offsets", "7"], "--starting-offsets is '7', and must be"),
        ([*LAKE, "--memory", "lots"], "the memory is lots, and must be a whole number with its unit"),
        ([*LAKE, "--memory", "100m"], "Spark's driver needs 450m at least"),
        ([*LAKE, "--master", "local[x]"], "local[x] is no master of Spark"),
        ([*MIRROR, "--master", "spark://host"], "spark://host is no master of Spark"),
        (["run", "audit", __file__, "--memory", "lots"], "the memory is lots"),
        (["run", "audit", __file__, "-t", "a b"], "'a b' is no name of a topic"),
        ([*LAKE, "--compact-every", "-1"], "-1 is not a whole number of 0 or more"),
        ([*LAKE, "--small-mb", "-1"], "-1 is not a whole number of 0 or more"),
        ([*LAKE, "--partition-by", "topic,topic"], "topic is named twice"),
        ([*LAKE, *PARQUET, "--partition-by", "topic,partition,offset,timestamp,date,key,value"], "no column is left"),
        ([*LAKE, *PARQUET, "--partition-by", "day(timestamp)"], "parquet partitions by columns only"),
        ([*LAKE, "--partition-by", "week(timestamp)"], "week(timestamp) is no transform"),
        ([*LAKE, "--retain", "a fortnight"], "a fortnight is no time to retain snapshots"),
        ([*LAKE, "--retain", "-1 day"], "-1 day is no time to retain snapshots"),
        ([*CHANGES, "--remember", "a fortnight"], "a fortnight is no time to remember deletions"),
        (
            [*CHANGES, "--schema", "id INT, _Position STRING"],
            "a field _Position, a name that this job needs for itself",
        ),
        ([*CHANGES, "--schema", "id"], "the schema is not in Spark's DDL ('id' is no name and type)"),
        ([*CHANGES, "--schema", "id INT", "--partition-by", "state"], "there is no column state to partition by"),
        ([*CHANGES, "--format", "delta", "--partition-by", "day(at)"], "delta partitions by columns only"),
        (["run", "audit", __file__, "-t", "t", "--lake", "l"], "two final reads of the same records"),
        ([*JSON, "Topic STRING"], "a field Topic, which is a column of every lake"),
        ([*JSON, "a INT, A INT"], "two fields A, which Spark takes for one"),
        ([*JSON, "rejected INT", "--rejects"], "a field rejected, which is a column of every lake"),
        ([*JSON, "a STRUCT<b: INT"], "does not close with >"),
        ([*LAKE, "--starting-offsets", '{"other": {"0": 1}}'], "of a topic that is not read, other"),
        ([*LAKE, "-t", "u", "--starting-offsets", '{"t": {"0": 1}}'], "say nothing of a topic, u"),
        ([*LAKE, "-o", "startingoffsets=latest"], "startingoffsets is what --starting-offsets says"),
        ([*LAKE, "-o", "maxOffsetsPerTrigger=5", "--max-offsets", "7"], "is what --max-offsets says"),
        ([*LAKE, "-o", "subscribe=other"], "subscribe is what --topic says"),
        ([*LAKE, "-o", "kafka.bootstrap.servers=x:1"], "is what --bootstrap-server says"),
        ([*LAKE, "--source", "kafka", "-o", "failOnDataLoss=perhaps"], "failOnDataLoss is 'perhaps', and must be"),
        ([*LAKE, "--source", "kafka", "-o", "endingOffsets=latest"], "a stream has no end"),
        ([*LAKE, "-o", "kafka.security.protocol=SASL_TLS"], "security.protocol=SASL_TLS: it must be one of"),
        ([*LAKE, "--source", "kafka", "-o", "kafka.security.protocol=SASL_TLS"], "SASL_TLS: it must be one of"),
        ([*LAKE, "-o", "kafka.sasl.jass.config=x"], "did you mean sasl.jaas.config?"),
        ([*LAKE, "--command-config", "nofile"], "cannot read nofile"),
        ([*LAKE, "-t", "a b"], "'a b' is no name of a topic"),
        (["run", "lake", "-t", "t", "--output", ""], "the name of the directory is empty"),
        ([*WINDOWS, "--window", "0 days"], "the window is 0 days, and must be longer"),
        ([*WINDOWS, "--window", "1 month"], "the window (1 month) is no interval"),
        ([*WINDOWS, "--window", "1 day 2 dyas"], "the window (1 day 2 dyas) is no interval"),
        ([*WINDOWS, "--late", "-1 day"], "the lateness is -1 day, and must not be negative"),
        ([*WINDOWS, "-o", "startingTimestamp=5"], "it begins at earliest"),
        ([*WINDOWS, "--to", "t"], "the results would go to t, which is read"),
        ([*WINDOWS, "--to", "a b"], "'a b' is no name of a topic"),
        ([*MIRROR, "--prefix", "a/"], "'a/t' is no name of a topic"),
        ([*MIRROR, "--target", "host:x"], "'host:x' is not host:port"),
        ([*MIRROR, "--target-config", "nofile"], "cannot read nofile"),
        (["feed", "-t", "a b"], "'a b' is no name of a topic"),
    ],
)
def test_a_wrong_option_is_told_before_spark_starts(words: list[str], said: str) -> None:
    answer = CliRunner().invoke(pipeline, [*words, "-b", "127.0.0.1:1"])
    assert (answer.exit_code, answer.exception.__class__) == (2, SystemExit), answer.output
    assert said in " ".join(answer.output.split()), answer.output


def test_a_taken_port_is_no_wrong_option() -> None:
    with socket.create_server(("0.0.0.0", 0)) as taken:
        words = [*LAKE, "--metrics-port", str(taken.getsockname()[1]), "-b", "127.0.0.1:1"]
        answer = CliRunner().invoke(pipeline, words)
    assert answer.exit_code == 1, answer.output
    assert "port" in answer.output


@pytest.mark.parametrize("job", [LAKE, WINDOWS, MIRROR])
def test_a_directory_that_is_none_is_told_before_spark_starts(job: list[str], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "notes.txt").touch()
    commits = tmp_path / "table" / "_job" / "checkpoint" / "commits"
    commits.mkdir(parents=True)
    (commits / "0").touch()
    there = {"format": 2, "kind": "another", "identity": {}}
    (tmp_path / "table" / "_job" / "job.json").write_text(json.dumps(there), encoding="utf-8")
    (tmp_path / "earlier" / "_table").mkdir(parents=True)
    for name, said in (
        ("file", "file is a file, and the output"),
        ("file/below", "file, which is above "),
        ("foreign", "holds notes.txt, which this job did not write"),
        ("table", "is a table of kind another, not"),
        ("earlier", "holds a table of an earlier version"),
    ):
        words = [*job[:-1], str(tmp_path / name), "-b", "127.0.0.1:1"]
        answer = CliRunner().invoke(pipeline, words)
        assert (answer.exit_code, answer.exception.__class__) == (1, SystemExit), answer.output
        assert said in " ".join(answer.output.split()), answer.output


@pytest.mark.parametrize("job", [["run", "maintain"], ["run", "audit", __file__, "--lake"]])
def test_a_table_that_is_not_there_is_told_before_spark_starts(job: list[str], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name, said in (("none", "there is no directory {} on this machine"), ("file", "{} is a file")):
        path = str(tmp_path / name)
        answer = CliRunner().invoke(pipeline, [*job, path])
        assert (answer.exit_code, answer.exception.__class__) == (1, SystemExit), answer.output
        assert answer.output == f"Error: {said.format(path)}: name the --output of lake, changes or windows.\n"


def test_the_format_of_a_table_is_looked_at_before_spark_starts(tmp_path: Path) -> None:
    inside = {"iceberg": "metadata/v1.metadata.json", "delta": "_delta_log/0.json", "parquet": "_spark_metadata/0"}
    for name, path in {**inside, "none": "part.parquet"}.items():
        (tmp_path / name / path).parent.mkdir(parents=True)
        (tmp_path / name / path).touch()
    maintain, audit = ["run", "maintain"], ["run", "audit", __file__, "--lake"]
    for job, name, wanted, said in (
        (maintain, "delta", "iceberg", "is a table in the format delta, not iceberg: name it with --format delta."),
        (maintain, "iceberg", "delta", "is a table in the format iceberg, not delta: name it with --format iceberg."),
        (maintain, "parquet", "iceberg", "holds plain Parquet files, for which there is no maintenance: nothing"),
        (maintain, "none", "iceberg", "is no table of these jobs: it has no metadata of Iceberg, Delta or Spark's"),
        (audit, "parquet", "delta", "is a table in the format parquet, not delta: name it with --format parquet."),
        (audit, "none", "parquet", "is no table of these jobs"),
    ):
        answer = CliRunner().invoke(pipeline, [*job, str(tmp_path / name), "--format", wanted])
        assert (answer.exit_code, answer.exception.__class__) == (1, SystemExit), answer.output
        assert answer.output.startswith(f"Error: {tmp_path / name} {said}"), answer.output
    for job, name in ((maintain, "delta"), (audit, "parquet")):
        answer = CliRunner().invoke(pipeline, [*job, str(tmp_path / name), "--format", name])
        assert str(answer.exception) == "Spark was started", answer.output


def test_a_table_that_only_spark_reaches_is_left_to_it() -> None:
    for table, *more in (["hdfs:lake"], ["lake", "--master", "spark://host:7077"]):
        answer = CliRunner().invoke(pipeline, ["run", "maintain", table, *more])
        assert str(answer.exception) == "Spark was started", answer.output


def test_a_lock_that_cannot_be_made_is_told_in_a_sentence() -> None:
    said = r"^cannot write in /proc/nope \(.+\): name another directory, or mend its rights\.$"
    with pytest.raises(PipelineError, match=said), locked("/proc/nope", "local[2]"):
        pass


@pytest.mark.parametrize("job", [LAKE, WINDOWS, CHANGES, MIRROR])
def test_a_directory_that_cannot_be_made_is_told_before_spark_starts(job: list[str]) -> None:
    answer = CliRunner().invoke(pipeline, [*job[:-1], "/proc/nope", "-b", "127.0.0.1:1"])
    assert (answer.exit_code, answer.exception.__class__) == (1, SystemExit), answer.output
    assert "cannot write in /proc/nope" in answer.output


def test_jar_files_that_are_not_there_are_told_before_spark_starts(tmp_path: Path) -> None:
    answer = CliRunner().invoke(pipeline, [*LAKE, "--jars", str(tmp_path / "no.jar"), "-b", "127.0.0.1:1"])
    assert answer.exit_code == 1
    assert "no.jar: --jars names files." in " ".join(answer.output.split())


def test_directories_that_spark_may_write_are_left_to_it(tmp_path: Path) -> None:
    old, begun = tmp_path / "old", tmp_path / "begun"
    (old / "_logs").mkdir(parents=True)
    (begun / "_job").mkdir(parents=True)
    (begun / "_job" / "job.json").write_text('{"format": 2, "kind": "another"}', encoding="utf-8")
    (begun / "part").touch()
    for root in (str(old), str(begun), str(tmp_path / "new" / "one"), f"file://{old}", "s3a://b/c", "hdfs:c"):
        check_local_output(root, "lake", {}, "local[2]")
    assert not (tmp_path / "new").exists()
    check_local_output(__file__, "lake", {}, "spark://host:7077")  # a path of its default file system


@pytest.mark.parametrize("job", [[*WINDOWS, "--report"], ["run", "audit", __file__, "--report"], ["demo", "--report"]])
def test_a_page_that_cannot_be_written_is_told_before_spark_starts(job: list[str], tmp_path: Path) -> None:
    for path, said in ((tmp_path / "no" / "page.html", "there is no directory"), (tmp_path, "it is a directory")):
        where = [] if job[0] == "demo" else ["-b", "127.0.0.1:1"]
        answer = CliRunner().invoke(pipeline, [*job, str(path), *where])
        assert (answer.exit_code, answer.exception.__class__) == (1, SystemExit), answer.output
        assert said in " ".join(answer.output.split()), answer.output


@pytest.mark.parametrize("late", ["2 days", "1 day 12 hours", "INTERVAL 1 DAY", "90 minutes", "0 seconds", "1 month"])
def test_intervals_that_spark_may_know_are_left_to_it(late: str) -> None:
    answer = CliRunner().invoke(pipeline, [*WINDOWS, "--late", late, "-b", "127.0.0.1:1"])
    assert answer.exit_code == 1
    assert "no broker answers: 127.0.0.1:1" in answer.output


INTERVALS = [
    *("1 month", "1 year", "1 day 1 month", "-1 day", "0 days", "1 d", "1 hrs", "1 DAY", "interval 1 day", "1.5 days"),
    *("1.5 seconds", ".5 seconds", "1 quarter", "1 week", "P1D", "1 nanosecond", "1day", "1 day -1 hour", "2 day 3"),
    *(" 1  day ", "1 weeks 2 days", "a fortnight", "1 microsecond", "+1 day", "INTERVAL '1' DAY"),
]
SCHEMAS = [
    *("a INT", "1a INT", "a-b INT", "a INT NOT NULL", "a: INT", "`a b` INT", "a STRUCT<b: INT>", "a STRUCT<b: INT"),
    *("a DECIMAL(10,2)", "a DECIMAL(10,2", "a INTERVAL DAY TO SECOND", "a STRING COLLATE UTF8_LCASE", "a VARCHAR(3)"),
    *(
        "a VOID",
        "a DEC(3)",
        "a INT COMMENT 'x, y'",
        "select INT",
        "a STRUCT<>",
        "a BYTE",
        "a REAL",
        "a NUMBER",
        "a.b INT",
    ),
    *("a VARIANT", "a MAP<STRING, ARRAY<INT>>", "a bool", "a numeric", "a timestamp_ntz"),
]


@pytest.mark.parametrize("text", INTERVALS)
def test_only_intervals_that_spark_refuses_are_refused(spark: Any, text: str) -> None:
    from pyspark.errors import AnalysisException, IllegalArgumentException
    from pyspark.sql import functions as f

    rows = spark.readStream.format("rate").load()
    for months in (True, False):
        try:
            length = interval_microseconds(text, months=months)
            ours = length is None or (length >= 0 if months else length > 0)
        except ValueError:
            ours = False
        try:
            if months:
                _ = rows.withWatermark("timestamp", text).schema
            else:
                _ = rows.groupBy(f.window("timestamp", text)).count().schema
        except (AnalysisException, IllegalArgumentException):
            assert not ours or "'" in text
        else:
            assert ours


@pytest.mark.parametrize("text", SCHEMAS)
def test_only_schemas_that_spark_refuses_are_refused(spark: Any, text: str) -> None:
    from pyspark.errors import ParseException
    from pyspark.sql.types import StructType

    try:
        names = [field.name for field in StructType.fromDDL(text)]  # type: ignore[attr-defined]
    except ParseException:
        return  # what we let pass, Spark refuses
    assert field_names(text) == names


def test_the_fields_of_a_schema() -> None:
    assert field_names("carrier STRING, dep_delay DOUBLE") == ["carrier", "dep_delay"]
    assert field_names(
        "`a b` INT COMMENT 'x, y', m MAP<STRING, INT>, s: STRUCT<a: INT, b: DECIMAL(10, 2)> NOT NULL"
    ) == [
        "a b",
        "m",
        "s",
    ]
    assert field_names("d DECIMAL(38, 38), n NUMERIC (7), t STRING COMMENT 'was DECIMAL(99)'") == ["d", "n", "t"]
    for wrong in ("", "a", "a INT,", "a NUMBER", ", a INT"):
        with pytest.raises(WrongOptionError, match="is not in Spark's DDL"):
            field_names(wrong)


def test_colons_between_name_and_type() -> None:
    assert without_colons("a:INT, `b:c`: STRUCT<d: INT>, e STRING COMMENT 'f: g'") == (
        "a INT, `b:c` STRUCT<d: INT>, e STRING COMMENT 'f: g'"
    )
