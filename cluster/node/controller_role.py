"""The controller role of a node: the controller, and the listener for the quorum and the brokers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ...broker.apis.api_table import controller_dispatcher
from ...broker.authorization import Authorization
from ...broker.network.server import Server
from ...broker.services import ControllerServices
from ...controller.brokers.listener_probe import tcp_probe
from ...controller.metadata.metadata_loader import MetadataLoader
from ...controller.quorum_controller import ControllerPorts, QuorumController
from ...raft.driver.raft_driver import RaftDriver
from ...runtime.ports import Runtime
from ..settings.authorizer_settings import make_authorizer
from ..settings.current_config import CurrentConfig
from ..settings.listener_security import listener_security, login_to_controllers
from ..settings.settings_per_package import broker_config, controller_settings, request_memory, server_config
from .bootstrap_features import read_levels
from .bootstrap_users import BootstrapUsers
from .controller_registration import ControllerRegistrationManager
from .errors import listen
from .observers import NodeObservers
from .token_logins import token_logins


class ControllerRole:
    """Listens before the quorum starts, since the other voters answer at once. It stops after the quorum."""

    def __init__(
        self,
        current: CurrentConfig,
        runtime: Runtime,
        loader: MetadataLoader,
        raft: RaftDriver,
        observers: NodeObservers,
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        config = current.config
        self._loader = loader
        self._authorization = authorization = Authorization(make_authorizer(config))
        # It is told before the controller, whose answers say that changes hold.
        loader.subscribe(authorization.on_metadata, is_fatal=True)
        ports = ControllerPorts(
            append=raft.append,
            log_end_offset=lambda: raft.log_end_offset,
            probe=tcp_probe,
            kraft_version=lambda: raft.kraft_version,
            upgrade_kraft_version=raft.upgrade_kraft_version,
            voter_ids=lambda: [voter.key.id for voter in raft.voters.voters],
        )
        supported = loader.supported_features
        bootstrap_features = read_levels(runtime.disk, config.metadata_log_dir)
        users = BootstrapUsers(
            runtime.disk, config.metadata_log_dir, loader.find_scram_credential, lambda: loader.image
        )
        if users.users:
            loader.subscribe(users.on_metadata)
        settings = replace(
            controller_settings(config),
            supported_features=supported,
            bootstrap_features=bootstrap_features,
            bootstrap_users=users.users,
        )
        self.controller = QuorumController(settings, runtime, loader, ports)
        login = login_to_controllers(current, runtime)
        self._registrar = ControllerRegistrationManager(config, runtime, loader, raft, on_fatal, login)
        services = ControllerServices(
            cluster_id=raft.config.cluster_id,
            quorum=raft,
            controller=self.controller,
            metadata=loader,
            endpoints=raft.voter_endpoints,
            supported_features=supported,
            config=broker_config(config, raft.config.cluster_id, ()),
            authorization=authorization,
        )
        loader.subscribe(services.mutation_quotas.on_metadata)
        dispatcher = controller_dispatcher(services, on_fatal)
        tokens = token_logins(config, runtime, loader)
        self.servers = []
        memory = request_memory(config)
        for listener in config.controller_listeners:
            security = listener_security(current, listener, runtime, users.find, tokens.find)
            server = server_config(config, listener, security)
            limits = replace(server.limits, ordered_start=False)
            server = replace(server, limits=limits)
            self.servers.append(Server(server, dispatcher, observer=observers.requests, memory=memory))

    async def start(self) -> None:
        """Listen and register. Raises `NodeFailedError` when a port is in use."""
        for server in self.servers:
            await listen(server)
        self._registrar.start()

    def on_caught_up(self) -> None:
        """The node knows the committed metadata: ACLs hold from now on. Before, only super users are allowed."""
        self._authorization.begin(self._loader.image)

    async def stop(self) -> None:
        """Refuse the pending requests and close the connections."""
        await self._registrar.stop()
        self.controller.close()
        for server in self.servers:
            await server.stop()
