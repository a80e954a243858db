"""Slows guesses of passwords down: after some wrong ones a name and an address have to wait, longer each time."""

from __future__ import annotations

from collections import OrderedDict

TRIES_OF_USER, TRIES_OF_ADDRESS = 5, 30
"""Wrong passwords that cost nothing. Many users may have one address, that of a proxy."""
_FIRST_WAIT_S, _WAIT_MAX_S = 2.0, 300.0
_FORGET_AFTER_S = 900.0
_KEYS_MAX = 10_000


class LoginLimit:
    """Counts the failed logins of each key, a user's name or a client's address. Times are in seconds."""

    def __init__(self, free_tries: int) -> None:
        self._free_tries = free_tries
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()
        """How many there were, and when the last one was; the key that failed last is last."""

    def failed(self, key: str, now_s: float) -> None:
        """A login with this key has failed."""
        count, _ = self._recent(key, now_s)
        self._failures[key] = (count + 1, now_s)
        self._failures.move_to_end(key)
        while len(self._failures) > _KEYS_MAX:
            self._failures.popitem(last=False)

    def succeeded(self, key: str) -> None:
        """A login was right, so earlier failures of this key are forgotten."""
        self._failures.pop(key, None)

    def wait_s(self, key: str, now_s: float) -> float:
        """How long a login with this key has to wait; 0 if it may be tried."""
        count, last_s = self._recent(key, now_s)
        if count < self._free_tries:
            return 0.0
        wait_s = min(_FIRST_WAIT_S * 2.0 ** min(count - self._free_tries, 20), _WAIT_MAX_S)
        return max(last_s + wait_s - now_s, 0.0)

    def _recent(self, key: str, now_s: float) -> tuple[int, float]:
        count, last_s = self._failures.get(key, (0, now_s))
        return (0, now_s) if now_s - last_s > _FORGET_AFTER_S else (count, last_s)
