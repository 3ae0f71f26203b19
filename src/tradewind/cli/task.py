"""`tradewind task`: submit, look at, cancel and bring back tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tradewind.cli.each import for_each
from tradewind.cli.group import Group, Session
from tradewind.cli.http import segment
from tradewind.cli.output import cell
from tradewind.cli.task_view import task_facts, task_table
from tradewind.errors import Conflict, Invalid, Problem

app = Group("Submit tasks, look at them, cancel them, bring them back.")
PAGE = 50
FULL_PAGE = 1000
DEAD = "DEAD,FAILED,TIMEOUT"

TypeFilter = Annotated[str | None, typer.Option("--type", help="Only this task type.")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=FULL_PAGE, help="Tasks on one page.")]
Cursor = Annotated[str | None, typer.Option("--cursor", help="Go on where a page before ended (its next_cursor).")]
All = Annotated[bool, typer.Option("--all", help="All pages.")]
Ids = Annotated[list[str], typer.Argument(metavar="ID…", help="Task ids.")]


@app.command()
def submit(
    ctx: typer.Context,
    type: Annotated[str | None, typer.Argument(metavar="TYPE", help="Task type, such as echo.")] = None,
    plain: Annotated[
        list[str] | None, typer.Argument(metavar="[ARG]…", help="Arguments; what parses as JSON is taken so.")
    ] = None,
    args: Annotated[str | None, typer.Option("--args", metavar="JSON", help="Arguments as a JSON list.")] = None,
    kwargs: Annotated[str | None, typer.Option("--kwargs", metavar="JSON", help="Named arguments, an object.")] = None,
    priority: Annotated[str | None, typer.Option("--priority", metavar="high|normal")] = None,
    delay: Annotated[float | None, typer.Option("--delay", metavar="S", help="Start in so many seconds.")] = None,
    eta: Annotated[
        str | None, typer.Option("--eta", metavar="ISO", help="Start at this time (UTC if no zone).")
    ] = None,
    timeout: Annotated[float | None, typer.Option("--timeout", metavar="S", help="Seconds for each attempt.")] = None,
    max_attempts: Annotated[int | None, typer.Option("--max-attempts", metavar="N")] = None,
    idempotency_key: Annotated[
        str | None, typer.Option("--idempotency-key", metavar="K", help="The same key submits only once.")
    ] = None,
    tag: Annotated[list[str] | None, typer.Option("--tag", help="For search; may be repeated.")] = None,
    label: Annotated[list[str] | None, typer.Option("--label", help="Workers must have it; may be repeated.")] = None,
    exclusive: Annotated[
        str | None, typer.Option("--exclusive", metavar="NAME", help="Never two at once under this name.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end, print the result; exit 1 if bad.")] = False,
    wait_timeout: Annotated[float | None, typer.Option("--wait-timeout", metavar="S", min=0)] = None,
    file: Annotated[
        str | None, typer.Option("--file", metavar="FILE", help="Many: one task object a line; - is stdin.")
    ] = None,
) -> int:
    """Submit a task: `tradewind task submit echo hi --wait`. With --file the options are defaults for every line."""
    cli: Session = ctx.obj
    given: dict[str, Any] = {
        "type": type,
        "args": read_args(plain or [], args),
        "kwargs": read_json("--kwargs", kwargs, dict),
        "priority": priority,
        "delay_s": delay,
        "eta": eta,
        "timeout_s": timeout,
        "max_attempts": max_attempts,
        "idempotency_key": idempotency_key,
        "tags": tag,
        "labels": label,
        "exclusive": exclusive,
    }
    raw = {name: value for name, value in given.items() if value not in (None, [])}
    if file is not None:
        from tradewind.cli.bulk import submit_file

        if wait or idempotency_key:
            raise Invalid(
                "--file goes with neither --wait nor --idempotency-key", hint="leave it out, or give it per line"
            )
        submit_file(cli.station, cli.out, file if file == "-" else Path(file), raw)
        return 0
    if type is None:
        raise Invalid(
            "no task type is given", hint="`tradewind task submit TYPE`, or --file; see `tradewind type list`"
        )
    task = cli.station.post("/tasks", raw)
    if wait or wait_timeout is not None:
        from tradewind.cli.follow import finish

        return finish(cli, task, wait_timeout, result_only=True)
    cli.out.show(task, lambda: cell(f"{task['id']} {task['status']}"))
    return 0


@app.command()
def show(ctx: typer.Context, task_id: Annotated[str, typer.Argument(metavar="ID")]) -> None:
    """Everything about one task."""
    cli: Session = ctx.obj
    task = cli.station.get(f"/tasks/{segment(task_id)}")
    cli.out.show(task, lambda: task_facts(task))


@app.command("list")
def list_tasks(
    ctx: typer.Context,
    status: Annotated[list[str] | None, typer.Option("--status", help="Only these; may be repeated.")] = None,
    type: TypeFilter = None,
    tag: Annotated[str | None, typer.Option("--tag", help="Only tasks with this tag.")] = None,
    limit: Limit = PAGE,
    cursor: Cursor = None,
    all: All = False,
) -> None:
    """Tasks: running and waiting ones first, then ended ones, newest first."""
    query = {"status": ",".join(status or []) or None, "type": type, "tag": tag, "limit": limit, "cursor": cursor}
    _list(ctx.obj, "/tasks", query, all, "no such tasks")


@app.command()
def dead(
    ctx: typer.Context,
    action: Annotated[str, typer.Argument(hidden=True)] = "list",
    type: TypeFilter = None,
    limit: Limit = PAGE,
    cursor: Cursor = None,
    all: All = False,
) -> None:
    """Dead letters: tasks that ended DEAD, FAILED or TIMEOUT. `task retry --dead` brings all of them back."""
    if action != "list":
        raise Invalid(f"unknown action {action!r}", hint="`tradewind task dead` or `tradewind task dead list`")
    path = "/tasks" if type else "/tasks/dead"
    query = {"status": DEAD if type else None, "type": type, "limit": limit, "cursor": cursor}
    _list(ctx.obj, path, query, all, "no dead letters")


@app.command()
def cancel(ctx: typer.Context, task_ids: Ids) -> int:
    """Cancel tasks: waiting ones end at once, running ones are asked to stop."""

    def say(task: dict[str, Any]) -> str:
        return f"{task['id']} {task['status']}" + ("" if task["status"] == "CANCELLED" else ", asked to stop")

    return _each(ctx.obj, "cancel", task_ids, say)


@app.command()
def retry(
    ctx: typer.Context,
    task_ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]…", help="Task ids.")] = None,
    dead: Annotated[bool, typer.Option("--dead", help="All dead letters instead of ids.")] = False,
    type: TypeFilter = None,
) -> int:
    """Bring tasks back that ended badly."""
    cli: Session = ctx.obj
    if bool(task_ids) == dead or (type and not dead):
        raise Invalid(
            "give task ids, or --dead (with --type if wanted)", hint="`tradewind task dead` lists dead letters"
        )
    if not dead:
        return _each(cli, "retry", task_ids or [], lambda task: f"{task['id']} {task['status']}")
    return _retry_dead(cli, type)


@app.command()
def watch(
    ctx: typer.Context,
    task_id: Annotated[str, typer.Argument(metavar="ID")],
    timeout: Annotated[float | None, typer.Option("--timeout", metavar="S", min=0, help="Give up after.")] = None,
) -> int:
    """Follow a task until it ends; exit 1 if it ended badly."""
    from tradewind.cli.follow import finish

    cli: Session = ctx.obj
    return finish(cli, cli.station.get(f"/tasks/{segment(task_id)}"), timeout)


def read_args(plain: list[str], text: str | None) -> list[Any] | None:
    """Plain words (each as JSON where it parses, else as text) or the --args list. Raises Invalid for both."""
    if plain and text is not None:
        raise Invalid("arguments are given twice: as words and as --args", hint="use one of the two")
    if text is not None:
        found: list[Any] = read_json("--args", text, list)
        return found
    return [read_value(word) for word in plain] or None


def read_json(option: str, text: str | None, kind: type[Any]) -> Any:
    """The JSON value of an option, None when absent. Raises Invalid."""
    from tradewind import codec

    if text is None:
        return None
    wanted = "a list such as '[1, \"a\"]'" if kind is list else 'an object such as \'{"to": "a"}\''
    try:
        value = codec.decode(text)
    except Invalid as error:
        problem = Problem("bad_json", option, f"give {wanted}")
        raise Invalid(f"{option} is {error.message}", code="bad_json", hint=problem.hint, problems=[problem]) from None
    if not isinstance(value, kind):
        problem = Problem("wrong_type", option, f"give {wanted}")
        raise Invalid(f"{option} is not {wanted.partition(' such')[0]}", hint=problem.hint, problems=[problem])
    return value


def read_value(word: str) -> Any:
    """A word as JSON where it parses, else as text."""
    from tradewind import codec

    try:
        return codec.decode(word)
    except Invalid:
        return word


def _list(cli: Session, path: str, query: dict[str, Any], is_all: bool, empty: str) -> None:
    if is_all:
        query = {**query, "limit": FULL_PAGE}
        items = [task for page in cli.station.pages(path, query) for task in page["items"]]
        found: dict[str, Any] = {"items": items, "next_cursor": None}
    else:
        found = cli.station.get(path, query)
    cli.out.show(found, lambda: task_table(found["items"], empty))
    if found.get("next_cursor"):
        cli.out.note(f"more: --cursor {found['next_cursor']}, or --all")


def _each(cli: Session, verb: str, ids: list[str], say: Any) -> int:
    return for_each(cli, ids, lambda task_id: cli.station.post(f"/tasks/{segment(task_id)}/{verb}"), say)


def _retry_dead(cli: Session, type: str | None) -> int:
    from rich.progress import track

    query = {"status": DEAD, "type": type, "limit": FULL_PAGE}
    ids = [task["id"] for page in cli.station.pages("/tasks", query) for task in page["items"]]
    brought, skipped = [], []
    live = cli.out.is_live
    for task_id in track(ids, "bringing back", console=cli.out.side, transient=True, disable=not live):
        try:
            brought.append(cli.station.post(f"/tasks/{segment(task_id)}/retry")["id"])
        except Conflict:  # somebody else was faster
            skipped.append(task_id)
    words = f"{len(brought)} of {len(ids)} dead letters brought back" if ids else "no dead letters"
    cli.out.show({"retried": brought, "skipped": skipped}, lambda: cell(words))
    return 0
