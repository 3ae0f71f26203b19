"""Asking before something is removed for good."""

from __future__ import annotations

import sys

import typer

from tradewind.cli.group import Session
from tradewind.cli.output import cell
from tradewind.errors import Invalid


def confirm(cli: Session, what: str) -> None:
    """Ask on a terminal. Raises Invalid where nobody can answer, typer.Abort for a no."""
    if cli.is_json or not (sys.stdin.isatty() and cli.out.side.is_terminal):
        raise Invalid(f"{what}: this cannot be undone", code="not_confirmed", hint="add --yes if it is meant")
    cli.out.side.print(cell(what))
    typer.confirm("Go on?", abort=True, err=True)
