"""Settings that a local cluster is given, and those that it cannot be given."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.security.certificates import Authority

from raftwerk.cluster.local.layout import ClusterShape, plan_cluster
from raftwerk.cluster.local.overrides import check_overrides, warnings_of
from raftwerk.cluster.settings.node_config import ConfigError


def check(directory: Path, nodes: int, **overrides: str) -> None:
    given = {name.replace("_", "."): value for name, value in overrides.items()}
    plan = plan_cluster(str(directory), ClusterShape(nodes, port=9092, overrides=given))
    check_overrides(plan, given)
    assert warnings_of(plan) == []


@pytest.mark.parametrize(
    ("name", "value", "way_out"),
    [
        ("node_id", "7", "leave it out: the nodes have the ids 1, 2, and so on"),
        ("process_roles", "broker", "leave it out: --separate runs the controllers in processes of their own"),
        ("log_dirs", "/x", "leave it out: the data of node i is in DIR/node-i: -d DIR chooses the directory"),
    ],
)
@pytest.mark.parametrize("nodes", [1, 2])
def test_what_each_node_has_a_value_of_is_refused(
    tmp_path: Path, nodes: int, name: str, value: str, way_out: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        check(tmp_path, nodes, **{name: value})
    key = name.replace("_", ".")
    assert str(refused.value) == f"{key}={value}: each node of a local cluster has a value of its own; {way_out}"


def test_the_only_node_may_be_given_what_several_may_not(tmp_path: Path) -> None:
    given = {"advertised_listeners": "PLAINTEXT://h:1", "metadata_log_dir": "/x"}
    check(tmp_path, 1, **given)
    listeners = "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:10093"
    check(tmp_path, 1, listeners=listeners)
    with pytest.raises(ConfigError, match=r"--host, --port and --controller-port choose where nodes listen$"):
        check(tmp_path, 2, listeners=listeners)
    with pytest.raises(
        ConfigError, match=r"--host chooses the address that they advertise\nmetadata\.log\.dir=/x: each"
    ):
        check(tmp_path, 2, **given)


def test_other_settings_are_for_all_nodes(tmp_path: Path) -> None:
    check(tmp_path, 3, min_insync_replicas="2")


def test_a_cluster_that_is_secured_by_settings_is_not_secured_twice(tmp_path: Path) -> None:
    given = {"listener.security.protocol.map": "PLAINTEXT:SASL_SSL,CONTROLLER:SASL_SSL", "ssl.keystore.type": "PEM"}
    plan = plan_cluster(str(tmp_path), ClusterShape(3, overrides=given, secure=True))
    with pytest.raises(ConfigError) as refused:
        check_overrides(plan, given, secure=True)
    assert str(refused.value) == (
        "listener.security.protocol.map=PLAINTEXT:SASL_SSL,CONTROLLER:SASL_SSL: --secure has its own value of it, and "
        "of ssl.keystore.type; leave out --secure, for a cluster that its own settings secure, or those settings"
    )


SECURED = {"listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:PLAINTEXT", "ssl.keystore.type": "PEM"}
WRONG_RULE = "RULE:^CN=(.*)$/$2/"


def test_what_a_node_refuses_of_its_listeners_is_refused_before(tmp_path: Path) -> None:
    store = str(Authority(tmp_path).issue("node", "127.0.0.1"))

    def warnings(**overrides: str) -> list[str]:
        given = SECURED | {"ssl.keystore.location": store} | {k.replace("_", "."): v for k, v in overrides.items()}
        return warnings_of(plan_cluster(str(tmp_path), ClusterShape(1, port=9092, overrides=given)))

    assert warnings() == []
    with pytest.raises(ConfigError, match=r"^ssl\.principal\.mapping\.rules=RULE.*'\$2' is no replacement"):
        warnings(ssl_principal_mapping_rules=WRONG_RULE)
    with pytest.raises(ConfigError, match=r"cannot read /nowhere: no such file"):
        warnings(ssl_keystore_location="/nowhere")


def test_certificates_that_the_start_makes_need_not_be_there(tmp_path: Path) -> None:
    shape = ClusterShape(1, port=9092, secure=True)
    assert warnings_of(plan_cluster(str(tmp_path), shape)) == []
    with pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules"):
        wrong = {"ssl.principal.mapping.rules": WRONG_RULE}
        warnings_of(plan_cluster(str(tmp_path), replace(shape, overrides=wrong)))
