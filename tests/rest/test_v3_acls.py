"""ACLs of a secured node, and what a user without rights is answered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from support.e2e.secured_node import SecuredNode
from support.rest.proxy import Proxy, proxy_at, text_record
from support.rest.waiting import until

from raftwerk.testkit.process_cluster import TestCluster, unique_topic

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def proxy_of_alice(secured: SecuredNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    login = secured.logins["SCRAM-SHA-512"]
    properties = login.properties_file(tmp_path_factory.mktemp("alice") / "client.properties")
    with proxy_at(login.bootstrap, "--command-config", properties) as running:
        yield running


def acl(name: str, **fields: str) -> dict[str, str]:
    """The fields of an ACL on a topic."""
    usual = {"resource_type": "TOPIC", "resource_name": name, "pattern_type": "LITERAL", "principal": "User:carol"}
    return {**usual, "host": "*", "operation": "READ", "permission": "ALLOW", **fields}


def found(proxy: Proxy, **wanted: str) -> list[dict[str, Any]]:
    """The ACLs that a filter matches."""
    status, answer = proxy.v3("GET", f"/acls?{urlencode(wanted)}")
    assert status == 200, answer
    return list(answer["data"])


def test_acls_are_created_found_and_deleted(proxy_of_alice: Proxy) -> None:
    proxy, name = proxy_of_alice, unique_topic("acl")
    assert proxy.v3("POST", "/acls", acl(name)) == (201, None)
    batch = [acl(name, operation="write"), acl(f"{name}-", pattern_type="PREFIXED", permission="DENY")]
    assert proxy.v3("POST", "/acls:batch", {"data": batch}) == (201, None)
    until(lambda: len(found(proxy, principal="User:carol")) == 3)
    (read,) = found(proxy, resource_name=name, operation="read", host="*")
    assert (read["kind"], read["cluster_id"]) == ("KafkaAcl", proxy.cluster_id)
    assert {field: read[field] for field in acl(name)} == acl(name)
    url = read["metadata"]["self"].removeprefix(proxy.url)
    assert proxy.ask("GET", url)[1]["data"] == [read]
    assert len(found(proxy, resource_name=f"{name}-x", pattern_type="MATCH", resource_type="TOPIC")) == 1
    assert len(found(proxy, permission="DENY", principal="User:carol")) == 1
    status, answer = proxy.ask("DELETE", url)
    assert (status, answer) == (200, {"data": [read]})
    everything = {"resource_type": "any", "pattern_type": "ANY", "operation": "ANY", "permission": "ANY"}
    status, answer = proxy.v3("DELETE", f"/acls?{urlencode({**everything, 'principal': 'User:carol'})}")
    assert (status, len(answer["data"])) == (200, 2)
    until(lambda: found(proxy, principal="User:carol") == [])


def test_acls_that_mean_nothing_are_refused(proxy_of_alice: Proxy) -> None:
    for fields, told in (
        ({"resource_type": "UNKNOWN"}, "resource_type must be one of ANY, TOPIC"),
        ({"resource_type": "ANY"}, "resource_type cannot be ANY in an ACL"),
        ({"pattern_type": "MATCH"}, "pattern_type cannot be MATCH"),
        ({"operation": "PLAY"}, "operation must be one of"),
        ({"permission": "ANY"}, "permission cannot be ANY"),
        ({"principal": "carol"}, "carol"),
        ({"more": "x"}, "Unrecognized field: more"),
    ):
        status, answer = proxy_of_alice.v3("POST", "/acls", acl("t", **fields))
        assert (status, told in answer["message"]) == (400, True), answer
    status, answer = proxy_of_alice.v3("DELETE", "/acls?resource_type=TOPIC")
    assert (status, answer["message"]) == (400, "The query has no pattern_type")
    status, answer = proxy_of_alice.v3("GET", "/acls?operation=UNKNOWN")
    assert (status, "not 'UNKNOWN'" in answer["message"]) == (400, True)
    assert proxy_of_alice.v3("POST", "/acls:batch", {"data": []})[0] == 400


def test_without_an_authorizer_there_are_no_acls(proxy: Proxy, cluster: TestCluster) -> None:
    status, answer = proxy.v3("GET", "/acls")
    assert (status, answer["error_code"]) == (400, 40002), answer


def test_a_user_without_rights_is_answered_403(secured: SecuredNode, proxy_of_alice: Proxy, tmp_path: Path) -> None:
    topic, login = unique_topic("closed"), secured.add_user("dave", "rabbit")
    assert proxy_of_alice.v3("POST", "/topics", {"topic_name": topic})[0] == 201
    options = ("--command-config", login.properties_file(tmp_path / "client.properties"))
    with proxy_at(login.bootstrap, *options) as running:
        for method, path, body in (
            ("GET", "/acls", None),
            ("POST", "/acls", acl("t")),
            ("DELETE", "/acls?resource_type=TOPIC&pattern_type=ANY&operation=ANY&permission=ANY", None),
            ("POST", "/topics", {"topic_name": "new"}),
            ("GET", f"/topics/{topic}", None),
            ("GET", f"/topics/{topic}/configs", None),
            ("PUT", f"/topics/{topic}/configs/retention.ms", {"value": "1"}),
            ("DELETE", f"/topics/{topic}", None),
            ("GET", "/brokers/-/configs", None),
            ("GET", "/broker-configs", None),
            ("GET", "/topics/-/partitions/-/reassignment", None),
            ("GET", f"/topics/{topic}/partitions/0/reassignment", None),
            ("GET", "/consumer-groups/g", None),
            ("POST", f"/topics/{topic}/records", text_record("a")),
        ):
            status, answer = running.v3(method, path, body)
            assert (status, answer["error_code"]) == (403, 40301), (method, path, answer)
            what = "a record" if path.endswith("/records") else f"{method} of this path"
            assert f"; {what} needs the right " in answer["message"], answer
        for path, said in {
            "/broker-configs": "you may not do this with the cluster (CLUSTER_AUTHORIZATION_FAILED); GET of this path "
            "needs the right DescribeConfigs on the cluster",
            f"/topics/{topic}/configs": "the right DescribeConfigs on the topic",
        }.items():
            assert running.v3("GET", path)[1]["message"].endswith(said)
        record = {"records": [{"value": "YQ=="}]}
        for method, path, sent, right in (
            ("GET", f"/topics/{topic}", None, "Describe and DescribeConfigs on the topic"),
            ("GET", f"/topics/{topic}/partitions", None, "Describe on the topic"),
            ("POST", f"/topics/{topic}", record, "Write on the topic"),
        ):
            answer = running.v2(method, path, sent)[1]
            assert answer["error_code"] == 40301 and answer["message"].endswith(right), answer
        assert running.v3("GET", "/topics/-/configs") == (
            200,
            {**running.v3("GET", "/topics/-/configs")[1], "data": []},
        )


def test_a_user_may_write_as_soon_as_it_has_the_right(
    secured: SecuredNode, proxy_of_alice: Proxy, tmp_path: Path
) -> None:
    """Who may write nowhere gets no producer id, which ends a producer."""
    topic, login = unique_topic("closed"), secured.add_user("erin", "rabbit")
    assert proxy_of_alice.v3("POST", "/topics", {"topic_name": topic})[0] == 201
    described = acl(topic, principal="User:erin", operation="DESCRIBE")
    assert proxy_of_alice.v3("POST", "/acls", described)[0] == 201
    path = f"/topics/{topic}/records"
    with proxy_at(
        login.bootstrap, "--command-config", login.properties_file(tmp_path / "client.properties")
    ) as running:
        until(lambda: running.v3("GET", f"/topics/{topic}")[0] == 200)
        for _ in range(3):
            status, answer = running.v3("POST", path, text_record("a"))
            assert (status, answer["error_code"]) == (403, 40301), answer
        assert proxy_of_alice.v3("POST", "/acls", {**described, "operation": "WRITE"})[0] == 201
        until(lambda: running.v3("POST", path, text_record("b"))[0] == 200)
