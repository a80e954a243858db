"""The connections to the other controllers (Kafka's KafkaNetworkChannel)."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from ...runtime.ports import Buffer
from ...security.client_login import AuthenticationFailedError
from ...wire.api_keys import ApiKey
from ...wire.client import Connection, ConnectionLostError, Login, RequestTimedOutError
from ...wire.client import connect as wire_connect
from ...wire.codec import decode_response, encode_request
from ...wire.errors import ProtocolError, WireFormatError
from ...wire.fetch import decode_fetch_response, encode_fetch_request
from ..messages.messages import Fetch, FetchSnapshot, Outgoing, ProbeVoter, Reply, Request, VoterChange
from ..messages.voter_messages import API_VERSIONS_FIELDS, change_request_fields, parse_change_reply, parse_probe_reply
from ..messages.wire_messages import (
    api_of,
    election_request_fields,
    fetch_request,
    fetch_snapshot_request_fields,
    parse_election_reply,
    parse_fetch_reply,
    parse_snapshot_reply,
)
from ..quorum.config import RaftConfig
from ..quorum.effects import FailureKind
from ..voters.voter_set import VoterEndpoint

_logger = logging.getLogger(__name__)
Connect: TypeAlias = Callable[[str, int], Awaitable[Connection]]


def connector(config: RaftConfig, login: Login | None = None) -> Connect:
    """The ordinary way to connect, with the quorum's time-out."""

    async def connect(host: str, port: int) -> Connection:
        timeout_s = config.timing.request_timeout_ms / 1000
        client_id = f"raft-{config.node_id}"
        return await wire_connect(host, port, client_id=client_id, timeout_s=timeout_s, login=login)

    return connect


class NetworkChannel:
    """Has two connections to each endpoint: one for fetches, which may wait long, and one for all else."""

    def __init__(self, config: RaftConfig, connect: Connect) -> None:
        self._config = config
        self._connect = connect
        self._timeout_s = config.timing.request_timeout_ms / 1000
        self._connections: dict[tuple[VoterEndpoint, bool], Connection] = {}
        self._attempts: dict[tuple[VoterEndpoint, bool], asyncio.Future[Connection]] = {}
        self._refused_logins: set[VoterEndpoint] = set()

    async def exchange(self, outgoing: Outgoing) -> Reply | FailureKind:
        """Send a request, after connecting where needed; returns its reply, or why there is none."""
        request = outgoing.request
        api_key, version = api_of(request)
        try:
            connection = await self._connection(outgoing.endpoint, isinstance(request, Fetch | FetchSnapshot))
            body = self._encode(api_key, version, request)
            answer = await connection.send_raw(api_key, version, [body], timeout_s=self._timeout_s)
            return _decode(api_key, version, request, answer)
        except (TimeoutError, RequestTimedOutError):
            return FailureKind.TIMEOUT
        except AuthenticationFailedError as error:
            self._tell_of_login(outgoing.endpoint, error)
            return FailureKind.LOST
        except OSError as error:
            return FailureKind.REFUSED if is_refused(error) else FailureKind.LOST
        except (WireFormatError, ProtocolError):
            return FailureKind.LOST

    def _encode(self, api_key: ApiKey, version: int, request: Request) -> Buffer:
        if isinstance(request, Fetch):
            return encode_fetch_request(version, fetch_request(request))
        if isinstance(request, FetchSnapshot):
            fields: Mapping[str, Any] = fetch_snapshot_request_fields(request)
        elif isinstance(request, ProbeVoter):
            fields = API_VERSIONS_FIELDS
        elif isinstance(request, VoterChange):
            fields = change_request_fields(request)
        else:
            fields = election_request_fields(request, self._config.listener_name)
        return encode_request(api_key, version, fields)

    async def _connection(self, endpoint: VoterEndpoint, is_fetch: bool) -> Connection:
        """The connection; all requests that wait for it share one attempt, and so one time-out."""
        key = endpoint, is_fetch
        connection = self._connections.get(key)
        if connection is not None and not connection.is_closed:
            return connection
        attempt = self._attempts.get(key)
        if attempt is not None:
            return await asyncio.shield(attempt)
        attempt = self._attempts[key] = asyncio.get_running_loop().create_future()
        try:
            connection = await self._connect(endpoint.host, endpoint.port)
        except BaseException as error:
            was_given_up = isinstance(error, asyncio.CancelledError)
            attempt.set_exception(ConnectionLostError("the attempt to connect was given up") if was_given_up else error)
            attempt.exception()  # asyncio reports exceptions that are never read; perhaps no other request waits
            raise
        finally:
            del self._attempts[key]
        self._connections[key] = connection
        self._refused_logins.discard(endpoint)
        attempt.set_result(connection)
        return connection

    def _tell_of_login(self, endpoint: VoterEndpoint, error: AuthenticationFailedError) -> None:
        """Log that a controller refuses our login, once until it accepts one."""
        if endpoint not in self._refused_logins:
            self._refused_logins.add(endpoint)
            _logger.warning(
                "the controller at %s:%d %s: %s; this node's are the settings listener.name.%s.*",
                *(endpoint.host, endpoint.port, error.reason, error.way_out, self._config.listener_name.lower()),
            )

    def close(self) -> None:
        """Close all connections; requests in flight end as lost."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()


def _decode(api_key: ApiKey, version: int, request: Request, answer: memoryview) -> Reply:
    if isinstance(request, Fetch):
        return parse_fetch_reply(decode_fetch_response(version, answer))
    response = decode_response(api_key, version, answer)
    if isinstance(request, FetchSnapshot):
        return parse_snapshot_reply(response)
    if isinstance(request, ProbeVoter):
        return parse_probe_reply(response)
    return parse_change_reply(response) if isinstance(request, VoterChange) else parse_election_reply(request, response)


def is_refused(error: OSError) -> bool:
    """Whether nothing listens at any address of the host: the machine is up and the process is not.

    For a name with several addresses, asyncio raises one error whose text lists all; each must be a refusal.
    """
    if error.errno is not None or isinstance(error, ConnectionRefusedError):
        return isinstance(error, ConnectionRefusedError) or error.errno == errno.ECONNREFUSED
    text = str(error)
    return "Errno" in text and text.count("Errno") == text.count(f"Errno {errno.ECONNREFUSED}")
