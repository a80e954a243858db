"""From a principal of Kerberos to a user's name: the examples of Apache Kafka's documentation, and properties."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftwerk.security.kerberos.principal_names import KerberosShortNamer, NoUserNameError, parse_kerberos_name

REALM = "REALM.COM"
parts = st.text(st.characters(codec="ascii", exclude_characters="/@"), min_size=1, max_size=8)


def short_name(rules: str, principal: str) -> str:
    return KerberosShortNamer([rule.strip() for rule in rules.split(",")], REALM).short_name(principal)


@pytest.mark.parametrize(
    ("rules", "principal", "user"),
    [
        ("DEFAULT", "App.service-name@REALM.COM", "App.service-name"),
        ("DEFAULT", "kafka/host.example@REALM.COM", "kafka"),
        ("DEFAULT", "alice", "alice"),
        # The examples of Kafka's documentation ("Customizing SSL User Name", "auth_to_local"), and of its tests.
        (r"RULE:[1:$1@$0](.*@OTHER.COM)s/@.*//", "bob@OTHER.COM", "bob"),
        (r"RULE:[1:$1@$0](.*@MYDOMAIN.COM)s/@.*//,DEFAULT", "user@MYDOMAIN.COM", "user"),
        (r"RULE:[1:$1](App\..*)s/App\.(.*)/$1/g,RULE:[2:$1](App\..*)s/App\.(.*)/$1/g,DEFAULT", "App.x@REALM.COM", "x"),
        (r"RULE:[1:$1](App\..*)s/App\.(.*)/$1/g,RULE:[2:$1](App\..*)s/App\.(.*)/$1/g", "App.x/h@REALM.COM", "x"),
        (r"RULE:[1:$1](App\..*)s/App\.(.*)/$1/g,DEFAULT", "user/h@REALM.COM", "user"),
        (r"RULE:[1:$1]/L,DEFAULT", "User@REALM.COM", "user"),
        (r"RULE:[2:$1](Test.*)s/ABC///L", "TestABC/host@FOO.COM", "test"),
        (r"RULE:[2:$1](ABC.*)s/ABC/XYZ/g/L", "ABC_User_ABC/host@FOO.COM", "xyz_user_xyz"),
        (r"RULE:[2:$1](Test.*)s/ABC///U", "TestABC/host@FOO.COM", "TEST"),
        (r"RULE:[2:$1]/U", "user/host@FOO.COM", "USER"),
        (r"RULE:[1:$1](.*)s/$/-local/", "user@FOO.COM", "user-local"),
        (r"RULE:[2:$2.$1]", "user/host@FOO.COM", "host.user"),
    ],
)
def test_examples(rules: str, principal: str, user: str) -> None:
    assert short_name(rules, principal) == user


@pytest.mark.parametrize(
    ("rules", "principal", "why"),
    [
        (
            "DEFAULT",
            "alice@OTHER.COM",
            r"no rule .* \(DEFAULT\) fits 'alice@OTHER.COM'; DEFAULT is for the realm REALM",
        ),
        ("RULE:[2:$1]", "alice@REALM.COM", "no rule"),
        ("RULE:[1:$1@$0]", "alice@REALM.COM", "which has / or @"),
        ("RULE:[1:$2]", "alice@REALM.COM", r"\$2 in '\$2' is none of the 2 parts"),
        ("RULE:[1:$]", "alice@REALM.COM", r"\$ in '\$' is none"),
        ("RULE:[1:]", "alice@REALM.COM", "makes an empty name"),
        ("RULE:[1:$1]s/a/$1/", "alice@REALM.COM", "names the group 1, which there is not"),
        ("DEFAULT", "a/b/c@REALM.COM", "is not name@REALM"),
        ("DEFAULT", r"a\@b@REALM.COM", "is not name@REALM"),
    ],
)
def test_principals_without_a_user_name(rules: str, principal: str, why: str) -> None:
    with pytest.raises(NoUserNameError, match=why):
        short_name(rules, principal)


@pytest.mark.parametrize(
    "rule",
    [
        "default",
        "RULE",
        "RULE:[1:$1",
        "RULE:[1:$1]s/a/b",
        "RULE:[1:$1]/X",
        "DEFAULT more",
        "RULE:[:$1]",
        "RULE:[1:$1](*)",
    ],
)
def test_what_is_no_rule(rule: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(rule)) if rule else ""):
        KerberosShortNamer([rule], REALM)


@given(parts, parts)
def test_the_default_rule_takes_the_first_part_of_names_of_its_realm_only(name: str, host: str) -> None:
    assert short_name("DEFAULT", f"{name}/{host}@{REALM}") == name
    with pytest.raises(NoUserNameError):
        short_name("DEFAULT", f"{name}/{host}@X{REALM}")


@given(st.text(max_size=30))
def test_a_user_name_has_neither_slash_nor_at(principal: str) -> None:
    namer = KerberosShortNamer(["RULE:[1:$1]s/a/$0/", "RULE:[2:$1.$2]/L", "DEFAULT"], REALM)
    try:
        found = namer.short_name(principal)
    except NoUserNameError:
        return
    assert found == principal or ("/" not in found and "@" not in found)


@given(st.text(st.sampled_from("RULEDFAT:[]12$()s/gLU.*\\"), max_size=25))
def test_no_rule_breaks_the_parser(rule: str) -> None:
    try:
        namer = KerberosShortNamer([rule], REALM)
        namer.short_name("alice/host@REALM.COM")
    except (ValueError, NoUserNameError):
        pass


@given(st.text(max_size=30))
def test_no_name_breaks_the_parser(text: str) -> None:
    try:
        parse_kerberos_name(text)
    except NoUserNameError:
        assert "@" in text
