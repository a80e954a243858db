"""Helpers that make the lines of a history, and a simple checker."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from hypothesis import strategies as st

Line = dict[str, Any]
SECOND = 10**9


def header(producer: int, *, idempotent: bool = True) -> Line:
    facts = {"version": 1, "producer": producer, "idempotent": idempotent}
    return {"process": f"p{producer}", "type": "info", "f": "history", "start": 0, **facts}


def invoke(number: int, *, producer: int = 0, key: int = 0, partition: int = 0, start: int | None = None) -> Line:
    at = number * SECOND if start is None else start
    fields = {"topic": "t", "partition": partition, "producer": producer, "number": number, "key": key, "start": at}
    return {"process": f"p{producer}", "type": "invoke", "f": "send", **fields}


def done(type_: str, number: int, offset: int | None = None, **where: int) -> Line:
    line = invoke(number, **where)
    line |= {"type": type_, "end": line["start"] + SECOND // 10}
    return line if offset is None else line | {"offset": offset}


def ack(number: int, offset: int | None = None, **where: int) -> Line:
    return done("ok", number, offset, **where)


def poll(
    *records: tuple[int, ...], process: str = "c0", partition: int = 0, end: int = 100 * SECOND, final: bool = False
) -> Line:
    """Records as (offset, number), (offset, number, key) or (offset, number, key, producer)."""
    rows = [[one[0], one[3] if len(one) > 3 else 0, one[1], one[2] if len(one) > 2 else 0] for one in records]
    line = {"process": process, "type": "ok", "f": "poll", "topic": "t", "partition": partition, "records": rows}
    return line | {"start": end - 1, "end": end} | ({"final": True} if final else {})


def final(*records: tuple[int, ...], partition: int = 0) -> Line:
    return poll(*records, process="final", partition=partition, end=1000 * SECOND, final=True)


def final_end(offset: int, partition: int = 0) -> Line:
    fields = {"topic": "t", "partition": partition, "offset": offset, "end": 1001 * SECOND}
    return {"process": "final", "type": "ok", "f": "final", **fields}


def clean(count: int = 5) -> list[Line]:
    lines: list[Line] = [header(0)]
    for number in range(count):
        lines += [invoke(number), ack(number, number)]
    return [*lines, poll(*((n, n) for n in range(count))), final(*((n, n) for n in range(count)))]


def oracle(lines: Iterable[Line]) -> dict[str, int]:
    """The anomalies by the checker's definitions, found slowly with sets of all lines, in any order."""
    lines = list(lines)
    sends: dict[tuple[int, int], Line] = {}
    rank = {"invoke": 0, "info": 1, "fail": 2, "ok": 3}
    for line in lines:
        if line["f"] == "send":
            name = (line["producer"], line["number"])
            if name not in sends or rank[line["type"]] >= rank[sends[name]["type"]]:
                sends[name] = line
    loose = {line["producer"] for line in lines if line["f"] == "history" and not line["idempotent"]}
    reads = [
        (line["partition"], row[0], (row[1], row[2]), row[3], line["end"], line.get("final", False))
        for line in lines
        if line["f"] == "poll"
        for row in line["records"]
    ]
    acked_at = {name: (s["partition"], s["offset"]) for name, s in sends.items() if s["type"] == "ok" and "offset" in s}
    at: dict[tuple[int, int], set[tuple[int, int]]] = {}
    for place, offset, name, *_ in reads:
        at.setdefault((place, offset), set()).add(name)
    for name, spot in acked_at.items():
        at.setdefault(spot, set()).add(name)
    conflicts = {spot for spot, names in at.items() if len(names) > 1}
    read_at = {(place, offset) for place, offset, *_ in reads}
    spots: dict[tuple[int, int], set[tuple[int, int]]] = {}
    for place, offset, name, *_ in reads:
        spots.setdefault(name, set()).add((place, offset))
    finals = {name for _, _, name, _, _, is_final in reads if is_final}
    has_final = any(line.get("final") or line["f"] == "final" for line in lines)
    reach: dict[int, int] = {}
    for place, offset, _, _, _, is_final in reads:
        if is_final or not has_final:
            reach[place] = max(reach.get(place, -1), offset)
    ended = {line["partition"]: line["offset"] for line in lines if line["f"] == "final"}
    reach |= {place: max(reach.get(place, -1), end - 1) for place, end in ended.items()}
    found = dict.fromkeys(("lost", "unseen", "vanished", "duplicate", "reordered", "inconsistent-offset"), 0)
    found |= dict.fromkeys(("realtime-order", "seen-before-send", "phantom", "failed-seen", "unanswered", "corrupt"), 0)
    found["inconsistent-offset"] = len(conflicts)
    for name, send in sends.items():
        seen = spots.get(name, set())
        gone = name not in finals if has_final else not seen
        if send["type"] == "invoke" and has_final:
            found["unanswered"] += 1
        if send["type"] == "ok" and gone:
            if reach.get(send["partition"], -1) >= send.get("offset", 0 if has_final else math.inf):
                found["lost"] += 1
            elif has_final:
                found["unseen"] += 1
        elif gone and seen and (min(seen)[0] in ended or reach.get(min(seen)[0], -1) >= min(seen)[1]):
            found["vanished"] += 1
        if seen and send["type"] == "fail":
            found["failed-seen"] += 1
        if seen and min(end for _, _, other, _, end, _ in reads if other == name) < send["start"]:
            found["seen-before-send"] += 1
        acked = acked_at.get(name)
        if acked is not None and seen and acked != min(seen) and acked not in read_at and acked not in conflicts:
            found["inconsistent-offset"] += 1
        if acked is None and seen and send["partition"] not in (-1, min(seen)[0]):
            found["inconsistent-offset"] += 1
        if any(key != send["key"] for _, _, other, key, _, _ in reads if other == name):
            found["corrupt"] += 1
    found["phantom"] = sum(name not in sends for name in spots)
    for name, places in spots.items():
        if name[0] not in loose:
            found["duplicate"] += sum(spot != min(places) for spot in places - conflicts)
    last: dict[tuple[int, int], int] = {}
    for spot in sorted(at.keys() - conflicts):
        (name,) = at[spot]
        if name[0] in loose or min(spots.get(name, {spot})) != spot:
            continue
        group = (spot[0], name[0])
        found["reordered"] += name[1] < last.get(group, -1)
        last[group] = max(name[1], last.get(group, -1))
    ends = {at: sends[name]["end"] for name, at in acked_at.items() if at not in conflicts}
    for place, offset in at.keys() - conflicts:
        (name,) = at[place, offset]
        behind = [
            end
            for (other_place, acked), end in ends.items()
            if other_place == place
            and acked > offset
            and (name[0] in loose or all(other != name[0] for other, _ in at[other_place, acked]))
        ]
        found["realtime-order"] += name in sends and bool(behind) and sends[name]["start"] > min(behind)
    return found


