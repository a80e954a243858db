"""One style for all commands: aliases with the names of Kafka's own tools, suggestions for mistyped names, help pages.

An alias is accepted and not shown. A help page shows the command's own options first, then those that name the cluster,
then tables that explain names, such as the faults of a chaos run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click
from click.core import ParameterSource

_LISTED_NAMES = 12
_QUOTES = "'\""
WHICH_CLUSTER = "Which cluster"
Rows = Sequence[tuple[str, str]]
_IN_RANGE = re.compile(r"(?<=[\[ =<])x(?=[<>\]])")
"""What click calls a number in the range that a help text ends with, such as `[0<=x<=9]`."""


class WrongConfiguration(click.ClickException):
    """What the command line, the environment or a file names is wrong: one sentence, and exit code 2."""

    exit_code = 2


class Option(click.Option):
    """An option with `aliases`, which are accepted and not shown, and perhaps in a `section` of the help of its own."""

    def __init__(self, *args: Any, aliases: Sequence[str] = (), section: str | None = None, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.aliases = tuple(aliases)
        self.section = section

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Called by click: the parser takes the aliases too."""
        shown = self.opts
        self.opts = [*shown, *self.aliases]
        try:
            super().add_to_parser(parser, ctx)
        finally:
            self.opts = shown


class Argument(click.Argument):
    """An argument that may also be given as an option, by one of `names`: `--topic flights` for `flights`."""

    def __init__(self, *args: Any, names: Sequence[str], **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.names = tuple(names)
        self._dest = f"{self.name}_by_name"

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Called by click: the parser takes the option too."""
        action = "append" if self.nargs == -1 else "store"
        twin = click.Option([*self.names, self._dest])
        parser.add_option(obj=twin, opts=list(self.names), dest=self._dest, action=action)
        super().add_to_parser(parser, ctx)

    def consume_value(self, ctx: click.Context, opts: Mapping[str, Any]) -> tuple[Any, ParameterSource]:
        """Called by click: the value of the argument or of the option."""
        placed, named = (opts.get(key) for key in (self.name or "", self._dest))
        if not isinstance(named, str | list):
            return super().consume_value(ctx, opts)
        if isinstance(named, list):
            return (*(placed if isinstance(placed, tuple) else ()), *named), ParameterSource.COMMANDLINE
        if isinstance(placed, str):
            name = (self.metavar or self.name or "").upper()
            raise click.UsageError(f"{name} is given twice, as {placed!r} and as {named!r}.", ctx)
        return named, ParameterSource.COMMANDLINE


def topic_argument(name: str = "topic", **attributes: Any) -> Callable[[click.decorators.FC], click.decorators.FC]:
    """The argument TOPIC, which may be given as `-t` or `--topic` too."""
    return click.argument(name, cls=Argument, names=("-t", "--topic"), **attributes)


def group_argument(name: str = "group", **attributes: Any) -> Callable[[click.decorators.FC], click.decorators.FC]:
    """The argument GROUP, which may be given as `-g` or `--group` too."""
    return click.argument(name, cls=Argument, names=("-g", "--group"), **attributes)


def json_option(function: click.decorators.FC) -> click.decorators.FC:
    """Add `--json`, for scripts."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, one object in each line.")(function)


class Command(click.Command):
    """A command whose help page may end with `tables`, each a title and a function that gives its rows.

    `hints` are options of other tools, and what there is here instead. Wrong values are told in plain words.
    """

    def __init__(
        self,
        *args: Any,
        tables: Mapping[str, Callable[[], Rows]] | None = None,
        hints: Mapping[str, str] | None = None,
        **attributes: Any,
    ) -> None:
        super().__init__(*args, **attributes)
        self.context_settings.setdefault("help_option_names", ["-h", "--help"])  # also when it runs by itself
        self.tables = dict(tables or {})
        self.hints = dict(hints or {})
        _show_numbers_as_n(self.params)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Called by click: parse, and word what is wrong."""
        try:
            left = super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.option_name not in self.hints:
                raise _shown_ones_only(error, self.get_params(ctx)) from None
            ctx.fail(f"There is no option {error.option_name!r}: {self.hints[error.option_name]}")
        except click.BadParameter as error:
            if error.param is None or isinstance(error, click.MissingParameter):
                raise
            text = _worded(error.message, error.param.type, ctx.command_path)
            raise click.BadParameter(text, error.ctx, error.param, error.param_hint) from None
        except click.UsageError as error:
            names_cluster = any(one.name == "cluster_name" for one in self.params)
            if not names_cluster or any(isinstance(one, click.Argument) for one in self.params):
                raise
            raise click.UsageError(f"{error.message}: --name NAME names a cluster.", ctx) from None
        for one in self.params:
            for number in _numbers(ctx.params.get(one.name or "")):
                if not -(2**63) <= number < 2**63:  # nan is not in between, either
                    raise click.BadParameter(f"{number} does not fit in 64 bits.", ctx, one)
        return left

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options in sections, then the tables."""
        _format_sections(self, ctx, formatter)
        for title, rows in self.tables.items():
            with formatter.section(title):
                formatter.write_dl(list(rows()))


