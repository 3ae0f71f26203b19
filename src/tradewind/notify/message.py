"""One message of the outbox: what happened, how bad it is, what it is about. Whatever stands there can be read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal, get_args

import msgspec

#: From the least to the worst.
LEVELS = ("Info", "Low", "Medium", "High", "Critical")
_ALIASES = {"major": "High", "minor": "Medium", "warning": "Low"}
_LEVELS = {level.lower(): level for level in LEVELS} | _ALIASES
_RANKS = {level: rank for rank, level in enumerate(LEVELS, 1)}

#: What a target may ask to be told of; see `Message.word`.
Word = Literal["raised", "escalated", "cleared", "acknowledged", "other", "message"]
WORDS: tuple[Word, ...] = get_args(Word)
_WORDS: dict[str, Word] = {
    "raised": "raised",
    "released": "raised",
    "unshelved": "raised",
    "level": "raised",
    "escalated": "escalated",
    "cleared": "cleared",
    "resolved": "cleared",
    "closed": "cleared",
    "acknowledged": "acknowledged",
    "message": "message",
}
_OPEN = frozenset({"New", "Acknowledged", "Escalated", "Suppressed"})
MAX_TITLE = 200
MAX_TEXT = 2000
MAX_NAME = 200
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_NOT_TEXT = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]+")


def level_of(word: str) -> str | None:
    """The level that is meant (`major` is High), None for another word."""
    return _LEVELS.get(word.strip().lower())


def rank(level: str) -> int:
    """5 for Critical … 1 for Info."""
    return _RANKS.get(level, 1)


class Message(msgspec.Struct, omit_defaults=True):
    """`at`: ms. `key`: the same for a repeat of the same message. `status`: of the alarm, when it was written.
    `after`: the delivery that told of the alarm, when this message makes no sense without it."""

    event: str = "message"
    level: str = "Info"
    title: str = ""
    text: str = ""
    at: int = 0
    key: str = ""
    kind: str = ""
    alarm_id: str = ""
    rule_id: str = ""
    source: str = ""
    category: str = ""
    status: str = ""
    who: str = ""
    note: str = ""
    targets: tuple[str, ...] = ()
    flood: bool = False
    after: str = ""

    @property
    def word(self) -> Word:
        """The kind of event that targets choose by."""
        return _WORDS.get(self.event, "other") if self.alarm_id else "message"

    @property
    def is_announcement(self) -> bool:
        """An open alarm that asks for attention, as opposed to what became of it."""
        return self.word in ("raised", "escalated") and self.status != "Suppressed"

    @property
    def is_end(self) -> bool:
        """A latched alarm that cleared stays open, so that is no end."""
        return self.word == "cleared" and self.status not in _OPEN


def read_entry(fields: Mapping[bytes, bytes], at_ms: int) -> Message:
    """`at_ms` is taken when the entry has no time. Never fails: an entry that nobody can read must not stop others."""
    texts = {name.decode(errors="replace"): value.decode(errors="replace") for name, value in fields.items()}

    def word(name: str) -> str:
        return one_line(texts.get(name, ""), MAX_NAME)

    at = texts.get("at", "")
    return Message(
        event=word("event") or "message",
        level=level_of(texts.get("level", "")) or "Info",
        title=one_line(texts.get("title", ""), MAX_TITLE),
        text=_NOT_TEXT.sub(" ", texts.get("text", ""))[:MAX_TEXT],
        at=int(at) if at.isascii() and at.isdigit() and len(at) < 16 else at_ms,
        key=word("key"),
        kind=word("kind"),
        alarm_id=word("alarm_id"),
        rule_id=word("rule_id"),
        source=word("source"),
        category=word("category"),
        status=word("status"),
        who=word("who"),
        note=_NOT_TEXT.sub(" ", texts.get("note", ""))[:MAX_TEXT],
        targets=_names(texts.get("targets", "")),
        flood=texts.get("flood", "") in ("1", "true"),
    )


def one_line(text: str, longest: int) -> str:
    """Without line breaks: a title becomes the header of a mail."""
    return _CONTROL.sub(" ", text).strip()[:longest]


def _names(text: str) -> tuple[str, ...]:
    try:
        names: Sequence[str] = msgspec.json.decode(text, type=list[str]) if text else ()
    except msgspec.MsgspecError:
        return ()
    return tuple(dict.fromkeys(names))
