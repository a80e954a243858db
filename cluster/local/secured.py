"""A secured local cluster: `raftwerk up --secure`.

Clients, brokers and controllers connect by SASL_SSL. Nodes log in by PLAIN as `node`, with a password that is only in
their settings; users log in by SCRAM-SHA-512, and are in the metadata log. Two are made when the cluster has started
for the first time: `admin`, a super user, and `app`, who may do everything with topics, groups and transactional ids.
`DIR/security`, which only its owner may read, holds the certificate authority, the nodes' certificates, and for clients
files of settings and examples. It is written in the order in which it can be written again after a crash:
`admin.properties` comes last, when the users are there. Without it, the next start gives both users new passwords.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from ...security.authorizer.acl_binding import (
    WILDCARD,
    AclBinding,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)
from ...security.jaas import parse_jaas
from ...security.sasl.scram_credential import ITERATIONS_MIN, SCRAM_SHA_512
from ..command_line.cluster_address import options_of
from ..command_line.extras import missing_packages, not_installed
from ..settings.properties import decode_properties, format_properties, parse_properties
from .client_files import (
    ADMIN,
    ADMIN_PASSWORD_FILE,
    ADMIN_PROPERTIES,
    APP,
    AUTHORITY_FILE,
    PASSWORD_FILE,
    SECURITY_DIR,
    java_properties,
    write_client_files,
    write_secret,
)

if TYPE_CHECKING:
    from ...runtime.tls_contexts import TlsContext
    from ...security.client_login import ClientLogin
    from .layout import ClusterPlan, NodePlan

_PROTOCOLS_KEY = "listener.security.protocol.map"
LISTENER = "SASL_SSL"
"""The listener for clients and brokers of a secured cluster."""
_NODE = "node"
_JAAS_KEY = f"listener.name.{LISTENER.lower()}.plain.sasl.jaas.config"
_CONTROLLER_JAAS_KEY = "listener.name.controller.plain.sasl.jaas.config"
_PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
_PASSWORD_BYTES = 24
_USERS_TIMEOUT_S = 30.0
_PAUSE_S = 0.02
_ANY_HOST = ("", "0.0.0.0", "::")


def secured_properties(directory: str, node_id: int, password: str) -> dict[str, str]:
    """The settings of a node of a secured cluster, beside its listeners; `password` is that of the nodes."""
    jaas = f'{_PLAIN_MODULE} required username="{_NODE}" password="{password}" user_{_NODE}="{password}";'
    return {
        _PROTOCOLS_KEY: f"CONTROLLER:SASL_SSL,{LISTENER}:SASL_SSL",
        "inter.broker.listener.name": LISTENER,
        "sasl.enabled.mechanisms": f"PLAIN,{SCRAM_SHA_512}",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        _JAAS_KEY: jaas,
        _CONTROLLER_JAAS_KEY: jaas,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": _certificate_file(directory, node_id),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": os.path.join(directory, SECURITY_DIR, AUTHORITY_FILE),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{ADMIN};User:{_NODE}",
    }


def new_password() -> str:
    """A new random password."""
    return secrets.token_urlsafe(_PASSWORD_BYTES)


def is_secured(node: NodePlan) -> bool:
    """Whether a node was planned as one of a secured cluster."""
    return node.properties.get("ssl.keystore.location") == _certificate_file(node.directory, node.node_id)


def lacks_certificate(node: NodePlan) -> bool:
    """Whether a node of a secured cluster has no certificate yet; `prepare_security` makes it."""
    return is_secured(node) and not os.path.exists(node.properties["ssl.keystore.location"])


def lost_files(plan: ClusterPlan) -> str | None:
    """What to do where the directory with the certificates and logins of a secured cluster is gone; otherwise None.

    `up` makes it before any node starts.
    """
    where = os.path.join(plan.directory, SECURITY_DIR)
    if not is_secured(plan.nodes[0]) or os.path.isdir(where):
        return None
    return f"the certificates and logins of the cluster, {where}, are gone: {_made_anew(plan)}"


def lost_login(plan: ClusterPlan) -> str | None:
    """As `lost_files`, also where only the file is gone with which the commands log in."""
    where = os.path.join(plan.directory, ADMIN_PROPERTIES)
    if not is_secured(plan.nodes[0]) or os.path.exists(where):
        return None
    return lost_files(plan) or f"{where}, with which the commands log in, is not there: {_made_anew(plan)}"


def _made_anew(plan: ClusterPlan) -> str:
    from .supervisor import has_running_nodes  # which imports this module

    options = options_of(plan.directory)
    stop = f"raftwerk down{options}, and then " if has_running_nodes(plan.directory) else ""
    return (
        f"{stop}raftwerk up --detach{options} makes them anew, with other passwords, and the cluster keeps its topics, "
        "users and ACLs"
    )


def password_of_nodes(node: NodePlan) -> str:
    """The password with which the nodes log in to each other, from the settings of one."""
    return parse_jaas(node.properties[_CONTROLLER_JAAS_KEY]).options["password"]


def check_libraries(plan: ClusterPlan) -> None:
    """Raise ValueError when the cluster is secured, and a library for that is missing."""
    missing = missing_packages("cryptography") if any(is_secured(node) for node in plan.nodes) else []
    if missing:
        raise ValueError(f"a secured cluster cannot run: {not_installed(missing, 'security')}")


def prepare_security(plan: ClusterPlan) -> None:
    """Make the authority and the certificates that are not there, and the files for clients if there are users.

    A certificate that lacks a host, or that expires within 30 days, is made again. Nothing happens for a cluster that
    is not secured. Raises `OSError`, and ValueError when a library is missing.
    """
    nodes = [node for node in plan.nodes if is_secured(node)]
    if not nodes:
        return
    check_libraries(plan)
    from .certificates import make_certificates

    where = os.path.join(plan.directory, SECURITY_DIR)
    make_certificates(
        where, f"Raftwerk cluster {plan.cluster_id}", {f"{_NODE}-{node.node_id}": _hosts(node) for node in nodes}
    )
    os.chmod(where, 0o700)
    admin_file = os.path.join(plan.directory, ADMIN_PROPERTIES)
    if os.path.exists(admin_file):
        _write_for_clients(plan, password_in(admin_file), _bytes_of(os.path.join(where, PASSWORD_FILE)).decode())


def has_secured_listener(node: NodePlan) -> bool:
    """Whether clients speak TLS or log in at one of the node's listeners, be it by --secure or by settings."""
    protocols = dict(one.split(":", 1) for one in node.properties.get(_PROTOCOLS_KEY, "").split(",") if one)
    controllers = node.properties.get("controller.listener.names", "").split(",")
    names = [one.partition("://")[0] for one in node.properties["listeners"].split(",")]
    return any(protocols.get(name, name) != "PLAINTEXT" for name in names if name not in controllers)


