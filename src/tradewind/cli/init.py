"""`tradewind init`: a folder with a small station that works, every file of it commented."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tradewind.cli.group import Session
from tradewind.cli.output import plain
from tradewind.errors import Conflict, Unavailable

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
    taken = [name for name in starter if (folder / name).exists()]
    if taken:
        raise Conflict(
            f"{folder} has {', '.join(taken)} already; nothing was written",
            code="file_exists",
            hint="name a folder without these files",
        )
    try:
        for name, data in starter.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            with open(folder / name, "xb") as file:
                file.write(data)
    except OSError as error:
        raise Unavailable(
            f"cannot write in {folder}: {error.strerror}", code="no_file", hint="choose a folder that you may write"
        ) from error
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
