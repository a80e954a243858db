"""What the principals of requests may do: the authorizer of a node, as its handlers ask it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from uuid import UUID

from ..controller.metadata.metadata_image import MetadataDelta, MetadataImage
from ..runtime.loggers import AUTHORIZER
from ..security.authorizer.acl_binding import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    AclBinding,
    AclOperation,
    PatternType,
    ResourceType,
)
from ..security.authorizer.authorizer import DENIED, Authorizer
from ..security.authorizer.standard_authorizer import StandardAuthorizer
from ..wire.api_keys import ApiKey
from ..wire.errors import ProtocolError
from .log_limiter import LogLimiter
from .network.request import Request
from .topic_view import OPERATIONS_NOT_ASKED

_NAME_CHARS_MAX = 249
_WRITABLE_TOPICS_MAX = 1000
"""So many topics are kept for a connection."""
_FAILED = "the authorizer has failed, and the request is denied"

logger = logging.getLogger(AUTHORIZER)


class Authorization:
    """What the principals of requests may do. Without an authorizer everybody may do everything.

    It follows the committed image of its node. An authorizer that raises an error denies the request. Each denial is
    logged once in ten minutes, and at most a thousand lines in that time.
    """

    def __init__(self, authorizer: Authorizer | None = None) -> None:
        self._authorizer = authorizer
        self.is_on = authorizer is not None
        """False without an authorizer: nothing has to be asked."""
        self._bindings: dict[UUID, AclBinding] = {}
        self._is_loaded = False
        self._entries_version = object()
        """Another object after each change of the access control lists."""
        self._denials = LogLimiter()

    def is_allowed(
        self,
        request: Request,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        logs_denial: bool = True,
    ) -> bool:
        """Whether who makes the request may do that. `logs_denial`: False where a denial is no attempt to do it."""
        authorizer = self._authorizer
        if authorizer is None:
            return True
        sink = request.sink
        try:
            allowed = authorizer.authorize(sink.principal, sink.peer, operation, resource_type, name) is True
        except Exception:
            logger.exception(_FAILED)
            allowed = False
        if not allowed:
            if logs_denial:
                self._log_denial(request, operation, resource_type, name)
        elif logger.isEnabledFor(logging.DEBUG):
            logger.debug(_line(request, "Allowed", operation, resource_type, name))
        return allowed

    def may_write(self, request: Request, topic: str) -> bool:
        """Whether who makes the request may write to the topic.

        Each produce request asks this, so what StandardAuthorizer allows is kept with the connection until an access
        control list changes: half the price of `is_allowed`. Another authorizer is always asked.
        """
        writable = request.sink.writable_topics
        if writable.get(topic) is self._entries_version and not logger.isEnabledFor(logging.DEBUG):
            return True
        if not self.is_allowed(request, AclOperation.WRITE, ResourceType.TOPIC, topic):
            return False
        if isinstance(self._authorizer, StandardAuthorizer) and len(topic) <= _NAME_CHARS_MAX:
            if len(writable) >= _WRITABLE_TOPICS_MAX:
                writable.clear()
            writable[topic] = self._entries_version
        return True

    def is_allowed_by_type(self, request: Request, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Whether who makes the request may do that to any resource of the type (KIP-679)."""
        authorizer = self._authorizer
        if authorizer is None:
            return True
        sink = request.sink
        try:
            return authorizer.authorize_by_resource_type(sink.principal, sink.peer, operation, resource_type) is True
        except Exception:
            logger.exception(_FAILED)
            return False

    def is_allowed_on_cluster(self, request: Request, operation: AclOperation, *, logs_denial: bool = True) -> bool:
        """Whether who makes the request may do that to the cluster."""
        return self._authorizer is None or self.is_allowed(
            request, operation, ResourceType.CLUSTER, CLUSTER_NAME, logs_denial=logs_denial
        )

    def check_cluster(self, request: Request, operation: AclOperation) -> None:
        """Raise `ProtocolError(CLUSTER_AUTHORIZATION_FAILED)` unless the principal may do that to the cluster."""
        if not self.is_allowed_on_cluster(request, operation):
            raise ProtocolError(DENIED[ResourceType.CLUSTER], "Cluster authorization failed.")

    def check(self, request: Request, operation: AclOperation, resource_type: ResourceType, name: str) -> None:
        """Raise the `ProtocolError` of the resource type unless the principal may do that."""
        if not self.is_allowed(request, operation, resource_type, name):
            raise ProtocolError(DENIED[resource_type])

    def permission(
        self, request: Request, operation: AclOperation, resource_type: ResourceType, *, logs_denial: bool = True
    ) -> Callable[[str], bool]:
        """A test of names: whether the principal may do that to the resource."""
        if self._authorizer is None:
            return _everything
        return lambda name: self.is_allowed(request, operation, resource_type, name, logs_denial=logs_denial)

    def sight_of_topics(self, request: Request) -> Callable[[str], bool] | None:
        """A test of topics that the principal may describe, which may outlive the request; None without an authorizer.

        What it denies is not logged.
        """
        authorizer = self._authorizer
        if authorizer is None:
            return None
        principal, host = request.sink.principal, request.sink.peer

        def may_describe(name: str) -> bool:
            try:
                return authorizer.authorize(principal, host, AclOperation.DESCRIBE, ResourceType.TOPIC, name) is True
            except Exception:
                logger.exception(_FAILED)
                return False

        return may_describe

    def allowed(
        self,
        request: Request,
        operation: AclOperation,
        resource_type: ResourceType,
        names: Iterable[str],
        *,
        logs_denial: bool = True,
    ) -> set[str]:
        """The names among `names` of resources to which the principal may do that."""
        if self._authorizer is None:
            return set(names)
        return {
            name
            for name in dict.fromkeys(names)
            if self.is_allowed(request, operation, resource_type, name, logs_denial=logs_denial)
        }

    def operations(self, request: Request, resource_type: ResourceType, name: str) -> int:
        """The bit field of what the principal may do to the resource, as `include_*_authorized_operations` asks."""
        if self._authorizer is None:
            return _ALL_OPERATIONS[resource_type]
        return sum(
            1 << operation
            for operation in SUPPORTED_OPERATIONS[resource_type]
            if self.is_allowed(request, operation, resource_type, name, logs_denial=False)
        )

    def topic_operations(self, request: Request, name: str, *, is_asked: bool = True) -> int:
        """The field of operations in the row of a topic that the client may describe."""
        return self.operations(request, ResourceType.TOPIC, name) if is_asked else OPERATIONS_NOT_ASKED

    def group_operations(self, request: Request, group_id: str, *, is_asked: bool) -> int:
        """The field of operations in the row of a group that the client may describe."""
        return self.operations(request, ResourceType.GROUP, group_id) if is_asked else OPERATIONS_NOT_ASKED

    def cluster_operations(self, request: Request, *, is_asked: bool) -> int:
        """The field of operations on the cluster; none for a client that may not describe it."""
        if not is_asked:
            return OPERATIONS_NOT_ASKED
        if not self.is_allowed_on_cluster(request, AclOperation.DESCRIBE, logs_denial=False):
            return 0
        return self.operations(request, ResourceType.CLUSTER, CLUSTER_NAME)

    def begin(self, image: MetadataImage) -> None:
        """The node knows the committed metadata: decide by its access control lists, and follow them."""
        self._is_loaded = True
        self._bindings = dict(image.acls)
        self._tell(lambda authorizer: authorizer.replace(image.acls.values()))

    def on_metadata(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Follow the changes of the image, as a publisher of the loader."""
        if self._authorizer is None or not self._is_loaded or not delta.changed_acls:
            return
        added, removed = [], []
        for acl_id in delta.changed_acls:
            before, after = self._bindings.pop(acl_id, None), image.acls.get(acl_id)
            if before is not None:
                removed.append(before)
            if after is not None:
                added.append(after)
                self._bindings[acl_id] = after
        self._tell(lambda authorizer: authorizer.change(added, removed))

    def _tell(self, news: Callable[[Authorizer], None]) -> None:
        """Tell the authorizer what the access control lists are; one that fails there decides no more."""
        self._entries_version = object()
        if self._authorizer is None:
            return
        try:
            news(self._authorizer)
        except Exception:
            logger.exception("the authorizer cannot follow the access control lists, and everything is denied from now")
            self._authorizer = StandardAuthorizer()

    def _log_denial(self, request: Request, operation: AclOperation, resource_type: ResourceType, name: str) -> None:
        if not logger.isEnabledFor(logging.INFO):
            return
        sink = request.sink
        now = asyncio.get_running_loop().time()
        kind = f"{sink.principal} {int(operation)} {int(resource_type)} {name[:_NAME_CHARS_MAX]}"
        if self._denials.should_log_of_kind(sink.peer, kind, now):
            logger.info(_line(request, "Denied", operation, resource_type, name))


_ALL_OPERATIONS = {
    resource_type: sum(1 << operation for operation in operations)
    for resource_type, operations in SUPPORTED_OPERATIONS.items()
}


def _everything(name: str) -> bool:
    return True


def _line(request: Request, outcome: str, operation: AclOperation, resource_type: ResourceType, name: str) -> str:
    """A line as Apache Kafka logs it. Names are chosen by clients, so that what is no text is escaped."""
    sink = request.sink
    kind = "".join(word.capitalize() for word in resource_type.name.split("_"))
    api = ApiKey(request.api_key).label
    shown = name[:_NAME_CHARS_MAX].encode("unicode_escape").decode()
    principal = str(sink.principal)[:_NAME_CHARS_MAX].encode("unicode_escape").decode()
    return (
        f"Principal = {principal} is {outcome} operation = {operation.name} from host = {sink.peer} "
        f"on resource = {kind}:{PatternType.LITERAL.name}:{shown} for request = {api}"
    )
