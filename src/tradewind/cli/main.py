"""The `tradewind` command: global options, the groups, and the one place where errors become exit codes.

Exit codes: 0 done, 1 it ended badly, 2 wrong input, 4 not found, 5 conflict, 6 unavailable, 7 timed out, 130 Ctrl-C.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from tradewind import __version__
from tradewind.cli import (
    alarm,
    apply,
    channel,
    command,
    config,
    demo,
    doctor,
    flow,
    history,
    init,
    limit,
    model,
    node_type,
    notify,
    point,
    queue,
    restore,
    rule,
    rule_group,
    schedule,
    station,
    status,
    task,
    task_type,
    worker,
)
from tradewind.cli.group import Group, Session
from tradewind.cli.http import DEFAULT_URL
from tradewind.cli.output import Output, exit_code
from tradewind.documents import short_name
from tradewind.errors import Invalid, TradewindError, Unavailable, error_text

app = Group("Tasks and decision loops against the real world: start a station, steer it, look at it.")
app.add_typer(task.app, name="task")
app.add_typer(queue.app, name="queue")
app.add_typer(worker.app, name="worker")
app.add_typer(limit.app, name="limit")
app.add_typer(schedule.app, name="schedule")
app.add_typer(task_type.app, name="type")
app.add_typer(flow.app, name="flow")
app.add_typer(node_type.app, name="node-type")
app.add_typer(channel.app, name="channel")
app.add_typer(point.app, name="point")
app.add_typer(model.app, name="model")
app.add_typer(command.app, name="command")
app.add_typer(rule.app, name="rule")
app.add_typer(rule_group.app, name="rule-group")
app.add_typer(alarm.app, name="alarm")
app.add_typer(notify.app, name="notify")
app.add_typer(history.app, name="history")
app.add_typer(config.app, name="config")
app.command("init")(init.init)
app.command("up")(station.up)
app.command("run")(station.run)
app.command("apply")(apply.apply)
app.command("restore")(restore.restore)
app.command("status")(status.status)
app.command("doctor")(doctor.doctor)
app.command("demo")(demo.demo)


def _show_version(ctx: typer.Context, value: bool) -> None:
    if value:
        out = Output(is_json=bool(ctx.params.get("json")))
        out.show({"version": __version__}, lambda: f"tradewind {__version__}")
        raise typer.Exit


@app.callback()
def root(
    ctx: typer.Context,
    json: Annotated[
        bool, typer.Option("--json", is_eager=True, help="One JSON document on stdout, nothing else.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version.")
    ] = False,
    url: Annotated[str, typer.Option("--url", envvar="TRADEWIND_URL", help="Address of the station.")] = DEFAULT_URL,
) -> None:
    ctx.obj.is_json, ctx.obj.url = json, url


def main(argv: Sequence[str] | None = None) -> int:
    _open_missing_streams()
    args = global_options_first(sys.argv[1:] if argv is None else argv)
    out = Output(is_json="--json" in args[:1])
    session = Session()
    try:
        code = app(args, prog_name="tradewind", standalone_mode=False, obj=session)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except TradewindError as error:
        return _report(out, error)
    except typer.TyperException as error:
        return _usage(out, error)
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except BrokenPipeError:  # the reader (head, less) has left
        _drop_stdout()
        return 141
    except OSError as error:
        if error.filename is not None:
            shown = short_name(os.fsdecode(error.filename) if not isinstance(error.filename, int) else "a file")
            return _report(out, Unavailable(f"cannot use {shown}: {error.strerror}", code="no_file"))
        _drop_stdout()  # what is left is stdout itself, on a full disk say
        return _report(Output(), Unavailable(f"cannot write the output: {error_text(error)}", code="no_output"))
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        if not session.has_asked or os.environ.get("TRADEWIND_DEBUG"):
            raise
        return _report(out, _strange_answer(session, error))


def _report(out: Output, error: TradewindError) -> int:
    out.error(error)
    return exit_code(error)


def _strange_answer(session: Session, error: Exception) -> Unavailable:
    """A command could not make sense of what the station said. It may be another program, or another version."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = f"{os.path.basename(place.tb_frame.f_code.co_filename)}:{place.tb_lineno}" if place is not None else ""
    return Unavailable(
        f"the answer of {session.station.url} has another form than this version knows "
        f"({type(error).__name__}: {error_text(error)}, {where})",
        code="strange_answer",
        hint="is it a Tradewind station, and of this version? TRADEWIND_DEBUG=1 shows the traceback",
    )


def _open_missing_streams() -> None:
    """With stdin, stdout or stderr closed, the next file that is opened would get its number, and what is printed."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            handle = os.open(os.devnull, os.O_RDWR)
            if handle != number:
                os.dup2(handle, number)
            setattr(sys, name, os.fdopen(number, "w" if number else "r"))


def _drop_stdout() -> None:
    """Without this Python complains once more when it flushes at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def global_options_first(args: Sequence[str]) -> list[str]:
    """`--json` and `--url URL` may stand anywhere before `--`; the parser knows them only at the front."""
    front: list[str] = []
    rest: list[str] = []
    left = iter(args)
    for arg in left:
        if arg == "--":
            rest += [arg, *left]
        elif arg == "--json":
            front.insert(0, arg)
        elif arg == "--url":
            front += [arg, *(value for value in [next(left, None)] if value is not None)]
        elif arg.startswith("--url="):
            front.append(arg)
        else:
            rest.append(arg)
    return front + rest


def _usage(out: Output, error: typer.TyperException) -> int:
    """The parser's own complaints: as it writes them for people, as our envelope for programs."""
    if out.is_json:
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else "tradewind"
        message = error.format_message() if hasattr(error, "format_message") else str(error)
        out.error(Invalid(message, code="usage", hint=f"see `{path} --help`"))
    elif hasattr(error, "show"):
        error.show()
    return int(getattr(error, "exit_code", 2))
