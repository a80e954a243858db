"""`mirror`: copy topics to another cluster, record for record, and move its groups' offsets along.

A topic keeps its partitions, keys, values, headers and timestamps; its offsets may change, since the source may have
dropped records. Which offset became which is kept in a table; after each batch the offsets that groups committed at the
source are translated by it and committed at the target, for groups that have no members there.

    raftwerk pipeline run mirror -t flights --target 127.0.0.1:19092 --state /data/mirror
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from ..errors import PipelineError
from ..mirroring import RUN_SCHEMA, Copier, Run, translate
from ..places import Topics
from ..running import Metrics, Say, Stream
from ..table import Table
from .common import (
    Reading,
    begin,
    follow_all,
    in_short,
    one_sentence,
    source_options,
    spark_options,
    split_options,
    split_running,
    tell,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JOB = "mirror"
_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class MirrorOptions:
    """Where copies go, what is put before a topic's name there, where the offsets are kept."""

    target: str
    state: str
    prefix: str = ""
    groups: bool = True


class Mirror:
    """One mirror under way."""

    def __init__(self, spark: SparkSession, topics: Topics, options: MirrorOptions) -> None:
        if options.target == topics.bootstrap_servers and not options.prefix:
            raise PipelineError("source and target are the same cluster: name a --prefix, or another target.")
        self.spark = spark
        self.topics = topics
        self.options = options
        self.renamed = {name: options.prefix + name for name in topics.names}
        identity = {
            "topics": list(topics.names),
            "target": options.target,
            "prefix": options.prefix,
            "source": topics.format,
        }
        self.table = Table(spark, options.state, JOB, identity)
        self.moved = 0

    def start(self, reading: Reading, say: Say, metrics: Metrics) -> Stream:
        """Make the topics at the target, then begin to copy."""
        self._make_topics()
        source = Topics(
            self.topics.bootstrap_servers,
            self.topics.names,
            self.topics.format,
            {**self.topics.options, "includeHeaders": "true"},
        )
        records = source.read_stream(self.spark, reading.starting_offsets, reading.max_offsets)
        query = (
            records.writeStream.queryName(JOB)
            .option("checkpointLocation", self.table.checkpoint)
            .trigger(**reading.trigger(self.topics))
            .foreachBatch(in_short(self._on_batch))
            .start()
        )
        return reading.follow(JOB, query, self.topics, say, metrics)

    def runs(self) -> dict[tuple[str, int], list[Run]]:
        """Which offsets became which, by topic and partition of the source."""
        found: dict[tuple[str, int], list[Run]] = {}
        if self.table.state.files:
            for row in self.table.read().drop("batch").collect():
                run = Run(row["topic"], row["partition"], row["source"], row["target"], row["length"])
                found.setdefault((run.topic, run.partition), []).append(run)
        return found

    def move_groups(self) -> int:
        """Translate what groups have committed at the source; how many offsets were committed at the target."""
        from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

        runs = self.runs()
        at_source, at_target = self.topics.bootstrap_servers, self.options.target
        source, target = _admin(at_source), _admin(at_target)
        moved = 0
        there = _groups(target, at_target)
        for group in sorted(_groups(source, at_source)):
            if there.get(group):
                continue
            request = source.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
            moves = []
            for place in _answer(request[group], at_source).topic_partitions or []:
                offset = translate(runs.get((place.topic, place.partition), []), place.offset)
                if offset is not None and place.offset >= 0:
                    moves.append(TopicPartition(self.renamed[place.topic], place.partition, offset))
            if moves:
                change = target.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, moves)])
                moved += _accepted(change[group])
        self.moved = moved
        return moved

    def _make_topics(self) -> None:
        for name, partitions in self.topics.partitions().items():
            copy = Topics(self.options.target, (self.renamed[name],))
            copy.create(partitions, _configs(self.topics.bootstrap_servers, name))
            there = copy.partitions()[self.renamed[name]]
            if there != partitions:
                raise PipelineError(
                    f"{self.renamed[name]} at {self.options.target} has {there} partitions, {name} has {partitions}: a "
                    "copy keeps each record in its partition, so they must be equal."
                )

    def _on_batch(self, rows: DataFrame, batch: int) -> None:
        from pyspark.sql import functions as f

        if self.table.committed(batch):
            return
        copier = Copier(self.options.target, self.renamed)
        sorted_rows = rows.select("topic", "partition", "offset", "timestamp", "key", "value", "headers")
        sorted_rows = sorted_rows.repartition("topic", "partition").sortWithinPartitions("topic", "partition", "offset")
        runs = sorted_rows.mapInArrow(copier.copy, RUN_SCHEMA).collect()  # type: ignore[arg-type]
        found = self.spark.createDataFrame([tuple(row) for row in runs], RUN_SCHEMA).withColumn("batch", f.lit(batch))
        copied = sum(row["length"] for row in runs)
        self.table.commit(batch, found.coalesce(1), (), lambda: {"rows": copied})
        if self.options.groups:
            self.move_groups()