def make_users(plan: ClusterPlan) -> None:
    """Make the users of a secured cluster that runs, unless they were made before.

    Returns when every broker knows them. Raises `ClientError` and `OSError`.
    """
    if not is_secured(plan.nodes[0]) or os.path.exists(os.path.join(plan.directory, ADMIN_PROPERTIES)):
        return
    admin, app = new_password(), new_password()
    with ThreadPoolExecutor(1) as executor:  # the caller may be in a running event loop, and logs in as somebody else
        executor.submit(asyncio.run, _make_users(plan, admin, app)).result()
    _write_for_clients(plan, admin, app)


def login_of_admin(plan: ClusterPlan) -> ClientLogin | None:
    """How to log in as `admin`; None where the cluster is not secured. Its users have to be there."""
    if not is_secured(plan.nodes[0]):
        return None
    return _login_of_admin(plan, password_in(os.path.join(plan.directory, ADMIN_PROPERTIES)))


def _login_of_admin(plan: ClusterPlan, password: str) -> ClientLogin:
    from ...security.client_login import ClientLogin
    from ...security.sasl.scram import ScramClientExchange, new_nonce

    def exchange(_: str) -> ScramClientExchange:
        return ScramClientExchange(SCRAM_SHA_512, ADMIN, password, new_nonce(secrets.token_bytes))

    return ClientLogin(_trusting(plan), exchange, scram_user=(SCRAM_SHA_512, ADMIN))


