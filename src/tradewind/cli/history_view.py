"""How history looks on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tradewind.cli.output import cell, facts, plain, status_cell, table
from tradewind.cli.times import clock_time, span
from tradewind.clock import iso, now_ms

if TYPE_CHECKING:
    from rich.console import RenderableType

_KINDS = {"raw": "samples", "minute": "minutes", "hour": "hours"}
QUALITIES = {0: "good", 1: "uncertain", 2: "bad", 4: "substituted"}


def number(value: float | None) -> str | None:
    return None if value is None else f"{value:.10g}"


def moment(ts: int | None) -> str | None:
    return None if ts is None else clock_time(iso(ts))


def range_view(found: dict[str, Any]) -> RenderableType:
    """One series: a column for each number. Several: in buckets beside each other, samples below each other."""
    series, columns = found["series"], found["columns"]
    is_raw = "quality" in columns
    if len(series) > 1 and not is_raw and len(columns) == 2:
        rows_at: dict[int, list[str | None]] = {}
        for at, each in enumerate(series):
            for ts, value in each["samples"]:
                rows_at.setdefault(ts, [None] * len(series))[at] = number(value)
        headings = ["time", *(_title(each) for each in series)]
        rows: list[list[Any]] = [[moment(ts), *rows_at[ts]] for ts in sorted(rows_at)]
        return table(headings, rows, empty="no samples in that time", right=headings[1:])
    headings = ["time", *columns[1:]]
    if len(series) > 1:
        headings.insert(1, "series")
    rows = []
    for each in series:
        for ts, *values in each["samples"]:
            told: list[Any] = [number(value) for value in values]
            if is_raw:
                told[-1] = status_cell(QUALITIES[int(values[-1])])
            rows.append([moment(ts), *([_title(each)] if len(series) > 1 else []), *told])
    numbers = [name for name in columns[1:] if name != "quality"]
    return table(headings, rows, empty="no samples in that time", right=numbers)


def range_notes(found: dict[str, Any]) -> Iterator[str]:
    """What an answer lacks."""
    for each in found["series"]:
        name = each["address"]
        if not each["complete"]:
            yield _removed(name, each["available_from"], is_raw=not each["bucket_ms"])
        if each["truncated"]:
            yield f"{name}: there is more; go on with --from {each['next_from']}, or raise --limit"
        for begin, end in each["gaps"][:5]:
            yield f"{name}: nothing for {span((end - begin) / 1000)} from {moment(begin)}"
        if len(each["gaps"]) > 5:
            yield f"{name}: and {len(each['gaps']) - 5} more gaps"


def lack_notes(lacks: Sequence[tuple[str, int]], count: int, *, is_raw: bool) -> Iterator[str]:
    """What an exported file lacks: of so many series, of which the first are named."""
    for name, available_from in lacks[:5]:
        yield _removed(name, available_from, is_raw=is_raw)
    if count > 5:
        yield f"and likewise of {count - 5} more series"


def _removed(name: str, available_from: int, *, is_raw: bool) -> str:
    hint = "; --bucket 1m or 1h may reach further back" if is_raw else ""
    return f"{name}: retention has removed what lies before {moment(available_from)}{hint}"


def empty_notes(newest: list[dict[str, Any]]) -> Iterator[str]:
    """Of series without an answer: whether the time was wrong, or the address."""
    for each in newest:
        if each["ts"] is None:
            yield f"{each['address']}: there is no sample of it; `tradewind history series` lists what is recorded"
        else:
            yield f"{each['address']}: its newest sample is from {iso(each['ts'])}"


def refused_notes(
    refused: list[dict[str, Any]], count: int, too_old: list[dict[str, Any]], rollups_only: int
) -> Iterator[str]:
    """What became of the rows of an import that are not simply stored."""
    for each in too_old:
        setting = "history.raw_days" if each["class"] == "default" else f"raw_days of the class {each['class']}"
        yield (
            f"refused: {each['rows']} rows from before {moment(each['kept_from'])}: {setting} is {each['raw_days']}, "
            "and retention has removed that time"
        )
    told = {"too_old"} if too_old else set()
    others = [each for each in refused if each["reason"] not in told]
    for each in others[:20]:
        yield f"refused: {each['series']} at {moment(each['ts'])}: {each['reason']}"
    left = count - sum(each["rows"] for each in too_old) - min(len(others), 20)
    if left > 0:
        yield f"refused: and {left} more"
    if rollups_only:
        yield (
            f"{rollups_only} stored rows are older than raw_days: retention will leave only their rollups "
            "(buckets of whole minutes and hours)"
        )


def latest_view(items: list[dict[str, Any]]) -> RenderableType:
    now = now_ms()
    rows = [
        (i["address"], number(i["value"]), i["unit"], i["quality"] and status_cell(i["quality"]), moment(i["ts"]),
         None if i["ts"] is None else f"{span((now - i['ts']) / 1000)} ago")
        for i in items
    ]  # fmt: skip
    return table(("series", "value", "unit", "quality", "time", "age"), rows, empty="no series", right=("value",))


def series_view(items: list[dict[str, Any]], pattern: str = "*") -> RenderableType:
    rows = [(i["address"], i["unit"], i["count"], moment(i["first_ts"]), moment(i["last_ts"])) for i in items]
    headings = ("series", "unit", "samples", "first", "last")
    empty = "nothing is recorded" if pattern == "*" else f"nothing recorded fits {plain(pattern)}"
    return table(headings, rows, empty=empty, right=("samples",))


def figures_view(found: dict[str, Any]) -> RenderableType:
    names = ("min", "max", "mean", "stddev", "first", "last", "integral")
    rows = [
        (i["address"], i["unit"], i["count"], *(number(i[name]) for name in names), _share(i["good_share"]),
         "yes" if i["complete"] else f"from {moment(i['available_from'])}")
        for i in found["items"]
    ]  # fmt: skip
    headings = ("series", "unit", "samples", *names, "good", "complete")
    return table(headings, rows, empty="no series", right=("samples", *names, "good"))


def is_recording(status: dict[str, Any]) -> bool:
    """Nothing is wrong with what is off."""
    if not status["enabled"]:
        return True
    recorder = status["recorder"]
    is_running = recorder is not None and status["recording"]
    is_well = is_running and recorder["sink"] != "away" and not recorder["spool_error"]
    return is_well and not status["sink"]["error"]


def status_view(status: dict[str, Any]) -> RenderableType:
    recorder, sink = status["recorder"], status["sink"]
    pairs: list[tuple[str, Any]] = [("history", "on" if status["enabled"] else "off (history.enabled)")]
    if recorder is None:
        pairs.append(("recorder", "none has ever run"))
    else:
        pairs += _recorder(recorder)
        if status["enabled"] and not status["recording"]:
            pairs.append(("problem", cell("nobody records now: start the role hissrv", "bold red")))
    pairs.append(("sink", f"{sink['kind']}{': ' + sink['error'] if sink['error'] else ''}"))
    if sink["stats"] is not None:
        stats = sink["stats"]
        pairs += [
            ("samples", f"{stats['rows']} in {stats['series']} series, {size(stats['bytes'])}"),
            ("oldest", moment(stats["oldest_ts"]) or "-"),
            ("newest", moment(stats["newest_ts"]) or "-"),
            ("kept from", f"samples {_kept(stats['raw_from'])}, minutes {_kept(stats['minute_from'])}, "
             f"hours {_kept(stats['hour_from'])}"),
        ]  # fmt: skip
        pairs += [(f"class {each['name']}", _class(each)) for each in stats["classes"] if _is_told(each)]
        pairs += [("problem", problem) for problem in stats["problems"]]
    pairs += [
        ("refused", f"{each['series']} {each['value']} at {moment(each['ts'])}: {each['reason']}")
        for each in status["refused"][:5]
    ]
    return facts(pairs)


def _is_told(each: dict[str, Any]) -> bool:
    return each["name"] != "default" or bool(each["series"])


def _class(each: dict[str, Any]) -> str:
    kept = ", ".join(f"{word} {_days(each[f'{kind}_days'])}" for kind, word in _KINDS.items())
    rows = "" if each["rows"] is None else f", {each['rows']} samples"
    return f"{kept}; {each['series']} series{rows}"


def _days(days: int) -> str:
    return "for ever" if not days else "1 day" if days == 1 else f"{days} days"


def size(count: float) -> str:
    """`12.3 MB`"""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def _recorder(recorder: dict[str, Any]) -> list[tuple[str, Any]]:
    left_out = {name: recorder[name] for name in ("refused", "not_finite", "unreadable", "thinned", "missed")}
    dropped = {name: recorder[f"dropped_{name}"] for name in ("bytes", "age", "corrupt")}
    said = span((now_ms() - recorder["at_ms"]) / 1000)
    pairs: list[tuple[str, Any]] = [
        ("recorder", f"{recorder['recorder']}, heard {said} ago"),
        ("writes", status_cell(recorder["sink"])),
        ("written", f"{recorder['written']} samples in {recorder['batches']} batches, {recorder['spooled']} by disk"),
        ("spool", f"{recorder['spool_rows']} samples, {size(recorder['spool_bytes'])}"),
        ("lag", f"{span(recorder['lag_ms'] / 1000)}, {recorder['behind']} entries"),
        ("left out", _counts(left_out)),
        ("dropped", cell(_counts(dropped), "bold red" if recorder["dropped"] else "")),
    ]
    if recorder["spool_elsewhere_bytes"]:
        held = f"{size(recorder['spool_elsewhere_bytes'])} in the spool of a process that hangs"
        pairs.append(("held", cell(held, "bold red")))
    if recorder["torn_bytes"]:
        pairs.append(("torn", f"{recorder['torn_bytes']} bytes cut off the spool's end at its start"))
    pairs += [
        (name, recorder[name]) for name in ("sink_error", "policy_error", "spool_error", "disk_error") if recorder[name]
    ]
    return pairs


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "nothing"


def _kept(ts: int | None) -> str:
    return "all" if ts is None else str(moment(ts))


def _title(series: dict[str, Any]) -> str:
    return f"{series['address']} {series['unit']}".strip()


def _share(value: float | None) -> str | None:
    return None if value is None else f"{value:.0%}"
