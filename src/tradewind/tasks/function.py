"""Functions as tasks: the `@task` decorator, what a function takes, and the registry of known functions."""

from __future__ import annotations

import inspect
import math
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any, Generic, ParamSpec, TypeVar, overload

import msgspec

from tradewind import codec
from tradewind.errors import Conflict, Invalid, Problem
from tradewind.ids import is_id

P = ParamSpec("P")
R = TypeVar("R")

#: Keywords of `submit` that are about the task, not for the function.
OPTIONS = frozenset([
    "priority", "delay", "eta", "timeout", "max_attempts", "backoff", "backoff_max", "deadline", "idempotency_key",
    "tags", "labels", "exclusive", "task_id",
])  # fmt: skip
_JSON_TYPES = {int: "int", float: "float", str: "str", bool: "bool", list: "list", dict: "dict", type(None): "null"}
_CHECKS: dict[str, Callable[[Any], bool]] = {
    "int": lambda v: isinstance(v, int) and not isinstance(v, bool),
    "float": lambda v: isinstance(v, (int, float)) and not isinstance(v, bool),
    "str": lambda v: isinstance(v, str),
    "bool": lambda v: isinstance(v, bool),
    "list": lambda v: isinstance(v, (list, tuple)),
    "dict": lambda v: isinstance(v, dict),
    "null": lambda v: v is None,
}


_SCALARS: tuple[list[str], ...] = (["int"], ["float"], ["str"], ["bool"], [])


class Parameter(msgspec.Struct, omit_defaults=True):
    name: str
    types: list[str] = []  # JSON types; empty = anything
    required: bool = True
    keyword_only: bool = False


class Signature(msgspec.Struct, omit_defaults=True):
    """What a task type takes and its defaults, in a form that any process can check: a value of `task:types`."""

    params: list[Parameter] = []
    var_args: bool = False
    var_kwargs: bool = False
    doc: str = ""
    timeout_ms: int = 0
    max_attempts: int = 1
    backoff_ms: int = 1000
    backoff_max_ms: int = 300_000
    exclusive: str = ""
    seen_ms: int = 0
    #: Not stored: other signatures that live workers offer for the same type; whether no live worker offers it at all.
    others: list[Signature] = []
    is_remembered: bool = False

    def fitting(self, args: typing.Sequence[Any], kwargs: dict[str, Any]) -> Signature:
        """The first of these that takes the arguments; this one when none does."""
        for signature in (self, *self.others) if self.others else ():
            if not signature.problems(args, kwargs):
                return signature
        return self

    def problems(self, args: typing.Sequence[Any], kwargs: dict[str, Any], path: str = "") -> list[Problem]:
        """Everything that does not fit: too many, missing, unknown, doubled, of the wrong type."""
        found: list[Problem] = []
        positional = [p for p in self.params if not p.keyword_only]
        if len(args) > len(positional) and not self.var_args:
            found.append(Problem("too_many_args", f"{path}args[{len(positional)}]", f"takes at most {len(positional)}"))
        bound = dict(zip((p.name for p in positional), args, strict=False))
        for index, param in enumerate(positional[: len(args)]):
            if param.types and not any(_CHECKS[t](args[index]) for t in param.types):
                found.append(_wrong_type(f"{path}args[{index}]", param, args[index]))
            if param.name in kwargs:
                found.append(Problem("doubled_arg", f"{path}kwargs.{param.name}", f"already given as args[{index}]"))
        known = {p.name: p for p in self.params}
        for name, value in kwargs.items():
            known_param = known.get(name)
            if known_param is None:
                if not self.var_kwargs:
                    names = ", ".join(known) or "none"
                    found.append(Problem("unknown_arg", f"{path}kwargs.{name}", f"it takes: {names}"))
            elif known_param.types and not any(_CHECKS[t](value) for t in known_param.types):
                found.append(_wrong_type(f"{path}kwargs.{name}", known_param, value))
        for param in self.params:
            if param.required and param.name not in bound and param.name not in kwargs:
                found.append(Problem("missing_arg", f"{path}kwargs.{param.name}", f"give {param.name!r}"))
        return found

    def quick_check(self) -> Callable[[typing.Sequence[Any]], bool] | None:
        """A fast test of positional scalars only; None when the signature needs the full check."""
        if (
            self.others
            or self.exclusive
            or self.var_args
            or any(p.keyword_only or p.types not in _SCALARS for p in self.params)
        ):
            return None
        checks = [_CHECKS[p.types[0]] if p.types else _is_finite for p in self.params]
        required = sum(p.required for p in self.params)

        def fits(args: typing.Sequence[Any]) -> bool:
            if not required <= len(args) <= len(checks):
                return False
            for check, value in zip(checks, args, strict=False):
                if not check(value) or (isinstance(value, float) and not math.isfinite(value)):
                    return False
            return True

        return fits


