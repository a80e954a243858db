"""Both sources of Spark, and both sinks, by every way to log in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.errors import PySparkException
from support.e2e.secured_node import WAYS, SecuredNode


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    with SecuredNode.start(tmp_path_factory.mktemp("secured")) as node:
        yield node


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("source", ["kafka", "raftwerk"])
def test_a_row_is_written_and_read(spark: Any, node: SecuredNode, source: str, way: str) -> None:
    login, topic = node.logins[way], f"{source}-{way}"
    allowed = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
    spark._jvm.java.lang.System.setProperty(allowed, login.token_url)
    options = {f"kafka.{name}": value for name, value in login.java().items()}
    options["kafka.bootstrap.servers"] = login.bootstrap
    rows = spark.createDataFrame([(f"by {way}",)], "value string")
    rows.write.mode("append").format(source).options(**options).option("topic", topic).save()
    read = spark.read.format(source).options(**options).option("subscribe", topic).load()
    assert [row.value for row in read.selectExpr("cast(value as string) as value").collect()] == [f"by {way}"]


@pytest.mark.parametrize("way", ["SCRAM-SHA-512", "OAUTHBEARER"])
def test_a_wrong_login_ends_a_write(spark: Any, node: SecuredNode, way: str) -> None:
    login = node.logins[way]
    options = {f"kafka.{name}": value.replace("wonder", "blunder") for name, value in login.java().items()}
    options = {name: value.replace("secret-of-alice", "secret-of-bob") for name, value in options.items()}
    rows = spark.createDataFrame([("x",)], "value string")
    writer = rows.write.mode("append").format("raftwerk").options(**options).option("topic", "refused")
    with pytest.raises(PySparkException, match=f"no login at {login.bootstrap}") as refused:
        writer.option("kafka.bootstrap.servers", login.bootstrap).save()
    assert "blunder" not in str(refused.value)
