"""What else goes on in a run beside its main load: actors that act, come to rest, and are judged."""

from __future__ import annotations

import asyncio
from typing import Protocol

from ....cluster.client.admin_client import AdminClient, NewTopic
from ....cluster.client.client_errors import ClientError, RefusedError
from ....cluster.client.cluster_client import ClusterClient
from ....wire.errors import ErrorCode

_PAUSE_S = 0.1


class ClientTask(Protocol):
    """Runs on the clients' host."""

    @property
    def name(self) -> str: ...

    async def run(self) -> None:
        """Act, until told to stop."""
        ...


class Workload(ClientTask, Protocol):
    """Acts beside the main load."""

    def stop(self) -> None:
        """Begin nothing new."""
        ...

    def why_not_settled(self) -> str | None:
        """What it still waits for after `stop`; None when it may be judged."""
        ...

    def check(self) -> None:
        """Raise `InvariantBroken` for what must not be."""
        ...


async def create_for_sure(cluster: ClusterClient, topic: NewTopic) -> None:
    """Make a topic that nobody else makes, however often it takes."""
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
        await asyncio.sleep(_PAUSE_S)
