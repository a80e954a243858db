"""Rules of Kerberos make of principals what they make in Apache Kafka, whose own class is asked."""

from __future__ import annotations

import random
import subprocess

import pytest
from support.e2e.java_tools import SOURCE

from raftwerk.security.kerberos.principal_names import KerberosShortNamer, NoUserNameError

CASES = 20_000


def random_case(rng: random.Random) -> tuple[str, str]:
    """A rule, often a correct one, and a principal, often one that it fits."""
    names = ["alice", "App.Service", "aa", "kafka", "a-b", "x\\@y", "Z1", ""]
    realms = ["REALM.COM", "OTHER.COM", ""]
    principal = rng.choice(names) + rng.choice(["", "", "/host", "/a.b", "/"])
    principal += rng.choice(["@" + rng.choice(realms), "@REALM.COM", "@REALM.COM", "", "@A@B"])
    if rng.random() < 0.05:
        return "DEFAULT", principal
    parts = rng.choice(["1", "2", "1", "2", "3", "", "01"])
    string = "".join(
        rng.choice(["$1", "$2", "$0", "@", ".", "x", "$", "$9", "$10", "$1"]) for _ in range(rng.randint(0, 3))
    )
    accepted = rng.choice(["", "", "(.*)", "(a.*)", "(.*@.*)", "(App\\..*)", "([a-z]+)", "()"])
    pattern = rng.choice(["a", "@.*", "([a-z])([a-z])", "$", "^", "\\.", "(x)?", "A", "[A-Z]", ".*"])
    to = rng.choice(["", "b", "$1", "$2$1", "\\$", "\\\\", "$0-", "$12", "$", "\\", "${n}", "B$"])
    replaced = rng.choice(["", f"s/{pattern}/{to}/", f"s/{pattern}/{to}/g", f"s/{pattern}/{to}"])
    end = rng.choice(["", "", "/L", "/U", "L", "U", "/", "/X", "x"])
    return f"RULE:[{parts}:{string}]{accepted}{replaced}{end}", principal


def own(rule: str, principal: str) -> str:
    try:
        return "=" + KerberosShortNamer([rule], "REALM.COM").short_name(principal)
    except (ValueError, NoUserNameError):
        return "!"


@pytest.mark.java
def test_rules_mean_what_they_mean_in_kafka(java_command: list[str]) -> None:
    rng = random.Random(4)
    cases = [random_case(rng) for _ in range(CASES)]
    done = subprocess.run(
        [*java_command, str(SOURCE.with_name("ShortNames.java"))],
        input="".join(f"{rule}\t{principal}\n" for rule, principal in cases),
        capture_output=True,
        check=True,
        text=True,
        timeout=120,
    )
    expected = done.stdout.splitlines()
    assert len(expected) == CASES
    differing = [
        (case, theirs, ours)
        for case, theirs in zip(cases, expected, strict=True)
        if (ours := own(*case)) != theirs and theirs != "="  # no user has an empty name here
    ]
    assert differing == []
    assert sum(one != "!" for one in expected) > CASES // 10
