"""`raftwerk perf`: measures the throughput and latency of any cluster that speaks Kafka's protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..options import Group, bootstrap_option, json_option, print_json, run_client

if TYPE_CHECKING:
    from ...cluster.client.perf import PerfResult

_ACKS = {"all": -1, "1": 1}


@click.group(cls=Group)
def perf() -> None:
    """Measure a cluster: how fast it takes records, how fast it gives them, and how long a record takes to a consumer.

    \b
    Examples:
      raftwerk perf produce load --seconds 10
      raftwerk perf produce load --throughput 1000 --records 0       a steady load until Ctrl-C
      raftwerk perf consume load
      raftwerk perf e2e load --records 1000
    """


@perf.command()
@click.argument("topic")
@click.option("--records", type=click.IntRange(0), default=0, help="Stop after this many records; 0: no limit.")
@click.option("--seconds", type=click.FloatRange(0), default=0.0, help="Stop after this time; 0: no limit.")
@click.option(
    "--record-size", type=click.IntRange(0, 1_000_000), default=100, show_default=True, help="Bytes of a value."
)
@click.option("--batch-records", type=click.IntRange(0), default=0, help="Records in a batch; default: 64 KB of them.")
@click.option("--throughput", type=click.IntRange(0), default=0, help="Records/s; 0: no limit.")
@click.option("--acks", type=click.Choice(list(_ACKS)), default="all", show_default=True)
@click.option(
    "--in-flight",
    type=click.IntRange(1, 100),
    default=5,
    show_default=True,
    help="Requests under way for each partition.",
)
@click.option(
    "-z",
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    show_default=True,
)
@click.option("-p", "--partitions", type=click.IntRange(1), default=6, show_default=True, help="If TOPIC is created.")
@click.option("--replicas", type=click.IntRange(-1), default=-1, help="If TOPIC is created; -1: the cluster's default.")
@click.option(
    "--report", "report_s", type=click.FloatRange(0), default=5.0, show_default=True, help="Seconds between reports."
)
@bootstrap_option
@json_option
def produce(
    topic: str, acks: str, compression: str, partitions: int, replicas: int, report_s: float, **rest: Any
) -> None:
    """Send prepared batches to TOPIC, which is created if it does not exist. Without a limit, until Ctrl-C."""
    bootstrap, as_json = rest.pop("bootstrap"), rest.pop("as_json")

    async def run() -> PerfResult:
        from ...cluster.client.cluster_client import ClusterClient
        from ...cluster.client.perf import ProduceLoad, ProducePerf, ensure_topic, reported
        from ...wire.compression import Compression

        load = ProduceLoad(topic, acks=_ACKS[acks], compression=Compression[compression.upper()], **rest)
        async with ClusterClient(bootstrap) as client:
            await ensure_topic(client, topic, partitions, replicas)
            return await reported(ProducePerf(client, load), report_s, lambda result: _print(result, as_json))

    _print(run_client(run()), as_json)


@perf.command()
@click.argument("topic")
@click.option("--records", type=click.IntRange(0), default=0, help="Stop after this many records; 0: at the end.")
@bootstrap_option
@json_option
def consume(topic: str, records: int, bootstrap: str, as_json: bool) -> None:
    """Read TOPIC from its beginning to its end as fast as possible."""

    async def run() -> PerfResult:
        from ...cluster.client.cluster_client import ClusterClient
        from ...cluster.client.perf import consume_perf

        async with ClusterClient(bootstrap) as client:
            return await consume_perf(client, topic, records)

    _print(run_client(run()), as_json)


@perf.command()
@click.argument("topic")
@click.option("--records", type=click.IntRange(1), default=1000, show_default=True)
@click.option(
    "--record-size", type=click.IntRange(8, 1_000_000), default=100, show_default=True, help="Bytes of a value."
)
@bootstrap_option
@json_option
def e2e(topic: str, records: int, record_size: int, bootstrap: str, as_json: bool) -> None:
    """Send one record after the other with acks=all, and time each until a consumer has it."""

    async def run() -> PerfResult:
        from ...cluster.client.cluster_client import ClusterClient
        from ...cluster.client.perf import e2e_perf, ensure_topic

        async with ClusterClient(bootstrap) as client:
            await ensure_topic(client, topic, 1, -1)
            return await e2e_perf(client, topic, records, record_size)

    _print(run_client(run()), as_json)


def _print(result: PerfResult, as_json: bool) -> None:
    if as_json:
        print_json(result.to_json())
    else:
        click.echo(str(result))
