"""Principals, and the rules that make them of the names in certificates."""

from __future__ import annotations

import pytest

from raftwerk.security.principals import KafkaPrincipal, PrincipalMapper, parse_principal


@pytest.mark.parametrize(
    ("rules", "name", "expected"),
    [
        ("DEFAULT", "CN=alice,O=x", "CN=alice,O=x"),
        ("RULE:^CN=(.*?),.*$/$1/", "CN=alice,O=x", "alice"),
        ("RULE:^CN=(.*?),.*$/$1@x/U, DEFAULT", "CN=alice,O=x", "ALICE@X"),
        ("RULE:^CN=(.*?),OU=(.*?)$/$2-$1/L,RULE:.*/other/", "CN=Al,OU=Data", "data-al"),
        ("RULE:^CN=(.*?),OU=(.*?)$/$2-$1/L,RULE:^.*/other/", "O=x", "other"),
        ("RULE:^CN=(.*?),.*$/$10/", "CN=alice,O=x", "alice0"),
        ("RULE:^CN=(.*?)(,O=y)?,.*$/$1$2/", "CN=alice,O=x", "alice"),
    ],
)
def test_the_first_rule_that_fits_gives_the_user(rules: str, name: str, expected: str) -> None:
    assert PrincipalMapper(rules).principal(name) == KafkaPrincipal("User", expected)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (r"^CN=(.*?),.*$/a\/$1", "a/aab"),
        (r"^CN=(.*?),.*$/\q\n\g<1>", "qng<1>"),
        (r"^CN=(.*?),.*$/\\$1", r"\aab"),
        (r"^CN=(.*?),.*$/\$1", "$1"),
        ("^CN=(.*?),.*$/$0!$12$01", "CN=aab,O=x!aab2aab"),
        ("^CN=(?<n>.*?),.*$/${n}_$1", "aab_aab"),
        (r"^CN=(?<n>.)\k<n>.*$/${n}", "a"),
        (r"^(?<!x)CN\=(?<=N=)(.).*$/$1", "a"),
        ("CN=(.*?)/$1@", "@aab,O=x"),
        (".*/x", "xx"),
    ],
)
def test_rules_are_read_as_by_java(rule: str, expected: str) -> None:
    """What Kafka 4.2's SslPrincipalMapper makes of them: Java's String.replaceAll replaces each part that matches."""
    assert PrincipalMapper(f"RULE:{rule}/").principal("CN=aab,O=x") == KafkaPrincipal("User", expected)


def test_a_name_without_a_rule_is_refused() -> None:
    with pytest.raises(ValueError, match="no rule"):
        PrincipalMapper("RULE:^CN=x$/x/").principal("CN=y")


@pytest.mark.parametrize(
    "rules",
    [
        "RULE:a/b",
        "RULE:(/x/",
        "RULE:^CN=(.*)$/$2/",
        r"RULE:^CN=.*$/$1/",
        "RULE:^CN=(?<n>.*)$/${m}/",
        "RULE:^CN=(?<n>.*)$/${1}/",
        "RULE:^CN=(.*)$/cost$/",
        "RULE:^CN=(.*)$/${/",
        "nonsense",
        "DEFAULT;DEFAULT",
    ],
)
def test_what_is_no_list_of_rules_is_refused_at_the_start(rules: str) -> None:
    with pytest.raises(ValueError, match="is no"):
        PrincipalMapper(rules)


@pytest.mark.parametrize("text", ["alice", ":alice", "User:", ""])
def test_what_is_no_principal_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no principal"):
        parse_principal(text)


def test_a_principal_may_have_colons_in_its_name() -> None:
    assert str(parse_principal("User:a:b")) == "User:a:b"
