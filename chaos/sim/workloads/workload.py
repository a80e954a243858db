"""Workloads of a simulated run beside its main load: each acts, settles after `stop`, and is then checked."""

from __future__ import annotations

import asyncio
from typing import Protocol

from ....cluster.client.admin_client import AdminClient, NewTopic
from ....cluster.client.client_errors import ClientError, RefusedError
from ....cluster.client.cluster_client import ClusterClient
from ....wire.errors import ErrorCode

_RETRY_PAUSE_S = 0.1


class ClientTask(Protocol):
    """Something that runs on the clients' host."""

    @property
    def name(self) -> str:
        """The name of its asyncio task."""
        ...

    async def run(self) -> None:
        """Act until `stop`."""
        ...


class Workload(ClientTask, Protocol):
    """Runs beside the main load."""

    def stop(self) -> None:
        """Begin nothing new."""
        ...

    def why_not_settled(self) -> str | None:
        """What the workload still waits for after `stop`; None when it may be checked."""
        ...

    def check(self) -> None:
        """Raise `InvariantBroken` if the workload saw what must not happen."""
        ...


async def create_topic_until_done(cluster: ClusterClient, topic: NewTopic) -> None:
    """Create a topic that no other client creates; try again until it exists."""
    while True:
        try:
            await AdminClient(cluster).create_topic(topic)
        except RefusedError as error:
            if error.code == ErrorCode.TOPIC_ALREADY_EXISTS:
                return
        except ClientError:
            pass
        else:
            return
        await asyncio.sleep(_RETRY_PAUSE_S)
