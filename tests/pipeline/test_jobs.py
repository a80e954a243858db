"""The jobs on real Spark and real nodes: exact, restarted, given bad input, judged by other means than their own."""

from __future__ import annotations

import io
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient
from hypothesis import Phase, given, seed, settings
from support.chaos import histories
from support.confluent import headers_of
from support.pipeline.queries import goes_on_with
from support.pipeline.topics import Sent, delete_records_before, send, spoil

from raftwerk.chaos.live.checker.checker import check_lines
from raftwerk.chaos.live.checker.findings import RECORD_KINDS
from raftwerk.pipeline.audit.anomalies import Audit
from raftwerk.pipeline.audit.audit_page import render as render_audit
from raftwerk.pipeline.audit.history import History, lake_records
from raftwerk.pipeline.audit.parcels import BLOCK_BITS
from raftwerk.pipeline.demo import expected_delays
from raftwerk.pipeline.errors import PipelineError, explain
from raftwerk.pipeline.flights import feed, flight_rows, flights
from raftwerk.pipeline.jobs.copied_ranges_log import CopiedRangesLog
from raftwerk.pipeline.jobs.copy_reader import HEADER, last_copied
from raftwerk.pipeline.jobs.job_command import ReadSettings
from raftwerk.pipeline.jobs.lake import Lake, LakeOptions
from raftwerk.pipeline.jobs.mirror import Mirror, MirrorOptions, _configs
from raftwerk.pipeline.jobs.windows import RecordCounts, Windows, WindowsOptions, finish, read_windows, with_names
from raftwerk.pipeline.jobs.windows_page import render as render_windows
from raftwerk.pipeline.lakehouse.open_table import read_table
from raftwerk.pipeline.lakehouse.table_maintenance import MaintenanceSettings
from raftwerk.pipeline.running_query import Metrics, ProgressLog
from raftwerk.pipeline.topics import Topics
from raftwerk.testkit.process_cluster import TestCluster

FLIGHTS = 4_000
_FAR = 10
"""Of so many random histories one has its numbers and offsets at the edge of a block."""


def run(job: Any, log: ProgressLog | None = None, **read_settings: Any) -> Any:
    """Read what is there now, to the end."""
    name = type(job).__name__.lower()
    stream = job.start(ReadSettings(once=True, **read_settings), log or ProgressLog(quiet=True), Metrics(name, None))
    stream.follow()
    return stream


def make(bootstrap: str, topic: str, partitions: int = 3, **configs: str) -> None:
    Topics(bootstrap, (topic,)).create(partitions, configs)


@pytest.mark.parametrize(
    ("source", "table_format"), [("raftwerk", "iceberg"), ("kafka", "delta"), ("raftwerk", "parquet")]
)
def test_the_lake_holds_each_flight_once_over_restarts(
    spark: Any, bootstrap: str, topic: str, tmp_path: Path, source: str, table_format: str
) -> None:
    make(bootstrap, topic)
    schema = "number BIGINT, carrier STRING"
    options = LakeOptions(
        str(tmp_path / "lake"), "json", schema, ("carrier",), table_format, maintenance=MaintenanceSettings(2)
    )
    topics = Topics(bootstrap, (topic,), source)
    feed(bootstrap, topic, flights(1500))
    told = io.StringIO()
    stream = run(Lake(spark, topics, options), ProgressLog(out=told), max_offsets=400)
    assert stream.rows == 1500
    assert all(report["numInputRows"] <= 400 for report in stream.query.recentProgress)
    lags = [int(lag.replace(",", "")) for lag in re.findall(r"lag ([\d,]+)", told.getvalue())]
    assert lags == sorted(lags, reverse=True) and lags[0] >= 1100 and lags[-1] == 0, told.getvalue()
    feed(bootstrap, topic, itertools.islice(flights(2000), 1500, None))
    lake = Lake(spark, topics, options)
    run(lake)
    table = read_table(spark, options.out)
    assert sorted(row[0] for row in table.select("number").collect()) == list(range(2000))
    expected = {row["number"]: row["carrier"] for row in itertools.islice(flight_rows(), 2000)}
    assert {row["number"]: row["carrier"] for row in table.select("number", "carrier").collect()} == expected
    files = table.select("_metadata.file_path") if table_format != "iceberg" else table.select("_file")
    assert (lake.table.row_count(), lake.table.file_count()) == (2000, len({row[0] for row in files.collect()}))