_numbers, _places = st.integers(0, 6), st.integers(0, 1)


def _key_of(number: int) -> int:
    return number % 2


@st.composite
def random_histories(draw: st.DrawFn) -> list[Line]:
    """Histories of two producers and one consumer, in which every anomaly may stand."""
    lines: list[Line] = [header(1, idempotent=draw(st.booleans()))]
    for producer in (0, 1):
        for number in range(draw(st.integers(0, 6))):
            kind = draw(st.sampled_from(["invoke", "ok", "ok", "ok", "fail", "info"]))
            partition = draw(_places if kind == "ok" else st.integers(-1, 1))
            at = {"producer": producer, "partition": partition, "key": _key_of(number)}
            offset = draw(st.none() | _numbers) if kind == "ok" else None
            lines.append(invoke(number, **at) if kind == "invoke" else done(kind, number, offset, **at))
    for _ in range(draw(st.integers(0, 4))):
        rows = draw(st.lists(st.tuples(_numbers, _numbers, st.integers(0, 1), st.integers(0, 9)), max_size=5))
        records = [(row[0], row[1], 7 if row[3] == 9 else _key_of(row[1]), row[2]) for row in rows]
        end = draw(st.integers(0, 8)) * SECOND
        lines.append(poll(*records, process="x", partition=draw(_places), end=end, final=draw(st.booleans())))
    lines += [final_end(draw(_numbers), partition) for partition in draw(st.lists(_places, unique=True))]
    return lines
