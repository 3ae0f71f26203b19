"""`tradewind model`: what is computed from points."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tradewind.cli.each import for_each
from tradewind.cli.group import Group, Session
from tradewind.cli.http import segment
from tradewind.cli.output import facts, plain, short, status_cell, table
from tradewind.errors import Invalid, Problem

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tradewind.cli.definition_file import Definition

app = Group("Models: what is computed from points.")
PAGE = 1000


@app.command("list")
def list_models(ctx: typer.Context) -> None:
    """All models, with their outputs and controls."""
    cli: Session = ctx.obj
    items = [model for page in cli.station.pages("/models", {"limit": PAGE}) for model in page["items"]]
    rows = [
        (m["name"], m["title"], status_cell(_state(m)), m["template"], m["inputs"], m["calculations"],
         short(", ".join(m["outputs"]), 80), short(", ".join(m["controls"]), 40))
        for m in items
    ]  # fmt: skip
    headings = ("name", "title", "state", "template", "inputs", "steps", "outputs", "controls")
    found = {"items": items, "next_cursor": None}
    cli.out.show(found, lambda: table(headings, rows, empty="no models", right=("inputs", "steps")))


@app.command()
def show(ctx: typer.Context, name: Annotated[str, typer.Argument(metavar="NAME")]) -> None:
    """One model: its values, inputs and controls."""
    cli: Session = ctx.obj
    model = cli.station.get(f"/models/{segment(name)}")
    cli.out.show(model, lambda: _view(model))


@app.command()
def put(
    ctx: typer.Context,
    files: Annotated[list[str], typer.Argument(metavar="FILE…", help="YAML or JSON; - is stdin.")],
) -> None:
    """Define or replace models and templates: lists `models` and `templates`, or one model a file. All or none."""
    from tradewind.cli.definition_file import read_definitions

    cli: Session = ctx.obj
    found = {}
    for file in dict.fromkeys(files):
        for definition in read_definitions(file, ("models", "templates")):
            name = _name(definition.kind, definition.document)
            if not name:
                problem = Problem("missing_field", "name", "give it a name")
                raise definition.placed(Invalid("no name", code="bad_model", hint=problem.hint, problems=[problem]))
            found[definition.kind, name] = definition
    change = {kind: [d.document for (of, _), d in found.items() if of == kind] for kind in ("templates", "models")}
    try:
        answer = cli.station.put("/models", {kind: documents for kind, documents in change.items() if documents})
    except Invalid as error:
        raise _placed(error, found) from None
    items = [{"kind": kind.removesuffix("s"), "name": name} for kind in change for name in answer[kind]]
    shown = [f"{item['kind']} {item['name']} stored" for item in items]
    cli.out.show({"items": items, "errors": []}, lambda: "\n".join(map(plain, shown)))


@app.command()
def remove(
    ctx: typer.Context,
    names: Annotated[list[str], typer.Argument(metavar="NAME…")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> int:
    """Remove models, their values and what they remember."""
    cli: Session = ctx.obj
    if not yes:
        from tradewind.cli.confirm import confirm

        confirm(cli, f"removes model {', '.join(names)} with all values and counters")

    def ask(name: str) -> dict[str, Any]:
        cli.station.delete(f"/models/{segment(name)}")
        return {"removed": name}

    return for_each(cli, names, ask, lambda answer: f"{answer['removed']} removed")


def _placed(error: Invalid, found: dict[tuple[str, str], Definition]) -> Invalid:
    """The same error with each problem at its place in the files."""
    if len(found) == 1:
        return next(iter(found.values())).placed(error)
    problems = []
    for problem in error.problems:
        kind, name, path = "models", *problem.path.partition(".")[::2]
        if name == "templates":
            kind, name, path = "templates", *path.partition(".")[::2]
        known = found.get((kind, name))
        problems.append(Problem(problem.code, known.at(path) if known else problem.path, problem.hint))
    return Invalid(error.message, code=error.code, hint=error.hint, problems=problems)


def _name(kind: str, document: dict[str, Any]) -> str:
    """What the station will call it; a model of the seed's form is called as its target says."""
    if kind == "templates":
        return str(document.get("name") or "")
    from tradewind.models.document import read_model

    found = document.get("name") if "template" in document else None  # its template is on the station
    spec, _ = read_model(document)
    return str(found or (spec.name if spec is not None else document.get("id") or document.get("name") or ""))


def _state(model: dict[str, Any]) -> str:
    if model["problems"]:
        return "fail"
    return "active" if model["enabled"] else "off"


def _view(model: dict[str, Any]) -> RenderableType:
    from rich.console import Group as Lines
    from rich.text import Text

    from tradewind.cli.point import point_table

    spec = model["spec"] or {}
    head = facts(
        [
            ("model", f"{model['name']} {model['title']}".rstrip()),
            ("state", status_cell(_state(model))),
            *([("template", model["template"])] if model["template"] else []),
            *[("problem", f"{p['path']}: {p['hint']}") for p in model["problems"]],
        ]
    )
    inputs = [(i["name"], i["address"], i.get("unit"), i.get("default")) for i in spec.get("inputs", [])]
    set_to = model["control_values"]
    controls = [
        (
            c["field"],
            c.get("address"),
            c.get("min"),
            c.get("max"),
            c.get("unit"),
            set_to.get(c["field"], {}).get("value"),
        )
        for c in spec.get("controls", [])
    ]
    return Lines(
        head,
        Text(),
        point_table(model["values"]),
        Text(),
        table(("input", "address", "unit", "default"), inputs, empty="no inputs"),
        Text(),
        table(("control", "address", "min", "max", "unit", "set to"), controls, empty="no controls"),
    )