@pytest.mark.parametrize("max_offsets", [100, None])
def test_a_lake_goes_on_to_the_end_after_a_batch_that_was_interrupted(
    spark: Any, bootstrap: str, topic: str, tmp_path: Path, max_offsets: int | None
) -> None:
    make(bootstrap, topic)
    feed(bootstrap, topic, flights(200))
    topics, options = Topics(bootstrap, (topic,)), LakeOptions(str(tmp_path / "lake"))
    run(Lake(spark, topics, options), max_offsets=100)
    done = tmp_path / "lake" / "_job" / "checkpoint" / "commits"
    last = max(int(path.name) for path in done.iterdir() if path.name.isdecimal())
    for name in (str(last), f".{last}.crc"):
        (done / name).unlink()  # as a kill leaves it after the table's commit
    feed(bootstrap, topic, itertools.islice(flights(500), 200, None))
    run(Lake(spark, topics, options), max_offsets=max_offsets)
    assert read_table(spark, options.out).count() == 500
    feed(bootstrap, topic, flights(10))
    assert run(Lake(spark, topics, options), max_offsets=max_offsets).rows == 10
    assert run(Lake(spark, topics, options), max_offsets=max_offsets).rows == 0


def test_a_record_that_does_not_fit_stops_the_lake_or_is_kept_apart(
    spark: Any, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    make(bootstrap, topic, 1)
    values = [b'{"n": 1}', b"\xff not json", b'{"n": "text"}', None, b'{"n": 5, "more": 1}']
    send(bootstrap, topic, [Sent(0, b"k", value) for value in values])
    out = str(tmp_path / "lake")
    with pytest.raises(
        PipelineError, match=rf"the record at {topic}-0 offset [12] does not fit the schema \(n BIGINT\)"
    ):
        run(Lake(spark, Topics(bootstrap, (topic,)), LakeOptions(out, "json", "n BIGINT", ("topic",))))
    assert read_table(spark, out).count() == 0
    assert not list(Path(out).rglob("*.parquet"))
    run(Lake(spark, Topics(bootstrap, (topic,)), LakeOptions(out, "json", "n BIGINT", ("topic",), rejects=True)))
    rows = {row["offset"]: (row["n"], row["rejected"]) for row in read_table(spark, out).collect()}
    assert {at: n for at, (n, _) in rows.items()} == {0: 1, 1: None, 2: None, 3: None, 4: 5}
    assert {at: bytes(raw) for at, (_, raw) in rows.items() if raw} == {1: values[1], 2: values[2]}


def test_a_lake_with_rejects_takes_names_with_dots(spark: Any, bootstrap: str, topic: str, tmp_path: Path) -> None:
    """As OpenTelemetry has them."""
    make(bootstrap, topic, 1)
    send(bootstrap, topic, [Sent(0, b"k", b'{"service.name": "shop"}'), Sent(0, b"k", b"nonsense")])
    out = str(tmp_path / "lake")
    options = LakeOptions(out, "json", "`service.name` STRING", ("topic",), rejects=True)
    run(Lake(spark, Topics(bootstrap, (topic,)), options))
    assert {row["offset"]: row["service.name"] for row in read_table(spark, out).collect()} == {0: "shop", 1: None}


def test_a_field_that_does_not_fit_is_named(spark: Any, bootstrap: str, topic: str, tmp_path: Path) -> None:
    make(bootstrap, topic, 1)
    value = b'{"a": "' + b"x" * 300 + b'", "n": 762.0, "m": {"k": [1]}, "t": "y"}'
    send(bootstrap, topic, [Sent(0, b"k", value)])
    options = LakeOptions(str(tmp_path / "lake"), "json", "a: STRING, n:INT, `m` INT, t STRING, absent INT")
    told = r'does not fit the schema \(a: STRING, .*\): n is 762.0, m is {"k":\[1\]}, in {"a": "xxx'
    with pytest.raises(PipelineError, match=told):
        run(Lake(spark, Topics(bootstrap, (topic,)), options))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"schema": "n NUMBER oops", "value_format": "json"}, "is not in Spark's DDL"),
        ({"schema": "offset INT", "value_format": "json"}, "a field offset, which is a column of every lake"),
        ({"partition_by": ("nothing",)}, "there is no column nothing to partition by"),
    ],
)
def test_a_lake_that_cannot_be_says_why(
    spark: Any, bootstrap: str, topic: str, tmp_path: Path, options: dict[str, Any], said: str
) -> None:
    make(bootstrap, topic, 1)
    with pytest.raises(PipelineError, match=said):
        run(Lake(spark, Topics(bootstrap, (topic,)), LakeOptions(str(tmp_path / "lake"), **options)))


