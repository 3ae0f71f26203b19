"""The log of executions: who ran when. Standard library only, because every peer's interpreter imports it.

An execution is a 16-byte record appended to a file (about 2 us), not a Redis command, so that the Redis counts and the
rates belong to the library alone. CLOCK_MONOTONIC is shared by all processes of one machine.
"""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path

START, FINISH = 1, 2
RECORD = struct.Struct("<iid")
_fd: int | None = None


def record(task_id: int, kind: int = START) -> None:
    """Append to the file named by BENCH_LOG; one write with O_APPEND is atomic between processes."""
    global _fd
    if _fd is None:
        _fd = os.open(os.environ["BENCH_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(_fd, RECORD.pack(task_id, kind, time.monotonic()))


def read_log(path: Path) -> list[tuple[int, int, float]]:
    """(task id, START or FINISH, monotonic seconds), in the order of writing; empty while there is no file."""
    try:
        return list(RECORD.iter_unpack(path.read_bytes()))
    except FileNotFoundError:
        return []


def count_log(path: Path) -> int:
    try:
        return path.stat().st_size // RECORD.size
    except FileNotFoundError:
        return 0
