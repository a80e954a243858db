"""The topics that a job reads and writes, by Spark's Kafka connector or by our own data source."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..cluster.client.access.bootstrap import parse_bootstrap
from ..cluster.client.access.current_login import CURRENT_LOGIN
from ..cluster.client.admin_client import AdminClient, NewTopic
from ..cluster.client.client_errors import (
    ClientError,
    NotLoggedInError,
    RefusedError,
    UnreachableError,
    WrongArgumentError,
)
from ..cluster.client.cluster_client import ClusterClient, ClusterView
from ..cluster.client.peer_protocol import explained
from .errors import PipelineError, UnreachableClusterError, WrongOptionError
from .login import login_of_options, producer_login

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS = ("raftwerk", "kafka")
_LAG_TIMEOUT_S = 3.0
"""How long a job waits for what the lag of its last batch is."""
_LEGAL_NAME = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")
_OF_THE_JOB = {
    "kafka.bootstrap.servers": "--bootstrap-server",
    "subscribe": "--topic",
    "subscribepattern": "--topic",
    "assign": "--topic",
    "startingoffsets": "--starting-offsets",
}
"""Options of the source, in lower case, that a job sets itself, by what its command has for them."""


@dataclass(frozen=True, slots=True)
class Topics:
    """Topics of one cluster. `format` is `kafka` for Spark's own connector, or `raftwerk`, which needs no jars.

    `options` are those of the connector, including `kafka.*` for its client. `login` are the properties of Kafka's
    clients that say how to log in; empty for PLAINTEXT.
    """

    bootstrap_servers: str
    names: tuple[str, ...]
    format: str = "raftwerk"
    options: Mapping[str, str] = field(default_factory=dict)
    login: Mapping[str, str] = field(default_factory=dict)
    login_place: str = "in the kafka.* options"
    """Where the login is corrected, for people."""

    def read_stream(self, spark: SparkSession, starting_offsets: str, max_offsets: int | None) -> DataFrame:
        """The records as a stream. `max_offsets` limits the records of a batch."""
        options = {**self._options(), "startingOffsets": starting_offsets}
        if max_offsets is not None:
            options["maxOffsetsPerTrigger"] = str(max_offsets)
        return spark.readStream.format(self._register_format(spark)).options(**options).load()

    def read(self, spark: SparkSession, *, up_to: Mapping[str, Mapping[str, int]] | None = None) -> DataFrame:
        """All records up to the present end, or up to these offsets by topic and partition."""
        end = "latest" if up_to is None else json.dumps(up_to)
        options = {**self._options(), "startingOffsets": "earliest", "endingOffsets": end}
        return spark.read.format(self._register_format(spark)).options(**options).load()

    def write(self, spark: SparkSession, rows: DataFrame) -> None:
        """Write rows with `key` and `value` to the first of the topics."""
        options = {
            "kafka.bootstrap.servers": self.bootstrap_servers,
            "topic": self.names[0],
            "kafka.acks": "all",
            **self._login_options(),
            **self.options,
        }
        rows.write.format(self._register_format(spark)).options(**options).mode("append").save()

    def ends(self, timeout_s: float | None = None) -> dict[tuple[str, str], int]:
        """The present end offsets by topic and partition.

        `PipelineError` when the cluster does not answer in this time, or without one in that of the options.
        """
        from .source.kafka_client import KafkaClient
        from .source.options import parse_read

        options = parse_read(self._options(), streaming=True)
        with KafkaClient(options.client) as kafka:
            found = kafka.ends(options.strategy, timeout_s)
        return {(key.topic, str(key.partition)): offset for key, offset in found.items()}

    def ends_for_lag(self) -> dict[tuple[str, str], int]:
        """The present end offsets, of brokers that answer soon; `PipelineError` otherwise."""
        return self.ends(_LAG_TIMEOUT_S)

    def check_options(self, starting_offsets: str, max_offsets: int | None) -> None:
        """Raise `WrongOptionError` for what no read of any cluster can mean."""
        from .source.options import is_common_option, parse_read

        self.check_names()
        for name in self.options:
            ours = "--max-offsets" if max_offsets and name.lower() == "maxoffsetspertrigger" else None
            ours = ours or _OF_THE_JOB.get(name.lower())
            if ours is not None:
                raise WrongOptionError(f"{name} is what {ours} says: name it there, and leave the option out.")
        # Spark's connector has more options than ours, ignores what it does not know, and logs in by more ways.
        ours_too = {k: v for k, v in self._options().items() if self.format == "raftwerk" or is_common_option(k)}
        try:
            starting = parse_read({**ours_too, "startingOffsets": starting_offsets}, streaming=True).starting
        except WrongOptionError as error:  # these offsets are an option of the job
            raise WrongOptionError(re.sub(r"^startingOffsets\b", "--starting-offsets", str(error))) from None
        if starting.by_partition is not None:
            named = {key.topic for key in starting.by_partition}
            for topic in sorted(named.symmetric_difference(self.names)):
                wrong = "are of a topic that is not read" if topic in named else "say nothing of a topic"
                raise WrongOptionError(f"the starting offsets {wrong}, {topic}: name those of each topic that is read.")

    def check_names(self, *, writes: bool = False) -> None:
        """Raise `WrongOptionError` for an address, a name or a login that no cluster and no topic can have.

        `writes`: whether librdkafka is to log in, too.
        """
        try:
            parse_bootstrap(self.bootstrap_servers)
        except WrongArgumentError as error:
            raise WrongOptionError(f"{error}.") from None
        for name in self.names:
            check_topic_name(name)
        login_of_options(self.login)
        if writes:
            producer_login(self.login)

    def ends_unknown_to_spark(self) -> bool:
        """Whether Spark does not know the ends of these topics: before 4.2 it does not ask Python sources for them."""
        from .source.reader import HAS_ADMISSION_CONTROL

        return self.format == "raftwerk" and not HAS_ADMISSION_CONTROL

    def check(self) -> None:
        """`PipelineError` when no broker answers, or when a topic does not exist."""
        missing = [name for name, partitions in self.partitions().items() if not partitions]
        if missing:
            raise PipelineError(
                f"there is no topic {missing[0]} at {self.bootstrap_servers}: "
                f"create it (raftwerk topics create {missing[0]}), or see `raftwerk topics list` for what there is."
            )

    def partitions(self) -> dict[str, int]:
        """The number of partitions of each topic, 0 for a topic that does not exist."""
        return asyncio.run(self._partitions())

    def create(self, partitions: int, configs: Mapping[str, str]) -> None:
        """Create the topics that do not exist, with up to three replicas."""
        asyncio.run(self._create(partitions, configs))

    def cluster_id(self) -> str | None:
        """The id of the cluster. `PipelineError` when no broker answers."""
        return asyncio.run(self._view()).cluster_id

    async def _partitions(self) -> dict[str, int]:
        there = {topic.name: len(topic.partitions) for topic in (await self._view()).topics}
        return {name: there.get(name, 0) for name in self.names}

    async def _view(self) -> ClusterView:
        try:
            async with self._client() as client:
                return await client.metadata()
        except UnreachableError as error:
            raise await self._unreachable(error) from None
        except (ClientError, OSError) as error:
            raise UnreachableClusterError(self.bootstrap_servers, str(error)) from None

    async def _create(self, partitions: int, configs: Mapping[str, str]) -> None:
        try:
            async with self._client() as client:
                view = await client.metadata()
                there = {topic.name for topic in view.topics}
                for name in self.names:
                    if name not in there:
                        replicas = min(3, len(view.brokers))
                        await AdminClient(client).create_topic(NewTopic(name, partitions, replicas, dict(configs)))
        except RefusedError as error:
            raise PipelineError(str(error)) from None
        except UnreachableError as error:
            raise await self._unreachable(error) from None
        except (ClientError, OSError) as error:
            raise UnreachableClusterError(self.bootstrap_servers, str(error)) from None

    async def _unreachable(self, error: UnreachableError) -> PipelineError:
        """The error for people. A login that was refused is to be corrected; the cluster is up."""
        found = await explained(error, login_of_options(self.login))
        if isinstance(found, NotLoggedInError):
            return PipelineError(f"{found}; {found.way_out} {self.login_place}.")
        return UnreachableClusterError(self.bootstrap_servers, str(found), is_explained=found.is_explained)

    def _options(self) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self.bootstrap_servers,
            "subscribe": ",".join(self.names),
            **self._login_options(),
            **self.options,
        }

    def _login_options(self) -> dict[str, str]:
        return {f"kafka.{name}": value for name, value in self.login.items()}

    def _client(self) -> ClusterClient:
        """A client for the event loop that runs, which logs in to this cluster and not as others of the command do."""
        CURRENT_LOGIN.set(login_of_options(self.login))
        return ClusterClient(self.bootstrap_servers)

    def _register_format(self, spark: SparkSession) -> str:
        if self.format == "raftwerk":
            from .source import RaftwerkDataSource

            spark.dataSource.register(RaftwerkDataSource)
        return self.format


def check_topic_name(name: str) -> None:
    """Raise `WrongOptionError` for a name that no topic can have."""
    if _LEGAL_NAME.fullmatch(name) is None:
        raise WrongOptionError(
            f"{name!r} is no name of a topic: it has 1 to 249 letters, digits, dots, dashes and underscores."
        )


def parse_options(pairs: Sequence[str]) -> dict[str, str]:
    """`name=value` arguments as a mapping. `WrongOptionError` for an argument without `=`."""
    options = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise WrongOptionError(f"{pair} is no option: write it as name=value.")
        options[name] = value
    return options
