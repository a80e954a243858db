"""All routes of the proxy."""

from __future__ import annotations

from .openapi import openapi_document
from .request import Request
from .routes import Answer, Route
from .services import Services
from .v2 import consumers, metadata, produce
from .v3 import acls, clusters, configs, groups, reassignments, records, topics


async def _root(_services: Services, _request: Request) -> Answer:
    return Answer({})


async def _document(_services: Services, request: Request) -> Answer:
    return Answer(openapi_document(ROUTES, request.base_url))


ROUTES: tuple[Route, ...] = (
    Route("GET", "/", _root, "An empty object: the proxy is there.", "Nothing"),
    Route("GET", "/openapi.json", _document, "This document.", "OpenApiDocument"),
    *clusters.ROUTES,
    *topics.ROUTES,
    *configs.ROUTES,
    *acls.ROUTES,
    *reassignments.ROUTES,
    *groups.ROUTES,
    *records.ROUTES,
    *metadata.ROUTES,
    *produce.ROUTES,
    *consumers.ROUTES,
)
"""What is served. The OpenAPI document follows from it."""
