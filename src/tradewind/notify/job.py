"""A delivery: messages gathered for one target, and how they read. It takes messages in until it has begun. Pure."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

import msgspec

from tradewind.clock import iso
from tradewind.notify.message import LEVELS, Message, rank

#: Messages told in full; of the others only how many there were. The worst levels are never crowded out.
LISTED = 100
#: What leaves so long after it happened is no news: the delivery says when it was, and what is so now.
LATE_MS = 600_000


class Job(msgspec.Struct, omit_defaults=True):
    """`lane`: when the messages may go: `` at once, or the ms at which quiet hours end. `counts`: word → messages.
    `waits`: delivery → how many of our messages only make sense when that one arrived. `begun`: tried at least once, so
    that its content stands: whoever has it already knows it by its id."""

    id: str
    target: str
    due_ms: int
    lane: str = ""
    count: int = 0
    counts: dict[str, int] = {}
    levels: dict[str, int] = {}
    messages: list[Message] = []
    waits: dict[str, int] = {}
    flood: bool = False
    begun: bool = False
    attempts: int = 0
    error: str = ""

    def add(self, message: Message, after: str = "") -> None:
        """`after`: the delivery that told of the alarm first, when it is still under way."""
        self._count(message, 1)
        self.flood = self.flood or message.flood
        if after:
            self.waits[after] = self.waits.get(after, 0) + 1
        if len(self.messages) >= LISTED:
            least = min(rank(one.level) for one in self.messages)
            if rank(message.level) <= least:
                return
            del self.messages[max(i for i, one in enumerate(self.messages) if rank(one.level) == least)]
        self.messages.append(msgspec.structs.replace(message, targets=(), flood=False, after=after))

    def is_late(self, now_ms: int) -> bool:
        return any(now_ms - message.at > LATE_MS for message in self.messages)

    def drop_after(self, failed: Container[str]) -> None:
        """Take out what only makes sense after deliveries that were given up."""
        gone = [id for id in self.waits if id in failed]
        for message in [one for one in self.messages if one.after in gone]:
            self.messages.remove(message)
            self._count(message, -1)
            self.waits[message.after] -= 1
        unlisted = sum(self.waits.pop(id) for id in gone)
        self.count -= unlisted
        self.counts["cleared"] = max(0, self.counts.get("cleared", 0) - unlisted)

    def _count(self, message: Message, by: int) -> None:
        self.count += by
        self.counts[message.word] = self.counts.get(message.word, 0) + by
        self.levels[message.level] = self.levels.get(message.level, 0) + by


class Parcel(msgspec.Struct, frozen=True):
    """What a target gets: a title and a text for people, a document for programs. `level` is the worst one. `is_again`:
    it was tried before, and may have come."""

    id: str
    title: str
    text: str
    level: str
    is_good_news: bool
    document: dict[str, Any]
    is_again: bool = False


def parcel(job: Job, now: Mapping[str, str] | None = None, *, is_again: bool = False) -> Parcel:
    """`now`: of a late delivery, the status that each of its alarms has; None: it is not late."""
    level = next((one for one in reversed(LEVELS) if job.levels.get(one, 0) > 0), "Info")
    is_good_news = job.count > 0 and job.counts.get("cleared", 0) == job.count
    title, text = _title(job, level, is_good_news, now), _text(job, now)
    document = {
        "id": job.id,
        "target": job.target,
        "title": title,
        "text": text,
        "level": level,
        "count": job.count,
        "omitted": job.count - len(job.messages),
        "flood": job.flood,
        "counts": {word: n for word, n in job.counts.items() if n > 0},
        "messages": [_shown(message, now) for message in job.messages],
    }
    return Parcel(job.id, title, text, level, is_good_news, document, is_again)


def _title(job: Job, level: str, is_good_news: bool, now: Mapping[str, str] | None) -> str:
    head = "Cleared" if is_good_news else level
    if job.count == 1 and job.messages:
        one = job.messages[0]
        title = f"[{head}] {one.title or one.text.partition(chr(10))[0][:100] or one.source or one.event}"
        return title if now is None else f"{title} ({iso(one.at)}{_since(one, now)})"
    words = ", ".join(f"{n} {word}" for word, n in job.counts.items() if n > 0 and word != "message")
    late = "" if now is None else f" (since {iso(min(one.at for one in job.messages))})"
    return f"[{head}] {job.count} messages" + (f": {words}" if words else "") + late


def _text(job: Job, now: Mapping[str, str] | None) -> str:
    lines = [_line(message) + _since(message, now) for message in job.messages]
    omitted = job.count - len(job.messages)
    if omitted > 0:
        lines.append(f"… and {omitted} more of the same or a lower level")
    return "\n".join(lines)


def _line(message: Message) -> str:
    what = message.title if message.title else message.event
    parts = [f"{iso(message.at)} {message.level} {message.event}: {what}"]
    if message.text and message.text != message.title:
        parts.append(message.text)
    if message.source:
        parts.append(f"({message.source})")
    by = " ".join(part for part in (f"by {message.who}" if message.who else "", message.note) if part)
    return " ".join(parts) + (f" [{by}]" if by else "")


def _since(message: Message, now: Mapping[str, str] | None) -> str:
    status = _moved(message, now)
    return f", now {status}" if status else ""


def _moved(message: Message, now: Mapping[str, str] | None) -> str:
    """The status that its alarm has now, `` if it is the same or not known."""
    status = (now or {}).get(message.alarm_id, "")
    return status if status != message.status else ""


def _shown(message: Message, now: Mapping[str, str] | None) -> dict[str, Any]:
    shown: dict[str, Any] = msgspec.to_builtins(message)
    shown.pop("after", None)
    if status := _moved(message, now):
        shown["now"] = status
    return {"event": message.event, "level": message.level, **shown, "at": iso(message.at)}


def read_job(data: bytes) -> Job | None:
    """A delivery as it is stored; None for what another program left that is none: it holds up no other."""
    try:
        return msgspec.json.decode(data, type=Job)
    except (msgspec.DecodeError, UnicodeError):
        return None
