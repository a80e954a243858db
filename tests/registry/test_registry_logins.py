"""Clients that log in: each does what its user may do with the topic of the schemas; HTTPS between registries."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from confluent_kafka.schema_registry import SchemaRegistryClient
from support.e2e.command import fails, fails_usage
from support.e2e.secured_node import SecuredNode
from support.process_end import told_until_its_end
from support.registry.registry_process import registry_at
from support.rest.proxy import Proxy, basic

from raftwerk.registry.data.schema_client import client_of
from raftwerk.testkit.process_cluster import unique_topic

pytestmark = pytest.mark.process
STRING = {"schema": '"string"'}
READER, NOBODY = basic("reader", "secret-of-reader"), basic("nobody", "secret-of-nobody")
ALICE = basic("alice", "wonder")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    with SecuredNode.start(tmp_path_factory.mktemp("secured")) as node:
        for name in ("reader", "nobody"):
            node.add_user(name, f"secret-of-{name}")
        yield node


@pytest.fixture(scope="module")
def properties(secured: SecuredNode, tmp_path_factory: pytest.TempPathFactory) -> str:
    login = secured.logins["SCRAM-SHA-512"]
    return login.properties_file(tmp_path_factory.mktemp("registry") / "client.properties")


def allow(secured: SecuredNode, user: str, kind: ResourceType, name: str, *operations: AclOperation) -> None:
    admin = AdminClient({"bootstrap.servers": secured.bootstrap})
    what = (kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*")
    for right in [AclBinding(*what, operation, AclPermissionType.ALLOW) for operation in operations]:
        admin.create_acls([right])[right].result(30)


def topic_for(secured: SecuredNode, reader: str) -> str:
    """The name of a topic that one user may read."""
    topic = unique_topic("schemas")
    allow(secured, reader, ResourceType.TOPIC, topic, AclOperation.READ)
    return topic


def test_passwords_and_https(secured: SecuredNode, properties: str, monkeypatch: pytest.MonkeyPatch) -> None:
    topic, bootstrap = topic_for(secured, "reader"), secured.logins["SCRAM-SHA-512"].bootstrap
    certificate, ca = secured.authority.issue("registry", "localhost", "127.0.0.1"), secured.authority.file
    login = ("--authentication", "basic", "--command-config", properties)
    options = (*login, "--certificate", str(certificate), "--ca", str(ca))
    with (
        registry_at(bootstrap, topic, *options, scheme="https") as (first, _),
        registry_at(bootstrap, topic, *options, scheme="https") as (second, _),
    ):
        for url in (first, second):
            here = Proxy(url, ca)
            assert here.acting_as(ALICE).ask("POST", "/subjects/s/versions", STRING)[1]["id"] == 1
            for header, told in (
                ("", (401, 401)),
                ("Bearer abc", (401, 401)),
                (basic("alice", "secret-of-x"), (401, 40101)),
                (NOBODY, (403, 40301)),
            ):
                status, answer = here.acting_as(header).ask("GET", "/subjects")
                assert (status, answer["error_code"]) == told, header
            settings = {"url": url, "basic.auth.user.info": "reader:secret-of-reader", "ssl.ca.location": str(ca)}
            assert SchemaRegistryClient(settings).get_subjects() == ["s"]
            monkeypatch.setenv("SSL_CERT_FILE", str(ca))
            ours = client_of(url.replace("://", "://reader:secret-of-reader@"))
            assert asyncio.run(ours.schema(1)).text == STRING["schema"]
            reader = here.acting_as(READER)
            assert reader.ask("GET", "/subjects") == (200, ["s"])
            assert reader.ask("POST", "/subjects/s", STRING)[0] == 200
            for method, path, body in (
                ("POST", "/subjects/t/versions", STRING),
                ("DELETE", "/subjects/s", None),
                ("PUT", "/config", {"compatibility": "NONE"}),
            ):
                status, answer = reader.ask(method, path, body)
                assert (status, answer["error_code"]) == (403, 40301), path
                assert "denied operation WRITE" in answer["message"] and "User:reader" in answer["message"]


def test_tokens(secured: SecuredNode, properties: str) -> None:
    topic, bootstrap = topic_for(secured, "greta"), secured.logins["OAUTHBEARER"].bootstrap
    with registry_at(bootstrap, topic, "--authentication", "bearer", "--command-config", properties) as (url, _):
        with pytest.raises(HTTPError) as refused:
            urlopen(Request(f"{url}/subjects", headers={"Authorization": ALICE}), timeout=60)
        assert refused.value.code == 401 and refused.value.headers["WWW-Authenticate"] == 'Bearer realm="Kafka"'
        here = Proxy(url)
        alice, greta = (here.acting_as(f"Bearer {secured.provider.token(one)}") for one in ("alice", "greta"))
        assert alice.ask("POST", "/subjects/s/versions", STRING)[0] == 200
        assert greta.ask("GET", "/schemas/ids/1") == (200, STRING)
        assert greta.ask("DELETE", "/subjects/s")[1]["error_code"] == 40301


def test_the_rights_that_a_registry_needs_are_those_of_the_page(secured: SecuredNode, tmp_path: Path) -> None:
    topic, login = unique_topic("schemas"), secured.add_user("registry", "secret-of-registry")
    of_topic = (AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DESCRIBE_CONFIGS)
    allow(secured, "registry", ResourceType.TOPIC, topic, *of_topic)
    group = f"raftwerk-registry-{topic}"
    allow(secured, "registry", ResourceType.GROUP, group, AclOperation.READ)
    allow(secured, "registry", ResourceType.TRANSACTIONAL_ID, group, AclOperation.WRITE)
    options = ("--command-config", login.properties_file(tmp_path / "client.properties"))
    for _ in range(2):  # makes the topic, and finds it
        with registry_at(login.bootstrap, topic, *options) as (url, process):
            assert Proxy(url).ask("POST", "/subjects/s/versions", STRING)[1]["id"] == 1
            process.terminate()
            assert told_until_its_end(process) == ""


def test_options_that_do_not_fit(secured: SecuredNode) -> None:
    assert "--key is for --certificate" in fails_usage("registry", "--key", "a.pem")
    assert "name --mechanism" in fails_usage("registry", "--authentication", "basic")
    assert "--mechanism is for" in fails_usage("registry", "--mechanism", "PLAIN")
    for url in ("localhost:8081", "http://localhost", "http://localhost:8081/registry"):
        assert "--advertised-url" in fails_usage("registry", "--advertised-url", url)
    told = fails(2, "registry", "--ca", "none.pem", "-b", secured.bootstrap)
    assert "--ca none.pem cannot be read: no such file" in told
