"""What the disk says to the spool, in our words."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from tradewind.errors import Unavailable

#: With less than this left the disk counts as full.
LOW_BYTES = 4_000_000
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


class SpoolFull(Unavailable):
    """The disk takes nothing more; nothing of the batch is kept."""

    code = "spool_full"


def trouble(error: OSError, what: str) -> Unavailable:
    if error.errno in _NO_SPACE:
        return SpoolFull(f"{what}: the disk is full", hint="free some space; recording goes on by itself")
    return Unavailable(f"{what}: {error.strerror}", code="spool_broken", hint="check the disk and the rights")


def free_bytes(folder: Path) -> int | None:
    """What this user may still write there; None when that cannot be told."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


def is_at(file: int, path: Path) -> bool:
    """Whether an open file is still the one with that name."""
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


def sync_folder(path: Path) -> None:
    """The names in it. Raises OSError."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