def _trusting(plan: ClusterPlan) -> TlsContext:
    """For connections that trust the cluster's authority and no other."""
    from ...runtime.tls_contexts import TlsMaterial, TlsOptions, client_context

    authorities = _bytes_of(os.path.join(plan.directory, SECURITY_DIR, AUTHORITY_FILE))
    return client_context(TlsMaterial(authorities=authorities), TlsOptions())


def remove_certificate(node: NodePlan) -> None:
    """Remove the certificate of a node that has left the cluster."""
    with contextlib.suppress(FileNotFoundError):
        os.remove(_certificate_file(node.directory, node.node_id))


def password_in(properties_file: str) -> str:
    """The password in a file of client properties."""
    properties = properties_in(properties_file)
    return parse_jaas(properties["sasl.jaas.config"]).options["password"]


async def _make_users(plan: ClusterPlan, admin: str, app: str) -> None:
    from ...security.client_login import ClientLogin
    from ...security.sasl.plain import PlainClient
    from ..client.access.bootstrap import parse_bootstrap
    from ..client.access.current_login import CURRENT_LOGIN
    from ..client.admin_client import AdminClient
    from ..client.cluster_client import ClusterClient

    nodes = password_of_nodes(plan.nodes[0])
    CURRENT_LOGIN.set(ClientLogin(_trusting(plan), lambda _: PlainClient(_NODE, nodes)))
    async with ClusterClient(plan.bootstrap) as client:
        to = AdminClient(client)
        await to.create_acls(_ACLS_OF_APP)
        for user, password in ((APP, app), (ADMIN, admin)):
            await to.set_scram_password(user, password, {SCRAM_SHA_512: ITERATIONS_MIN}, secrets.token_bytes)
    CURRENT_LOGIN.set(_login_of_admin(plan, admin))
    deadline = asyncio.get_running_loop().time() + _USERS_TIMEOUT_S
    for host, port in parse_bootstrap(plan.bootstrap):
        await _wait_until_known(host, port, deadline)


async def _wait_until_known(host: str, port: int, deadline: float) -> None:
    """Ask until the broker takes the login of the user that was made last: it has replayed what was made before, too.

    Raises `ClientError` at the deadline.
    """
    from ..client.client_errors import ClientError
    from ..client.cluster_client import silence_of

    while (why_silent := await silence_of(host, port)) is not None:
        if asyncio.get_running_loop().time() > deadline:
            raise ClientError(f"{host}:{port} {why_silent}, {_USERS_TIMEOUT_S:g} s after its user was made")
        await asyncio.sleep(_PAUSE_S)


_ACLS_OF_APP = [
    AclBinding(kind, WILDCARD, PatternType.LITERAL, f"User:{APP}", WILDCARD, AclOperation.ALL, AclPermissionType.ALLOW)
    for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
]


def _write_for_clients(plan: ClusterPlan, admin: str, app: str) -> None:
    write_client_files(plan.directory, plan.bootstrap, app)
    properties = java_properties(plan.directory, plan.bootstrap, ADMIN, SCRAM_SHA_512, admin)
    write_secret(os.path.join(plan.directory, SECURITY_DIR, ADMIN_PASSWORD_FILE), admin.encode())
    write_secret(os.path.join(plan.directory, ADMIN_PROPERTIES), format_properties(properties).encode())


def _certificate_file(directory: str, node_id: int) -> str:
    return os.path.join(directory, SECURITY_DIR, f"{_NODE}-{node_id}.pem")


def _hosts(node: NodePlan) -> list[str]:
    """The names and addresses by which others connect to a node."""
    listed = ",".join(node.properties.get(name, "") for name in ("listeners", "advertised.listeners"))
    found = [entry.partition("://")[2].rpartition(":")[0].strip("[] ") for entry in listed.split(",")]
    named = [host for host in found if host not in _ANY_HOST]
    return list(dict.fromkeys(named))


def properties_in(path: str) -> dict[str, str]:
    """The properties in a file. Raises OSError, and ValueError with the name of a file that has none."""
    try:
        return parse_properties(decode_properties(_bytes_of(path)))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _bytes_of(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
