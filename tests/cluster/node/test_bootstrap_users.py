"""The SCRAM users that formatting gives to a new cluster."""

from __future__ import annotations

import asyncio
import time
from base64 import b64encode
from pathlib import Path

import pytest

from raftwerk.cluster.node.bootstrap_users import BootstrapUsers, choose_users, read_users, write_users
from raftwerk.controller.metadata.metadata_image import MetadataDelta, MetadataImage
from raftwerk.controller.metadata.metadata_records import (
    FeatureLevelRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from raftwerk.runtime.files.real_disk import RealDisk
from raftwerk.security.sasl.scram_credential import SCRAM_SHA_256, SCRAM_SHA_512, credential_of, salted

SALT = b"0123456789abcdef01234567"


def chosen(*arguments: str) -> tuple[UserScramCredentialRecord, ...]:
    return choose_users(arguments, lambda count: SALT[:count])


def expected(name: str, mechanism: str, password: str, salt: bytes, iterations: int) -> UserScramCredentialRecord:
    made = credential_of(mechanism, salted(mechanism, password, salt, iterations), salt, iterations)
    return UserScramCredentialRecord(name, 1 if mechanism == SCRAM_SHA_256 else 2, *made)


def test_the_forms_of_kafka() -> None:
    assert chosen("SCRAM-SHA-256=[name=alice,password=alice-secret]") == (
        expected("alice", SCRAM_SHA_256, "alice-secret", SALT, 4096),
    )
    assert chosen(' SCRAM-SHA-512=[iterations=8192, name="bob",password="a,b]="]') == (
        expected("bob", SCRAM_SHA_512, "a,b]=", SALT, 8192),
    )
    salt = b64encode(b"salt").decode()
    password = b64encode(salted(SCRAM_SHA_256, "wonder", b"salt", 4096)).decode()
    assert chosen(f"SCRAM-SHA-256=[name=alice,salt={salt},saltedpassword={password}]") == chosen(
        f"SCRAM-SHA-256=[name=alice,salt={salt},password=wonder]"
    )


@pytest.mark.parametrize(
    ("argument", "told"),
    [
        ("alice:hush", "it is not MECHANISM=[key=value,...]"),
        ("SCRAM-SHA-256=name=alice,password=hush", "it is not MECHANISM=[key=value,...]"),
        ("PLAIN=[name=alice,password=hush]", "PLAIN is not one of SCRAM-SHA-256, SCRAM-SHA-512"),
        ("SCRAM-SHA-256=[password=hush]", "You must supply 'name' to add-scram"),
        ("SCRAM-SHA-256=[name=alice]", "You must supply one of 'password' or 'saltedpassword' to add-scram"),
        ("SCRAM-SHA-256=[name=a,password=hush,saltedpassword=aHVzaA==]", "You must supply one of"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=aHVzaA==]", "You must supply 'salt' with 'saltedpassword'"),
        ("SCRAM-SHA-256=[name=a,salt=*,password=hush]", "the value of salt is not base64"),
        ("SCRAM-SHA-256=[name=a,password=hush,iterations=4095]", "iterations=4095 is not between 4096 and 16384"),
        ("SCRAM-SHA-256=[name=a,password=hush,iterations=x]", "iterations=x is not between"),
        ("SCRAM-SHA-256=[name=a,pasword=hush]", "between the brackets are name, password"),
        ("SCRAM-SHA-256=[name=a,hush]", "between the brackets are name, password"),
    ],
)
def test_what_is_wrong_is_said_without_the_password(argument: str, told: str) -> None:
    with pytest.raises(ValueError) as error:
        chosen(argument)
    assert told in str(error.value)
    assert "hush" not in str(error.value)


def test_a_user_comes_once() -> None:
    with pytest.raises(ValueError, match="alice is given twice for SCRAM-SHA-256"):
        chosen(*["SCRAM-SHA-256=[name=alice,password=x]"] * 2)


def test_the_file_serves_logins_until_the_metadata_is_known_and_follows_it(tmp_path: Path) -> None:
    disk = RealDisk()
    (first, other) = chosen("SCRAM-SHA-256=[name=alice,password=x]", "SCRAM-SHA-512=[name=bob,password=y]")
    write_users(disk, str(tmp_path), [first, other])
    image = MetadataImage("c")
    users = BootstrapUsers(disk, str(tmp_path), lambda mechanism, user: None, lambda: image)
    found = users.find(SCRAM_SHA_256, "alice")
    assert found is not None and found.stored_key == first.stored_key
    assert users.find(SCRAM_SHA_512, "alice") is None

    delta = MetadataDelta()
    changed = expected("alice", SCRAM_SHA_256, "new", SALT, 8192)
    image.replay(FeatureLevelRecord("metadata.version", 27), 0, delta)
    image.replay(changed, 1, delta)
    assert users.find(SCRAM_SHA_256, "alice") is None

    async def publish() -> None:
        users.on_metadata(image, delta)
        await asyncio.sleep(0)

    asyncio.run(publish())
    deadline = time.monotonic() + 10
    while read_users(disk, str(tmp_path)) != (changed,):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert users.users == (changed,)


def test_no_file_has_no_users(tmp_path: Path) -> None:
    assert read_users(RealDisk(), str(tmp_path)) == ()


def test_a_user_that_is_deleted_and_added_again_is_in_the_file_again(tmp_path: Path) -> None:
    """After a restart of all controllers at once they could not log in to each other without it."""
    disk = RealDisk()
    (user,) = chosen("SCRAM-SHA-512=[name=node,password=x]")
    write_users(disk, str(tmp_path), [user])

    async def publish() -> None:
        image = MetadataImage("c")
        users = BootstrapUsers(disk, str(tmp_path), lambda mechanism, user: None, lambda: image)
        removal = RemoveUserScramCredentialRecord(user.name, user.mechanism)
        for offset, is_added in enumerate((True, False, True)):
            record, left = (user, (user,)) if is_added else (removal, ())
            delta = MetadataDelta()
            image.replay(record, offset, delta)
            users.on_metadata(image, delta)
            assert users.users == left
            async with asyncio.timeout(10):
                while read_users(disk, str(tmp_path)) != left:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)

    asyncio.run(publish())
