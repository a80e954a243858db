"""`raftwerk completion`: the script with which a shell completes our commands."""

from __future__ import annotations

import click

from .options import Command


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that lets SHELL complete raftwerk's commands and options.

    \b
    Examples:
      raftwerk completion bash > ~/.local/share/bash-completion/completions/raftwerk
      raftwerk completion zsh > "${fpath[1]}/_raftwerk"
      raftwerk completion fish > ~/.config/fish/completions/raftwerk.fish
    """
    from click.shell_completion import get_completion_class

    from .main import cli

    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"no completion for {shell}")
    click.echo(found(cli, {}, "raftwerk", "_RAFTWERK_COMPLETE").source())