def _is_finite(value: Any) -> bool:
    return not codec.has_non_finite(value)


def _wrong_type(path: str, param: Parameter, value: Any) -> Problem:
    wanted = " or ".join(param.types)
    return Problem("wrong_type", path, f"{param.name!r} takes {wanted}, not {type(value).__name__}")


def _json_types(annotation: Any) -> list[str]:
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        parts = [_json_types(a) for a in typing.get_args(annotation)]
        return sorted({name for part in parts for name in part}) if all(parts) else []
    if origin is typing.Annotated:
        return _json_types(typing.get_args(annotation)[0])
    if annotation is None:
        return ["null"]
    name = _JSON_TYPES.get(origin or annotation)
    return [name] if name else []


def read_signature(function: Callable[..., Any]) -> tuple[Signature, dict[str, Any]]:
    """The wire signature, and the annotations that need a conversion from JSON before the call."""
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError):
        hints = {}
    result, rich = Signature(doc=(inspect.getdoc(function) or "").partition("\n")[0][:200]), {}
    for param in inspect.signature(function).parameters.values():
        if param.kind is param.VAR_POSITIONAL:
            result.var_args = True
        elif param.kind is param.VAR_KEYWORD:
            result.var_kwargs = True
        else:
            annotation = hints.get(param.name, Any)
            names = _json_types(annotation)
            if annotation is not Any and (not names or typing.get_origin(annotation) is not None):
                rich[param.name] = annotation
            result.params.append(
                Parameter(
                    name=param.name,
                    types=names,
                    required=param.default is param.empty,
                    keyword_only=param.kind is param.KEYWORD_ONLY,
                )
            )
    return result, rich


