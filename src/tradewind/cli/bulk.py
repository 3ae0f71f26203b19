"""Bulk submit: a file with one task object a line, sent in batches. A batch is accepted as a whole or not at all."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

from tradewind import codec
from tradewind.cli.http import Http
from tradewind.cli.output import Output, cell
from tradewind.documents import bounded_lines, open_file, read_stdin, short_name
from tradewind.errors import Conflict, Invalid, Overloaded, Problem, TradewindError

BATCH = 1000
#: Below the station's default bound on a request body, so that many large tasks go in several requests.
BATCH_BYTES = 1_000_000
#: How often in a row a full station is asked again before giving up.
PATIENCE = 60
_PLACE = re.compile(r"^tasks\[(\d+)\]\.?")

Line = tuple[int, dict[str, Any], int]


def submit_file(station: Http, out: Output, source: Path | str, defaults: dict[str, Any]) -> None:
    """Submit every line of the file (`-`: stdin); `defaults` are fields for lines that do not have them."""
    ids: list[str] = []
    reached = 0
    with ExitStack() as stack:
        file, size = _open(source, stack)
        advance = _progress(out, stack, size)
        try:
            for batch in batches(read_lines(bounded_lines(file, _shown(source)), defaults)):
                ids += _send(station, batch)
                reached = batch[-1][0]
                advance(sum(length for _, _, length in batch))
        except TradewindError as error:
            error.hint = "; ".join(filter(None, [error.hint, _how_far(error, reached, len(ids))]))
            raise
    out.show({"submitted": len(ids), "ids": ids}, lambda: cell(f"{len(ids)} tasks submitted"))


def _how_far(error: TradewindError, reached: int, count: int) -> str:
    """In the hint, so that programs are told too. Without an answer nobody knows what became of the batch under way."""
    is_known = isinstance(error, (Invalid, Conflict, Overloaded))
    rest = "nothing after them" if is_known else f"of line {reached + 1} and the batch that it begins it is not known"
    if count:
        return f"lines 1 to {reached} were accepted ({count} tasks), {rest}"
    return "no line was accepted" if is_known else "it is not known whether the first batch was accepted"


def read_lines(file: Iterable[bytes], defaults: dict[str, Any]) -> Iterator[Line]:
    """Number, task and length of each line that is not empty. Raises Invalid."""
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        try:
            raw = codec.decode(line)
        except Invalid as error:
            raise _bad_line(number, "bad_json", error.message) from None
        if not isinstance(raw, dict):
            raise _bad_line(number, "not_an_object", 'give an object such as {"type": "echo"}')
        yield number, {**defaults, **raw}, len(line)


def batches(lines: Iterable[Line]) -> Iterator[list[Line]]:
    batch: list[Line] = []
    size = 0
    for line in lines:
        if batch and (len(batch) == BATCH or size + line[2] > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(line)
        size += line[2]
    if batch:
        yield batch


def _send(station: Http, batch: list[Line]) -> list[str]:
    for attempt in range(PATIENCE):
        try:
            found: list[str] = station.post("/tasks/batch", {"tasks": [task for _, task, _ in batch]})["ids"]
            return found
        except Overloaded as error:
            if attempt == PATIENCE - 1:
                raise
            time.sleep(error.retry_after_s)
        except Invalid as error:
            problems = [Problem(p.code, _line_path(p.path, batch), p.hint) for p in error.problems]
            raise Invalid(error.message, code=error.code, hint=error.hint, problems=problems) from None
    raise AssertionError("unreachable")


def _line_path(path: str, batch: list[Line]) -> str:
    """`tasks[3].delay_s` of a batch as `line 1004 delay_s` of the file."""
    found = _PLACE.match(path)
    if found is None or int(found[1]) >= len(batch):
        return path
    return f"line {batch[int(found[1])][0]} {path[found.end() :]}".rstrip()


def _bad_line(number: int, code: str, hint: str) -> Invalid:
    return Invalid(
        f"line {number} is not a task", code=code, hint=hint, problems=[Problem(code, f"line {number}", hint)]
    )


def _open(source: Path | str, stack: ExitStack) -> tuple[BinaryIO, int | None]:
    if not isinstance(source, Path):
        return read_stdin(), None
    file = stack.enter_context(open_file(source))
    return file, os.fstat(file.fileno()).st_size


def _shown(source: Path | str) -> str:
    return short_name(source) if isinstance(source, Path) else "stdin"


def _progress(out: Output, stack: ExitStack, size: int | None) -> Any:
    if not out.is_live:
        return lambda done: None
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    text = TextColumn("submitting {task.percentage:>3.0f}%" if size else "submitting")
    progress = stack.enter_context(Progress(text, BarColumn(), TimeElapsedColumn(), console=out.side, transient=True))
    line = progress.add_task("", total=size)
    return lambda done: progress.advance(line, done)