def test_a_window_that_is_no_interval(spark: Any, bootstrap: str, topic: str, tmp_path: Path) -> None:
    make(bootstrap, topic, 1)
    with pytest.raises(PipelineError, match=r"^the window \(a fortnight\) is no interval \(.*\): .*\.$"):
        WindowsOptions(str(tmp_path / "windows"), window="a fortnight")
    options = WindowsOptions(str(tmp_path / "windows"), window="INTERVAL 'a' FORTNIGHT")  # only Spark reads this
    with pytest.raises(PipelineError, match=r"^the window .* or the lateness .* is no interval: .*\.$"):
        run(Windows(spark, Topics(bootstrap, (topic,)), options))


def test_options_that_do_not_fit_together() -> None:
    with pytest.raises(PipelineError, match="--schema belongs to values in json or csv or registry"):
        LakeOptions("out", "string", "n INT")
    with pytest.raises(PipelineError, match="none of binary"):
        LakeOptions("out", "xml")


def test_a_topic_that_is_not_there_is_named(bootstrap: str) -> None:
    with pytest.raises(PipelineError, match="there is no topic nowhere at"):
        Topics(bootstrap, ("nowhere",)).check()


def test_windows_agree_with_the_csv_and_count_what_is_late(
    spark: Any, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    make(bootstrap, topic)
    results = f"{topic}-delays"
    options = WindowsOptions(str(tmp_path / "windows"), to_topic=results)
    feed(bootstrap, topic, flights(FLIGHTS - 1))
    topics = Topics(bootstrap, (topic,))
    run(Windows(spark, topics, options), max_offsets=1500)
    feed(bootstrap, topic, itertools.islice(flights(FLIGHTS), FLIGHTS - 1, None))
    run(Windows(spark, topics, options))
    # Five days are in, and a batch more, since Spark calls late what was so before the last batch: day one is closed.
    feed(bootstrap, topic, flights(30))
    send(bootstrap, topic, [Sent(0, None, b"nonsense"), Sent(1, None, b"{}")])
    windows = Windows(spark, topics, options)
    run(windows)
    counted = windows.counted()
    assert (counted.read, counted.counted, counted.late, counted.unreadable) == (FLIGHTS + 32, FLIGHTS, 30, 2)
    rows = list(itertools.islice(flight_rows(), FLIGHTS))
    found = {
        (row["window_start"].strftime("%Y-%m-%d"), row["carrier"], row["origin"]): (
            row["flights"],
            row["cancelled"],
            row["dep_delay_sum"] or 0.0,
            row["arr_delay_sum"] or 0.0,
        )
        for row in read_windows(spark, options.out).collect()
    }
    assert found == expected_delays(rows)
    sent = _last_values(bootstrap, results)
    assert {(key.split("|")[0][:10], *key.split("|")[1:]): value["flights"] for key, value in sent.items()} == {
        key: value[0] for key, value in found.items()
    }
    text = render_windows(with_names(spark, windows.latest()), counted)
    assert "United Air Lines" in text and "Newark" in text and "<polyline" in text


def test_windows_of_flights_without_a_carrier_and_of_records_that_are_gone(
    spark: Any, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    make(bootstrap, topic, 1)
    flight = {**next(flight_rows()), "carrier": None}
    for _ in range(3):  # each is merged into the same row
        send(bootstrap, topic, [Sent(0, b"k", json.dumps(flight).encode())])
        windows = Windows(spark, Topics(bootstrap, (topic,)), WindowsOptions(str(tmp_path / "windows")))
        run(windows)
    assert windows.counted() == RecordCounts(3, 3, 0, 0)
    delete_records_before(bootstrap, topic, 0, 2)
    assert windows.counted() == RecordCounts(3, 3, 0, 0)


def _last_values(bootstrap: str, topic: str) -> dict[str, Any]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "last", "enable.partition.eof": True})
    partitions = Topics(bootstrap, (topic,)).partitions()[topic]
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    values: dict[str, Any] = {}
    ends = 0
    while ends < partitions:
        message = consumer.poll(30)
        assert message is not None, "no answer in 30 s"
        if message.error() is None:
            key, value = message.key(), message.value()
            assert key is not None and value is not None
            values[key.decode()] = json.loads(value)
        else:
            ends += 1
    consumer.close()
    return values


