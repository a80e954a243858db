"""Options of jobs that are wrong: told before Spark starts, in one sentence, with exit code 2."""

from __future__ import annotations

import socket

import pytest
from click.testing import CliRunner

from raftwerk.pipeline.cli import pipeline
from raftwerk.pipeline.errors import WrongOptionError
from raftwerk.pipeline.jobs import job_command
from raftwerk.pipeline.jobs.ddl import field_names

LAKE = ["run", "lake", "-t", "t", "--output", "nowhere"]
WINDOWS = ["run", "windows", "-t", "t", "--output", "nowhere"]
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
        ([*LAKE, "--starting-offsets", "erliest"], "startingOffsets is 'erliest', and must be"),
        ([*LAKE, "--starting-offsets", "{"], "startingOffsets is '{', and must be"),
        ([*LAKE, "--source", "kafka", "--starting-offsets", "erliest"], "startingOffsets is 'erliest', and must be"),
        ([*LAKE, "-o", "failOnDataLoss=perhaps"], "failOnDataLoss is 'perhaps', and must be"),
        ([*LAKE, "-o", "kafka.auto.offset.reset=latest"], "kafka.auto.offset.reset cannot be set"),
        ([*LAKE, "-o", "maxTriggerDelay=soon"], "maxTriggerDelay is 'soon', and must be"),
        ([*LAKE, "--value-format", "json"], "a schema belongs to values in json or csv"),
        ([*LAKE, "--schema", "a INT"], "a schema belongs to values in json or csv"),
        (
            [*LAKE, "--value-format", "json", "--schema", "a"],
            "the schema is not in Spark's DDL ('a' is no name and type)",
        ),
        ([*LAKE, "--value-format", "json", "--schema", "a NUMBER"], "has no type that Spark knows"),
        ([*LAKE, "--value-format", "csv", "--schema", "offset INT"], "a field offset, which is a column of every lake"),
        ([*LAKE, "--partition-by", "dat"], "there is no column dat to partition by: there are topic, partition,"),
        ([*LAKE, "--max-offsets", "0"], "0 is not a whole number of 1 or more"),
        ([*LAKE, "--interval", "-1"], "-1"),
        ([*LAKE, "--metrics-port", "70000"], "Invalid value for '--metrics-port'"),
        ([*WINDOWS, "--starting-offsets", "latest"], "it begins at earliest"),
        ([*WINDOWS, "--window", "1 dya"], "the window (1 dya) or the lateness (2 days) is no interval"),
        ([*WINDOWS, "--late", "soon"], "the window (1 day) or the lateness (soon) is no interval"),
        ([*WINDOWS, "-o", "x=1"], "option x is not known"),
        ([*MIRROR, "-o", "x=1"], "option x is not known"),
        ([*MIRROR, "--starting-offsets", "7"], "startingOffsets is '7', and must be"),
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


@pytest.mark.parametrize("late", ["2 days", "1 day 12 hours", "INTERVAL 1 DAY", "90 minutes", "0 seconds"])
def test_intervals_that_spark_may_know_are_left_to_it(late: str) -> None:
    answer = CliRunner().invoke(pipeline, [*WINDOWS, "--late", late, "-b", "127.0.0.1:1"])
    assert answer.exit_code == 1
    assert "no broker answers: 127.0.0.1:1" in answer.output


def test_the_fields_of_a_schema() -> None:
    assert field_names("carrier STRING, dep_delay DOUBLE") == ["carrier", "dep_delay"]
    assert field_names(
        "`a b` INT COMMENT 'x, y', m MAP<STRING, INT>, s: STRUCT<a: INT, b: DECIMAL(10, 2)> NOT NULL"
    ) == [
        "a b",
        "m",
        "s",
    ]
    for wrong in ("", "a", "a INT,", "a NUMBER", ", a INT"):
        with pytest.raises(WrongOptionError, match="is not in Spark's DDL"):
            field_names(wrong)
