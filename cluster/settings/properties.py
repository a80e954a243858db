"""Java's `.properties` syntax, and the `KAFKA_*` environment variables of the apache/kafka container image.

Source: the documentation of `java.util.Properties.load`, and of the image's `KAFKA_` mapping (KIP-975): the prefix
goes, letters become small, `_` becomes `.`, `__` becomes `_`, `___` becomes `-`.

Every node parses its server.properties. The library `javaproperties` would cost it 1.5 MiB of memory and 9 ms of CPU,
since it imports `urllib` and `xml`. So the tests compare this parser with the library instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANKS = " \t\f"

# Variables of the image that are no configurations of the broker.
_NOT_CONFIGURATIONS = frozenset(
    {
        "KAFKA_VERSION",
        "KAFKA_HOME",
        "KAFKA_LIBS",
        "KAFKA_OPTS",
        "KAFKA_DEBUG",
        "KAFKA_HEAP_OPTS",
        "KAFKA_LOG4J_OPTS",
        "KAFKA_JMX_OPTS",
        "KAFKA_JMX_PORT",
        "KAFKA_JMX_HOSTNAME",
        "KAFKA_JVM_PERFORMANCE_OPTS",
        "KAFKA_GC_LOG_OPTS",
        "KAFKA_LOG4J_ROOT_LOGLEVEL",
        "KAFKA_LOG4J_LOGGERS",
        "KAFKA_TOOLS_LOG4J_LOGLEVEL",
    }
)


def parse_properties(text: str) -> dict[str, str]:
    """Keys and values in the order of the file; a key that comes twice has its last value, as in Java.

    Raises ValueError for a broken \\u escape, which names the line.
    """
    result: dict[str, str] = {}
    for number, line in _logical_lines(text):
        key, value = _split(line)
        try:
            result[_unescape(key)] = _unescape(value)
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
    return result


def decode_properties(data: bytes) -> str:
    """The text of a file of properties: UTF-8, or else Latin-1, as which Java reads them.

    Raises ValueError for what is no text.
    """
    if b"\0" in data:
        raise ValueError("it is not a text file")
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def format_properties(values: Mapping[str, str]) -> str:
    """The text that `parse_properties` reads back."""

    def escape(text: str, more: str) -> str:
        text = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
        text = text.replace("\t", "\\t").replace("\f", "\\f")
        for character in more:
            text = text.replace(character, "\\" + character)
        return "\\" + text if text.startswith(" ") else text

    return "".join(f"{escape(key, '=:# !')}={escape(value, '')}\n" for key, value in values.items())


def properties_from_env(environ: Mapping[str, str]) -> dict[str, str]:
    """The configurations in `KAFKA_*` variables, sorted by variable: `KAFKA_NODE_ID=1` is `node.id=1`."""
    result: dict[str, str] = {}
    for name in sorted(environ):
        if name.startswith("KAFKA_") and name not in _NOT_CONFIGURATIONS:
            result[_env_key(name.removeprefix("KAFKA_"))] = environ[name]
    return result


def _env_key(name: str) -> str:
    key = name.lower().replace("___", "-").replace("__", "\0").replace("_", ".")
    return key.replace("\0", "_")


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines that say something, with those that continue them, and the number of the last of these."""
    pending = ""
    continued = False
    number = 0
    for number, natural in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        line = natural.lstrip(_BLANKS)
        if not continued and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        continued = backslashes % 2 == 1
        pending += line[:-1] if continued else line
        if not continued:
            yield number, pending
            pending = ""
    if pending:
        yield number, pending


def _split(line: str) -> tuple[str, str]:
    position = 0
    while position < len(line):
        character = line[position]
        if character == "\\":
            position += 2
            continue
        if character in "=:" or character in _BLANKS:
            break
        position += 1
    key, rest = line[:position], line[position:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return key, rest


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        if character != "\\" or position + 1 == len(text):
            out.append(character)
            position += 1
            continue
        escaped = text[position + 1]
        if escaped == "u":
            digits = text[position + 2 : position + 6]
            if not re.fullmatch("[0-9A-Fa-f]{4}", digits):
                raise ValueError(f"\\u{digits} is not a Unicode escape: four hexadecimal digits must follow \\u")
            out.append(chr(int(digits, 16)))
            position += 6
            continue
        out.append(_ESCAPES.get(escaped, escaped))
        position += 2
    return "".join(out)