def merged_histories(count: int) -> list[dict[str, Any]]:
    """Random histories with every anomaly, side by side in one: each has topics, producers and processes of its own."""
    drawn: list[list[dict[str, Any]]] = []

    @settings(max_examples=count, database=None, phases=[Phase.generate])
    @seed(7)
    @given(histories.random_histories())
    def draw(history: list[dict[str, Any]]) -> None:
        drawn.append(history)

    draw()
    edge = (1 << BLOCK_BITS) - 3
    return [
        _far(_apart(line, number), edge if number % _FAR == 0 else 0)
        for number, history in enumerate(drawn)
        for line in history
    ]


def _apart(line: dict[str, Any], number: int) -> dict[str, Any]:
    line = {**line, "process": f"{line['process']}#{number}"}
    if "topic" in line:
        line["topic"] = f"h{number:03d}"
    if "producer" in line:
        line["producer"] += 2 * number
    if "records" in line:
        line["records"] = [[at, who + 2 * number if who >= 0 else who, n, key] for at, who, n, key in line["records"]]
    return line


def _far(line: dict[str, Any], by: int) -> dict[str, Any]:
    """The same with other numbers and offsets, so that they go over the edge of a block."""
    line = {**line, **{name: line[name] + by for name in ("number", "offset") if line.get(name) is not None}}
    if "records" in line:
        line["records"] = [[at + by, who, n + by if who >= 0 else n, key] for at, who, n, key in line["records"]]
    return line


def over_the_edge(producer: int) -> list[dict[str, Any]]:
    """Out of order over the edge of a block, and a consumer that passes over a whole block and a part."""
    edge = 1 << BLOCK_BITS
    place = {"topic": "edge", "partition": 0, "type": "ok", "start": 1, "end": 2}
    sent = {5: 5, 2 * edge + 2: 2 * edge - 1, 2 * edge - 2: 2 * edge + 1}
    sends = [
        {**place, "process": "e", "f": "send", "producer": producer, "number": number, "key": 0, "offset": offset}
        for number, offset in sent.items()
    ]
    records = {offset: [offset, producer, number, 0] for number, offset in sent.items()}
    return [
        *sends,
        *({**place, "process": "f", "f": "poll", "records": [one], "final": True} for one in records.values()),
        *({**place, "process": "c", "f": "poll", "records": [records[at]]} for at in (5, 2 * edge + 1)),
    ]


