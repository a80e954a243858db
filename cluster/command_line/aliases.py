"""Options that have more names than their help shows, such as those of Kafka's own tools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click


class Option(click.Option):
    """An option with `aliases`, which are accepted and not shown."""

    def __init__(self, *args: Any, aliases: Sequence[str] = (), **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.aliases = tuple(aliases)

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Called by click: the parser takes the aliases too."""
        shown = self.opts
        self.opts = [*shown, *self.aliases]
        try:
            super().add_to_parser(parser, ctx)
        finally:
            self.opts = shown
