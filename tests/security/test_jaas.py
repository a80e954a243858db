"""Values of sasl.jaas.config."""

from __future__ import annotations

import pytest

from raftwerk.security.jaas import parse_jaas


def test_options_with_and_without_quotes() -> None:
    module = parse_jaas(r'a.b.PlainLoginModule required username="ad;min" password="p=\"q\\" debug=true;')
    assert module.class_name == "a.b.PlainLoginModule"
    assert module.options == {"username": "ad;min", "password": 'p="q\\', "debug": "true"}


@pytest.mark.parametrize(
    "text",
    ["", "x", "x required", "x required a=b", "x needed a=b;", 'x required a="b;', "x required a;", "x required a==b;"],
)
def test_what_is_no_module_is_refused_without_its_secrets(text: str) -> None:
    with pytest.raises(ValueError, match=r"[a-z]"):
        parse_jaas(text)


def test_secrets_are_not_shown() -> None:
    with pytest.raises(ValueError, match="option") as caught:
        parse_jaas('m required username="u" password "hush";')
    assert "hush" not in str(caught.value)
    assert "hush" not in repr(parse_jaas('m required password="hush";'))
