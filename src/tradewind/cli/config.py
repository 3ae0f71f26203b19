"""`tradewind config`: the settings in effect and where each comes from; a commented file to start with."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from tradewind.cli.group import Group, Session
from tradewind.cli.output import cell, json_text, table
from tradewind.cli.station import Config
from tradewind.documents import write_file
from tradewind.errors import Conflict

app = Group("Settings: TOML file, then TRADEWIND_* environment, then flags.")


@app.command()
def show(ctx: typer.Context, config: Config = None) -> None:
    """Every setting, its value and where it comes from; secrets are masked."""
    from tradewind.settings import load_settings, setting_names

    cli: Session = ctx.obj
    public = load_settings(config).public()
    path = settings_file(config)
    file = _read(path)
    names = setting_names()
    sources = {name: source_of(name, file, path) for name in names}
    rows = [
        (name, json_text(_at(public, name)), cell(sources[name], "" if sources[name] != "default" else "bright_black"))
        for name in names
    ]
    found = {"file": str(path) if path else None, "settings": public, "sources": sources}
    cli.out.show(found, lambda: table(("setting", "value", "from"), rows, empty="no settings"))


@app.command()
def init(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="[FILE]", help="Where to write it.")] = Path("tradewind.toml"),
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there already.")] = False,
) -> None:
    """Write a settings file in which every setting stands with its default, commented out."""
    from tradewind.cli.config_file import template

    cli: Session = ctx.obj
    try:
        write_file(file, [template().encode()], is_new=not force)
    except Conflict as error:
        error.hint = "name another file, or add --force"
        raise
    cli.out.show({"written": str(file)}, lambda: cell(f"wrote {file}"))


def settings_file(config: Path | None) -> Path | None:
    """The file that `load_settings` reads: named, from TRADEWIND_CONFIG, or the default one if it is there."""
    from tradewind.settings import DEFAULT_FILE

    if config is not None:
        return config
    if os.environ.get("TRADEWIND_CONFIG"):
        return Path(os.environ["TRADEWIND_CONFIG"])
    return DEFAULT_FILE if DEFAULT_FILE.exists() else None


def source_of(name: str, file: dict[str, Any], path: Path | None) -> str:
    """`environment NAME`, the file's name, or `default`; an empty variable counts as not set."""
    variable = f"TRADEWIND_{name.replace('.', '_').upper()}"
    if any(key.upper() == variable and value for key, value in os.environ.items()):
        return f"environment {variable}"
    return str(path) if _at(file, name) is not None else "default"


def _read(path: Path | None) -> dict[str, Any]:
    from tradewind.settings import read_settings_file

    return read_settings_file(path) if path is not None else {}


def _at(data: Any, name: str) -> Any:
    for part in name.split("."):
        if not isinstance(data, dict) or part not in data:
            return None
        data = data[part]
    return data
