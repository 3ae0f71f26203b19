"""Files that commands write: whole or not at all, and for their user alone (0600)."""

from __future__ import annotations

import errno
import os
import secrets
import stat
import time
from collections.abc import Iterable
from pathlib import Path

from tradewind.documents.reading import short_name
from tradewind.errors import Conflict, Unavailable

#: How long a pipe may be without a reader.
PIPE_WAIT_S = 5.0


def write_file(name: str | Path, pieces: Iterable[bytes], *, is_new: bool = False) -> int:
    """The bytes written. A file takes its name only when it is whole, a link stays one, and what is no file (a pipe, a
    device) is written to as it is. A new file has mode 0600; one that is replaced keeps its own.

    `is_new`: raises Conflict when something has the name already. Raises Unavailable when it cannot be written.
    """
    shown = short_name(name)
    text = os.fspath(name)
    if "\0" in text:
        raise _unwritable(shown, "its name cannot be one")
    if not text or text.endswith(os.sep):
        raise _unwritable(shown or '""', "it names no file")
    target = os.path.realpath(text)
    try:
        found = _found(target)
        if found is not None and stat.S_ISDIR(found.st_mode):
            raise _unwritable(shown, "it is a folder")
        if is_new and os.path.lexists(text):
            raise Conflict(f"{shown} is there already", code="file_exists", hint="name another file")
        if found is not None and not stat.S_ISREG(found.st_mode):
            return _put(_open_special(target, shown), pieces)
        if found is not None and not os.access(target, os.W_OK):
            raise _unwritable(shown, os.strerror(errno.EACCES))
        return _replace(target, found, pieces, is_new=is_new)
    except FileExistsError as error:
        raise Conflict(f"{shown} is there already", code="file_exists", hint="name another file") from error
    except OSError as error:
        raise _unwritable(shown, error.strerror or str(error)) from error


def _replace(target: str, found: os.stat_result | None, pieces: Iterable[bytes], *, is_new: bool) -> int:
    part = target if is_new else f"{target}.{secrets.token_hex(4)}.part"
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        if found is not None:
            os.fchmod(handle, stat.S_IMODE(found.st_mode))
        size = _put(handle, pieces)
        if not is_new:
            os.replace(part, target)
    except BaseException:
        if os.path.lexists(part):
            os.unlink(part)
        raise
    return size


def _found(target: str) -> os.stat_result | None:
    try:
        return os.stat(target)
    except FileNotFoundError:
        return None


def _open_special(target: str, shown: str) -> int:
    """Without waiting for ever for the reader of a pipe."""
    end = time.monotonic() + PIPE_WAIT_S
    while True:
        try:
            handle = os.open(target, os.O_WRONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            if time.monotonic() > end:
                raise _unwritable(shown, f"nobody reads it within {PIPE_WAIT_S:g} s") from error
            time.sleep(0.05)
        else:
            os.set_blocking(handle, True)
            return handle


def _put(handle: int, pieces: Iterable[bytes]) -> int:
    """Closes the handle."""
    size = 0
    with os.fdopen(handle, "wb") as file:
        for piece in pieces:
            file.write(piece)
            size += len(piece)
    return size


def _unwritable(shown: str, reason: str) -> Unavailable:
    hint = "name a file that you may write"
    return Unavailable(f"cannot write {shown}: {reason}", code="no_file", hint=hint)
