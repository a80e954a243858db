"""`raftwerk perf`: measures the throughput and latency of any cluster that speaks Kafka's protocol."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import click

from ...cluster.command_line.text_table import folded
from ..options import (
    ACKS,
    Group,
    Option,
    bootstrap_option,
    json_option,
    print_json,
    producer_options,
    run_client,
    size_text,
    topic_argument,
)

if TYPE_CHECKING:
    from ...cluster.client.cluster_client import ClusterClient
    from ...cluster.client.perf import PerfProgress, PerfResult


_BATCH_BYTES_MAX = 100 * 2**20
"""The default of the brokers' socket.request.max.bytes."""
_RECORD_OVERHEAD = 7
"""The bytes of a record in a batch without those of its value, at least."""
_WITHOUT_LIMIT = (
    "No limit is set by -n or --seconds: it sends until Ctrl-C, and the records stay on the brokers' disks until the "
    "retention of the topic removes them."
)


def _max_records(minimum: int = 0, **attributes: Any) -> Callable[[click.decorators.FC], click.decorators.FC]:
    names = ("-n", "--max-records", "records")
    aliases = ("--records", "--num-records", "--messages")
    return click.option(*names, cls=Option, aliases=aliases, type=click.IntRange(minimum), **attributes)


@click.group(cls=Group)
def perf() -> None:
    """Measure the throughput of producers and consumers, and the latency from producer to consumer.

    \b
    Examples:
      raftwerk perf produce load --seconds 10
      raftwerk perf produce load --rate 1000       a steady load until Ctrl-C
      raftwerk perf consume load
      raftwerk perf e2e load -n 1000
    """


@perf.command(hints={"--seconds": "it ends at the end of TOPIC, or after -n N records"})
@topic_argument()
@_max_records(default=0, help="Stop after this many records; 0, the default: no limit.")
@click.option(
    "--seconds", type=click.FloatRange(0), default=0.0, help="Stop after this time; 0, the default: no limit."
)
@click.option(
    "--record-size", type=click.IntRange(0, 1_000_000), default=100, show_default=True, help="Bytes of a value."
)
@click.option(
    "--batch-records", type=click.IntRange(0), default=0, help="Records in a batch; 0, the default: 64 KB of them."
)
@click.option(
    "--rate",
    "throughput",
    cls=Option,
    aliases=["--throughput"],
    type=click.IntRange(0),
    default=0,
    help="Records per second; 0, the default: as many as the cluster takes.",
)
@producer_options
@click.option(
    "--in-flight",
    type=click.IntRange(1, 100),
    default=5,
    show_default=True,
    help="Requests under way for each partition.",
)
@click.option("-p", "--partitions", type=click.IntRange(1), default=6, show_default=True, help="If TOPIC is created.")
@click.option(
    "-r",
    "--replicas",
    cls=Option,
    aliases=["--replication-factor"],
    type=click.IntRange(-1),
    default=-1,
    help="If TOPIC is created; -1: the cluster's default.",
)
@click.option(
    "--report-interval",
    "report_s",
    cls=Option,
    aliases=["--report"],
    type=click.FloatRange(0),
    default=5.0,
    show_default=True,
    help="Seconds between reports; 0: no reports.",
)
@bootstrap_option
@json_option
def produce(
    topic: str, acks: str, compression: str, partitions: int, replicas: int, report_s: float, **rest: Any
) -> None:
    """Send prepared batches to TOPIC, which is created if it does not exist.

    Without -n and --seconds it sends until Ctrl-C, which may fill the disks of the brokers. With one of them it ends
    with exit code 1 when records have had no ack for 30 s; without both it goes on. The time for which a quota
    throttles it counts for none of that: what was sent is waited for, also after --seconds.

    \b
    Examples:
      raftwerk perf produce load --seconds 10
      raftwerk perf produce load --rate 1000               a steady load until Ctrl-C
    """
    bootstrap, as_json = rest.pop("bootstrap"), rest.pop("as_json")
    if rest["batch_records"] * (rest["record_size"] + _RECORD_OVERHEAD) > _BATCH_BYTES_MAX:
        what = f"so many records of {rest['record_size']} bytes are more than the {size_text(_BATCH_BYTES_MAX)}"
        raise click.BadParameter(f"{what} that a broker takes in a request", param_hint="--batch-records")

    async def measure(client: ClusterClient, result: PerfResult) -> None:
        from ...cluster.client.perf import ProduceLoad, ProducePerf, ensure_topic, reported
        from ...wire.compression import Compression

        load = ProduceLoad(topic, acks=ACKS[acks], compression=Compression[compression.upper()], **rest)
        await ensure_topic(client, topic, partitions, replicas)
        if not load.records and not load.seconds:
            click.echo(folded(_WITHOUT_LIMIT, to=sys.stderr), err=True)
        await reported(ProducePerf(client, load, result), report_s, lambda progress: _print(progress, as_json))

    _run(measure, bootstrap, as_json)


@perf.command(hints={"--seconds": "it ends at the end of TOPIC, or after -n N records"})
@topic_argument()
@_max_records(default=0, help="Stop after this many records; 0: at the end.")
@bootstrap_option
@json_option
def consume(topic: str, records: int, bootstrap: str, as_json: bool) -> None:
    """Read TOPIC from its beginning to its end as fast as possible.

    \b
    Example:
      raftwerk perf consume load
    """

    async def measure(client: ClusterClient, result: PerfResult) -> None:
        from ...cluster.client.perf import consume_perf

        await consume_perf(client, topic, result, records)

    _run(measure, bootstrap, as_json)


@perf.command(hints={"--seconds": "it ends after -n N records"})
@topic_argument()
@_max_records(minimum=1, default=1000, show_default=True, help="Stop after this many records.")
@click.option(
    "--record-size", type=click.IntRange(8, 1_000_000), default=100, show_default=True, help="Bytes of a value."
)
@bootstrap_option
@json_option
def e2e(topic: str, records: int, record_size: int, bootstrap: str, as_json: bool) -> None:
    """Send one record after another with acks=all, and measure the time until a consumer has it.

    \b
    Example:
      raftwerk perf e2e load -n 1000
    """

    async def measure(client: ClusterClient, result: PerfResult) -> None:
        from ...cluster.client.perf import e2e_perf, ensure_topic

        await ensure_topic(client, topic, 1, -1)
        await e2e_perf(client, topic, result, records, record_size)

    _run(measure, bootstrap, as_json)


def _run(
    measure: Callable[[ClusterClient, PerfResult], Coroutine[Any, Any, None]], bootstrap: str, as_json: bool
) -> None:
    """Measure, and print the result, that of the time until Ctrl-C too."""
    from ...cluster.client.cluster_client import ClusterClient
    from ...cluster.client.perf import PerfResult

    result = PerfResult()

    async def run() -> None:
        async with ClusterClient(bootstrap) as client:
            await measure(client, result)

    try:
        run_client(run(), on_interrupt=lambda: _print(result, as_json))
    except click.ClickException:
        if result.records or result.unacked:
            _print(result, as_json)
        raise
    _print(result, as_json)


def _print(result: PerfResult | PerfProgress, as_json: bool) -> None:
    if as_json:
        print_json(result.to_json())
    else:
        click.echo(str(result))
