"""`tradewind node-type`: what flows can be made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tradewind.cli.group import Group, Session
from tradewind.cli.output import facts, json_text, short, table
from tradewind.errors import NotFound

if TYPE_CHECKING:
    from rich.console import RenderableType

app = Group("Node types that flows can use.")


@app.command("list")
def list_types(
    ctx: typer.Context,
    category: Annotated[str | None, typer.Option("--category", help="Only this category.")] = None,
) -> None:
    """Every node type with its inputs and outputs."""
    cli: Session = ctx.obj
    found = cli.station.get("/node-types")
    if category is not None:
        found = {**found, "items": [kind for kind in found["items"] if kind["category"] == category]}
    rows = [
        (k["type"], k["category"], _names(k["inputs"], k, "open_inputs"), _names(k["outputs"], k, "open_outputs"),
         short(k["description"].partition("\n")[0], 80))
        for k in found["items"]
    ]  # fmt: skip
    headings = ("type", "category", "inputs", "outputs", "about")
    cli.out.show(found, lambda: table(headings, rows, empty="no node types"))


@app.command()
def show(ctx: typer.Context, type: Annotated[str, typer.Argument(metavar="TYPE")]) -> None:
    """One node type: its handles and its config."""
    cli: Session = ctx.obj
    kinds = {kind["type"]: kind for kind in cli.station.get("/node-types")["items"]}
    if type not in kinds:
        known = ", ".join(sorted(kinds)) or "none"
        raise NotFound(f"there is no node type {type!r}", code="node_type_not_found", hint=f"known: {known}")
    cli.out.show(kinds[type], lambda: _view(kinds[type]))


def _view(kind: dict[str, Any]) -> RenderableType:
    from rich.console import Group as Lines
    from rich.text import Text

    schema = kind.get("config_schema") or {}
    needed = schema.get("required") or []
    config = [
        (name, _kind(field), "yes" if name in needed else None, _default(field), field.get("description"))
        for name, field in (schema.get("properties") or {}).items()
    ]
    handles = [
        (side, handle["name"], handle["type"], _marks(handle) if side == "in" else None, handle.get("unit"),
         handle.get("description"))
        for side, part in (("in", "inputs"), ("out", "outputs"))
        for handle in kind[part]
    ]  # fmt: skip
    head = facts([("type", kind["type"]), ("category", kind["category"]), ("about", kind["description"])])
    return Lines(
        head,
        Text(),
        table(("", "handle", "type", "kind", "unit", "about"), handles, empty="no declared handles"),
        Text(),
        table(("config", "type", "needed", "default", "about"), config, empty="no config"),
    )


def _names(handles: list[dict[str, Any]], kind: dict[str, Any], is_open: str) -> str:
    names = [handle["name"] if handle.get("required", True) else f"[{handle['name']}]" for handle in handles]
    return ", ".join([*names, *(["…"] if kind.get(is_open) else [])])


def _marks(handle: dict[str, Any]) -> str:
    marks = [name for name in ("required", "aggregate", "external") if handle.get(name)]
    return ", ".join(marks)


def _kind(field: dict[str, Any]) -> str:
    if "enum" in field:
        return "|".join(str(value) for value in field["enum"])
    if "anyOf" in field:
        return "|".join(_kind(part) for part in field["anyOf"])
    if "$ref" in field:
        return str(field["$ref"].rpartition("/")[2])
    return str(field.get("type", "any"))


def _default(field: dict[str, Any]) -> str | None:
    return json_text(field["default"]) if "default" in field else None
