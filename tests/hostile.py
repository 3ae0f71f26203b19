"""Errors and values that user code may throw or return, made to break whoever looks at them. Shared by tasks and nodes.

`ERRORS` are makers of exceptions: every builtin kind, and for every attribute that a describer reads one whose reading
raises. `VALUES` are makers of results that JSON cannot carry.
"""

from __future__ import annotations

import asyncio
import builtins
import concurrent.futures
from collections.abc import Callable, Iterator
from typing import Any

import msgspec


def _builtin_kinds() -> Iterator[type[BaseException]]:
    for name in sorted(vars(builtins)):
        kind = vars(builtins)[name]
        if isinstance(kind, type) and issubclass(kind, BaseException) and kind.__name__ == name:
            yield kind


def _plain(kind: type[BaseException]) -> Callable[[], BaseException]:
    def make() -> BaseException:
        if issubclass(kind, BaseExceptionGroup):
            return kind("several", [ValueError("one"), ValueError("two")])
        if issubclass(kind, UnicodeDecodeError):
            return kind("utf-8", b"\xff", 0, 1, "bad")
        if issubclass(kind, UnicodeEncodeError):
            return kind("utf-8", "\ud800", 0, 1, "bad")
        if issubclass(kind, UnicodeTranslateError):
            return kind("\ud800", 0, 1, "bad")
        return kind("plain")

    return make


def _raising(kind: type[BaseException]) -> Callable[..., Any]:
    def broken(*_: Any, **__: Any) -> Any:
        raise kind("while it was looked at")

    return broken


#: What whoever describes an exception may read.
LOOKED_AT = (
    "__str__", "__repr__", "__notes__", "__cause__", "__context__", "__suppress_context__", "__traceback__",
    "__class__", "__dict__", "__getattribute__", "__hash__", "__eq__", "__bool__", "__len__", "__format__",
    "__module__", "__doc__", "args", "delay", "__reduce__", "__reduce_ex__", "__del__",
)  # fmt: skip
_METHODS = frozenset({
    "__str__", "__repr__", "__getattribute__", "__hash__", "__eq__", "__bool__", "__len__", "__format__", "__reduce__",
    "__reduce_ex__", "__del__",
})  # fmt: skip


def _looked_at(name: str, thrown: type[BaseException]) -> Callable[[], BaseException]:
    def make() -> BaseException:
        broken = _raising(thrown)
        made = type("Hostile", (Exception,), {name: broken if name in _METHODS else property(broken)})
        error: BaseException = made("hostile")
        return error

    return make


def _nameless() -> BaseException:
    class Meta(type):
        __name__ = property(_raising(KeyboardInterrupt))  # type: ignore[assignment]
        __module__ = property(_raising(KeyboardInterrupt))  # type: ignore[assignment]

        def __repr__(cls) -> str:
            raise KeyboardInterrupt

    class Nameless(Exception, metaclass=Meta):
        pass

    error: BaseException = Nameless("its class has no name")
    return error


def _strange_name(name: str) -> Callable[[], BaseException]:
    def make() -> BaseException:
        kind = type("Plain", (Exception,), {})
        kind.__name__ = kind.__qualname__ = name
        error: BaseException = kind("its class has a strange name")
        return error

    return make


def _endless_causes() -> BaseException:
    """Each cause has another one: whoever follows them never ends."""

    def another(_: BaseException) -> BaseException:
        return Endless("a cause")

    Endless = type("Endless", (Exception,), {"__cause__": property(another), "__context__": property(another)})
    error: BaseException = Endless("the first")
    return error


def _circle() -> BaseException:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    return first


def _long_chain() -> BaseException:
    error = ValueError("the first")
    for i in range(3000):
        following = ValueError(str(i))
        following.__cause__ = error
        error = following
    return error


def _deep_group() -> BaseException:
    error: Exception = ValueError("the innermost")
    for _ in range(2000):
        error = ExceptionGroup("deeper", [error])
    return error


def _strange_notes(notes: Any) -> Callable[[], BaseException]:
    def make() -> BaseException:
        error = ValueError("noted")
        error.__notes__ = notes() if callable(notes) else notes
        return error

    return make


class _Text(str):
    """A text whose methods are not those of a text."""

    __slots__ = ()

    def encode(self, *_: Any, **__: Any) -> bytes:
        raise KeyboardInterrupt

    def __getitem__(self, _: Any) -> str:
        raise KeyboardInterrupt

    def __str__(self) -> str:
        return self

    def __len__(self) -> int:
        raise KeyboardInterrupt


def _strange_text() -> BaseException:
    class Said(Exception):
        def __str__(self) -> str:
            return _Text("strange")

    return Said()


