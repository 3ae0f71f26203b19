"""Times as people read them: relative to now, and local. Pure."""

from __future__ import annotations

from datetime import datetime

_UNITS = ((86_400, "d"), (3600, "h"), (60, "m"))


def span(seconds: float) -> str:
    """`340ms`, `4.2s`, `30s`, `3m 5s`, `2h`, `5d 1h`."""
    seconds = max(0.0, seconds)
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 60:
        return f"{seconds:.1f}s" if seconds < 9.95 else f"{int(seconds)}s"
    for index, (size, unit) in enumerate(_UNITS):
        if seconds >= size:
            count, rest = divmod(int(seconds), size)
            lower, lower_unit = _UNITS[index + 1] if index + 1 < len(_UNITS) else (1, "s")
            return f"{count}{unit} {rest // lower}{lower_unit}" if rest // lower else f"{count}{unit}"
    raise AssertionError("unreachable")


def relative(text: str | None, now_ms: int) -> str | None:
    """`3m 5s ago` or `in 4.0s` for an ISO time; anything else is given back as it is."""
    at_ms = _milliseconds(text)
    if text is None or at_ms is None:
        return text
    distance_s = (now_ms - at_ms) / 1000
    return f"{span(distance_s)} ago" if distance_s >= 0 else f"in {span(-distance_s)}"


def local(text: str | None, now_ms: int) -> str | None:
    """`2026-11-16 08:00:00 (3m 5s ago)` in the local time zone."""
    at_ms = _milliseconds(text)
    if text is None or at_ms is None:
        return text
    moment = datetime.fromtimestamp(at_ms / 1000).astimezone()
    return f"{moment:%Y-%m-%d %H:%M:%S} ({relative(text, now_ms)})"


def clock_time(text: str | None) -> str:
    """`08:00:00.123` of an ISO time in the local time zone, with the day before it unless that is today."""
    at_ms = _milliseconds(text)
    if at_ms is None:
        return str(text or "-")
    moment = datetime.fromtimestamp(at_ms / 1000).astimezone()
    day = "" if moment.date() == datetime.now().date() else f"{moment:%Y-%m-%d} "
    return f"{day}{moment:%H:%M:%S}.{moment.microsecond // 1000:03d}"


def between(start: str | None, end: str | None, now_ms: int) -> str | None:
    """How long from start to end, or until now while there is no end."""
    first, last = _milliseconds(start), _milliseconds(end)
    if first is None:
        return None
    return span(((last if last is not None else now_ms) - first) / 1000)


def _milliseconds(text: str | None) -> int | None:
    from tradewind.clock import from_iso

    try:
        return from_iso(text) if text else None
    except (ValueError, OverflowError):
        return None
