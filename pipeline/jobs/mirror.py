"""`mirror`: copy topics to another cluster, record by record, and translate the committed offsets of its groups.

A copy has the partitions, keys, values, headers and timestamps of its source. Offsets may differ, since the source may
have deleted records. A table holds which offsets became which. After each batch the offsets that groups committed at
the source are translated by those files and committed at the target, for groups that have no members there. They only
grow there, so that a group that has gone on at the target is not taken back.

    raftwerk pipeline run mirror -t flights --target 127.0.0.1:19092 --state /data/mirror
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ...cluster.command_line.commands import Command
from ...cluster.command_line.plural import counted
from ..errors import PipelineError, UnreachableClusterError, WrongOptionError
from ..login import login_in_file, producer_login
from ..output_directory import OutputDirectory, check_local_output, locked
from ..running_query import Metrics, ProgressLog, RunningQuery
from ..status.status_file import reported
from ..topics import Topics
from .copied_ranges_log import CopiedRangesLog
from .copy_reader import last_copied
from .job_command import (
    ReadSettings,
    prepare_job,
    print_result,
    report_errors,
    shorten_errors,
    source_options,
    spark_options,
    spark_page,
    take_run_settings,
    take_source_options,
)
from .record_copier import TASK_RESULT_SCHEMA, CopiedRange, RecordCopier, translate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JOB = "mirror"
_TIMEOUT_S = 30.0
_MARKERS = 1
"""What stands behind the last copy when nobody else wrote: the marker of its transaction."""
Place = tuple[str, int]
"""A topic and the number of a partition."""


@dataclass(frozen=True, slots=True)
class MirrorOptions:
    """The target cluster, the directory of the offsets' translation, and the prefix of copies' names.

    `groups`: whether to translate the offsets of groups.
    """

    target: str
    state: str
    prefix: str = ""
    groups: bool = True
    target_login: Mapping[str, str] = field(default_factory=dict)
    """How to log in at the target, in the properties of Kafka's clients."""


def identity_of(topics: Topics, options: MirrorOptions) -> dict[str, Any]:
    """What the directory of a run holds."""
    return {
        "topics": list(topics.names),
        "target": options.target,
        "prefix": options.prefix,
    }


