"""Clients that log in: each acts as its own user, and sees its own consumer instances only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from support.e2e.command import fails, fails_usage
from support.e2e.secured_node import SecuredNode
from support.rest.instances import instance, read
from support.rest.proxy import JSON_V2, Proxy, basic, proxy_at, text_record
from support.rest.waiting import until

from raftwerk.testkit.process_cluster import unique_topic

pytestmark = pytest.mark.process
ALICE = basic("alice", "wonder")
OF_FRANK = "secret-of-frank"
FRANK = basic("frank", OF_FRANK)


@pytest.fixture(scope="module")
def properties(secured: SecuredNode, tmp_path_factory: pytest.TempPathFactory) -> str:
    secured.add_user("frank", OF_FRANK)
    login = secured.logins["SCRAM-SHA-512"]
    return login.properties_file(tmp_path_factory.mktemp("proxy") / "client.properties")


@pytest.fixture(scope="module")
def basic_proxy(secured: SecuredNode, properties: str) -> Iterator[Proxy]:
    bootstrap = secured.logins["SCRAM-SHA-512"].bootstrap
    with proxy_at(bootstrap, "--authentication", "basic", "--command-config", properties) as running:
        yield running


def challenge(proxy: Proxy, authorization: str | None) -> tuple[int, str | None]:
    """The status of a request with this header, and how the proxy asks to log in."""
    headers = {} if authorization is None else {"Authorization": authorization}
    try:
        with urlopen(Request(f"{proxy.url}/topics", headers=headers), timeout=60) as answer:
            return answer.status, answer.headers["WWW-Authenticate"]
    except HTTPError as error:
        error.read()
        return error.code, error.headers["WWW-Authenticate"]


def test_only_users_of_the_cluster_come_in(basic_proxy: Proxy) -> None:
    asked = 'Basic realm="Kafka", charset="UTF-8"'
    for header in (None, "Bearer abc", "Basic ?", basic("alice", "secret-of-nobody"), basic("nobody", "secret-of-x")):
        assert challenge(basic_proxy, header) == (401, asked), header
    assert challenge(basic_proxy, ALICE) == (200, None)
    status, answer = basic_proxy.ask("GET", "/v3/clusters")
    assert (status, answer["error_code"]) == (401, 401)
    status, answer = basic_proxy.acting_as(basic("alice", "secret-of-nobody")).ask("GET", "/v3/clusters")
    assert (status, answer["error_code"]) == (401, 40101)
    assert "secret-of-nobody" not in str(answer)


def test_each_acts_with_its_own_rights(basic_proxy: Proxy) -> None:
    alice, frank, topic = basic_proxy.acting_as(ALICE), basic_proxy.acting_as(FRANK), unique_topic("own")
    assert frank.v3("POST", "/topics", {"topic_name": topic})[1]["error_code"] == 40301
    assert alice.v3("POST", "/topics", {"topic_name": topic})[0] == 201
    path = f"/topics/{topic}/records"
    assert alice.v3("POST", path, text_record("a"))[0] == 200
    assert frank.v3("POST", path, text_record("b"))[1]["error_code"] == 40301
    assert frank.ask("GET", "/topics") == (200, [])
    right = {"resource_type": "TOPIC", "resource_name": topic, "pattern_type": "LITERAL", "principal": "User:frank"}
    assert alice.v3("POST", "/acls", {**right, "host": "*", "operation": "WRITE", "permission": "ALLOW"})[0] == 201
    until(lambda: frank.v3("POST", path, text_record("c"))[0] == 200)


def test_consumer_instances_belong_to_who_made_them(basic_proxy: Proxy) -> None:
    alice, frank, topic, group = basic_proxy.acting_as(ALICE), basic_proxy.acting_as(FRANK), *_names()
    assert alice.v3("POST", "/topics", {"topic_name": topic})[0] == 201
    assert alice.v3("POST", f"/topics/{topic}/records", text_record("1"))[0] == 200
    path = instance(alice, group, name="one")
    for method, where, body in (
        ("GET", "/records", None),
        ("DELETE", "", None),
        ("POST", "/subscription", {"topics": [topic]}),
        ("POST", "/offsets", None),
    ):
        status, answer = frank.v2(method, f"{path}{where}", body)
        assert (status, answer["error_code"]) == (404, 40403), (method, where, answer)
    assert instance(frank, group, name="one") == path  # another one, of the same name
    assert frank.v2("DELETE", path) == (204, None)
    assert alice.v2("POST", f"{path}/subscription", {"topics": [topic]}) == (204, None)
    assert [one["value"] for one in read(alice, path, 1)] == [1]
    assert alice.v2("DELETE", path) == (204, None)


@pytest.mark.long
def test_who_may_not_read_is_answered_403(basic_proxy: Proxy) -> None:
    alice, frank, topic, group = basic_proxy.acting_as(ALICE), basic_proxy.acting_as(FRANK), *_names()
    assert alice.v3("POST", "/topics", {"topic_name": topic})[0] == 201
    path = instance(frank, group)
    assert frank.v2("POST", f"{path}/subscription", {"topics": [topic]}) == (204, None)
    status = 200
    while status == 200:  # until the coordinator has answered
        status, answer = frank.v2("GET", f"{path}/records?timeout=2000", accept=JSON_V2)
    assert (status, answer["error_code"]) == (403, 40301), answer
    place = {"topic": topic, "partition": 0}
    status, answer = frank.v2("POST", f"{path}/offsets", {"offsets": [{**place, "offset": 1}]})
    assert (status, answer["error_code"]) == (403, 40301), answer
    status, answer = frank.v2("GET", f"{path}/offsets", {"partitions": [place]})
    assert (status, answer["error_code"]) == (403, 40301), answer
    status, answer = frank.v2("GET", f"/topics/{topic}/partitions/0/offsets")
    assert (status, answer["error_code"]) == (403, 40301), answer


def _names() -> tuple[str, str]:
    return unique_topic("mine"), unique_topic("group")


def test_passwords_may_be_those_of_plain(secured: SecuredNode, properties: str) -> None:
    options = ("--authentication", "basic", "--mechanism", "PLAIN", "--command-config", properties)
    with proxy_at(secured.logins["PLAIN"].bootstrap, *options) as running:
        assert running.acting_as(ALICE).ask("GET", "/topics")[0] == 200
        assert running.acting_as(FRANK).ask("GET", "/topics")[0] == 401  # who has a password for SCRAM only


def test_tokens(secured: SecuredNode, properties: str) -> None:
    options = ("--authentication", "bearer", "--command-config", properties)
    with proxy_at(secured.logins["OAUTHBEARER"].bootstrap, *options) as running:
        for header in (None, ALICE, "Bearer abc", f"Bearer {secured.provider.token('alice', aud='others')}"):
            assert challenge(running, header) == (401, 'Bearer realm="Kafka"'), header
        alice, later, greta = (
            running.acting_as(f"Bearer {secured.provider.token(*one)}") for one in (["alice"], ["alice"], ["greta"])
        )
        topic, group = _names()
        assert alice.v3("POST", "/topics", {"topic_name": topic})[0] == 201
        assert alice.v3("POST", f"/topics/{topic}/records", text_record("1"))[0] == 200
        assert greta.v3("POST", f"/topics/{topic}/records", text_record("2"))[1]["error_code"] == 40301
        path = instance(alice, group)
        assert greta.v2("POST", f"{path}/subscription", {"topics": [topic]})[0] == 404
        assert later.v2("POST", f"{path}/subscription", {"topics": [topic]})[0] == 204
        assert [one["value"] for one in read(later, path, 1)] == [1]


def test_who_may_describe_a_group_sees_it_without_a_right_on_its_offsets(basic_proxy: Proxy) -> None:
    alice, frank, topic, group = basic_proxy.acting_as(ALICE), basic_proxy.acting_as(FRANK), *_names()
    assert alice.v3("POST", "/topics", {"topic_name": topic})[0] == 201
    assert alice.v3("POST", f"/topics/{topic}/records", text_record("1"))[0] == 200
    path = instance(alice, group)
    assert alice.v2("POST", f"{path}/subscription", {"topics": [topic]})[0] == 204
    assert [one["value"] for one in read(alice, path, 1)] == [1]
    for kind, name in (("GROUP", group), ("TOPIC", topic)):
        right = {"resource_type": kind, "resource_name": name, "pattern_type": "LITERAL", "principal": "User:frank"}
        assert alice.v3("POST", "/acls", {**right, "host": "*", "operation": "READ", "permission": "ALLOW"})[0] == 201
    until(lambda: frank.v3("GET", f"/topics/{topic}")[0] == 200)
    for below in (f"/{group}", "", f"/{group}/lags", f"/{group}/consumers"):
        assert frank.v3("GET", f"/consumer-groups{below}")[0] == 200, below
    assert alice.v2("DELETE", path) == (204, None)


def test_https(secured: SecuredNode, properties: str, tmp_path: Path) -> None:
    certificate = str(secured.authority.issue("proxy", "localhost", "127.0.0.1"))
    options = ("--certificate", certificate, "--authentication", "basic", "--command-config", properties)
    bootstrap, ca = secured.logins["SCRAM-SHA-512"].bootstrap, secured.authority.file
    with proxy_at(bootstrap, *options, ca=ca) as running:
        alice = running.acting_as(ALICE)
        status, answer = alice.ask("GET", "/v3/clusters")
        assert (status, answer["metadata"]["self"]) == (200, f"{running.url}/v3/clusters")
        assert alice.follow(answer["data"][0]["brokers"])["kind"] == "KafkaBrokerList"
    (tmp_path / "empty.pem").write_text("")
    (tmp_path / "damaged.pem").write_text("-----BEGIN PRIVATE KEY-----")
    for wrong, told in (
        ("none.pem", "none.pem cannot be read: no such file"),
        ("empty.pem", "there is no private key in {path}: name its file with --key"),
        ("damaged.pem", "--certificate {path}, --key {path}: "),
    ):
        path = str(tmp_path / wrong)
        shown = fails(2, "rest", "--port", "0", "-b", bootstrap, "--certificate", path)
        assert told.format(path=path) in shown


def test_options_that_do_not_fit() -> None:
    assert "--key is for --certificate" in fails_usage("rest", "--key", "a.pem")
    assert "name --mechanism" in fails_usage("rest", "--authentication", "basic")
    assert "--mechanism is for" in fails_usage("rest", "--authentication", "bearer", "--mechanism", "PLAIN")
