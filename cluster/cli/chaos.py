"""`raftwerk chaos`: a thin door to code that stands above this room."""

from __future__ import annotations

import importlib

import click

chaos: click.Command = importlib.import_module("raftwerk.chaos.nemesis_main").chaos
