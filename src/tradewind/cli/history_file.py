"""`tradewind history export` and `import`: history to a file and back, with a progress bar."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from tradewind.cli.group import Session
from tradewind.cli.output import plain
from tradewind.documents import STDIN, bounded_lines, open_file, read_stdin, short_name, unreadable, write_file
from tradewind.errors import Conflict, Invalid, Problem, TradewindError, Unavailable

if TYPE_CHECKING:
    from tradewind.history.sample import Row

#: Rows of one request, and how long it may take.
PART = 20_000
WAIT_S = 90.0
#: Refused rows that are named.
MAX_REFUSED = 10_000
#: As much as stdin may bring to an import; a file may be longer.
MAX_STDIN_BYTES = 4_000_000_000
#: How often an import looks at the bar.
EVERY = 1000


def export(
    ctx: typer.Context,
    series: Annotated[
        list[str], typer.Argument(metavar="SERIES…", help="comsrv:1001:m:10001; with a * all recorded ones that fit.")
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Where to; - is stdout, and the default.")
    ] = "-",
    kind: Annotated[
        str, typer.Option("--format", metavar="csv|parquet", help="csv unless FILE ends in .parquet.")
    ] = "",
    since: Annotated[str, typer.Option("--from", metavar="TIME", help="-1h, -7d, ISO or milliseconds.")] = "-1d",
    until: Annotated[str, typer.Option("--to", metavar="TIME", help="The same; not included.")] = "now",
    bucket: Annotated[str, typer.Option("--bucket", metavar="SPAN", help="raw, or such as 1m.")] = "raw",
    agg: Annotated[list[str] | None, typer.Option("--agg", metavar="NAME", help="Of each bucket; mean.")] = None,
    layout: Annotated[str, typer.Option("--layout", metavar="long|wide", help="Wide: a column a series.")] = "long",
    times: Annotated[str, typer.Option("--time", metavar="ms|iso", help="How CSV writes times.")] = "ms",
) -> None:
    """Write samples, or buckets of them, to a CSV or Parquet file. All or nothing: no half a file is left."""
    from tradewind.cli.history_view import lack_notes
    from tradewind.clock import iso, now_ms
    from tradewind.history.export_file import Lacks, unframed
    from tradewind.history.times import time_ms

    cli: Session = ctx.obj
    kind = kind or ("parquet" if output.endswith(".parquet") else "csv")
    if output == "-" and (cli.is_json or (kind == "parquet" and sys.stdout.isatty())):
        raise Invalid("the file cannot go to stdout", code="no_file", hint="name a file with --output")
    now = now_ms()
    period = {"series": series, "from": iso(time_ms(since, now, "--from")), "to": iso(time_ms(until, now, "--to"))}
    asked = {**period, "bucket": bucket, "agg": agg, "format": kind, "layout": layout, "time": times, "framed": "noted"}
    rows, lacks = 0, Lacks(0, [])

    def step(share: float, count: int) -> None:
        nonlocal rows
        rows = count
        show(share, count)

    def note(found: Lacks) -> None:
        nonlocal lacks
        lacks = found

    with _share_bar(cli, "export") as show:
        size = _write(unframed(cli.station.data("/history/export", asked), step, note), output)
    for line in lack_notes(lacks.series, lacks.count, is_raw=bucket == "raw"):
        cli.out.note(line)
    if not rows:
        cli.out.note("there are no samples in that time: the file has no rows")
    if output != "-":
        told = {"file": output, "format": kind, "bytes": size, "rows": rows, "complete": not lacks.count}
        told |= {"incomplete_count": lacks.count, "incomplete": [_whole_from(*each) for each in lacks.series]}
        cli.out.show(told, lambda: f"wrote {plain(output)}: {rows} rows, {size} bytes")


def _whole_from(address: str, available_from: int) -> dict[str, Any]:
    return {"address": address, "available_from": available_from}


def import_file(
    ctx: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="CSV; - is stdin.")],
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave bad rows out, name them, store the rest.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check the file.")] = False,
) -> int:
    """Store samples from a CSV: ts,address,value[,quality], or ts and a column for each address.

    The file is checked as a whole first. The same file again changes nothing.
    """
    from tradewind.cli.history_view import refused_notes

    cli: Session = ctx.obj
    with _opened(file) as stream:
        problems: list[Problem] = []
        with _bar(cli, "check", _size_of(stream)) as step:
            rows = sum(1 for _ in _rows(stream, file, problems.append, step))
        if problems and not skip_bad:
            message = f"{len(problems)} bad rows in {file}: nothing was stored"
            hint = "correct what is named, or leave these rows out with --skip-bad"
            raise Invalid(message, code="bad_rows", hint=hint, problems=problems)
        for problem in problems:
            cli.out.note(f"left out: {problem.path}: {problem.hint}")
        sent = Sent() if dry_run else _send(cli, stream, file, rows, len(problems))
    stored, refused = sent.stored, sent.refused
    for note in refused_notes(refused, sent.refused_count, sent.too_old, sent.rollups_only):
        cli.out.note(note)
    view = {
        "file": file,
        "dry_run": dry_run,
        "rows": rows,
        "stored": stored,
        "refused": refused,
        "refused_count": sent.refused_count,
        "too_old": sent.too_old,
        "rollups_only": sent.rollups_only,
        "left_out": [{"code": p.code, "path": p.path, "hint": p.hint} for p in problems],
    }
    done = f"{rows} rows are good" if dry_run else f"stored {stored} of {rows} rows"
    more = [f"{sent.refused_count} refused"] if sent.refused_count else []
    more += [f"{len(problems)} left out"] if problems else []
    cli.out.show(view, lambda: ", ".join([done, *more]))
    return 1 if sent.refused_count else 0


@dataclass
class Sent:
    """What became of the rows; of very many refused ones the first are named."""

    stored: int = 0
    refused_count: int = 0
    rollups_only: int = 0
    refused: list[dict[str, Any]] = field(default_factory=list)
    too_old: list[dict[str, Any]] = field(default_factory=list)

    def add(self, answer: dict[str, Any]) -> None:
        self.stored += answer["stored"]
        self.refused_count += answer["refused_count"]
        self.rollups_only += answer.get("rollups_only", 0)
        self.refused += answer["refused"][: max(MAX_REFUSED - len(self.refused), 0)]
        for item in answer.get("too_old", ()):
            known = next((each for each in self.too_old if each["class"] == item["class"]), None)
            if known is None:
                self.too_old.append(item)
            else:
                known["rows"] += item["rows"]
                known["kept_from"] = max(known["kept_from"], item["kept_from"])


def _send(cli: Session, stream: BinaryIO, file: str, rows: int, bad: int) -> Sent:
    """An error says how far it came."""
    sent = Sent()
    seen: list[Problem] = []
    with _bar(cli, "import", rows) as step:
        try:
            for part in _parts(_rows(stream, file, seen.append, None)):
                if len(seen) > bad:
                    message = "the file has other bad rows than when it was checked"
                    raise Conflict(message, code="file_changed", hint="import it again when nobody writes to it")
                sent.add(cli.station.post("/history/import", {"rows": part}, wait_s=WAIT_S))
                step(len(part))
        except TradewindError as error:
            error.add_note(f"{sent.stored} of {rows} rows are stored; import the same file again, which does no harm")
            raise
    return sent


def _parts(rows: Iterable[Row]) -> Iterator[list[Row]]:
    part: list[Row] = []
    for row in rows:
        part.append(row)
        if len(part) == PART:
            yield part
            part = []
    if part:
        yield part


def _rows(
    stream: BinaryIO, file: str, on_problem: Callable[[Problem], None], step: Callable[[int], None] | None
) -> Iterator[Row]:
    from tradewind.history.import_csv import read_csv

    stream.seek(0)
    yield from read_csv(_lines(stream, file, step), on_problem)


def _lines(stream: BinaryIO, file: str, step: Callable[[int], None] | None) -> Iterator[str]:
    """What is no UTF-8 stays in its line, which is bad then."""
    size = 0
    for count, line in enumerate(bounded_lines(stream, "stdin" if file == STDIN else short_name(file)), 1):
        size += len(line)
        if step is not None and count % EVERY == 0:
            step(size)
            size = 0
        yield line.decode("utf-8", "surrogateescape")
    if step is not None:
        step(size)


@contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
    """A file that can be read twice."""
    with _kept_stdin() if file == STDIN else open_file(file) as stream:
        try:
            head = stream.read(4)
        except OSError as error:
            raise unreadable(short_name(file), error) from error
        if head == b"PAR1":
            hint = "an import takes CSV: export the same with --format csv"
            raise Invalid(f"{file} is a Parquet file", code="not_csv", hint=hint)
        yield stream


def _kept_stdin() -> BinaryIO:
    """stdin as a file that can be read twice. Raises Invalid, Unavailable."""
    source, size = read_stdin(), 0
    stream = tempfile.TemporaryFile()  # noqa: SIM115 — the caller closes it
    try:
        while piece := source.read(1 << 20):
            size += len(piece)
            if size > MAX_STDIN_BYTES:
                hint = "write it to a file and import that"
                raise Invalid(f"stdin is longer than {MAX_STDIN_BYTES} bytes", code="too_large", hint=hint)
            stream.write(piece)
        stream.seek(0)
    except OSError as error:
        stream.close()
        message = f"cannot keep what stdin brings: {error.strerror}"
        raise Unavailable(message, code="no_file", hint="write it to a file and import that") from error
    except BaseException:
        stream.close()
        raise
    return stream


def _size_of(stream: BinaryIO) -> int:
    return stream.seek(0, os.SEEK_END)


def _write(pieces: Iterator[bytes], output: str) -> int:
    """The bytes written."""
    if output != STDIN:
        return write_file(output, pieces)
    size = 0
    for piece in pieces:
        sys.stdout.buffer.write(piece)
        size += len(piece)
    sys.stdout.buffer.flush()
    return size


@contextmanager
def _share_bar(cli: Session, title: str) -> Iterator[Callable[[float, int], None]]:
    """A bar on stderr when that is a terminal, for a share that is done and rows so far."""
    if not cli.out.is_live:
        yield lambda share, rows: None
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[rows]} rows"),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=cli.out.side, transient=True) as progress:
        task = progress.add_task(title, total=1.0, rows=0)
        yield lambda share, rows: progress.update(task, completed=share, rows=rows)


@contextmanager
def _bar(cli: Session, title: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A bar on stderr when that is a terminal. `total` None: only how much is done."""
    if not cli.out.is_live:
        yield lambda count: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=cli.out.side, transient=True) as progress:
        task = progress.add_task(title, total=total)
        yield lambda count: progress.advance(task, count)
