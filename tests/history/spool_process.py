"""A process that appends to a spool until it is killed: `python -m tests.history.spool_process FOLDER FIRST`."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.history.test_spool import NOW, rows_of, spool_in


def main(folder: str, first: str) -> None:
    spool = spool_in(Path(folder))
    at = int(first)
    while True:
        spool.append(rows_of(at), NOW)
        at += 10
        print(at, flush=True)  # noqa: T201 - the test reads it


if __name__ == "__main__":
    main(*sys.argv[1:])
