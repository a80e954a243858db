"""Latencies, gaps between acks and the faults that they are blamed on; and the report with them."""

from __future__ import annotations

from html.parser import HTMLParser
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st
from support.chaos.histories import SECOND, ack, clean, final, header

from raftwerk.chaos.live.checker.checker import check_lines
from raftwerk.chaos.live.checker.time_series import TimeSeries, bucket_ms, latency_bucket, quantile_ms
from raftwerk.chaos.live.nemesis.faults import FAULTS
from raftwerk.chaos.live.report.report_page import render_report
from raftwerk.chaos.live.report.timeline import draw_timeline, fault_color, node_color
from raftwerk.cli.fault_tests.chaos import run


@given(st.integers(1000, 10**14))
def test_buckets_are_a_quarter_wide(ns: int) -> None:
    upper = bucket_ms(latency_bucket(ns))
    assert ns // 1000 <= upper * 1000 <= ns / 1000 * 1.25 + 1


@given(st.lists(st.integers(1, 60_000), min_size=1), st.floats(0.01, 1))
def test_quantiles_are_those_of_the_sorted_list(ms: list[int], q: float) -> None:
    histogram: dict[int, int] = {}
    for one in ms:
        bucket = latency_bucket(one * 10**6)
        histogram[bucket] = histogram.get(bucket, 0) + 1
    rank = next(n for n in range(1, len(ms) + 1) if n >= q * len(ms))
    exact = sorted(ms)[rank - 1]
    got = quantile_ms(histogram, q)
    assert got is not None and exact <= got <= exact * 1.2500001


def test_no_latency_of_nothing() -> None:
    assert quantile_ms({}, 0.5) is None


def fault(series: TimeSeries, number: int, name: str, start_s: float, end_s: float | None) -> None:
    line = {"fault": name, "id": number, "target": "node 1", "start": int(start_s * SECOND)}
    series.fault({**line, "type": "invoke"})
    if end_s is not None:
        series.fault({**line, "type": "info", "end": int(end_s * SECOND)})


def acked(series: TimeSeries, start_s: float, end_s: float, *, timed: bool = True) -> None:
    series.acked(0, "t-0", int(start_s * SECOND), int(end_s * SECOND), timed=timed)


def test_a_gap_is_from_one_ack_to_the_next_while_something_waits() -> None:
    series = TimeSeries()
    for start_s, end_s in ((1.0, 1.1), (1.05, 4.0), (1.2, 4.1), (9.0, 9.1)):
        acked(series, start_s, end_s)
    (gap,) = series.gaps
    assert (gap.start_ns, gap.end_ns) == (int(1.1 * SECOND), 4 * SECOND)


def test_the_first_ack_of_a_client_without_starts_is_no_gap() -> None:
    series = TimeSeries()
    acked(series, 0.0, 7.0, timed=False)
    assert series.gaps == []
    acked(series, 0.0, 8.0, timed=False)
    assert [gap.seconds for gap in series.gaps] == [1.0]


def test_gaps_are_blamed_on_the_latest_fault_that_touches_them() -> None:
    series = TimeSeries()
    fault(series, 1, "pause", 1, 3)
    fault(series, 2, "kill", 5, 6)
    for start_s, end_s in ((1.1, 3.1), (5.1, 5.9), (8.0, 8.6), (40.0, 45.0)):
        acked(series, start_s, end_s)
    worst = {kind: round(gap.seconds, 2) for kind, gap in series.longest_gaps().items()}
    assert worst == {"pause": 2.0, "kill": 0.8, "none": 5.0}


class Tags(HTMLParser):
    """Whether every tag that is opened is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in ("meta", "rect", "line", "path"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("rect", "line", "path"):
            assert self.open.pop() == tag


def test_the_report_shows_the_evidence_and_needs_nothing_else() -> None:
    nemesis = {"process": "nemesis", "f": "fault", "fault": "kill", "id": 1, "target": "<node 1>", "start": SECOND}
    seen = {"process": "o", "type": "info", "f": "cluster", "leaders": [1, -1], "isr": [[1, 2], [2]], "controller": 1}
    lines = [*clean(), {**nemesis, "type": "invoke"}, {**nemesis, "type": "info", "end": 2 * SECOND}]
    lines += [{**seen, "start": 0}, {**seen, "start": SECOND, "leaders": [2, 2]}, ack(9, 9), final((10, 4))]
    page = render_report(check_lines(lines), "a <name>", {"power": "needs root"})
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    for text in ("INVALID", "record 0:9 acked at", "a &lt;name&gt;", "needs root", "partition 1", "&lt;node 1&gt;"):
        assert text in page
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "") and "https://" not in page


FACTS = {"raftwerk": "9.8.7", "seed": 4711, "faults": '["kill", "eio"]', "nodes": 3, "topic": "t", "minutes": 0.5}
LOAD = {"partitions": 6, "producers": 2, "consumers": 1, "rate": 50, "acks": "all", "interval_s": 6.0, "hold_s": 4.0}


def test_the_report_says_what_was_run_and_lists_every_fault() -> None:
    begun = {"process": "nemesis", "type": "info", "f": "history", "version": 1, "start": SECOND}
    lines = [*clean(), {**begun, "wall_ms": 1769860800000, **FACTS, **LOAD}]
    for number, (fault, target) in enumerate([("kill", "node 1"), ("eio", "node 3")], 1):
        start = number * 10 * SECOND
        span = {"process": "nemesis", "f": "fault", "fault": fault, "id": number, "target": target, "start": start}
        lines += [{**span, "type": "invoke"}, {**span, "type": "info", "end": start + 2 * SECOND}]
    page = render_report(check_lines(lines), "run", {})
    for text in ("9.8.7", "4711", "kill, eio", "2026-01-31 12:00:00 UTC", "12:00:09 UTC", "node 3", "Every fault: 2"):
        assert text in page, text
    again = (
        "raftwerk chaos run --nemesis kill,eio --seed 4711 --minutes 0.5 -n 3 --partitions 6 --producers 2"
        " --consumers 1 --rate 50 --acks all --interval 6.0 --hold 4.0"
    )
    assert again in page
    lines[-5] |= {"cluster": " --name orders"}
    elsewhere = again.replace(" -n 3", "").replace("--hold 4.0", "--hold 4.0 --no-transactions --name orders")
    assert elsewhere in render_report(check_lines(lines), "run", {})
    assert "never injected" not in page
    assert "never injected" in render_report(check_lines(lines[:-2]), "run", {})
    assert "never injected" not in render_report(check_lines(lines[:-2]), "run", {"eio": "needs root"})
    assert run.make_context("run", again.split()[3:]) is not None, "the command has these options"


def test_no_fault_has_the_color_of_a_node_or_of_another_fault() -> None:
    families = {name.partition("-")[0] for name in FAULTS}
    colors = [fault_color(family) for family in sorted(families)]
    assert len(set(colors)) == len(families)
    assert not set(colors) & {node_color(node_id) for node_id in range(-1, 20)}


def test_the_picture_is_well_formed_even_of_nothing() -> None:
    for lines in ([], [header(0)], clean(3)):
        ElementTree.fromstring(draw_timeline(check_lines(lines).series))