class Mirror:
    """The job for one target and one directory."""

    def __init__(self, spark: SparkSession, topics: Topics, options: MirrorOptions) -> None:
        self.spark = spark
        self.topics = topics
        self.options = options
        self.copy_names = {name: options.prefix + name for name in topics.names}
        self.copied = CopiedRangesLog(spark, options.state)
        self.output = OutputDirectory(spark, options.state, JOB, identity_of(topics, options), self.copied.has_batches)
        self.moved = 0
        """Offsets of groups that this run has moved."""

    def start(self, read_settings: ReadSettings, log: ProgressLog, metrics: Metrics) -> RunningQuery:
        """Create the topics at the target, then start the streaming query."""
        self._create_target_topics()
        self._refuse_foreign_records()
        source = Topics(
            self.topics.bootstrap_servers,
            self.topics.names,
            self.topics.format,
            {**self.topics.options, "includeHeaders": "true"},
            self.topics.login,
        )
        records = source.read_stream(self.spark, read_settings.starting_offsets, read_settings.max_offsets)
        query = (
            records.writeStream.queryName(JOB)
            .option("checkpointLocation", self.output.checkpoint)
            .trigger(**read_settings.trigger(self.topics))
            .foreachBatch(shorten_errors(partial(self._on_batch, log)))
            .start()
        )
        return read_settings.follow(JOB, query, self.topics, log, metrics)

    def translate_group_offsets(self, log: Callable[[str], None]) -> int:
        """Commit the translated offsets of the source's groups at the target. Returns the number of offsets.

        What a group has committed at the target is asked of its coordinator, even if the target does not list the
        group: while a coordinator moves or loads, its groups are in no list.
        """
        from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

        runs = self.copied.by_place()
        ends: dict[Place, int] | None = None
        at_source, at_target = self.topics.bootstrap_servers, self.options.target
        source, target = _admin(at_source, self.topics.login), _admin(at_target, self.options.target_login)
        moved = 0
        groups, _ = _groups(source, at_source)  # one that is not listed is moved after a later batch
        there, error = _groups(target, at_target)
        if error is not None:
            log(f"{JOB}: no offsets of groups are moved now, since {at_target} does not list all groups ({error})")
            return 0
        for group in sorted(groups):
            if there.get(group):
                continue
            translated: dict[Place, int] = {}
            for (topic, partition), committed in (_committed(source, group, at_source) or {}).items():
                if topic not in self.copy_names:
                    continue
                offset = translate(runs.get((topic, partition), []), committed)
                if offset is None:
                    ends = self._ends_of_empty(source, target, runs) if ends is None else ends
                    offset = ends.get((topic, partition))
                if offset is not None:
                    translated[self.copy_names[topic], partition] = offset
            known = _committed(target, group, at_target) if translated else None
            if known is None:
                continue
            moves = [  # it may have gone on there
                TopicPartition(*copy, offset) for copy, offset in translated.items() if offset > known.get(copy, -1)
            ]
            if moves:
                change = target.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, moves)])
                moved += _accepted(change[group])
        self.moved += moved
        return moved

    def _ends_of_empty(self, source: Any, target: Any, runs: Mapping[Place, Any]) -> dict[Place, int]:
        """The ends of the copies of partitions that hold no record, and of which none was ever copied.

        A group that has read such a partition to its end goes on at the end of the copy.
        """
        from confluent_kafka.admin import OffsetSpec

        begin, end = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]
        counts = self.topics.partitions()
        untouched = [(name, one) for name in counts for one in range(counts[name]) if (name, one) not in runs]
        at_source = self.topics.bootstrap_servers
        starts, ends = (_offsets(source, untouched, each, at_source) for each in (begin, end))
        empty = [place for place in untouched if starts[place] == ends[place]]
        copies = [(self.copy_names[topic], partition) for topic, partition in empty]
        found = _offsets(target, copies, end, self.options.target)
        return {place: found[copy] for place, copy in zip(empty, copies, strict=True)}

    def _create_target_topics(self) -> None:
        check_target(self.topics, self.options)
        for name, partitions in self.topics.partitions().items():
            copy = Topics(self.options.target, (self.copy_names[name],), login=self.options.target_login)
            copy.create(partitions, _configs(self.topics.bootstrap_servers, name, self.topics.login))
            there = copy.partitions()[self.copy_names[name]]
            if there != partitions:
                raise PipelineError(
                    f"{self.copy_names[name]} at {self.options.target} has {counted(there, 'partition')}, {name} has "
                    f"{partitions}: a copy keeps each record in its partition, so they must be equal."
                )

    def _refuse_foreign_records(self) -> None:
        """Raise `PipelineError` if a partition of a copy ends with a record that no mirror wrote."""
        from confluent_kafka.admin import OffsetSpec

        at, login = self.options.target, self.options.target_login
        known = {place: max(one.target + one.length for one in runs) for place, runs in self.copied.by_place().items()}
        places = [(name, one) for name, count in self.topics.partitions().items() for one in range(count)]
        copies = [(self.copy_names[name], partition) for name, partition in places]
        ends = _offsets(_admin(at, login), copies, OffsetSpec.latest(), at)  # type: ignore[no-untyped-call]
        for place, copy in zip(places, copies, strict=True):
            if ends[copy] > known.get(place, 0) + _MARKERS:  # by somebody else, or by a run that was interrupted
                last_copied(at, *copy, producer_login(login))

    def _on_batch(self, log: Callable[[str], None], rows: DataFrame, batch: int) -> None:
        if self.copied.has(batch):
            return
        offsets = self.output.offsets_of(batch)
        ends = {(topic, int(one)): end for topic, places in offsets.items() for one, end in places.items()}
        copier = RecordCopier(self.options.target, self.copy_names, producer_login(self.options.target_login), ends)
        timestamp = "unix_millis(timestamp) AS timestamp_ms"
        sorted_rows = rows.selectExpr("topic", "partition", "offset", timestamp, "key", "value", "headers")
        sorted_rows = sorted_rows.repartition("topic", "partition").sortWithinPartitions("topic", "partition", "offset")
        ranges = sorted_rows.mapInArrow(copier.copy, TASK_RESULT_SCHEMA).collect()  # type: ignore[arg-type]
        self.copied.add(batch, [(CopiedRange(*one[:-1]), one[-1]) for one in ranges])
        if self.options.groups:
            self.translate_group_offsets(log)


def check_target(topics: Topics, options: MirrorOptions) -> None:
    """Raise `WrongOptionError` when topics would be copied onto themselves; the target must answer."""
    where = "in the file of --target-config"
    target = Topics(options.target, (), login=options.target_login, login_place=where)
    try:
        target_id = target.cluster_id()
    except UnreachableClusterError as error:
        way_out = "" if error.is_explained else f": start that cluster, or correct the address ({options.target})"
        raise PipelineError(f"{error}; the address is from --target{way_out}") from None
    if target_id == topics.cluster_id() and not options.prefix:
        raise WrongOptionError("source and target are the same cluster: name a --prefix, or another target.")


def _configs(bootstrap_servers: str, topic: str, login: Mapping[str, str]) -> dict[str, str]:
    """The configuration that is set on a topic itself, such as its retention, for its copy."""
    from confluent_kafka.admin import ConfigResource, ConfigSource

    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    admin = _admin(bootstrap_servers, login)  # must stay referenced until it has the response
    set_here = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    entries = _answer(admin.describe_configs([resource])[resource], bootstrap_servers).values()
    return {one.name: one.value for one in entries if one.source == set_here and "throttled" not in one.name}


def _groups(admin: Any, bootstrap_servers: str) -> tuple[dict[str, bool], str | None]:
    """The groups of a cluster, and whether each has members; and why some are missing, if a broker did not tell."""
    from confluent_kafka import ConsumerGroupState

    listed = _answer(admin.list_consumer_groups(request_timeout=_TIMEOUT_S), bootstrap_servers)
    empty = (ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD)
    error = listed.errors[0].str() if listed.errors else None
    return {one.group_id: one.state not in empty for one in listed.valid}, error


