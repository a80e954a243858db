"""The logins by delegation tokens at the listeners of a node, by its image of the metadata."""

from __future__ import annotations

from ...controller.metadata.metadata_image import MetadataDelta, MetadataImage
from ...controller.metadata.metadata_loader import MetadataLoader
from ...runtime.ports import Runtime
from ...security.delegation_token import TokenLogins
from ..settings.node_config import NodeConfig
from ..settings.settings_per_package import token_key


def token_logins(config: NodeConfig, runtime: Runtime, loader: MetadataLoader) -> TokenLogins:
    """The logins by the tokens of the committed metadata."""
    logins = TokenLogins(
        token_key(config), lambda: loader.image.delegation_tokens, runtime.clock.wall_ms, runtime.secret_bytes
    )

    def on_metadata(image: MetadataImage, delta: MetadataDelta) -> None:
        for token_id in delta.changed_tokens:
            if token_id not in image.delegation_tokens:
                logins.forget(token_id)

    loader.subscribe(on_metadata)
    return logins
