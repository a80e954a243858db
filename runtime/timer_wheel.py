"""A hierarchical timing wheel: adding and cancelling a timer cost O(1), however many there are.

A slot of level 0 is one millisecond, and a slot of a higher level spans all slots of the level below (Varghese and
Lauck, 1987). A timer is at the lowest level at which its deadline's slot differs from the present slot: the level is
the highest group of six bits in which the two times differ. So slots never wrap, and every timer of a lower level is
due before those of a higher level. When time enters a slot of a higher level, its timers move down, in the order in
which they were added. Timers of the same millisecond therefore fire in that order too.
"""

from __future__ import annotations

from collections.abc import Callable

from .invariants import invariant

_BITS = 6
_SLOTS = 1 << _BITS
_LEVELS = 8
_MAX_MS = (1 << (_BITS * _LEVELS)) - 1

Callback = Callable[[], None]


class TimerHandle:
    """A timer in a wheel. It is due when the wheel's time reaches its deadline, and fires after that."""

    __slots__ = ("_callback", "_deadline_ms", "_level", "_sequence", "_slot", "_wheel")

    def __init__(self, wheel: TimerWheel, deadline_ms: int, sequence: int, callback: Callback) -> None:
        self._wheel: TimerWheel | None = wheel
        self._deadline_ms = deadline_ms
        self._sequence = sequence
        self._callback: Callback | None = callback
        self._level = 0
        self._slot = 0

    @property
    def deadline_ms(self) -> int:
        """When the timer is due."""
        return self._deadline_ms

    @property
    def active(self) -> bool:
        """Whether it has neither fired nor been cancelled."""
        return self._callback is not None

    def cancel(self) -> bool:
        """Cancel the timer, also one that is due. Returns whether it had neither fired nor been cancelled."""
        was_active = self.active
        self._callback = None
        if self._wheel is not None:
            self._wheel._remove(self)
        return was_active

    def _fire(self) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()


class TimerWheel:
    """Timers in milliseconds, without a clock: `advance` takes the time, and the caller runs what it returns."""

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms
        self._sequence = 0
        self._count = 0
        self._overdue: dict[int, TimerHandle] = {}
        self._wheel: list[list[dict[int, TimerHandle]]] = [[{} for _ in range(_SLOTS)] for _ in range(_LEVELS)]
        self._occupied = [0] * _LEVELS

    def __len__(self) -> int:
        return self._count

    @property
    def now_ms(self) -> int:
        """The time of the last `advance`."""
        return self._now_ms

    def add(self, deadline_ms: int, callback: Callback) -> TimerHandle:
        """Fire `callback` at the first `advance` that reaches `deadline_ms`, or at the next one if that is past."""
        self._sequence += 1
        handle = TimerHandle(self, min(deadline_ms, _MAX_MS), self._sequence, callback)
        self._count += 1
        if handle._deadline_ms <= self._now_ms:
            handle._level = -1
            self._overdue[handle._sequence] = handle
        else:
            self._place(handle)
        return handle

    def advance(self, now_ms: int) -> list[Callback]:
        """Calls for all timers due at `now_ms`, by deadline and then by age. Time never goes back.

        One of them may cancel timers behind it: what is called for these does nothing.
        """
        invariant(now_ms >= self._now_ms, "a timing wheel's time does not go back")
        expired: list[Callback] = []
        if self._overdue:
            for handle in self._overdue.values():
                self._expire(handle, expired)
            self._overdue.clear()
        while (entry := self._first_slot()) is not None and entry[2] <= now_ms:
            self._enter_slot(*entry, expired)
        self._now_ms = now_ms
        return expired

    def next_deadline_ms(self) -> int | None:
        """When to call `advance` next: never later than the earliest deadline. None when there is no timer.

        For a timer in a higher level this is the start of its slot, where `advance` moves it down.
        """
        if self._overdue:
            return self._now_ms
        entry = self._first_slot()
        return None if entry is None else entry[2]

    def _remove(self, handle: TimerHandle) -> None:
        if handle._level < 0:
            del self._overdue[handle._sequence]
        else:
            slot = self._wheel[handle._level][handle._slot]
            del slot[handle._sequence]
            if not slot:
                self._occupied[handle._level] &= ~(1 << handle._slot)
        handle._wheel = None
        self._count -= 1

    def _place(self, handle: TimerHandle) -> None:
        deadline_ms = handle._deadline_ms
        level = ((deadline_ms ^ self._now_ms).bit_length() - 1) // _BITS
        slot = (deadline_ms >> (_BITS * level)) & (_SLOTS - 1)
        handle._level = level
        handle._slot = slot
        self._wheel[level][slot][handle._sequence] = handle
        self._occupied[level] |= 1 << slot

    def _first_slot(self) -> tuple[int, int, int] | None:
        """Level, slot and start time of the earliest slot that holds a timer."""
        for level, occupied in enumerate(self._occupied):
            if occupied:
                slot = (occupied & -occupied).bit_length() - 1
                shift = _BITS * level
                level_start = self._now_ms >> (shift + _BITS) << (shift + _BITS)
                return level, slot, level_start + (slot << shift)
        return None

    def _enter_slot(self, level: int, slot: int, start_ms: int, expired: list[Callback]) -> None:
        handles = self._wheel[level][slot]
        self._wheel[level][slot] = {}
        self._occupied[level] &= ~(1 << slot)
        self._now_ms = start_ms
        for handle in handles.values():
            if handle._deadline_ms <= start_ms:
                self._expire(handle, expired)
            else:
                self._place(handle)

    def _expire(self, handle: TimerHandle, expired: list[Callback]) -> None:
        handle._wheel = None
        self._count -= 1
        expired.append(handle._fire)
