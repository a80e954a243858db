"""Spark's intervals, such as `1 day 12 hours`, as far as they can be read without Spark."""

from __future__ import annotations

import re
from datetime import timedelta

from ..errors import WrongOptionError

_MICROSECONDS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_MONTHS = {"month": 1, "year": 12}
_RETENTION_MAX_MICROSECONDS = 36_525 * _MICROSECONDS["day"]
_MICROSECONDS_A_MONTH = 31 * _MICROSECONDS["day"]
"""Spark takes a month of an allowed lateness for 31 days."""
_PART = re.compile(r"([+-]?)\s*(\d+(?:\.\d*)?|\.\d+)\s+([a-z]+?)s?(?=\s|$)\s*")


def interval_microseconds(text: str, *, months: bool) -> float | None:
    """How long an interval is; None for a text with quotes, which only Spark's parser reads.

    `months`: whether months and years are allowed. Raises `ValueError` for what Spark would refuse.
    """
    if "'" in text or '"' in text:
        return None
    rest = text.strip().lower()
    rest = rest.removeprefix("interval ").lstrip() if rest.startswith("interval ") else rest
    if not rest:
        raise ValueError("it is empty")
    total = 0.0
    while rest:
        found = _PART.match(rest)
        if found is None:
            raise ValueError(f"{rest!r} is no number and unit")
        sign, number, unit = found.groups()
        if unit in _MONTHS and not months:
            raise ValueError(f"{unit}s differ in length")
        if unit not in _MICROSECONDS and unit not in _MONTHS:
            raise ValueError(f"{unit!r} is no unit")
        if "." in number and unit != "second":
            raise ValueError("only seconds have a fraction")
        length = _MICROSECONDS.get(unit) or _MONTHS[unit] * _MICROSECONDS_A_MONTH
        total += (-1 if sign == "-" else 1) * float(number) * length
        rest = rest[found.end() :]
    return total


def parse_retention(text: str, purpose: str = "to retain snapshots") -> timedelta:
    """How long something stays, a century at most, as there is no date that is any number of days ago.

    Raises `WrongOptionError` for what is no interval, and for one that is negative.
    """
    try:
        microseconds = interval_microseconds(text, months=False)
    except ValueError as error:
        raise WrongOptionError(f"{text} is no time {purpose} ({error}): write it like '5 days'.") from None
    if microseconds is None or microseconds < 0:
        raise WrongOptionError(f"{text} is no time {purpose}: write it like '5 days'.")
    return timedelta(microseconds=min(microseconds, _RETENTION_MAX_MICROSECONDS))
