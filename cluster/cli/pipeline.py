"""`raftwerk pipeline`: a thin door to the room that stands above this one."""

from __future__ import annotations

import importlib

import click

pipeline: click.Command = importlib.import_module("raftwerk.pipeline.cli").pipeline