def write_history(path: Path, lines: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_the_audit_agrees_with_the_checker_on_every_anomaly(spark: Any, tmp_path: Path) -> None:
    lines = merged_histories(150)
    # A long one, with offsets of more than a byte; its last records are read before their sends.
    lines += [_apart(line, 150) for line in histories.clean(700)]
    lines += over_the_edge(1000)
    lines.append({"process": "nemesis", "f": "heal", "start": 1, "end": 2, "type": "fail", "error": "2 of 3"})
    lines.append({"process": "nemesis", "f": "node-end", "start": 1, "type": "info", "node": 2, "error": "it ended"})
    half = len(lines) // 2
    write_history(tmp_path / "a.jsonl", lines[:half])
    write_history(tmp_path / "b.jsonl", lines[half:])
    expected = check_lines(lines).verdict
    with History.of_paths(spark, [str(tmp_path)]) as history:
        verdict = Audit(history, 5, ProgressLog(quiet=True)).judge()
        page = render_audit(history, verdict)
    assert (verdict.word, verdict.totals) == (expected.word, expected.totals)
    judged = [kind for kind in RECORD_KINDS if kind != "realtime-order"]
    assert verdict.counts == {kind: expected.findings.counts[kind] for kind in judged}
    assert sum(verdict.counts.values()) + expected.findings.counts["realtime-order"] == expected.findings.total
    found = [kind for kind, count in verdict.counts.items() if count]
    assert len(found) >= 11, f"the histories are too tame: {found}"
    assert all(1 <= len(verdict.evidence[kind]) <= 5 for kind in found)
    assert "INVALID" in page and "Latency of acks" in page


@pytest.mark.parametrize(("faults", "word"), [('["kill"]', "UNKNOWN"), ("[]", "VALID")])
def test_the_audit_of_a_run_without_the_faults_that_were_chosen_is_unknown(
    spark: Any, tmp_path: Path, faults: str, word: str
) -> None:
    begun = {"process": "nemesis", "type": "info", "f": "history", "version": 1, "start": 0, "faults": faults}
    lines = [begun, *histories.clean(5)]
    write_history(tmp_path / "a.jsonl", lines)
    with History.of_paths(spark, [str(tmp_path)]) as history:
        verdict = Audit(history, 5, ProgressLog(quiet=True)).judge()
    assert verdict.word == check_lines(lines).verdict.word == word


def test_a_clean_history_is_valid_and_a_last_line_cut_short_is_left_out(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    write_history(path, histories.clean(50))
    with path.open("a") as file:
        file.write('{"process":"p0","type":"ok","f":"se')
    with History.of_paths(spark, [str(path)]) as history:
        verdict = Audit(history, 5, ProgressLog(quiet=True)).judge()
    assert (verdict.word, verdict.totals["acked"]) == ("VALID", 50)


@pytest.mark.parametrize(
    "line",
    ['{"process":"p","type":"ok","f":"send"}', '{"cut', '{"process":"p","type":"info","f":"history","version":2}'],
)
def test_a_line_that_is_not_in_the_format_is_named(spark: Any, tmp_path: Path, line: str) -> None:
    path = tmp_path / "h.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(PipelineError, match=r"h.jsonl: a line is not in the format"):
        History.of_paths(spark, [str(path)])


def test_no_history_is_named(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="no history in"):
        History.of_paths(spark, [str(tmp_path)])
    with pytest.raises(PipelineError, match="there is no file or directory"):
        History.of_paths(spark, [str(tmp_path / "x")])


@pytest.mark.parametrize("of", ["topic", "lake"])
def test_the_audit_reads_the_topic_too(spark: Any, bootstrap: str, topic: str, tmp_path: Path, of: str) -> None:
    """A record that was acked and is not in the topic, or its lake, is lost, though a history alone would not know."""
    from raftwerk.chaos.live.load.load_task import encode_value

    make(bootstrap, topic, 1)
    send(bootstrap, topic, [Sent(0, b"%d" % (n % 3), encode_value(0, n, n % 3, 60)) for n in range(20)])
    send(bootstrap, topic, [Sent(0, b"1", b"00000000:0:1:1:"), Sent(0, b"7", b"1.0"), Sent(0, b"k", b"of no run")])
    lines = [
        {"process": "producer-0", "type": "ok", "f": "send", "topic": topic, "partition": 0, "producer": 0, "number": n,
         "key": n % 3, "start": 10 + n, "offset": n if n < 20 else 18, "end": 100 + n}
        for n in range(21)
    ]  # fmt: skip
    lines.append({**lines[0], "process": "producer-1", "producer": 1, "number": 0, "key": 7, "offset": 21})
    write_history(tmp_path / "h.jsonl", lines)
    topics = Topics(bootstrap, (topic,))
    if of == "lake":
        run(Lake(spark, topics, LakeOptions(str(tmp_path / "lake"))))
        records = lake_records(spark, str(tmp_path / "lake"))
    else:
        records = topics.read(spark)
    with History.of_paths(spark, [str(tmp_path / "h.jsonl")], records) as history:
        verdict = Audit(history, 5, ProgressLog(quiet=True)).judge()
    assert {kind: count for kind, count in verdict.counts.items() if count} == {
        "lost": 1,
        "inconsistent-offset": 1,
        "corrupt": 2,
    }
    assert verdict.totals["reads"] == 23


def test_windows_without_a_flight_give_their_account(
    spark: Any, bootstrap: str, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(bootstrap, topic)
    windows = Windows(spark, Topics(bootstrap, (topic,), "raftwerk"), WindowsOptions(str(tmp_path / "windows")))
    page = tmp_path / "windows.html"
    windows.start(ReadSettings(), ProgressLog(quiet=True), Metrics("windows", None)).stop()  # before its first batch
    finish(windows, str(page), as_json=False)
    assert "0 flights counted, 0 late, 0 unreadable" in capsys.readouterr().out
    run(windows)
    finish(windows, str(page), as_json=False)
    assert "0 flights counted, 0 late, 0 unreadable" in capsys.readouterr().out
    send(bootstrap, topic, [Sent(0, b"k", b"no flight %d" % number) for number in range(4)])
    run(windows)
    with pytest.raises(PipelineError, match=r"none of the 4 records of .* is a flight"):
        finish(windows, str(page), as_json=False)
    assert "0 flights counted, 0 late, 4 unreadable" in capsys.readouterr().out
    assert "no flights yet" in page.read_text()


@pytest.mark.parametrize(
    ("job", "source"), [("lake", "raftwerk"), ("lake", "kafka"), ("windows", "raftwerk"), ("audit", "raftwerk")]
)
def test_a_poisonous_record_stops_each_job(
    spark: Any, cluster: TestCluster, bootstrap: str, topic: str, tmp_path: Path, job: str, source: str
) -> None:
    cluster.create_topic(topic, replicas=1)
    feed(bootstrap, topic, flights(20))
    spoil(cluster, topic)
    topics, out = Topics(bootstrap, (topic,), source), str(tmp_path / "out")

    def carry_out() -> None:
        if job == "lake":
            run(Lake(spark, topics, LakeOptions(out)))
        elif job == "windows":
            run(Windows(spark, topics, WindowsOptions(out, to_topic=f"{topic}-delays")))
        else:
            write_history(tmp_path / "h.jsonl", [])
            History.of_paths(spark, [str(tmp_path)], topics.read(spark))

    with pytest.raises(Exception) as raised:
        carry_out()
    said = str(explain(raised.value))
    assert re.search(
        rf"{topic}-0: the records from offset 0 on cannot be read: its CRC|record of the topic is damag", said
    )
    assert "raftwerk log verify" in said and "\n" not in said
    assert not list(Path(out).rglob("*.parquet"))
    if job == "windows":
        assert _last_values(bootstrap, f"{topic}-delays") == {}


@pytest.fixture(scope="module")
def other_cluster() -> Iterator[TestCluster]:
    with TestCluster.start(1, settings={"log.retention.ms": "-1"}) as running:
        yield running


def test_a_mirror_copies_each_record_once_and_moves_groups(
    spark: Any, bootstrap: str, topic: str, tmp_path: Path, other_cluster: TestCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first try dies after its records are sent and before that is written down; the second one repeats nothing."""
    make(bootstrap, topic, 3, **{"max.message.bytes": "54321"})  # the last partition stays empty
    sent = [Sent(n % 2, b"k", b"%d" % n, 1_700_000_000_000 + n, [("h", b"%d" % n)]) for n in range(200)]
    send(bootstrap, topic, sent[:120])
    target = other_cluster.bootstrap_servers
    topics, options = Topics(bootstrap, (topic,), "kafka"), MirrorOptions(target, str(tmp_path / "mirror"), "copy.")
    with monkeypatch.context() as patch:
        patch.setattr(CopiedRangesLog, "add", _dies)
        with pytest.raises(PipelineError, match="the lights went out"):
            run(Mirror(spark, topics, options))
    if goes_on_with(spark, "kafka") != "kafka":
        with pytest.raises(PipelineError, match="go on with --source raftwerk"):
            run(Mirror(spark, topics, options))
        topics = Topics(bootstrap, (topic,), "raftwerk")
    again = Mirror(spark, topics, options)
    run(again)
    assert again.copied.counts() == {"rows": 120, "rows_found": 120}
    _commit_offsets(bootstrap, "readers", topic, {0: 50, 1: 10, 2: 0})
    send(bootstrap, topic, sent[120:])
    mirror = Mirror(spark, topics, options)
    run(mirror)
    assert mirror.copied.counts() == {"rows": 200, "rows_found": 120}
    assert mirror.moved == 5, "three of the readers, and two of the job's own, over the first transactions' markers"
    assert mirror.translate_group_offsets(ProgressLog(quiet=True)) == 0, "they are there"
    assert mirror.moved == 5, "of the whole run"
    _commit_offsets(target, "readers", f"copy.{topic}", {0: 57})
    assert mirror.translate_group_offsets(ProgressLog(quiet=True)) == 0, "it has gone on there, and is not taken back"
    assert _configs(target, f"copy.{topic}", {})["max.message.bytes"] == "54321"
    copies = _copies(target, f"copy.{topic}")
    assert sorted(copies) == sorted((one.partition, one.value, one.timestamp_ms, one.headers) for one in sent)
    request = [ConsumerGroupTopicPartitions("readers")]
    admin = AdminClient({"bootstrap.servers": target})
    moved = admin.list_consumer_group_offsets(request)["readers"].result(30).topic_partitions
    assert {one.partition: one.offset for one in moved} == {0: 57, 1: 10, 2: 0}
    with pytest.raises(PipelineError, match="is ahead of what --state knows"):
        run(Mirror(spark, topics, MirrorOptions(target, str(tmp_path / "other"), "copy.")), max_offsets=50)


def _dies(*_: Any) -> None:
    raise PipelineError("the lights went out")


def _commit_offsets(bootstrap: str, group: str, topic: str, offsets: dict[int, int]) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(topic, p, at) for p, at in offsets.items()], asynchronous=False)
    consumer.close()


def _copies(bootstrap: str, topic: str) -> list[tuple[int | None, bytes | None, int, list[tuple[str, Any]]]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "all", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in (0, 1)])
    copies = []
    ends = 0
    while ends < 2:
        message = consumer.poll(30)
        assert message is not None, "no answer in 30 s"
        if message.error() is not None:
            ends += 1
            continue
        headers = [(name, value) for name, value in headers_of(message) if name != HEADER]
        copies.append((message.partition(), message.value(), message.timestamp()[1], headers))
    consumer.close()
    return copies


def test_a_mirror_of_a_poisonous_record_or_to_nowhere_copies_nothing(
    spark: Any, cluster: TestCluster, bootstrap: str, topic: str, tmp_path: Path, other_cluster: TestCluster
) -> None:
    cluster.create_topic(topic, replicas=1)
    send(bootstrap, topic, [Sent(0, b"k", b"v")] * 20)
    options = MirrorOptions("127.0.0.1:1", str(tmp_path / "nowhere"))
    with pytest.raises(PipelineError, match=r"^no broker answers: 127.0.0.1:1 .*from --target: start that"):
        run(Mirror(spark, Topics(bootstrap, (topic,)), options))
    spoil(cluster, topic)
    target = other_cluster.bootstrap_servers
    with pytest.raises(PipelineError, match=rf"^{topic}-0: the records from offset 0 on cannot be read: its CRC"):
        run(Mirror(spark, Topics(bootstrap, (topic,)), MirrorOptions(target, str(tmp_path / "m"))))
    assert last_copied(target, topic, 0) == (-1, -1)


def test_a_mirror_refuses_a_copy_that_others_wrote_to_though_nothing_is_to_be_copied(
    spark: Any, bootstrap: str, topic: str, tmp_path: Path, other_cluster: TestCluster
) -> None:
    make(bootstrap, topic, 2)
    send(bootstrap, topic, [Sent(0, b"k", b"v"), Sent(1, b"k", b"v")])
    target = other_cluster.bootstrap_servers
    topics, options = Topics(bootstrap, (topic,)), MirrorOptions(target, str(tmp_path / "m"))
    assert run(Mirror(spark, topics, options)).rows == 2
    assert run(Mirror(spark, topics, options)).rows == 0
    send(target, topic, [Sent(0, b"k", b"foreign")])
    send(bootstrap, topic, [Sent(1, b"k", b"more")])
    with pytest.raises(PipelineError, match=f"^{topic}-0 at .* holds records that no mirror wrote"):
        run(Mirror(spark, topics, options))


def test_a_mirror_onto_itself_or_onto_others_records_is_refused(
    spark: Any, bootstrap: str, topic: str, tmp_path: Path, other_cluster: TestCluster
) -> None:
    make(bootstrap, topic, 1)
    send(bootstrap, topic, [Sent(0, b"k", b"v")])
    for same in (bootstrap, bootstrap.replace("127.0.0.1", "localhost")):
        with pytest.raises(PipelineError, match="the same cluster"):
            run(Mirror(spark, Topics(bootstrap, (topic,), "kafka"), MirrorOptions(same, str(tmp_path / "m"))))
    target = other_cluster.bootstrap_servers
    make(target, topic, 1)
    send(target, topic, [Sent(0, b"k", b"foreign")])
    with pytest.raises(PipelineError, match="holds records that no mirror wrote"):
        run(Mirror(spark, Topics(bootstrap, (topic,), "kafka"), MirrorOptions(target, str(tmp_path / "m"))))
    make(target, f"p.{topic}", 2)
    with pytest.raises(PipelineError, match="has 2 partitions"):
        run(Mirror(spark, Topics(bootstrap, (topic,), "kafka"), MirrorOptions(target, str(tmp_path / "n"), "p.")))
