"""`tradewind init`: a folder with a small station that works, every file of it commented."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tradewind.cli.group import Session
from tradewind.cli.output import plain
from tradewind.documents import short_name, write_file
from tradewind.errors import Conflict, Unavailable
from tradewind.private_files import make_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.resources.abc import Traversable


def init(
    ctx: typer.Context,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where; made if it is not there.")],
) -> None:
    """Write a commented starter station: settings, a device, a model, a rule, a flow. Never overwrites a file."""
    cli: Session = ctx.obj
    starter = dict(starter_files())
    taken = [name for name in starter if os.path.lexists(folder / name)]
    if taken:
        raise Conflict(
            f"{folder} has {', '.join(taken)} already; nothing was written",
            code="file_exists",
            hint="name a folder without these files",
        )
    for name, data in starter.items():
        try:
            make_folder((folder / name).parent)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "its name cannot be one"
            hint = "choose a folder that you may write"
            raise Unavailable(f"cannot write in {short_name(folder)}: {reason}", code="no_file", hint=hint) from error
        write_file(folder / name, [data], is_new=True)
    shown = [f"wrote {plain(folder / name)}" for name in starter]
    shown.append(f"next: cd {plain(folder)}, tradewind up, and in another terminal: tradewind apply -f . --start")
    cli.out.show({"folder": str(folder), "written": list(starter)}, lambda: "\n".join(shown))


def starter_files() -> Iterator[tuple[str, bytes]]:
    """Name below the folder, and content, in the order of names."""
    yield from _below(files("tradewind.cli") / "starter", "")


def _below(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for item in sorted(folder.iterdir(), key=lambda item: item.name):
        if item.is_dir():
            yield from _below(item, f"{prefix}{item.name}/")
        else:
            yield prefix + item.name, item.read_bytes()