class Group(click.Group):
    """A group of commands with `aliases`, other names by the names they stand for. A mistyped name gets suggestions.

    `hints` are names that people may try, and what there is here instead.
    """

    command_class = Command
    group_class = type

    def __init__(
        self,
        *args: Any,
        aliases: Mapping[str, str] | None = None,
        hints: Mapping[str, str] | None = None,
        **attributes: Any,
    ) -> None:
        super().__init__(*args, **attributes)
        self.context_settings.setdefault("help_option_names", ["-h", "--help"])
        self.aliases = dict(aliases or {})
        self.hints = dict(hints or {})
        _show_numbers_as_n(self.params)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name or alias."""
        return super().get_command(ctx, self.aliases.get(cmd_name, cmd_name))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; a usage error that suggests similar names when there is none."""
        if self.get_command(ctx, args[0]) is None and not ctx.resilient_parsing:
            hint = f" {self.hints[args[0]]}" if args[0] in self.hints else self._suggestion(ctx, args[0])
            ctx.fail(f"There is no command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the group's options. Tools of Kafka have options where we have commands, such as `--list`."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            name = error.option_name.lstrip("-")
            if self.get_command(ctx, name) is not None:
                ctx.fail(f"There is no option {error.option_name!r}, but a command: {ctx.command_path} {name} --help")
            error = _shown_ones_only(error, self.get_params(ctx))
            hint = f"Options of a command stand behind it: {ctx.command_path} COMMAND {error.option_name}"
            ctx.fail(f"{error.format_message()} {hint}")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options in sections, then the commands."""
        _format_sections(self, ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands with their first sentences, whole."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, one.get_short_help_str(300)) for name, one in found if one is not None and not one.hidden]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def _suggestion(self, ctx: click.Context, wrong: str) -> str:
        known = {name: name for name in self.list_commands(ctx)} | self.aliases
        return suggestion(wrong, known) or f" {ctx.command_path} --help lists them."


def _shown_ones_only(error: click.NoSuchOption, parameters: Sequence[click.Parameter]) -> click.NoSuchOption:
    """The error with suggestions that the help shows: for an alias the option that it stands for."""
    shown: dict[str, str] = {}
    for one in parameters:
        if isinstance(one, click.Option) and not one.hidden:
            shown |= {name: name for name in (*one.opts, *one.secondary_opts) if name.startswith("--")}
            shown |= dict.fromkeys(getattr(one, "aliases", ()), max(one.opts, key=len))
    told = f"No such option {error.option_name!r}.{suggestion(error.option_name, shown)}"
    return click.NoSuchOption(error.option_name, told, ctx=error.ctx)


def suggestion(wrong: str, known: Mapping[str, str]) -> str:
    """A question like ` Did you mean network?`; empty if nothing is similar. `known` are names with their meanings."""
    import difflib  # here, since it is seldom needed

    close = difflib.get_close_matches(wrong, known, n=3, cutoff=0.7)
    names = list(dict.fromkeys(known[name] for name in close))
    return f" Did you mean {' or '.join(names)}?" if names else ""


def _worded(message: str, expected: click.ParamType[Any], command_path: str) -> str:
    """What is wrong with a number or a name. Click's own words are those of its classes: `integer range`, `x>=1`."""
    if isinstance(expected, click.types.IntParamType | click.types.FloatParamType):
        return f"{message.rpartition(' is not ')[0]} is not {_number(expected)}."
    if isinstance(expected, click.Choice) and " is not one of " in message:
        wrong = message.rpartition(" is not one of ")[0]
        known = {str(name): str(name) for name in expected.choices}
        listed = (
            f"{', '.join(map(repr, known))}."
            if len(known) <= _LISTED_NAMES
            else f"those that {command_path} --help lists."
        )
        return f"{wrong} is not one of {listed}{suggestion(wrong.strip(_QUOTES), known)}"
    return message


def _numbers(value: object) -> list[int | float]:
    """The numbers in the value of a parameter, which is one or several."""
    values = value if isinstance(value, tuple) else (value,)
    return [one for one in values if isinstance(one, int | float)]


def _number(expected: click.ParamType[Any]) -> str:
    """The numbers that a type takes: `a whole number of 1 or more`."""
    noun = "a whole number" if isinstance(expected, click.types.IntParamType) else "a number"
    if not isinstance(expected, click.IntRange | click.FloatRange) or expected.min is None:
        return noun
    if expected.max is not None:
        return f"{noun} from {expected.min:g} to {expected.max:g}"
    return f"{noun} above {expected.min:g}" if expected.min_open else f"{noun} of {expected.min:g} or more"


def _format_sections(command: click.Command, ctx: click.Context, formatter: click.HelpFormatter) -> None:
    sections: dict[str, list[tuple[str, str]]] = {"Options": []}
    for parameter in (one for one in command.get_params(ctx) if isinstance(one, click.Option)):
        row = parameter.get_help_record(ctx)
        if row is not None:
            section = getattr(parameter, "section", None) or "Options"
            sections.setdefault(section, []).append((row[0], _IN_RANGE.sub("N", row[1])))
    for title, rows in sections.items():
        if rows:
            with formatter.section(title):
                formatter.write_dl(rows)


def _show_numbers_as_n(parameters: Sequence[click.Parameter]) -> None:
    """Numbers are N in help pages; click would show their type."""
    for one in parameters:
        is_number = isinstance(one.type, click.types.IntParamType | click.types.FloatParamType)
        if is_number and one.metavar is None and isinstance(one, click.Option) and not (one.is_flag or one.count):
            one.metavar = "N"
