"""Tables on a terminal."""

from __future__ import annotations

from uuid import UUID

import click
import pytest

from raftwerk.cli.administration import quorum
from raftwerk.cli.local_cluster.live_table import table_lines
from raftwerk.cli.local_cluster.status import cluster_line
from raftwerk.cluster.client.quorum_client import QuorumReplica, QuorumView
from raftwerk.cluster.command_line.text_table import Cell, boxed, folded, visible


def test_a_table_with_and_without_a_header() -> None:
    rows = [[Cell("sent"), Cell("1,000")], [Cell("lost"), Cell("0", "red")]]
    assert [click.unstyle(line) for line in boxed(rows, header=("what", "n"), right=[1])] == [
        "┌──────┬───────┐",
        "│ what │     n │",
        "├──────┼───────┤",
        "│ sent │ 1,000 │",
        "│ lost │     0 │",
        "└──────┴───────┘",
    ]
    assert boxed([[Cell("a")]]) == ["┌───┐", "│ a │", "└───┘"]
    assert "\x1b[31m" in boxed(rows)[2]


def test_columns_give_way_where_the_terminal_is_too_narrow() -> None:
    row = [Cell("1"), Cell("broker,controller"), Cell("40 MB"), Cell("0"), Cell("up")]
    header = ("node", "roles", "memory", "leads", "state")

    def titles(width: int) -> list[str]:
        lines = boxed([row], header=header, right=[2, 3], width=width, give_way=[1, 2])
        assert all(len(line) <= width for line in lines)
        return lines[1].replace("│", " ").split()

    assert titles(60) == ["node", "roles", "memory", "leads", "state"]
    assert titles(40) == ["node", "memory", "leads", "state"]
    assert titles(24) == ["node", "leads", "state"]
    assert boxed([row], header=header, right=[2, 3], width=40, give_way=[1, 2])[
        3
    ] == "│    1 │  40 MB │     0 │ up    │".replace("│    1 │", "│ 1    │")


def test_the_last_column_is_cut_where_the_terminal_is_too_narrow() -> None:
    rows = [[Cell("1"), Cell("was killed by signal 9")]]
    lines = boxed(rows, width=20)
    assert {len(line) for line in lines} == {20}
    assert "was killed b…" in lines[1] or "was killed …" in lines[1]
    assert {len(line) for line in boxed(rows, width=5)} == {16}


def test_a_cluster_id_is_never_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    servers, cluster_id = ",".join(["127.0.0.1:19392"] * 3), "lHkZX9DcSy2fRC1LfukUiQ"
    one_line = f"bootstrap.servers={servers}  cluster id {cluster_id}"
    assert cluster_line(servers, cluster_id) == one_line, "where standard output is no terminal"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    assert cluster_line(servers, cluster_id) == f"bootstrap.servers={servers}\ncluster id {cluster_id}"
    monkeypatch.setenv("COLUMNS", "120")
    assert cluster_line(servers, cluster_id) == one_line


def test_an_observer_that_has_not_fetched_for_a_second_does_not_follow() -> None:
    def replica(node_id: int, last_fetch_ms: int) -> QuorumReplica:
        return QuorumReplica(node_id, UUID(int=node_id), node_id < 3, 10, last_fetch_ms, last_fetch_ms)

    replicas = (replica(1, 100_000), replica(2, 98_500), replica(4, 98_500), replica(5, 99_600))
    view = QuorumView(1, 7, 10, replicas, {})
    assert [quorum._state(one, view, {}) for one in replicas] == ["leader", "follows", "silent 2 s", "follows"]


def test_control_characters_of_a_client_s_names_are_shown_and_not_obeyed() -> None:
    assert visible("a\x1b[2Jb\nc\x9b") == "a\\x1b[2Jb\\nc\\x9b"
    assert visible("Größe 1") == "Größe 1"


def test_the_lines_of_a_text_are_folded_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "Error: nodes 2, 3 are not ready\nThe quorum has lost its majority"
    assert folded(text) == text, "where standard output is no terminal"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "24")
    assert folded(text, 2).split("\n") == [
        "Error: nodes 2, 3 are",
        "  not ready",
        "The quorum has lost its",
        "  majority",
    ]


def test_a_way_out_that_does_not_fit_into_the_live_table_stands_below_it() -> None:
    way_out = "killed by signal 9; raftwerk start 2 -d '/tmp/my project/raftwerk-data' starts it again"
    row = [Cell(one) for one in ("2", "broker,controller", "9093", "-", "-", "-", "0", "0/3", way_out)]
    narrow, wide = table_lines([row], 80), table_lines([row], 200)
    assert all(len(line) <= 80 for line in narrow) and not any(way_out in line for line in narrow)
    assert " ".join(narrow[-2:]) == f"node 2: {way_out}"
    assert sum(way_out in line for line in wide) == 1 and wide[-1].startswith("└")
