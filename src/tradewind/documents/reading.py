"""Files, folders and stdin that a person names, read within bounds.

Only regular files are opened: a device, pipe or socket could block or never end. Every refusal is Invalid with the name
of the file, the reason and what to do; its one problem has the name as path.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from tradewind.errors import Invalid, Problem

STDIN: Final = "-"
#: A definition, policy or settings file; as much as the API takes for channels.
MAX_DOCUMENT_BYTES: Final = 64_000_000
#: One line of a table or of a file of tasks.
MAX_LINE_BYTES: Final = 16_000_000
#: Of a name in a message: a person may give anything.
_MOST_NAME = 300
_PIECE = 1 << 20
_KINDS: Final = (
    (stat.S_ISDIR, "a folder", "name a file in it"),
    (stat.S_ISFIFO, "a pipe", "give - and send the text to stdin"),
    (stat.S_ISSOCK, "a socket", "name a file"),
    (stat.S_ISCHR, "a device", "name a file"),
    (stat.S_ISBLK, "a device", "name a file"),
)


def read_document(name: str | Path, *, max_bytes: int = MAX_DOCUMENT_BYTES, shown: str = "") -> bytes:
    """The text of a file (`-`: stdin): whole, at most `max_bytes`, without NUL; that it is UTF-8 is for the parser, who
    knows lines. `shown`: how messages call it. Raises Invalid."""
    if str(name) == STDIN:
        data, shown = stdin_bytes(max_bytes), shown or "stdin"
    else:
        data, shown = read_bytes(name, max_bytes=max_bytes, shown=shown), shown or short_name(name)
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise _refused(shown, "bad_text", "it is UTF-16", "save it as UTF-8")
    if (at := data.find(b"\0")) >= 0:
        line = data.count(b"\n", 0, at) + 1
        raise _refused(shown, "bad_text", f"a NUL byte is in line {line}: it is no text", "name a text file in UTF-8")
    return data


def read_bytes(name: str | Path, *, max_bytes: int, shown: str = "") -> bytes:
    """The content of a regular file, which may grow meanwhile. Raises Invalid."""
    shown = shown or short_name(name)
    with open_file(name, max_bytes=max_bytes, shown=shown) as file:
        return _bounded(file, max_bytes, shown)


def stdin_bytes(max_bytes: int) -> bytes:
    """All of stdin. Raises Invalid when it is longer, or closed."""
    return _bounded(read_stdin(), max_bytes, "stdin")


def read_stdin() -> BinaryIO:
    """stdin as a stream of bytes. Raises Invalid when it is closed."""
    if sys.stdin is None or sys.stdin.closed:
        raise _refused("stdin", "no_file", "it is closed", "send the text to stdin, or name a file")
    return sys.stdin.buffer


def open_file(name: str | Path, *, max_bytes: int | None = None, shown: str = "") -> BinaryIO:
    """A regular file of at most `max_bytes`, open for reading. Raises Invalid."""
    shown = shown or short_name(name)
    try:
        _must_be_regular(os.stat(name), shown)  # before it is opened: opening a device may do something
        handle = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            found = os.fstat(handle)  # it may be another one by now
            _must_be_regular(found, shown)
            if max_bytes is not None and found.st_size > max_bytes:
                raise _too_large(shown, max_bytes)
            return os.fdopen(handle, "rb")
        except BaseException:
            os.close(handle)
            raise
    except (OSError, ValueError) as error:
        raise unreadable(shown, error) from error


def must_be_file(name: str | Path, *, shown: str = "") -> None:
    """For files that somebody else will open by name, a TLS library say. Raises Invalid."""
    open_file(name, shown=shown).close()


def bounded_lines(file: BinaryIO, shown: str, *, max_bytes: int = MAX_LINE_BYTES) -> Iterator[bytes]:
    """Line by line, without taking more than `max_bytes` into memory for one. Raises Invalid."""
    number = 0
    while True:
        number += 1
        try:
            line = file.readline(max_bytes + 1)
        except OSError as error:
            raise unreadable(shown, error) from error
        if not line:
            return
        if len(line) > max_bytes:
            reason = f"line {number} is longer than {max_bytes} bytes"
            raise _refused(shown, "too_large", reason, "name a text file with shorter lines")
        yield line


def list_folder(folder: Path, *, shown: str = "") -> list[Path]:
    """What is in a folder, by name; nothing when there is no such folder. Raises Invalid when it cannot be listed: that
    is not the same as being empty."""
    shown = shown or short_name(folder)
    try:
        return sorted(folder / name for name in os.listdir(folder))
    except FileNotFoundError:
        if os.path.lexists(folder):
            raise _refused(shown, "no_folder", "it is a link to nothing", "name a folder") from None
        return []
    except NotADirectoryError:
        raise _refused(shown, "no_folder", "it is no folder", "name a folder") from None
    except (OSError, ValueError) as error:
        raise _refused(shown, "no_folder", _words(error), "name a folder that you may read") from error


def existing(folder: Path, names: Iterable[str]) -> Iterator[Path]:
    """Those that are there, whatever they are: a pipe or a link to nothing must be refused, not overlooked."""
    return (folder / name for name in names if os.path.lexists(folder / name))


def unreadable(shown: str, error: Exception) -> Invalid:
    """An error of the system about a file that was to be read."""
    missing = isinstance(error, FileNotFoundError)
    hint = "name a file that is there" if missing else "name a file that you may read"
    return _refused(shown, "no_file", _words(error), hint)


def short_name(name: str | Path) -> str:
    text = str(name)
    return text if len(text) <= _MOST_NAME else f"{text[: _MOST_NAME // 2]}…{text[-_MOST_NAME // 2 :]}"


def _must_be_regular(found: os.stat_result, shown: str) -> None:
    if stat.S_ISREG(found.st_mode):
        return
    kind, hint = next(((k, hint) for test, k, hint in _KINDS if test(found.st_mode)), ("no file", "name a file"))
    raise _refused(shown, "not_a_file", f"it is {kind}", hint)


def _bounded(file: BinaryIO, max_bytes: int, shown: str) -> bytes:
    pieces: list[bytes] = []
    size = 0
    try:
        while piece := file.read(min(_PIECE, max_bytes + 1 - size)):
            pieces.append(piece)
            size += len(piece)
            if size > max_bytes:
                raise _too_large(shown, max_bytes)
    except OSError as error:
        raise unreadable(shown, error) from error
    return b"".join(pieces)


def _too_large(shown: str, max_bytes: int) -> Invalid:
    hint = f"give at most {max_bytes} bytes; divide it into several"
    return _refused(shown, "too_large", f"it is larger than {max_bytes} bytes", hint)


def _words(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return "its name cannot be one" if isinstance(error, ValueError) else str(error) or type(error).__name__


def _refused(shown: str, code: str, reason: str, hint: str) -> Invalid:
    problem = Problem(code, shown, f"cannot be read: {reason}; {hint}")
    return Invalid(f"cannot read {shown}: {reason}", code=code, hint=hint, problems=[problem])
