"""The pytest plugin in a project of its own, with the test of the documentation."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, cast

import pytest

from raftwerk.cluster.client.client_errors import ClientError, RefusedError
from raftwerk.cluster.local.supervisor import LocalNodeError
from raftwerk.cluster.settings.node_config import ConfigError
from raftwerk.testkit.process_cluster import TestCluster, unique_topic

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "pytest.md").read_text()
IS_INSTALLED = any(point.name == "raftwerk" for point in entry_points(group="pytest11"))
PLUGIN = () if IS_INSTALLED else ("-p", "raftwerk.testkit.plugin")


def with_plugin(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """Run pytest with the plugin, also if the installed package has no entry point for it."""
    pytester.makeconftest("")
    return pytester.runpytest_subprocess(*PLUGIN, "-p", "no:cacheprovider", *arguments, timeout=120)


def test_names_of_topics_are_legal_and_unique() -> None:
    name = unique_topic("test_x[a/b ü]")
    assert re.fullmatch(r"[A-Za-z0-9._-]{1,249}", name)
    assert name != unique_topic("test_x[a/b ü]")
    assert unique_topic("[]").startswith("topic-")


def test_the_plugin_costs_nothing_until_it_is_used(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys
        def test_nothing_is_imported():
            assert "uvloop" not in sys.modules and "raftwerk.cluster.local.supervisor" not in sys.modules
        """
    )
    with_plugin(pytester).assert_outcomes(passed=1)


@pytest.mark.process
def test_the_documentation_s_test_passes_on_two_workers(pytester: pytest.Pytester) -> None:
    (source,) = re.findall(r"```python\n(from confluent_kafka import Consumer.*?)```", PAGE, re.S)
    pytester.makepyfile(test_orders=source)
    with_plugin(pytester, "-n", "2").assert_outcomes(passed=2)


@pytest.mark.long
@pytest.mark.process
def test_the_documentation_s_test_of_a_secured_cluster_passes(pytester: pytest.Pytester) -> None:
    (source,) = re.findall(r"```python\n(from confluent_kafka import Producer\n.*?)```", PAGE, re.S)
    more = """

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from raftwerk.cluster.local.supervisor import LocalNodeError


def test_who_may_what(raftwerk_secure_cluster):
    cluster = raftwerk_secure_cluster
    assert cluster.describe().topics and cluster.controller() == 1
    assert "plain" in cluster.create_topic("plain")
    assert AdminClient(cluster.client_config("admin")).describe_user_scram_credentials().result(20)
    with pytest.raises(KafkaException):
        AdminClient(cluster.client_config()).describe_user_scram_credentials().result(20)
    with pytest.raises(KafkaException):
        AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics(timeout=2)
    assert open(cluster.client_properties("admin")).read()
    with pytest.raises(LocalNodeError, match="no file for the user 'eve', only for app and admin"):
        cluster.client_properties("eve")


def test_a_plain_cluster_has_addresses(raftwerk_cluster):
    assert raftwerk_cluster.client_config() == {"bootstrap.servers": raftwerk_cluster.bootstrap_servers}
    with pytest.raises(LocalNodeError, match="is not secured"):
        raftwerk_cluster.client_properties()


def test_a_node_of_a_secured_cluster_dies(raftwerk_factory):
    cluster = raftwerk_factory(nodes=3, secure=True)
    topic = cluster.create_topic(replicas=3)
    cluster.kill(cluster.leader_of(topic))
    cluster.heal()
"""
    pytester.makepyfile(test_secured=source + more)
    with_plugin(pytester).assert_outcomes(passed=4)


