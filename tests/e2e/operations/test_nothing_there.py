"""What commands say when there is nothing: an empty list is no failure, and the removal of what is not there is one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.e2e.command import fails, raftwerk

LISTS = {
    "topics list": "There are no topics, or none that you may see.",
    "groups list": "There are no groups.",
    "transactions list": "There are no transactional ids.",
    "transactions list --state Ongoing": "No transactional id matches.",
    "transactions find-hanging": "No transaction hangs.",
    "partitions reassignments": "Nothing is moving.",
    "users list": "There are no users with a password.",
    "quotas list": "There are no quotas.",
    "acls list": "There are no ACLs.",
    "acls list --principal nobody": "No ACL matches.",
    "acls remove --all": "There are no ACLs.",
    "acls remove nobody --dry-run": "No ACL matches.",
    "clusters": "There are no named clusters; raftwerk up --name NAME creates one.",
    "profile list": "There are no profiles; raftwerk profile add NAME HOST:PORT,... adds one.",
}
REMOVALS = {
    "topics delete nothing": "there is no such topic",
    "groups delete nothing": "there is no such group",
    "transactions terminate nothing": "there is no such transactional id",
    "users remove nobody": "there is no user nobody",
    "quotas remove --user nobody": "user nobody has no such quota; raftwerk quotas list shows them",
    "quotas remove --user nobody producer_byte_rate": "user nobody has no such quota",
    "acls remove nobody": "there are no such ACLs; raftwerk acls list shows them",
    "acls remove --topic nothing": "there are no such ACLs",
}


@pytest.mark.long
def test_what_is_said_of_nothing(
    new_cluster: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    acls = {"authorizer.class.name": authorizer, "super.users": "User:ANONYMOUS"}
    at = ("-b", new_cluster(1, overrides=acls).plan.bootstrap)
    for line, sentence in LISTS.items():
        where = () if line in ("clusters", "profile list") else at
        for more in ((), ("--json",)):
            done = raftwerk(*line.split(), *where, *more)
            assert (line, done.returncode, done.stdout, done.stderr) == (line, 0, "", f"{sentence}\n")
    for line, sentence in REMOVALS.items():
        assert sentence in fails(1, *line.split(), *at)
