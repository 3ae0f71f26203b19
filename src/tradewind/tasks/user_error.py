"""Describes an exception that user code raised: its type, its message, its traceback. Never raises, always ends.

An exception is an object of the user's: its `__str__`, its `__cause__`, even the name of its class may raise anything
or go on for ever. What Python keeps itself is read past the class's own attributes; all texts are bounded.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, TypeVar

from tradewind.tasks.record import Failure

MAX_MESSAGE = 2000
MAX_TRACEBACK = 8000
MAX_NAME = 200
#: Frames of one traceback, exceptions of a chain, members of a group that are shown.
FRAMES, CHAIN, GROUP = 20, 10, 5

T = TypeVar("T")


def failure_of(error: BaseException) -> Failure:
    """Type, message and traceback, whatever the exception is."""
    return Failure(class_name(type(error)), text_of(error), traceback_of(error))


def class_name(kind: type) -> str:
    """The name of a class, not what its metaclass makes of it."""
    return _plain_text(type.__dict__["__name__"].__get__(kind), MAX_NAME)


def text_of(error: BaseException) -> str:
    """What `str` says about it, encodable, of bounded length."""
    return _fenced(lambda: _plain_text(str(error), MAX_MESSAGE), "(its message cannot be read)")


def traceback_of(error: BaseException) -> str:
    """As Python prints it, the causes first."""
    text = "".join(_fenced(lambda: list(_chain(error)), ["(its traceback cannot be read)\n"]))
    return text[-MAX_TRACEBACK:].encode(errors="backslashreplace").decode()


def _chain(error: BaseException) -> Iterator[str]:
    links: list[tuple[BaseException, str]] = []
    seen: set[int] = set()
    following: BaseException | None = error
    words = ""
    while following is not None and id(following) not in seen:
        if len(links) == CHAIN:
            links.append((following, "(more exceptions)"))
            break
        seen.add(id(following))
        links.append((following, words))
        cause = _own(following, "__cause__")
        if cause is not None:
            words = "The above exception was the direct cause of the following exception:"
        else:
            cause = None if _own(following, "__suppress_context__") else _own(following, "__context__")
            words = "During handling of the above exception, another exception occurred:"
        following = cause
    for link, between in reversed(links):
        if between == "(more exceptions)":
            yield between + "\n\n"
            continue
        yield from _one(link)
        if between:
            yield f"\n{between}\n\n"


def _one(error: BaseException) -> Iterator[str]:
    yield from _frames(error)
    yield _line(error)
    for note in _notes(error):
        yield f"{note}\n"
    if issubclass(type(error), BaseExceptionGroup):
        members = BaseExceptionGroup.exceptions.__get__(error)
        for i, member in enumerate(members[:GROUP], 1):
            yield f"  +---------------- {i} ----------------\n"
            for text in (*_frames(member), _line(member)):
                yield "".join(f"  | {line}\n" for line in text.splitlines())
        if len(members) > GROUP:
            yield f"  | and {len(members) - GROUP} more\n"


def _frames(error: BaseException) -> list[str]:
    trace: TracebackType | None = _own(error, "__traceback__")
    if trace is None:
        return []
    frames = _fenced(lambda: traceback.format_tb(trace, limit=-FRAMES), ["  (its frames cannot be read)\n"])
    return ["Traceback (most recent call last):\n", *frames]


def _line(error: BaseException) -> str:
    text = text_of(error)
    return f"{class_name(type(error))}: {text}\n" if text else f"{class_name(type(error))}\n"


def _notes(error: BaseException) -> list[str]:
    def read() -> list[str]:
        notes = object.__getattribute__(error, "__dict__").get("__notes__", ())
        return [_plain_text(note, MAX_MESSAGE) for note in tuple(notes)[:GROUP] if issubclass(type(note), str)]

    return _fenced(read, [])


def _own(error: BaseException, name: str) -> Any:
    """What Python itself keeps under that name, past anything that the class puts in front of it."""
    return BaseException.__dict__[name].__get__(error)


def _plain_text(text: str, most: int) -> str:
    """The beginning of it, by the methods of `str` itself.

    Lone surrogates, as in the name of a file that is not UTF-8, cannot be stored; they are shown escaped.
    """
    return str.encode(str.__getitem__(text, slice(most)), errors="backslashreplace").decode()


def _fenced(read: Callable[[], T], otherwise: T) -> T:
    try:
        return read()
    except BaseException:  # noqa: BLE001 — the fence around user code: what its objects do when they are looked at
        return otherwise