@pytest.mark.process
def test_a_cluster_heals_after_faults(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import asyncio

        def test_faults(raftwerk_factory):
            cluster = raftwerk_factory(nodes=3)
            topic = cluster.create_topic(partitions=3, replicas=3)
            assert cluster.node_ids == [1, 2, 3] and cluster.controller() in (1, 2, 3)
            cluster.pause(3)
            assert cluster.is_alive(3)
            cluster.resume(3)
            cluster.kill(2)
            assert not cluster.is_alive(2)
            cluster.heal()
            assert cluster.is_alive(2), cluster.log_of(2)

        def test_inside_a_loop(raftwerk_cluster):
            async def inside():
                return raftwerk_cluster.create_topic()
            name = asyncio.run(inside())
            assert name in [topic.name for topic in raftwerk_cluster.describe().topics]

        def test_that_deletes_its_topic(raftwerk_cluster, raftwerk_topic):
            raftwerk_cluster.delete_topic(raftwerk_topic)
        """
    )
    with_plugin(pytester).assert_outcomes(passed=3)


def test_the_entry_point_is_declared() -> None:
    assert 'raftwerk = "raftwerk.testkit.plugin"' in (ROOT / "pyproject.toml").read_text()


def test_a_setting_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"did you mean min\.insync\.replicas"):
        TestCluster.start(1, settings={"min.insync.replica": "2"})


def test_a_value_that_a_setting_cannot_have_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"min\.insync\.replicas=two: it is no whole number"):
        TestCluster.start(1, settings={"min.insync.replicas": "two"})


@pytest.mark.parametrize(("nodes", "told"), [(0, "1 to 100 nodes, not 0"), ("3", "nodes='3': the number of nodes is")])
def test_an_impossible_number_of_nodes_is_refused(nodes: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        TestCluster.start(nodes)


def test_a_misspelt_parameter_of_the_factory_is_named(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(raftwerk_factory): raftwerk_factory(node=3)")
    told = "*TypeError: raftwerk_factory has no parameter node; it has nodes, settings, separate and secure"
    with_plugin(pytester).stdout.fnmatch_lines([told])


@pytest.mark.parametrize("option", ["--raftwerk-nodes=0", "--override-ini=raftwerk_nodes=many"])
def test_an_impossible_number_of_nodes_of_the_session_is_refused(pytester: pytest.Pytester, option: str) -> None:
    pytester.makepyfile("def test_it(raftwerk_bootstrap_servers): pass")
    ran = with_plugin(pytester, option)
    assert any("nodes" in line and "a cluster has 1 to 100 nodes" in line for line in ran.outlines + ran.errlines)


@pytest.mark.process
def test_wrong_nodes_and_topics_are_told_in_sentences() -> None:
    with TestCluster.start(1, settings={"auto.create.topics.enable": False, "num.partitions": 2}) as cluster:
        wrong: tuple[Callable[[], object], ...] = (
            lambda: cluster.kill(7),
            lambda: cluster.stop_node(7),
            lambda: cluster.pause(7),
            lambda: cluster.resume(7),
            lambda: cluster.start_node(7),
            lambda: cluster.restart(7),
            lambda: cluster.is_alive(7),
            lambda: cluster.log_of(7),
            lambda: cluster.partition(7),
            lambda: cluster.partition([1, 7]),
        )
        for one in wrong:
            with pytest.raises(LocalNodeError, match="there is no node 7; the ids of the nodes are 1"):
                one()
        for sides in ((), ([1], []), ([1], [1])):
            with pytest.raises(ValueError, match=r"a node is in two sides|name the nodes of each side"):
                cluster.partition(*sides)
        with pytest.raises(RefusedError, match="topic nope: there is no such topic"):
            cluster.leader_of("nope")
        topic = cluster.create_topic(config={"retention.ms": 5000})
        with pytest.raises(ClientError, match=f"topic {topic} has no partition 3: its only partition is 0$"):
            cluster.leader_of(topic, 3)
        two = cluster.create_topic(partitions=2)
        with pytest.raises(ClientError, match=f"topic {two} has no partition -1: its partitions are 0 to 1$"):
            cluster.leader_of(two, -1)
        with pytest.raises(
            RefusedError, match=r"already exists .*; create_topic\(\) without a name makes a unique one$"
        ):
            cluster.create_topic(two)
        with pytest.raises(
            RefusedError, match=r"retention\.mss \(INVALID_CONFIG\); did you mean retention\.ms\?$"
        ) as caught:
            cluster.create_topic(config={"retention.mss": 1})
        assert caught.value.__suppress_context__
        with pytest.raises(RefusedError, match=r"the cluster has 1 broker: start it with nodes=3$"):
            cluster.create_topic(replicas=3)
        with pytest.raises(ValueError, match="partitions='3': the number of partitions is an int"):
            cluster.create_topic(partitions=cast(int, "3"))
        with pytest.raises(LocalNodeError, match=r"node 1 runs already; restart\(1\) stops it and starts it again$"):
            cluster.start_node(1)
        cluster.pause(1)
        cluster.stop_node(1)
        faults: tuple[Callable[[int], None], ...] = (cluster.kill, cluster.stop_node, cluster.pause, cluster.resume)
        for fault in faults:
            with pytest.raises(LocalNodeError, match=r"node 1 does not run; start_node\(1\) starts it$"):
                fault(1)


def test_the_documentation_has_every_member_with_its_parameters() -> None:
    for name, member in vars(TestCluster).items():
        if not name.startswith("_") and name not in ("start", "plan"):
            assert re.search(rf"`{name}[(:]", PAGE), name
            names = inspect.signature(member).parameters if inspect.isfunction(member) else ()
            for parameter in list(names)[1:]:
                assert re.search(rf"`{name}\([^`]*\b{parameter}\b", PAGE), f"{name}: {parameter}"
