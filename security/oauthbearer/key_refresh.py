"""The keys of an identity provider, read again at intervals, and soon when a token names a key that is not known.

Kafka's counterpart is RefreshingHttpsJwks. Tokens with invented key ids cannot cause a storm of requests: such a
refresh begins at most once in some seconds, whatever ids are asked for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from .signed_tokens import KeySetError, NoPublicKeyError, PublicKey, parse_key_set

UNKNOWN_KEY_INTERVAL_S = 10.0
"""A refresh because of unknown keys begins at most once in so many seconds."""

logger = logging.getLogger("raftwerk.broker")


@dataclass(frozen=True, slots=True)
class RefreshTimes:
    """`sasl.oauthbearer.jwks.endpoint.refresh.ms`, `.retry.backoff.ms` and `.retry.backoff.max.ms`."""

    refresh_ms: int = 3_600_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 10_000

    def pause_s(self, failures: int) -> float:
        """How long to wait for the next refresh after so many failures in a row."""
        if failures == 0:
            return self.refresh_ms / 1000
        backoff_ms = self.retry_backoff_ms * 2 ** min(failures - 1, 32)
        return float(min(backoff_ms, self.retry_backoff_max_ms, self.refresh_ms)) / 1000


class RefreshingKeys:
    """Reads the document at `where` by `read`, which raises OSError."""

    def __init__(self, where: str, read: Callable[[], Awaitable[bytes]], times: RefreshTimes) -> None:
        self._where = where
        self._read = read
        self._times = times
        self._failures = 0
        self._next_unknown_s = float("-inf")
        self._is_due = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.keys: Sequence[PublicKey] = ()
        """The keys of the last document that was read; none if it had none, as of a provider that has revoked them."""

    async def start(self) -> None:
        """Read the document for the first time, then again in the background."""
        await self._refresh()
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        """Read it no more."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def on_unknown_key(self) -> None:
        """Refresh soon, unless that was done a short time ago."""
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._next_unknown_s:
            self._next_unknown_s = now_s + UNKNOWN_KEY_INTERVAL_S
            self._is_due.set()

    async def _run(self) -> None:
        while True:
            try:
                await asyncio.wait_for(self._is_due.wait(), self._times.pause_s(self._failures))
            except TimeoutError:
                pass
            self._is_due.clear()
            await self._refresh()

    async def _refresh(self) -> None:
        try:
            self.keys = parse_key_set(await self._read())
        except NoPublicKeyError as error:
            had_keys, self.keys = bool(self.keys), ()
            self._on_failure(error, is_news=had_keys)
            return
        except Exception as error:  # whatever it is, the keys are to be read again
            self._on_failure(error, is_news=False)
            return
        if self._failures:
            logger.info("the keys for OAUTHBEARER at %s are read again", self._where)
        self._failures = 0

    def _on_failure(self, error: Exception, *, is_news: bool) -> None:
        self._failures += 1
        if is_news or self._failures == 1:
            effect = "the former keys hold" if self.keys else "all tokens are refused until it is read"
            is_expected = isinstance(error, (OSError, KeySetError))
            logger.error(
                "the keys for OAUTHBEARER at %s cannot be read, %s: %s",
                self._where,
                effect,
                error,
                exc_info=None if is_expected else error,
            )
