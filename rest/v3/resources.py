"""Resources of version 3: each has a kind, its own URL and name, its fields, and the URLs of what is related to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from ..request import Request
from ..routes import Answer
from ..services import Services


class Links:
    """The URLs and names below one cluster."""

    def __init__(self, base_url: str, cluster_id: str) -> None:
        self.cluster_id = cluster_id
        self._url = f"{base_url}/v3/clusters/{quote(cluster_id, safe='')}"

    def url(self, *parts: object) -> str:
        """The URL of what is below the cluster."""
        return "/".join((self._url, *(quote(str(part), safe=":") for part in parts)))

    def related(self, *parts: object) -> dict[str, str]:
        """The URL as a relationship."""
        return {"related": self.url(*parts)}

    def resource(
        self, kind: str, parts: Sequence[object], names: Sequence[tuple[str, object]], end: str = "", /, **fields: Any
    ) -> Any:
        """A resource. `parts` make its URL, `names` its name, which may have an end without a value."""
        name = "".join(f"/{what}={which}" for what, which in names) + end
        metadata = {"self": self.url(*parts), "resource_name": f"crn:///kafka={self.cluster_id}{name}"}
        return {"kind": kind, "metadata": metadata, "cluster_id": self.cluster_id, **fields}

    def listed(self, kind: str, parts: Sequence[object], rows: Sequence[Any]) -> Answer:
        """The answer with all resources of a kind. There is one page of them."""
        return Answer({"kind": kind, "metadata": {"self": self.url(*parts), "next": None}, "data": list(rows)})


async def links_of(services: Services, request: Request) -> Links:
    """The links of the cluster that the path names. Raises `RestError` if it is another one."""
    cluster_id = request.parameters["cluster_id"]
    await services.cluster.check_id(cluster_id)
    return Links(request.base_url, cluster_id)