def _no_text() -> BaseException:
    class Said(Exception):
        def __str__(self) -> str:
            return 7  # type: ignore[return-value]

    return Said()


ERRORS: dict[str, Callable[[], BaseException]] = {
    **{kind.__name__: _plain(kind) for kind in _builtin_kinds()},
    "CancelledError": lambda: asyncio.CancelledError("by itself"),
    "FutureCancelled": lambda: concurrent.futures.CancelledError("by itself"),
    "InvalidState": lambda: asyncio.InvalidStateError("x"),
    "BaseSubclass": lambda: type("Beyond", (BaseException,), {})("beyond Exception"),
    "ExitSubclass": lambda: type("MyExit", (SystemExit,), {})(3),
    "GeneratorExitSubclass": lambda: type("MyEnd", (GeneratorExit,), {})("x"),
    "CancelledSubclass": lambda: type("MyCancelled", (asyncio.CancelledError,), {})("x"),
    "StopIterationSubclass": lambda: type("MyStop", (StopIteration,), {})("x"),
    **{f"{name} raises {kind.__name__}": _looked_at(name, kind)
       for name in LOOKED_AT for kind in (RuntimeError, KeyboardInterrupt, GeneratorExit)},
    "nameless": _nameless,
    "name with NUL": _strange_name("a b\n"),
    "long name": _strange_name("x" * 100_000),
    "endless causes": _endless_causes,
    "circle": _circle,
    "long chain": _long_chain,
    "deep group": _deep_group,
    "group of exits": lambda: BaseExceptionGroup("exits", [SystemExit(1), KeyboardInterrupt(), GeneratorExit()]),
    "notes no list": _strange_notes(7),
    "notes no text": _strange_notes([object(), 3, None]),
    "notes hostile": _strange_notes(lambda: [_looked_at("__str__", KeyboardInterrupt)()]),
    "notes huge": _strange_notes(["x" * 1_000_000] * 20),
    "surrogate": lambda: OSError("no file caf\udce9"),
    "NUL": lambda: ValueError("a\0b\nc"),
    "huge": lambda: ValueError("x" * 10_000_000),
    "strange text": _strange_text,
    "no text": _no_text,
    "empty": lambda: ValueError(),
}  # fmt: skip


class _Reduced:
    def __reduce__(self) -> Any:
        raise KeyboardInterrupt


class _Classless:
    @property
    def __class__(self) -> Any:
        raise KeyboardInterrupt


class _Described(msgspec.Struct):
    class _Bomb:
        pass

    inner: Any


class _List(list[Any]):
    def __iter__(self) -> Any:
        raise KeyboardInterrupt

    def __len__(self) -> int:
        raise GeneratorExit


class _Dict(dict[str, Any]):
    def items(self) -> Any:
        raise KeyboardInterrupt

    def __iter__(self) -> Any:
        raise KeyboardInterrupt


class _Unreadable:
    def __getattribute__(self, name: str) -> Any:
        raise GeneratorExit(name)


class _Dying:
    def __del__(self) -> None:
        raise KeyboardInterrupt


def _endless_list() -> Any:
    found: list[Any] = []
    found.append(found)
    return found


def _endless_dict() -> Any:
    found: dict[str, Any] = {}
    found["self"] = found
    return found


def _deep() -> Any:
    found: list[Any] = []
    for _ in range(100_000):
        found = [found]
    return found


async def _never_awaited() -> None:
    """Somebody forgot to await it."""


def _generator() -> Iterator[int]:
    yield 1


async def _async_generator() -> Any:
    yield 1


VALUES: dict[str, Callable[[], Any]] = {
    "object": object,
    "reduced": _Reduced,
    "classless": _Classless,
    "nested classless": lambda: {"a": [_Classless()]},
    "struct": lambda: _Described(_Unreadable()),
    "list": lambda: _List([1, object()]),
    "dict": lambda: _Dict(a=object()),
    "unreadable": _Unreadable,
    "dying": _Dying,
    "endless list": _endless_list,
    "endless dict": _endless_dict,
    "deep": _deep,
    "nan": lambda: float("nan"),
    "infinity": lambda: {"a": [1, float("-inf")]},
    "surrogate": lambda: "\ud800",
    "huge text": lambda: "x" * 5_000_000,
    "huge number": lambda: 1 << 100_000,
    "coroutine": lambda: _never_awaited(),
    "generator": _generator,
    "async generator": _async_generator,
    "class": lambda: int,
    "module": lambda: msgspec,
    "error": lambda: ValueError("returned, not raised"),
    "raw": lambda: msgspec.Raw(b"this is no JSON"),
    "raw lines": lambda: {"a": msgspec.Raw(b'"x"\n{"result":1}')},
    "numbered keys": lambda: {object(): 1},
}