class TaskFunction(Generic[P, R]):
    """A function that can also be submitted. Calling it just calls it."""

    def __init__(
        self, function: Callable[P, R], name: str, signature: Signature, rich: dict[str, Any], cpu: bool
    ) -> None:
        self.function = function
        self.name = name
        self.signature = signature
        self.rich = rich
        self.is_async = inspect.iscoroutinefunction(function)
        self.is_cpu = cpu
        #: every, cron: see periodic.py
        self.schedule: dict[str, Any] | None = None
        self.__doc__ = function.__doc__
        self.__name__ = name

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def submit(self, *args: Any, **kwargs: Any) -> Any:
        """Submit through the connection in use (`async with tradewind.connect(…)`, or the worker that runs this).

        Await it in async code; in a blocking connection it returns the handle directly.
        """
        from tradewind.tasks.client import connection_in_use

        return connection_in_use().submit(self.name, *args, **kwargs)

    def convert(self, args: list[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Arguments as the annotations want them (dataclasses, datetimes, enums…). Raises msgspec.ValidationError."""
        if not self.rich:
            return args, kwargs
        names = [p.name for p in self.signature.params if not p.keyword_only]
        args = [
            msgspec.convert(value, self.rich[names[i]]) if i < len(names) and names[i] in self.rich else value
            for i, value in enumerate(args)
        ]
        kwargs = {k: msgspec.convert(v, self.rich[k]) if k in self.rich else v for k, v in kwargs.items()}
        return args, kwargs


class Registry:
    """The task functions that one process knows, by type name."""

    def __init__(self) -> None:
        self._functions: dict[str, TaskFunction[Any, Any]] = {}

    def add(self, function: TaskFunction[Any, Any]) -> None:
        known = self._functions.get(function.name)
        if known is not None and _home(known) != _home(function):
            raise Conflict(
                f"two functions want the task type {function.name!r}: {_home(known)} and {_home(function)}",
                code="type_taken",
                hint="give one of them another name: @task(name=…)",
            )
        self._functions[function.name] = function

    def get(self, name: str) -> TaskFunction[Any, Any] | None:
        return self._functions.get(name)

    def all(self) -> Iterable[TaskFunction[Any, Any]]:
        return self._functions.values()


def _home(function: TaskFunction[Any, Any]) -> str:
    module = function.function.__module__
    return f"{module}.{function.function.__qualname__}"


#: Where `@task` puts functions; a worker serves these.
registry = Registry()


@overload
def task(function: Callable[P, R], /) -> TaskFunction[P, R]: ...


@overload
def task(
    *,
    name: str | None = None,
    timeout: float | None = None,
    retries: int = 0,
    backoff: float = 1.0,
    backoff_max: float = 300.0,
    exclusive: bool | str = False,
    cpu: bool = False,
    every: float | str | None = None,
    cron: str | None = None,
) -> Callable[[Callable[P, R]], TaskFunction[P, R]]: ...


def task(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    timeout: float | None = None,
    retries: int = 0,
    backoff: float = 1.0,
    backoff_max: float = 300.0,
    exclusive: bool | str = False,
    cpu: bool = False,
    every: float | str | None = None,
    cron: str | None = None,
) -> Any:
    """Make a function a task type. Async functions run on the loop, others in a thread, `cpu=True` ones in a process.

    timeout, backoff: seconds. retries: further attempts after the first. exclusive: never two runs at once of this
    task (True) or of all tasks with that lock name. every ("30s", seconds) or cron: submitted by itself.
    """

    def wrap(function: Callable[..., Any]) -> TaskFunction[Any, Any]:
        type_name = name or function.__name__
        if not is_id(type_name):
            raise Invalid(
                f"{type_name!r} cannot be a task type", hint="letters, digits, _ and -, at most 64, no reserved word"
            )
        signature, rich = read_signature(function)
        clash = OPTIONS & {p.name for p in signature.params}
        if clash:
            raise Invalid(
                f"task {type_name!r} has a parameter named like an option of submit: {', '.join(sorted(clash))}",
                hint="rename the parameter",
            )
        if cpu and inspect.iscoroutinefunction(function):
            raise Invalid(f"task {type_name!r} is async and cpu=True", hint="make it a plain function")
        wrong = _wrong_options(timeout, retries, backoff, backoff_max, exclusive)
        if wrong:
            raise Invalid(f"task {type_name!r} has a wrong option", hint=wrong[0].hint, problems=wrong)
        signature.timeout_ms = round(timeout * 1000) if timeout else 0
        signature.max_attempts = retries + 1
        signature.backoff_ms, signature.backoff_max_ms = round(backoff * 1000), round(backoff_max * 1000)
        signature.exclusive = "=" if exclusive is True else exclusive or ""
        made: TaskFunction[Any, Any] = TaskFunction(function, type_name, signature, rich, cpu)
        if every is not None or cron is not None:
            made.schedule = {"every": every, "cron": cron}
        registry.add(made)
        return made

    return wrap(function) if function is not None else wrap


def _wrong_options(
    timeout: float | None, retries: int, backoff: float, backoff_max: float, exclusive: bool | str
) -> list[Problem]:
    """The bounds of check.py, for what a function gives as its defaults."""
    seconds = [("timeout", timeout or 1, 0.001, 7 * 86_400), ("backoff", backoff, 0, 86_400)]
    seconds.append(("backoff_max", backoff_max, 0, 86_400))
    wrong = [
        Problem("out_of_range", name, f"give {name} as seconds from {low:g} to {high:g}")
        for name, value, low, high in seconds
        if not low <= value <= high
    ]
    if not isinstance(retries, int) or not 0 <= retries < 1000:
        wrong.append(Problem("out_of_range", "retries", "give retries as a whole number from 0 to 999"))
    if isinstance(exclusive, str) and exclusive and not is_id(exclusive):
        wrong.append(Problem("bad_lock", "exclusive", "give exclusive as True or a name of letters, digits, _ and -"))
    return wrong
