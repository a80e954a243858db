"""Java's properties syntax and the image's KAFKA_* mapping."""

from __future__ import annotations

from pathlib import Path

import javaproperties
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftwerk.cluster.local.secured import properties_in
from raftwerk.cluster.settings.properties import (
    decode_properties,
    format_properties,
    parse_properties,
    properties_from_env,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("a = b c ", {"a": "b c "}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("# no\n! nor this\n\n   \na=1", {"a": "1"}),
        ("  a=1", {"a": "1"}),
        ("a=1\\\n   2", {"a": "12"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\\n#2", {"a": "1#2"}),
        ("a\\=b=c", {"a=b": "c"}),
        ("a=\\u0041\\t.", {"a": "A\t."}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=1\na=2", {"a": "2"}),
        ("listeners=PLAINTEXT://:9092,X://h:1", {"listeners": "PLAINTEXT://:9092,X://h:1"}),
        ("a==b", {"a": "=b"}),
    ],
)
def test_syntax(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


def test_files_are_utf_8_or_as_java_reads_them(tmp_path: Path) -> None:
    for encoding in ("utf-8", "latin-1"):
        assert decode_properties("# für alle\na=ü".encode(encoding)) == "# für alle\na=ü"
    file = tmp_path / "some.properties"
    for content, told in ((b"a=\0", "it is not a text file"), (b"a=\\u00", "four hexadecimal digits")):
        file.write_bytes(content)
        with pytest.raises(ValueError, match=f"^{file}: .*{told}"):
            properties_in(str(file))


def test_a_broken_unicode_escape_is_refused() -> None:
    with pytest.raises(ValueError, match="four hexadecimal digits"):
        parse_properties("a=\\u12")


_TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=12)


@given(st.dictionaries(_TEXT.filter(bool), _TEXT, max_size=4))
def test_written_properties_read_back(values: dict[str, str]) -> None:
    assert parse_properties(format_properties(values)) == values


@given(st.text(st.sampled_from("ab=: \\\n\r\t\f#!u0041{\u00e9\u2028\x85\x0b"), max_size=14))
def test_the_library_reads_the_same(text: str) -> None:
    """An empty logical line is left out: the library drops it where Java, and this parser, have an empty key."""
    try:
        expected = javaproperties.loads(text)
    except javaproperties.InvalidUEscapeError:
        with pytest.raises(ValueError, match="four hexadecimal digits"):
            parse_properties(text)
        return
    found = parse_properties(text)
    if not found.get(""):
        found.pop("", None)
    if not expected.get(""):
        expected.pop("", None)
    assert found == expected


@given(st.dictionaries(_TEXT.filter(bool), _TEXT, max_size=4))
def test_the_library_reads_what_is_written(values: dict[str, str]) -> None:
    assert javaproperties.loads(format_properties(values)) == values


def test_env_mapping() -> None:
    environ = {
        "KAFKA_NODE_ID": "1",
        "KAFKA_LISTENER_NAME_X__Y_SSL___Z": "v",
        "KAFKA_OPTS": "-Dx",
        "KAFKA_HEAP_OPTS": "-Xmx1g",
        "PATH": "/bin",
    }
    assert properties_from_env(environ) == {"node.id": "1", "listener.name.x_y.ssl-z": "v"}
