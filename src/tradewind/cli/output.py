"""What the commands print: people get compact tables and sentences, `--json` gets one JSON document on stdout.

Notes, progress and, for people, errors go to stderr. Text from outside never carries markup or terminal codes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tradewind.errors import Conflict, Invalid, NotFound, TimedOut, TradewindError, Unavailable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

#: Wide enough that nothing is cut when the output is a file or a pipe.
PIPE_WIDTH = 400
EXIT_CODES: tuple[tuple[type[TradewindError], int], ...] = (
    (NotFound, 4),
    (Conflict, 5),
    (Invalid, 2),
    (Unavailable, 6),
    (TimedOut, 7),
)
STYLES = {
    "PENDING": "yellow",
    "QUEUED": "cyan",
    "ASSIGNED": "cyan",
    "PROCESSING": "blue",
    "RETRYING": "yellow",
    "SUCCESS": "green",
    "FAILED": "red",
    "CANCELLED": "bright_black",
    "TIMEOUT": "magenta",
    "DEAD": "bold red",
    "registered": "cyan",
    "pending": "bright_black",
    "running": "blue",
    "awaiting_input": "yellow",
    "completed": "green",
    "failed": "red",
    "skipped": "bright_black",
    "terminated": "bright_black",
    "stopped": "bright_black",
    "timeout": "magenta",
    "success": "green",
    "executing": "blue",
    "cancelled": "bright_black",
    "online": "green",
    "offline": "red",
    "unattended": "yellow",
    "disabled": "bright_black",
    "pushed": "cyan",
    "good": "green",
    "uncertain": "yellow",
    "substituted": "magenta",
    "bad": "red",
    "ok": "green",
    "active": "green",
    "warn": "yellow",
    "degraded": "yellow",
    "unknown": "yellow",
    "draining": "yellow",
    "paused": "yellow",
    "off": "bright_black",
    "fail": "red",
    "down": "bold red",
    "New": "red",
    "Acknowledged": "yellow",
    "Escalated": "bold red",
    "Suppressed": "bright_black",
    "Resolved": "green",
    "Closed": "bright_black",
    "inactive": "cyan",
    "waiting": "yellow",
    "faulty": "red",
    "retrying": "yellow",
    "sent": "green",
    "given_up": "red",
    "dropped": "bright_black",
}
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


class Output:
    def __init__(self, *, is_json: bool = False) -> None:
        self.is_json = is_json

    @cached_property
    def console(self) -> Console:
        return _console(sys.stdout)

    @cached_property
    def side(self) -> Console:
        """stderr: for notes, progress and errors."""
        return _console(sys.stderr)

    @property
    def is_live(self) -> bool:
        """Whether moving things (progress, spinners) may be drawn on stderr."""
        return not self.is_json and self.side.is_terminal

    def show(self, data: Any, human: Callable[[], RenderableType]) -> None:
        """The answer of a command: `data` as JSON, or what `human` makes of it."""
        if self.is_json:
            write_json(data)
        else:
            self.console.print(human(), markup=False, highlight=False, soft_wrap=not self.console.is_terminal)

    def note(self, text: str) -> None:
        if not self.is_json:
            self.side.print(plain(text), markup=False, highlight=False, soft_wrap=True)

    def error(self, error: TradewindError) -> None:
        """With `--json` the API's envelope on stdout, so that stdout is one JSON document in every case."""
        if self.is_json:
            write_json(envelope(error))
            return
        from rich.text import Text

        lines = [Text.assemble(("error: ", "bold red"), plain(error.message))]
        lines += [Text(f"  at: {plain(note)}") for note in getattr(error, "__notes__", [])]
        problems = error.problems if isinstance(error, Invalid) else ()
        lines += [Text(f"  - {plain(p.path)}: {plain(p.hint)} [{plain(p.code)}]") for p in problems]
        if error.hint and not any(error.hint == problem.hint for problem in problems):
            lines.append(Text.assemble(("  hint: ", "bold"), plain(error.hint)))
        for line in lines:
            self.side.print(line, soft_wrap=True, highlight=False)


def exit_code(error: TradewindError) -> int:
    return next((code for kind, code in EXIT_CODES if isinstance(error, kind)), 1)


def envelope(error: TradewindError) -> dict[str, Any]:
    problems = error.problems if isinstance(error, Invalid) else ()
    return {
        "error": {
            "code": error.code,
            "message": error.message,
            "hint": error.hint,
            "problems": [{"code": p.code, "path": p.path, "hint": p.hint} for p in problems],
        }
    }


def write_json(data: Any) -> None:
    """One document and a newline, indented for a terminal."""
    import msgspec

    try:
        text = msgspec.json.encode(data)
    except UnicodeEncodeError:  # a file name that is no UTF-8, say
        text = msgspec.json.encode(_printable(data))
    if sys.stdout.isatty():
        text = msgspec.json.format(text, indent=2)
    sys.stdout.write(text.decode() + "\n")
    sys.stdout.flush()


def json_text(value: Any) -> str:
    import msgspec

    return msgspec.json.encode(value).decode()


def plain(value: Any) -> str:
    """Text that cannot steer a terminal, and that every terminal can show: a file name may be no UTF-8."""
    return _utf8(str(value)).translate(_CONTROLS)


def _utf8(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _printable(value: Any) -> Any:
    if isinstance(value, dict):
        return {_utf8(str(name)): _printable(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_printable(item) for item in value]
    return _utf8(value) if isinstance(value, str) else value


def cell(value: Any, style: str = "") -> Text:
    from rich.text import Text

    if value is None or value == "":
        return Text("-", style="bright_black")
    return Text(plain(value).replace("\n", " "), style=style)


def status_cell(status: str) -> Text:
    return cell(status, STYLES.get(status, ""))


def short(value: Any, width: int = 60) -> str:
    """One line of at most `width` characters."""
    text = value if isinstance(value, str) else json_text(value)
    text = " ".join(text.split())
    return text if len(text) <= width else text[: width - 1] + "…"


def table(
    headings: Iterable[str], rows: Iterable[Iterable[Any]], *, empty: str, right: Iterable[str] = ()
) -> RenderableType:
    """A compact table; `empty` is the sentence for no rows, `right` names the columns of numbers."""
    from rich.text import Text

    made = _table()
    numbers = set(right)
    for index, heading in enumerate(headings):
        first = {"no_wrap": True, "overflow": "fold"} if index == 0 else {"overflow": "fold"}
        made.add_column(heading, justify="right" if heading in numbers else "left", **first)
    for row in rows:
        made.add_row(*(item if isinstance(item, Text) else cell(item) for item in row))
    return made if made.row_count else Text(empty)


def facts(pairs: Iterable[tuple[str, Any]]) -> RenderableType:
    """Names and values below each other."""
    from rich.text import Text

    made = _table(show_header=False)
    made.add_column(style="bold", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in pairs:
        made.add_row(name, value if isinstance(value, Text) else Text(plain(value)))
    return made


def _table(*, show_header: bool = True) -> Table:
    from rich.table import Table

    return Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=show_header, header_style="bold")


def _console(file: Any) -> Console:
    from rich.console import Console

    width = None if file.isatty() or os.environ.get("COLUMNS") else PIPE_WIDTH
    return Console(file=file, width=width, markup=False, emoji=False)
