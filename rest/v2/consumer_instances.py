"""All consumer instances of a proxy. One that nobody uses for a while is closed, since its client may be gone."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ..errors import RestError
from ..record_producer import silent_logger
from .consumer_instance import ConsumerInstance
from .shown_records import Show

T = TypeVar("T")

_LOOKS_PER_TIMEOUT = 4
_LOOK_AT_MOST_EVERY_S = 5.0
_QUEUED_KBYTES = 16 * 1024
_POLL_INTERVAL_MS = 300_000
_POLL_INTERVAL_MAX_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class ConsumerLimits:
    """How many instances there may be, when one expires that nobody uses, and what one read takes at most."""

    instances: int = 100
    timeout_ms: int = 300_000
    read_bytes: int = 8 << 20
    read_timeout_ms: int = 30_000


_TokenSource = Callable[[str], tuple[str, float]]
"""What librdkafka asks for a token (`oauth_cb`): the token, and when it wants the next one, in seconds since 1970."""


@dataclass(slots=True)
class _LatestToken:
    """The token of an instance: of those that its requests came with the one that holds longest."""

    source: _TokenSource

    def __call__(self, config: str) -> tuple[str, float]:
        return self.source(config)

    def renew(self, source: _TokenSource) -> None:
        """Take the token that a request came with, unless the one from before holds longer."""
        if self.source("")[1] <= source("")[1]:
            self.source = source


@dataclass(slots=True)
class _Held:
    """An instance, how long a read of it waits by default, and when it expires (the loop's time)."""

    instance: ConsumerInstance
    token: _LatestToken | None
    wait_ms: int
    expires_at: float
    lock: asyncio.Lock


_Key = tuple[str, str, str]
"""The owner, the group and the name of an instance."""


class ConsumerInstances:
    """Keeps the instances by owner, group and name. An async context manager, which closes them all."""

    def __init__(self, limits: ConsumerLimits) -> None:
        self.limits = limits
        self._held: dict[_Key, _Held] = {}
        self._threads = ThreadPoolExecutor(limits.instances + 1, "rest-consumer")
        self._expiry: asyncio.Task[None] | None = None

    async def __aenter__(self) -> ConsumerInstances:
        self._expiry = asyncio.ensure_future(self._expire())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        await asyncio.gather(*(self.delete(key) for key in list(self._held)), return_exceptions=True)
        self._threads.shutdown(wait=False)

    def __len__(self) -> int:
        return len(self._held)

    def of(self, owner: str, settings: Mapping[str, Any]) -> OwnedInstances:
        """The instances of one principal. `settings` are those of librdkafka: the addresses, and how it logs in."""
        return OwnedInstances(self, owner, settings)

    async def create(self, key: _Key, settings: Mapping[str, Any], options: InstanceOptions, show: Show) -> None:
        """A new instance, which shows its records so.

        Raises `RestError`: 40902 where there is one of this name, 429 for too many.
        """
        if key in self._held:
            raise RestError(
                40902, "Consumer with specified consumer ID already exists in the specified consumer group."
            )
        if len(self._held) >= self.limits.instances:
            raise RestError(429, f"There are {len(self._held)} consumer instances, and no more may be: delete some")
        token = _LatestToken(settings["oauth_cb"]) if "oauth_cb" in settings else None
        all_settings = {
            **settings,
            **({} if token is None else {"oauth_cb": token}),
            "client.id": "raftwerk-rest",
            "group.id": key[1],
            "auto.offset.reset": options.auto_offset_reset,
            "enable.auto.commit": options.auto_commits,
            "enable.auto.offset.store": False,
            "allow.auto.create.topics": False,
            "queued.max.messages.kbytes": _QUEUED_KBYTES,
            "max.poll.interval.ms": min(_POLL_INTERVAL_MS + self.limits.timeout_ms, _POLL_INTERVAL_MAX_MS),
            "topic.metadata.refresh.interval.ms": 10_000,
            "log_level": 0,
            "logger": silent_logger(),
        }
        try:
            instance = ConsumerInstance(all_settings, options.embedded_format, show, options.min_bytes)
        except Exception as error:  # what librdkafka does not take as the id of a group
            raise RestError(42204, f"Invalid consumer configuration: {error}") from None
        self._held[key] = _Held(instance, token, options.wait_ms, self._later(), asyncio.Lock())

    def wait_ms(self, key: _Key) -> int:
        """How long a read of this instance waits by default. Raises `RestError` (40403)."""
        return self._of(key).wait_ms

    def embedded_format(self, key: _Key) -> str:
        """The format of an instance. Raises `RestError` (40403) when there is none of this name."""
        return self._of(key).instance.embedded_format

    async def use(self, key: _Key, settings: Mapping[str, Any], work: Callable[[ConsumerInstance], T]) -> T:
        """Do this with an instance in a thread, when nothing else is being done with it. Raises `RestError` (40403).

        `settings` are those of the request: an instance lives longer than the token that made it.
        """
        held = self._of(key)
        if held.token is not None:
            held.token.renew(settings["oauth_cb"])
        held.expires_at = self._later()
        # The thread goes on if the request is cancelled, and the instance is its own until then.
        return await asyncio.shield(asyncio.ensure_future(self._work(held, work)))

    async def delete(self, key: _Key) -> None:
        """Close an instance; its reads return. Raises `RestError` (40403)."""
        held = self._of(key)
        del self._held[key]
        held.instance.stopping.set()
        await asyncio.shield(asyncio.ensure_future(self._work(held, lambda one: one.close(), is_last=True)))

    async def _work(self, held: _Held, work: Callable[[ConsumerInstance], T], *, is_last: bool = False) -> T:
        async with held.lock:
            if held.instance.stopping.is_set() and not is_last:
                raise _not_found()
            found = await asyncio.get_running_loop().run_in_executor(self._threads, work, held.instance)
            held.expires_at = self._later()
            return found

    def _of(self, key: _Key) -> _Held:
        held = self._held.get(key)
        if held is None:
            raise _not_found()
        return held

    def _later(self) -> float:
        return asyncio.get_running_loop().time() + self.limits.timeout_ms / 1000

    async def _expire(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(min(self.limits.timeout_ms / 1000 / _LOOKS_PER_TIMEOUT, _LOOK_AT_MOST_EVERY_S))
            now = loop.time()
            for key, held in list(self._held.items()):
                if held.expires_at <= now and not held.lock.locked():
                    with suppress(RestError):
                        await self.delete(key)


@dataclass(frozen=True, slots=True)
class OwnedInstances:
    """The instances of one principal, by group and name. Those of others are not there for it."""

    instances: ConsumerInstances
    owner: str
    settings: Mapping[str, Any] = field(repr=False)

    @property
    def limits(self) -> ConsumerLimits:
        """What all instances of the proxy keep to."""
        return self.instances.limits

    async def create(self, group: str, name: str | None, options: InstanceOptions, show: Show) -> str:
        """A new instance, which logs in as its owner; returns its name. Raises `RestError`, as `ConsumerInstances`."""
        chosen = name or f"rest-consumer-{uuid.uuid4()}"
        await self.instances.create((self.owner, group, chosen), self.settings, options, show)
        return chosen

    def wait_ms(self, group: str, name: str) -> int:
        """How long a read of this instance waits by default. Raises `RestError` (40403)."""
        return self.instances.wait_ms((self.owner, group, name))

    def embedded_format(self, group: str, name: str) -> str:
        """The format of an instance. Raises `RestError` (40403) when there is none of this name."""
        return self.instances.embedded_format((self.owner, group, name))

    async def use(self, group: str, name: str, work: Callable[[ConsumerInstance], T]) -> T:
        """Do this with an instance in a thread. Raises `RestError` (40403)."""
        return await self.instances.use((self.owner, group, name), self.settings, work)

    async def delete(self, group: str, name: str) -> None:
        """Close an instance. Raises `RestError` (40403)."""
        await self.instances.delete((self.owner, group, name))


@dataclass(frozen=True, slots=True)
class InstanceOptions:
    """How an instance reads. `wait_ms` is how long a read waits by default, for at least `min_bytes` of records."""

    embedded_format: str
    auto_offset_reset: str
    auto_commits: bool
    min_bytes: int
    wait_ms: int


def _not_found() -> RestError:
    return RestError(40403, "Consumer instance not found.")


def instance_options(body: Mapping[str, Any], formats: tuple[str, ...]) -> InstanceOptions:
    """The options of a checked body. Raises `RestError`: 42204 for a value that an option cannot have."""
    embedded_format = str(body.get("format") or formats[0]).lower()
    if embedded_format not in formats:
        raise _invalid(f"format must be one of {', '.join(formats)}")
    reset = str(body.get("auto.offset.reset") or "latest").lower()
    if reset not in ("latest", "earliest", "none"):
        raise _invalid("auto.offset.reset must be latest, earliest or none")
    commits = str(True if body.get("auto.commit.enable") is None else body["auto.commit.enable"]).lower()
    if commits not in ("true", "false"):
        raise _invalid("auto.commit.enable must be true or false")
    return InstanceOptions(
        embedded_format,
        "error" if reset == "none" else reset,
        commits == "true",
        _number(body, "fetch.min.bytes", 1, 10_000_000),
        _number(body, "consumer.request.timeout.ms", 1000, 30_000),
    )


def _number(body: Mapping[str, Any], name: str, default: int, maximum: int) -> int:
    given = body.get(name)
    if given is None or str(given) == "-1":
        return default
    text = str(given)
    if isinstance(given, bool) or not text.isascii() or not text.isdigit() or len(text) > 9 or int(text) > maximum:
        raise _invalid(f"{name} must be a whole number from 0 to {maximum}")
    return int(text)


def _invalid(why: str) -> RestError:
    return RestError(42204, f"Invalid consumer configuration: {why}")