def _committed(admin: Any, group: str, bootstrap_servers: str) -> dict[Place, int] | None:
    """The offsets that a group has committed, by topic and partition; None for a group that this user may not read."""
    from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError

    request = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    answer = _answer(request[group], bootstrap_servers, refusal=KafkaError.GROUP_AUTHORIZATION_FAILED)
    if answer is None:
        return None
    places = answer.topic_partitions or []
    return {(one.topic, one.partition): one.offset for one in places if one.offset >= 0}


def _offsets(admin: Any, places: list[Place], spec: Any, bootstrap_servers: str) -> dict[Place, int]:
    """An offset of each partition, such as its end."""
    from confluent_kafka import TopicPartition

    asked = admin.list_offsets({TopicPartition(*place): spec for place in places}) if places else {}
    return {(one.topic, one.partition): _answer(found, bootstrap_servers).offset for one, found in asked.items()}


def _admin(bootstrap_servers: str, login: Mapping[str, str]) -> Any:
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0, **producer_login(login)})


def _answer(future: Any, bootstrap_servers: str, refusal: int | None = None) -> Any:
    """The result of a request, None where the cluster refuses it with the error code `refusal`.

    `PipelineError` when the cluster refuses it for another reason or does not answer.
    """
    from confluent_kafka import KafkaException

    try:
        return future.result(_TIMEOUT_S)
    except (KafkaException, TimeoutError) as error:
        if isinstance(error, KafkaException) and error.args[0].code() == refusal:
            return None
        said = error.args[0].str() if isinstance(error, KafkaException) else f"no answer in {_TIMEOUT_S:.0f} s"
        raise PipelineError(f"the cluster at {bootstrap_servers} did not do its part ({said}): is it up?") from None


def _accepted(change: Any) -> int:
    """The number of accepted offsets. The broker refuses all for a group that has members by now."""
    from confluent_kafka import KafkaException

    try:
        return sum(one.error is None for one in change.result(_TIMEOUT_S).topic_partitions)
    except (KafkaException, TimeoutError):
        return 0


@click.command(JOB, cls=Command)
@source_options
@click.option("--target", required=True, help="The other cluster.")
@click.option(
    "--target-config",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="How to log in at the target, as --command-config for the source.",
)
@click.option("--state", required=True, help="A directory for what became of each offset, and for the checkpoint.")
@click.option("--prefix", default="", help="Put before the names of the copies.")
@click.option("--groups/--no-groups", default=True, show_default=True, help="Move the groups' offsets along.")
@spark_options
@report_errors
def command(**given: Any) -> None:
    """Copy topics to another cluster, record by record, with the groups' offsets.

    \b
    Examples:
      raftwerk pipeline run mirror -t flights --target 127.0.0.1:19092 --state mirror -e
    """
    topics, read_settings = take_source_options(given)
    run_settings = take_run_settings(given)
    target_login = login_in_file(given["target_config"])
    options = MirrorOptions(given["target"], given["state"], given["prefix"], given["groups"], target_login)
    topics.check_names(writes=True)  # the groups and the settings of its topics are read by librdkafka
    copies = tuple(options.prefix + name for name in topics.names)
    Topics(options.target, copies, login=target_login).check_names(writes=True)
    log, metrics = prepare_job(JOB, run_settings)
    check_local_output(options.state, JOB, identity_of(topics, options), run_settings.master)
    topics.check()
    check_target(topics, options)
    with (
        locked(options.state, run_settings.master),
        reported(options.state, run_settings.master, topics, metrics) as status,
        run_settings.session(JOB, log, topics=topics) as (spark, stopping),
    ):
        status.on_spark(spark_page(spark), stopping)
        mirror = Mirror(spark, topics, options)
        log(f"mirror: {', '.join(topics.names)} of {topics.bootstrap_servers} to {options.target}")
        before = mirror.copied.counts()
        mirror.start(read_settings, log, metrics).follow(stopping)
        if options.groups:
            mirror.translate_group_offsets(log)
        result, sentence = summary(before, mirror.copied.counts(), mirror.moved)
        print_result(result, as_json=run_settings.as_json, sentence=sentence)


def summary(before: Mapping[str, int], after: Mapping[str, int], moved: int) -> tuple[dict[str, Any], str]:
    """What a run did, as JSON and as a sentence, from the counts of copied records before and after it.

    Records that an interrupted run had copied before it could write that down are no copies of this run.
    """
    rows = after.get("rows", 0)
    found = after.get("rows_found", 0) - before.get("rows_found", 0)
    copied = rows - before.get("rows", 0) - found
    there = [f"{found:,} {'was' if found == 1 else 'were'} there already"] if found else []
    in_all = [f"{rows:,} in all"] if rows != copied else []
    aside = f" ({', '.join([*there, *in_all])})" if there or in_all else ""
    sentence = f"{counted(copied, 'record')} copied{aside}, {counted(moved, 'offset')} of groups moved"
    return {"rows": rows, "rows_of_this_run": copied, "rows_found": found, "offsets_moved": moved}, sentence
