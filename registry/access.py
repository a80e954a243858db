"""What HTTP clients may do, if they log in: what their user of the cluster may do with the topic of the schemas.

Who may READ the topic sees schemas; who may also WRITE it registers and deletes them, and sets levels and modes. The
broker tells it to the user's own login (KIP-430), so one request finds out both.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from ..cluster.client.client_errors import ClientError, WrongCredentialsError
from ..cluster.client.cluster_client import NO_ANSWER, ClusterClient
from ..cluster.http_logins.credentials import CHALLENGES, Credentials, NoCredentialsError, credentials_in
from ..cluster.http_logins.user_login import UserLogins
from ..security.authorizer.acl_binding import AclOperation
from ..wire.api_keys import ApiKey
from .errors import RegistryError

_METADATA_VERSION = 12
_KNOWN_S = 30.0
_USERS_MAX = 1000
_LOGINS_AT_A_TIME = 10
_UNKNOWN = (
    "no broker of the cluster answers, so it is not known who you are: raftwerk doctor shows which nodes are missing"
)


@dataclass(frozen=True, slots=True)
class LoginSettings:
    """That clients log in, by `basic` or `bearer`, and how they do at the cluster."""

    authentication: str
    logins: UserLogins

    @property
    def challenge(self) -> str:
        """How clients are asked to log in (WWW-Authenticate)."""
        return CHALLENGES[self.authentication]


class Access:
    """Finds out what users may do, and remembers it for half a minute: so long a right that is taken away may count."""

    def __init__(self, bootstrap: str, topic: str, settings: LoginSettings) -> None:
        self.challenge = settings.challenge
        self._bootstrap = bootstrap
        self._topic = topic
        self._settings = settings
        self._known: dict[Credentials, tuple[float, int]] = {}
        self._asking: dict[Credentials, asyncio.Task[int]] = {}
        self._logins = asyncio.Semaphore(_LOGINS_AT_A_TIME)

    async def check(self, authorization: str | None, operation: AclOperation) -> None:
        """Raise `RegistryError` for a client that has not logged in (401) or may not do this with the topic (403)."""
        try:
            credentials = credentials_in(authorization, self._settings.authentication)
        except NoCredentialsError as error:
            raise RegistryError(401, str(error)) from None
        if not await self._operations(credentials) & (1 << operation):
            who = f"User:{credentials.user}" if credentials.user else "the user of this token"
            raise RegistryError(
                40301, f"User is denied operation {operation.name} on the topic {self._topic}: {who} needs that right"
            )

    async def _operations(self, credentials: Credentials) -> int:
        """The bit field of what the user may do with the topic. Requests that come at the same time ask once."""
        now = asyncio.get_running_loop().time()
        known = self._known.get(credentials)
        if known is not None and now - known[0] < _KNOWN_S:
            return known[1]
        if credentials not in self._asking:
            asking = self._asking[credentials] = asyncio.ensure_future(self._ask(credentials))
            asking.add_done_callback(lambda done: self._asked(credentials, done))
        operations = await asyncio.shield(self._asking[credentials])
        self._known.pop(credentials, None)
        self._known[credentials] = (now, operations)
        while len(self._known) > _USERS_MAX:
            del self._known[next(iter(self._known))]
        return operations

    def _asked(self, credentials: Credentials, done: asyncio.Task[int]) -> None:
        del self._asking[credentials]
        if not done.cancelled():
            done.exception()  # those who asked may be gone, and then nobody else takes it

    async def _ask(self, credentials: Credentials) -> int:
        fields = {
            "topics": [{"name": self._topic, "topic_id": None}],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": True,
        }
        login = self._settings.logins.login(credentials)
        try:
            async with self._logins, ClusterClient(self._bootstrap, login=login, is_silent=True) as client:
                answer = await client.request(ApiKey.METADATA, _METADATA_VERSION, fields)
        except WrongCredentialsError:
            raise RegistryError(40101, "Authentication failed: the cluster does not take these credentials") from None
        except (ClientError, *NO_ANSWER):
            raise RegistryError(50001, _UNKNOWN) from None
        (row,) = answer.topics
        return 0 if row.error_code else int(row.topic_authorized_operations)
