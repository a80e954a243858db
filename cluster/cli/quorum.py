"""`raftwerk quorum`: who leads the metadata quorum, and how far everybody is."""

from __future__ import annotations

from typing import Any

import click

from .common import bootstrap_option, json_option, print_json, run_client

_DESCRIBE_QUORUM_VERSION = 2


@click.command()
@bootstrap_option
@json_option
def quorum(bootstrap: str, as_json: bool) -> None:
    """Show the leader of the metadata quorum, its voters and observers, and how far each is behind.

    \b
    Examples:
      raftwerk quorum
      raftwerk quorum --json
    """

    async def run() -> Any:
        from ...wire.apis import ApiKey
        from ..admin import ClusterClient
        from ..client_errors import RefusedError

        topics = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
        async with ClusterClient(bootstrap) as client:
            answer = await client.request(ApiKey.DESCRIBE_QUORUM, _DESCRIBE_QUORUM_VERSION, {"topics": topics})
        code = answer.error_code or answer.topics[0].partitions[0].error_code
        if code:
            raise RefusedError(code, "the quorum")
        return answer.topics[0].partitions[0]

    found = run_client(run())
    end_offset = max(row.log_end_offset for row in found.current_voters)
    rows = [
        {
            "node": row.replica_id,
            "role": role,
            "log_end_offset": row.log_end_offset,
            "lag": end_offset - row.log_end_offset,
        }
        for role, replicas in (("voter", found.current_voters), ("observer", found.observers))
        for row in replicas
    ]
    head = {"leader": found.leader_id, "epoch": found.leader_epoch, "high_watermark": found.high_watermark}
    if as_json:
        print_json(head | {"replicas": rows})
        return
    click.echo("leader {leader}  epoch {epoch}  high watermark {high_watermark}".format(**head))
    for row in rows:
        click.echo("{node:>6}  {role:<8}  log end {log_end_offset}  lag {lag}".format(**row))
