"""Where records come from and go to: a cluster's topics, by Spark's Kafka connector or by our own data source."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..cluster.client.admin_client import AdminClient, NewTopic
from ..cluster.client.client_errors import ClientError, RefusedError
from ..cluster.client.cluster_client import ClusterClient
from .errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS = ("raftwerk", "kafka")


@dataclass(frozen=True, slots=True)
class Topics:
    """Topics of one cluster. `format`: `kafka` is Spark's own connector, `raftwerk` needs no jars.

    `options` are those of the connector, `kafka.*` for its client included.
    """

    bootstrap_servers: str
    names: tuple[str, ...]
    format: str = "raftwerk"
    options: Mapping[str, str] = field(default_factory=dict)

    def read_stream(self, spark: SparkSession, starting_offsets: str, max_offsets: int | None) -> DataFrame:
        """The records as a stream; `max_offsets` bounds a batch."""
        options = {**self._options(), "startingOffsets": starting_offsets}
        if max_offsets is not None:
            options["maxOffsetsPerTrigger"] = str(max_offsets)
        return spark.readStream.format(self._register_format(spark)).options(**options).load()

    def read(self, spark: SparkSession, *, up_to: Mapping[str, Mapping[str, int]] | None = None) -> DataFrame:
        """All records up to what is the end now, or up to these offsets by topic and partition."""
        end = "latest" if up_to is None else json.dumps(up_to)
        options = {**self._options(), "startingOffsets": "earliest", "endingOffsets": end}
        return spark.read.format(self._register_format(spark)).options(**options).load()

    def write(self, spark: SparkSession, rows: DataFrame) -> None:
        """Send rows that have `key` and `value` to the one topic."""
        options = {
            "kafka.bootstrap.servers": self.bootstrap_servers,
            "topic": self.names[0],
            "kafka.acks": "all",
            **self.options,
        }
        rows.write.format(self._register_format(spark)).options(**options).mode("append").save()

    def ends(self) -> dict[tuple[str, str], int]:
        """Where the partitions end now, by topic and partition; `PipelineError` when the cluster does not tell."""
        from .source.kafka_client import KafkaClient
        from .source.options import LATEST, parse_read

        options = parse_read(self._options(), streaming=True)
        with KafkaClient(options.client) as kafka:
            found = kafka.offsets(dict.fromkeys(kafka.partitions(options.strategy), LATEST))
        return {(key.topic, str(key.partition)): offset or 0 for key, offset in found.items()}

    def ends_unknown_to_spark(self) -> bool:
        """Whether Spark does not know where these topics end: before 4.2 it does not ask a source in Python for it."""
        from .source.reader import HAS_ADMISSION_CONTROL

        return self.format == "raftwerk" and not HAS_ADMISSION_CONTROL

    def is_limited(self) -> bool:
        """Whether an option says how much a batch may hold."""
        return any(name.lower() == "maxoffsetspertrigger" for name in self.options)

    def check(self) -> None:
        """`PipelineError` when no broker answers, or when a topic does not exist."""
        missing = [name for name, partitions in self.partitions().items() if not partitions]
        if missing:
            raise PipelineError(
                f"there is no topic {missing[0]} at {self.bootstrap_servers}: "
                f"create it (raftwerk topics create {missing[0]}), or see `raftwerk topics list` for what there is."
            )

    def partitions(self) -> dict[str, int]:
        """The number of partitions of each topic, 0 where there is no such topic."""
        return asyncio.run(self._partitions())

    def create(self, partitions: int, configs: Mapping[str, str]) -> None:
        """Create the topics that are not there yet, on as many as three brokers."""
        asyncio.run(self._create(partitions, configs))

    async def _partitions(self) -> dict[str, int]:
        try:
            async with ClusterClient(self.bootstrap_servers) as client:
                view = await client.metadata()
        except (ClientError, OSError) as error:
            raise self._unreachable(error) from None
        there = {topic.name: len(topic.partitions) for topic in view.topics}
        return {name: there.get(name, 0) for name in self.names}

    async def _create(self, partitions: int, configs: Mapping[str, str]) -> None:
        try:
            async with ClusterClient(self.bootstrap_servers) as client:
                view = await client.metadata()
                there = {topic.name for topic in view.topics}
                for name in self.names:
                    if name not in there:
                        replicas = min(3, len(view.brokers))
                        await AdminClient(client).create_topic(NewTopic(name, partitions, replicas, dict(configs)))
        except RefusedError as error:
            raise PipelineError(str(error)) from None
        except (ClientError, OSError) as error:
            raise self._unreachable(error) from None

    def _unreachable(self, error: Exception) -> PipelineError:
        return PipelineError(
            f"no broker answers at {self.bootstrap_servers} ({error}): is the cluster up, and is this its address?"
        )

    def _options(self) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self.bootstrap_servers,
            "subscribe": ",".join(self.names),
            **self.options,
        }

    def _register_format(self, spark: SparkSession) -> str:
        if self.format == "raftwerk":
            from .source import RaftwerkDataSource

            spark.dataSource.register(RaftwerkDataSource)
        return self.format


def parse_options(pairs: Sequence[str]) -> dict[str, str]:
    """`name=value` words as a mapping; `PipelineError` for one without `=`."""
    options = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise PipelineError(f"{pair} is no option: write it as name=value.")
        options[name] = value
    return options
