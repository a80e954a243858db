"""Runs a proxy: the clients of the cluster, and the HTTP server in front of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, field

from ..cluster.command_line.extras import missing_packages
from ..cluster.http_logins.credentials import CHALLENGES, Credentials, NoCredentialsError, credentials_in
from ..cluster.http_logins.user_login import UserLogins
from ..registry.data.schema_client import client_of
from ..runtime.http import asgi_server
from ..security.client_login import ClientLogin
from .errors import RestError
from .http_app import Limits, RestApp
from .logins.users import UserClients, UserLimits, Users
from .record_producer import RecordProducer
from .request import Request
from .rest_cluster import RestCluster
from .routing_table import ROUTES
from .serialization.record_schemas import RecordSchemas
from .services import Services
from .v2.consumer_instances import ConsumerInstances, ConsumerLimits

_STOP_S = 5
"""How long requests may still run when the proxy stops."""


@dataclass(frozen=True, slots=True)
class UserSettings:
    """That clients of HTTP log in, by `basic` or `bearer`, how they do at the cluster, and how many may."""

    authentication: str
    logins: UserLogins
    limits: UserLimits = field(default_factory=UserLimits)


@dataclass(frozen=True, slots=True)
class ProxySettings:
    """How one proxy is reached, how it reaches its cluster, and what it takes.

    `librdkafka` has the settings of the producer and of consumers: the addresses, and how they log in. With `users`
    each client of HTTP acts as a user of its own. `certificate` and `key` are files for HTTPS.
    """

    bootstrap: str
    librdkafka: Mapping[str, str]
    login: ClientLogin | None = None
    host: str = "127.0.0.1"
    port: int = 8082
    limits: Limits = field(default_factory=Limits)
    consumers: ConsumerLimits = field(default_factory=ConsumerLimits)
    delivery_timeout_ms: int = 60_000
    registry_url: str | None = None
    users: UserSettings | None = None
    certificate: str | None = None
    key: str | None = None


def missing_libraries() -> list[str]:
    """The packages that the proxy needs and that are not installed."""
    return missing_packages("confluent_kafka", "uvicorn")


async def serve(settings: ProxySettings, on_ready: Callable[[str], object]) -> None:
    """Serve until SIGINT or SIGTERM. `on_ready` gets the URL. Raises `ClientError`, and `OSError` for a port."""
    async with AsyncExitStack() as stack:
        listening = stack.enter_context(asgi_server.listen(settings.host, settings.port))
        cluster = await stack.enter_async_context(RestCluster(settings.bootstrap, settings.login))
        await cluster.view()  # a cluster that does not answer, or lets nobody in, is told at once
        consumers = await stack.enter_async_context(ConsumerInstances(settings.consumers))
        schemas = None
        if settings.registry_url is not None:
            schemas = await stack.enter_async_context(RecordSchemas(client_of(settings.registry_url)))
        if settings.users is None:
            producer = RecordProducer(settings.librdkafka, settings.delivery_timeout_ms)
            await stack.enter_async_context(producer)
            of_all = Services(cluster, producer, consumers.of("", settings.librdkafka), schemas)
            app = RestApp(lambda _: nullcontext(of_all), ROUTES, settings.limits)
        else:
            made = _clients_of_users(settings, settings.users, consumers, schemas)
            users = await stack.enter_async_context(Users(made, settings.users.limits))
            app = _app_of_users(users, settings.users.authentication, settings.limits)
        is_secured = settings.certificate is not None
        on_ready(asgi_server.url_of(settings.host, listening, "https" if is_secured else "http"))
        options = {"http": "h11", "ws": "none", "log_level": "error", "server_header": False}
        files = {"ssl_certfile": settings.certificate, "ssl_keyfile": settings.key} if is_secured else {}
        await asgi_server.serve(app, listening, app.stopping.set, goodbye_s=_STOP_S, **options, **files)


def _clients_of_users(
    settings: ProxySettings, of_users: UserSettings, consumers: ConsumerInstances, schemas: RecordSchemas | None
) -> UserClients:
    logins = of_users.logins

    def cluster(credentials: Credentials) -> RestCluster:
        return RestCluster(settings.bootstrap, logins.login(credentials))

    def producer(credentials: Credentials) -> RecordProducer:
        return RecordProducer(logins.settings(credentials), settings.delivery_timeout_ms)

    def services(credentials: Credentials, own: RestCluster, sending: RecordProducer) -> Services:
        instances = consumers.of(credentials.owner, logins.settings(credentials))
        return Services(own, sending, instances, schemas)

    return UserClients(cluster, producer, services)


def _app_of_users(users: Users, authentication: str, limits: Limits) -> RestApp:
    @asynccontextmanager
    async def services_for(request: Request) -> AsyncIterator[Services]:
        try:
            credentials = credentials_in(request.headers.get("authorization"), authentication)
        except NoCredentialsError as error:
            raise RestError(401, str(error)) from None
        async with users.use(credentials) as services:
            yield services

    return RestApp(services_for, ROUTES, limits, CHALLENGES[authentication])
