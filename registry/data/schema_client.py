"""Asks a schema registry for schemas by their ids and subjects, with all that they refer to, and registers schemas."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from ...runtime.http.client import Fetch, HttpError, HttpRequest, fetch, without_login
from ...runtime.tls_contexts import TlsContext, TlsMaterial, TlsOptions, client_context
from ..contexts import qualified
from ..records import AVRO
from ..references import Referenced

_REFERENCES_MAX = 100
_KEPT = 500
_KEPT_CHARACTERS = 32 << 20
_NOT_FOUND = 404
_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
_TOLD_MAX = 300


class SchemaClientError(Exception):
    """The registry has no such schema, does not take one, or does not answer; the message says which.

    `code` is the registry's error code; None where there is none.
    """

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema as the registry has it, with the texts of its references."""

    schema_id: int
    schema_type: str
    text: str
    references: tuple[Referenced, ...]

    @property
    def size(self) -> int:
        """The characters of the schema and of its references."""
        return len(self.text) + sum(len(one.text) for one in self.references)


@dataclass(frozen=True, slots=True)
class SubjectVersion:
    """A version of a subject, and its schema."""

    subject: str
    version: int
    schema: RegisteredSchema


class SchemaClient:
    """Schemas of the registry at `url`. Those that were found are kept, since an id never gets another schema.

    A user and a password in the URL, `http://user:password@host`, are its login.
    """

    def __init__(self, url: str, fetch: Fetch, tls: TlsContext | None = None) -> None:
        self._url = without_login(url).rstrip("/")
        self._headers = _login_headers(url)
        self._fetch = fetch
        self._tls = tls if url.startswith("https:") else None
        self._found: dict[int, RegisteredSchema] = {}

    async def schema(self, schema_id: int) -> RegisteredSchema:
        """The schema with this id. Raises `SchemaClientError`."""
        if schema_id not in self._found:
            answer = await self._get(f"/schemas/ids/{schema_id}", f"schema {schema_id}")
            self._keep(await self._schema_in(answer, schema_id, f"schema {schema_id}"))
        return self._found[schema_id]

    async def version(self, subject: str, version: int | None) -> SubjectVersion:
        """A version of a subject, None for the latest one. Raises `SchemaClientError`."""
        number = "latest" if version is None else str(version)
        what = f"version {number} of {subject[:_TOLD_MAX]}"
        answer = await self._get(f"/subjects/{quote(subject, safe='')}/versions/{number}", what)
        try:
            schema_id, found = int(answer["id"]), int(answer["version"])
        except (KeyError, TypeError, ValueError):
            raise _no_schema(what) from None
        return SubjectVersion(subject, found, await self._schema_in(answer, schema_id, what))

    async def version_of(self, subject: str, schema_id: int) -> int:
        """The version of a subject that has the schema of this id. Raises `SchemaClientError`."""
        what = f"schema {schema_id}"
        for one in await self._ask(f"/schemas/ids/{schema_id}/versions", what, None, list):
            if isinstance(one, dict) and one.get("subject") == subject and isinstance(one.get("version"), int):
                return int(one["version"])
        raise SchemaClientError(f"the registry has no {what} under the subject {subject[:_TOLD_MAX]}", 40403)

    async def register(self, subject: str, schema_type: str, text: str) -> SubjectVersion:
        """The version of a subject with this schema, which is registered if it is not there yet.

        Raises `SchemaClientError`, also for a schema that the registry refuses.
        """
        body = {"schema": text, "schemaType": schema_type}
        path, what = f"/subjects/{quote(subject, safe='')}", f"the schema under {subject[:_TOLD_MAX]}"
        try:
            answer = await self._ask(path, what, body, dict)
        except SchemaClientError as error:
            if error.code not in (40401, 40403):
                raise
            await self._ask(f"{path}/versions", what, body, dict)
            answer = await self._ask(path, what, body, dict)
        try:
            schema_id, version = int(answer["id"]), int(answer["version"])
        except (KeyError, TypeError, ValueError):
            raise _no_schema(what) from None
        return SubjectVersion(subject, version, RegisteredSchema(schema_id, schema_type, text, ()))

    def _keep(self, found: RegisteredSchema) -> None:
        self._found[found.schema_id] = found
        while len(self._found) > 1 and self._has_too_many():
            del self._found[next(iter(self._found))]

    def _has_too_many(self) -> bool:
        return len(self._found) > _KEPT or sum(one.size for one in self._found.values()) > _KEPT_CHARACTERS

    async def _schema_in(self, answer: Mapping[str, Any], schema_id: int, what: str) -> RegisteredSchema:
        try:
            return RegisteredSchema(schema_id, _type_of(answer), str(answer["schema"]), await self._references(answer))
        except (KeyError, TypeError, ValueError):
            raise _no_schema(what) from None

    async def _references(self, answer: Mapping[str, Any]) -> tuple[Referenced, ...]:
        """What a schema refers to, and what that refers to: each before those that use it."""
        found: dict[tuple[str, int], Referenced] = {}
        await self._collect(answer, 0, found, set())
        return tuple(found.values())

    async def _collect(
        self,
        answer: Mapping[str, Any],
        depth: int,
        found: dict[tuple[str, int], Referenced],
        begun: set[tuple[str, int]],
    ) -> None:
        parent = str(answer.get("subject", ""))  # none where an id was asked for, which is of the default context
        for one in answer.get("references") or ():
            key = (qualified(str(one["subject"]), parent), int(one["version"]))
            if key in begun:
                continue
            begun.add(key)
            if len(begun) > _REFERENCES_MAX:
                raise SchemaClientError(f"the schema has more than {_REFERENCES_MAX} references")
            path = f"/subjects/{quote(key[0], safe='')}/versions/{key[1]}?deleted=true"
            used = await self._get(path, f"version {key[1]} of {key[0]}")
            await self._collect(used, depth + 1, found, begun)
            found[key] = Referenced(str(one["name"]), str(used["schema"]), depth)

    async def _get(self, path: str, what: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = await self._ask(path, what, None, dict)
        return found

    async def _ask(self, path: str, what: str, body: Mapping[str, Any] | None, kind: type) -> Any:
        """The answer, which is of this type of JSON. With a body the request is a POST."""
        data = None if body is None else json.dumps(body).encode()
        headers = self._headers if body is None else {**self._headers, "Content-Type": _CONTENT_TYPE}
        try:
            answer = await self._fetch(HttpRequest(self._url + path, headers, data, tls=self._tls))
        except HttpError as error:
            raise SchemaClientError(f"the registry gives no answer: {error}") from None
        try:
            found = await asyncio.to_thread(json.loads, answer.body)
        except (ValueError, RecursionError):
            found = None
        if answer.status == 200 and isinstance(found, kind):
            return found
        told = found if isinstance(found, dict) else {}
        code = told.get("error_code")
        code = code if isinstance(code, int) else answer.status
        if answer.status == _NOT_FOUND:
            raise SchemaClientError(f"the registry has no {what}", code)
        reason = f": {str(told['message'])[:_TOLD_MAX]}" if "message" in told else ""
        raise SchemaClientError(f"the registry answers {answer.status} to the question for {what}{reason}", code)


def _login_headers(url: str) -> dict[str, str]:
    login, at, _ = urlsplit(url).netloc.rpartition("@")
    if not at:
        return {}
    user, _, password = login.partition(":")
    credentials = f"{unquote(user)}:{unquote(password)}".encode()
    return {"Authorization": f"Basic {base64.b64encode(credentials).decode()}"}


def client_of(url: str) -> SchemaClient:
    """The client of the registry at this URL. The certificate of one with https is checked by those of the system."""
    tls = client_context(TlsMaterial(), TlsOptions()) if url.startswith("https:") else None
    return SchemaClient(url, fetch, tls)


def _no_schema(what: str) -> SchemaClientError:
    return SchemaClientError(f"the registry's answer for {what} is no schema")


def _type_of(answer: Mapping[str, Any]) -> str:
    return str(answer.get("schemaType") or AVRO)