def _configs(bootstrap_servers: str, topic: str) -> dict[str, str]:
    """What is set on a topic itself, so that its copy keeps as long, compacts as it does, and so on."""
    from confluent_kafka.admin import ConfigResource, ConfigSource  # type: ignore[attr-defined]

    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    admin = _admin(bootstrap_servers)  # must live until it has its answer
    set_here = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    entries = _answer(admin.describe_configs([resource])[resource], bootstrap_servers).values()
    return {one.name: one.value for one in entries if one.source == set_here and "throttled" not in one.name}


def _groups(admin: Any, bootstrap_servers: str) -> dict[str, bool]:
    """The groups of a cluster, and whether each has members."""
    from confluent_kafka import ConsumerGroupState

    listed = _answer(admin.list_consumer_groups(request_timeout=_TIMEOUT_S), bootstrap_servers)
    return {one.group_id: one.state not in (ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD) for one in listed.valid}


def _admin(bootstrap_servers: str) -> Any:
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})


def _answer(future: Any, bootstrap_servers: str) -> Any:
    """What a cluster answers; `PipelineError` when it does not."""
    from confluent_kafka import KafkaException

    try:
        return future.result(_TIMEOUT_S)
    except (KafkaException, TimeoutError) as error:
        said = error.args[0].str() if isinstance(error, KafkaException) else f"no answer in {_TIMEOUT_S:.0f} s"
        raise PipelineError(f"the cluster at {bootstrap_servers} did not do its part ({said}): is it up?") from None


def _accepted(change: Any) -> int:
    """How many offsets were taken. A group that got members in the meantime refuses all, and is left to them."""
    from confluent_kafka import KafkaException

    try:
        return sum(one.error is None for one in change.result(_TIMEOUT_S).topic_partitions)
    except (KafkaException, TimeoutError):
        return 0


@click.command(JOB)
@source_options
@click.option("--target", required=True, help="The other cluster.")
@click.option("--state", required=True, help="A directory for what became of each offset, and for the checkpoint.")
@click.option("--prefix", default="", help="Put before the names of the copies.")
@click.option("--groups/--no-groups", default=True, show_default=True, help="Move the groups' offsets along.")
@spark_options
@one_sentence
def command(**given: Any) -> None:
    """Copy topics to another cluster, record for record, with the groups' offsets.

    \b
    Try it:
      raftwerk pipeline run mirror -t flights --target 127.0.0.1:19092 --state mirror --once
    """
    topics, reading = split_options(given)
    running = split_running(given)
    options = MirrorOptions(given["target"], given["state"], given["prefix"], given["groups"])
    topics.check()
    say, metrics = begin(JOB, running)
    spark = running.session(JOB, kafka_connector=topics.format == "kafka")
    try:
        mirror = Mirror(spark, topics, options)
        say(f"mirror: {', '.join(topics.names)} of {topics.bootstrap_servers} to {options.target}")
        follow_all([mirror.start(reading, say, metrics)])
        rows = mirror.table.state.facts.get("rows", 0)
        moved = mirror.move_groups() if options.groups else 0
        sentence = f"{rows:,} records copied, {moved:,} offsets of groups moved"
        tell({"rows": rows, "offsets_moved": moved}, as_json=running.as_json, sentence=sentence)
    finally:
        spark.stop()
