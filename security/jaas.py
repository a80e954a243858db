"""Values of `sasl.jaas.config`: `module.Class required option="value" ...;` (KIP-85)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""
    (?: \s | //[^\r\n]* | /\*.*?\*/ )*+
    (?: (?P<quote>["']) (?P<quoted> (?: \\. | (?!(?P=quote)) [^\\] )* ) (?P=quote)
      | (?P<word> [^\s=;"'] [^\s=;"]* )
      | (?P<sign> [=;] )
      | \Z
    )
    """,
    re.DOTALL | re.VERBOSE,
)
"""Blanks and comments, and a word or sign behind them, or the end."""
_ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_CONTROLS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_FLAGS = ("required", "requisite", "sufficient", "optional")


@dataclass(frozen=True, slots=True)
class LoginModule:
    """One login module and its options."""

    class_name: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"LoginModule({self.class_name}, {', '.join(sorted(self.options))})"  # no values: they are secrets


def parse_jaas(text: str) -> LoginModule:
    """Parse the configuration of one login module. Raises ValueError, whose text has no value of an option."""
    tokens = _tokens(text)
    if len(tokens) < 3 or tokens[-1] != (";", True):
        raise ValueError("a login module is: class, required, options, and a semicolon at the end")
    class_name, flag = tokens[0][0], tokens[1][0]
    if flag.lower() not in _FLAGS:
        raise ValueError(f"behind the class {class_name} stands one of {', '.join(_FLAGS)}")
    options: dict[str, str] = {}
    rest = tokens[2:-1]
    while rest:
        if len(rest) < 3 or rest[0][1] or rest[1] != ("=", True) or rest[2][1]:
            raise ValueError(f"the option {rest[0][0]} of {class_name} is not followed by =value")
        options[rest[0][0]] = rest[2][0]
        rest = rest[3:]
    return LoginModule(class_name, options)


def _tokens(text: str) -> list[tuple[str, bool]]:
    """The words of the text, and of each whether it is a sign: an equals sign or semicolon outside of quotes.

    Quotes, escapes and comments are those of Java's StreamTokenizer, which reads these texts for Kafka.
    """
    found: list[tuple[str, bool]] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError("a quoted value has no end")
        if match["quote"]:
            found.append((_ESCAPE.sub(_character, match["quoted"]), False))
        elif match["word"]:
            found.append((match["word"], False))
        elif match["sign"]:
            found.append((match["sign"], True))
        position = match.end()
    return found


def _character(escape: re.Match[str]) -> str:
    code = escape[1]
    return chr(int(code, 8)) if "0" <= code[0] <= "7" else _CONTROLS.get(code, code)
