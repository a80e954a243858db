"""`raftwerk logs`: the logs of the nodes of a local cluster, each line with its node's number."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import deque
from collections.abc import Iterable
from typing import IO

import click

from ...cluster.local.layout import ClusterPlan, NodePlan
from ...runtime.log_lines import fields_of
from ..options import Command, directory_option, is_reader_gone, json_option
from .nodes import find_node, find_plan, nodes_argument

_POLL_S = 0.1
_COLOURS = ("cyan", "yellow", "green", "magenta", "blue", "red")


@click.command(cls=Command)
@nodes_argument(required=False)
@click.option("-f", "--follow", is_flag=True, help="Follow the logs until Ctrl-C.")
@click.option("-n", "--lines", type=click.IntRange(0), default=10, show_default=True, help="Last lines of each node.")
@json_option
@directory_option
def logs(node_ids: tuple[int, ...], follow: bool, lines: int, as_json: bool, directory: str) -> None:
    """Show the logs of the nodes of a local cluster. For files of records see `raftwerk log`.

    \b
    Examples:
      raftwerk logs -f
      raftwerk logs 2 -n 100
      raftwerk logs -f -n 0 | grep state-change
      raftwerk logs -n 1000 --json | jq 'select(.level != "INFO")'
    """
    plan = find_plan(directory)
    nodes = [find_node(directory, one) for one in node_ids] or list(plan.nodes)
    stream = LogStream(nodes, lines, as_json=as_json)
    try:
        stream.show()
        while follow and not is_reader_gone():
            time.sleep(_POLL_S)
            stream.show()
    except KeyboardInterrupt:
        raise click.exceptions.Exit(130) from None


class LogStream:
    """Follows the logs of nodes, beginning with their last lines."""

    def __init__(self, nodes: Iterable[NodePlan], lines: int = 0, *, as_json: bool = False) -> None:
        self._nodes = list(nodes)
        self._as_json = as_json
        self._files: dict[int, IO[bytes]] = {}
        self._rest: dict[int, bytes] = {}
        self._first: dict[int, deque[bytes]] = {}
        for node in self._nodes:
            if os.path.exists(node.log_file):
                file = self._files[node.node_id] = open(node.log_file, "rb")  # noqa: SIM115
                self._first[node.node_id] = deque(file, maxlen=lines)
        self._width = max((len(str(node.node_id)) for node in self._nodes), default=1)

    @classmethod
    def of(cls, plan: ClusterPlan) -> LogStream:
        """The logs of all nodes of a cluster, from now on."""
        return cls(plan.nodes)

    def show(self) -> None:
        """Print the lines that are new since the last call."""
        for index, node in enumerate(self._nodes):
            for line in self._new_lines(node):
                text = line.decode(errors="replace")
                if self._as_json:
                    click.echo(json.dumps({"node": node.node_id} | fields_of(text), ensure_ascii=False))
                    continue
                head = click.style(f"n{node.node_id:<{self._width}} |", fg=_COLOURS[index % len(_COLOURS)])
                click.echo(f"{head} {text}")
        sys.stdout.flush()

    def _new_lines(self, node: NodePlan) -> list[bytes]:
        file = self._files.get(node.node_id)
        if file is None:
            if not os.path.exists(node.log_file):
                return []
            file = self._files[node.node_id] = open(node.log_file, "rb")  # noqa: SIM115
        data = b"".join(self._first.pop(node.node_id, ())) + self._rest.get(node.node_id, b"") + file.read()
        *lines, self._rest[node.node_id] = data.split(b"\n")
        return lines
