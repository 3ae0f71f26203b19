"""A small file that is either the old one or the new one, also after a power cut. Blocking."""

from __future__ import annotations

import os
from pathlib import Path

from tradewind.history.spool_disk import sync_folder
from tradewind.private_files import make_folder


def read_small(path: Path) -> bytes:
    """Empty when there is none, or it cannot be read."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def write_small(path: Path, data: bytes) -> None:
    """Raises OSError."""
    make_folder(path.parent)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(file, data)
            os.fsync(file)
        finally:
            os.close(file)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    sync_folder(path.parent)
