"""What is passed on of the standard error of Spark's JVM as it starts, and what is kept of Ivy's report."""

from __future__ import annotations

import subprocess
import sys

import pytest

from raftwerk.pipeline.jvm_messages import JvmMessages

WARNING = "WARNING: Using incubator modules: jdk.incubator.vector\n"
BEGIN = """\
:: loading settings :: url = jar:file:/jars/ivy-2.5.3.jar!/org/apache/ivy/core/settings/ivysettings.xml
Ivy Default Cache set to: /root/.ivy2.5.2/cache
The jars for the packages stored in: /root/.ivy2.5.2/jars
io.delta#delta-spark_4.1_2.13 added as a dependency
:: resolving dependencies :: org.apache.spark#spark-submit-parent-a089;1.0
\tconfs: [default]
\tfound io.delta#delta-spark_4.1_2.13;4.4.0 in central
"""
DOWNLOADS = """\
downloading https://repo1.maven.org/maven2/io/delta/delta-spark_4.1_2.13-4.4.0.jar ...
\t[SUCCESSFUL ] io.delta#delta-spark_4.1_2.13;4.4.0!delta-spark_4.1_2.13.jar (912ms)
downloading https://repo1.maven.org/maven2/io/delta/delta-storage-4.4.0.jar ...
\t[SUCCESSFUL ] io.delta#delta-storage;4.4.0!delta-storage.jar (95ms)
"""
END = """\
:: retrieving :: org.apache.spark#spark-submit-parent-a089
\tconfs: [default]
\t0 artifacts copied, 33 already retrieved (0kB/52ms)
"""
PROBLEMS = """\

:: problems summary ::
:::: WARNINGS
\t\tmodule not found: io.delta#no-such-thing;4.4.9
"""
STACK = """\
Exception in thread "main" java.lang.RuntimeException: [unresolved dependency: io.delta#no-such-thing;4.4.9: not found]
\tat org.apache.spark.util.MavenUtils$.resolveMavenCoordinates(MavenUtils.scala:539)
"""


def follow(messages: JvmMessages, text: str) -> None:
    """A process that writes this, and has ended."""
    code = "import sys; sys.stderr.write(sys.stdin.read())"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    messages.follow(process)
    assert process.stdin is not None
    with process.stdin as pipe:
        pipe.write(text.encode())
    process.wait(20)


def test_nothing_is_told_of_jars_that_are_here(capfd: pytest.CaptureFixture[str]) -> None:
    messages = JvmMessages("fetching the jars")
    follow(messages, WARNING + BEGIN + END + "26/11/27 ERROR Job: it fails\n" + STACK)
    messages.wait()
    assert capfd.readouterr().err == WARNING + "26/11/27 ERROR Job: it fails\n" + STACK


def test_a_download_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    messages = JvmMessages("fetching the jars")
    follow(messages, WARNING + BEGIN + DOWNLOADS + END)
    messages.wait()
    assert capfd.readouterr().err == WARNING + "fetching the jars\n"


def test_a_download_that_fails_says_why(capfd: pytest.CaptureFixture[str]) -> None:
    messages = JvmMessages("fetching the jars")
    follow(messages, WARNING + BEGIN + PROBLEMS + STACK)
    messages.tell_problems()
    assert capfd.readouterr().err == WARNING + STACK + PROBLEMS.lstrip()


def test_a_report_that_ends_early_is_told_whole(capfd: pytest.CaptureFixture[str]) -> None:
    messages = JvmMessages("fetching the jars")
    follow(messages, BEGIN)
    messages.tell_problems()
    assert capfd.readouterr().err == BEGIN


def test_after_the_start_all_is_passed_on_as_it_comes(capfd: pytest.CaptureFixture[str]) -> None:
    """Also what looks like lines of Ivy, and lines that do not end, such as a bar of progress."""
    messages = JvmMessages("fetching the jars")
    messages.started()
    follow(messages, BEGIN + "[Stage 1:=====>")
    messages.wait()
    assert capfd.readouterr().err == BEGIN + "[Stage 1:=====>"
