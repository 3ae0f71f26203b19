"""What all command groups share: how they are made, and what a command finds in its context."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import typer

from tradewind.cli.http import DEFAULT_URL, Http
from tradewind.cli.output import Output

F = TypeVar("F", bound=Callable[..., Any])
EPILOG = "Everywhere: --json (one JSON document on stdout), --url URL (or TRADEWIND_URL; the station to talk to)."


@dataclass
class Session:
    """`ctx.obj` of every command: the global options, and what they lead to."""

    is_json: bool = False
    url: str = DEFAULT_URL

    @cached_property
    def out(self) -> Output:
        return Output(is_json=self.is_json)

    @cached_property
    def station(self) -> Http:
        return Http(self.url)

    @property
    def has_asked(self) -> bool:
        """Whether a command has had to do with a station."""
        return "station" in self.__dict__


class Group(typer.Typer):
    """A group that shows its help when called alone, and whose commands remind of the global options."""

    def __init__(self, help: str) -> None:
        super().__init__(help=help, no_args_is_help=True, add_completion=False, epilog=EPILOG)

    def command(self, name: str | None = None, **options: Any) -> Callable[[F], F]:
        options.setdefault("epilog", EPILOG)
        return super().command(name, **options)
