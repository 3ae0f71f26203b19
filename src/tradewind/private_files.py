"""Files and folders of a station are for its user alone: 0600 and 0700, whatever the umask, whoever made them."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tradewind.documents import short_name
from tradewind.errors import Unavailable

FILE: Final = 0o600
FOLDER: Final = 0o700
#: For child processes that make files by themselves.
UMASK: Final = 0o077
#: What a station makes in its data folder; `NAME*` also has endings such as -wal.
_OURS: Final = ("station.lock", "tradewind.db*", "redis", "history")


def make_folder(path: Path) -> None:
    """Also the folders above it that are not there, which are private, too. Raises OSError."""
    if path.is_dir():
        return
    if path.parent != path:
        make_folder(path.parent)
    path.mkdir(mode=FOLDER, exist_ok=True)


def make_data_dir(path: Path) -> None:
    """Raises Unavailable."""
    try:
        make_folder(path)
        os.listdir(path)
    except (OSError, ValueError) as error:
        hint = "choose a folder that this user may write with --data-dir"
        raise Unavailable(
            f"cannot use the data folder {short_name(path)}: {error}", code="data_dir", hint=hint
        ) from error


def make_file(path: Path) -> None:
    """An empty one, unless it is there. It is not opened: closing it would take the locks away that SQLite holds on it
    in another thread. Raises OSError."""
    with contextlib.suppress(FileExistsError):
        if sys.platform == "linux":
            os.mknod(path, stat.S_IFREG | FILE)
        else:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE))


def write_text(path: Path, text: str) -> None:
    """Replace its content; the file is private before there is any. Raises OSError."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        os.fchmod(handle, FILE)
        file.write(text)


def tighten(data_dir: Path) -> list[Path]:
    """Make private what a station has left in its data folder with other rights, an older one say; returns what was
    changed. The folder itself too, if nothing but a station's files is in it: somebody may have named their home.
    What belongs to others stays as it is, and links are not followed."""
    try:
        names = os.listdir(data_dir)
    except OSError:  # not made yet; whoever makes it says what is wrong
        return []
    ours = [name for name in names if _is_ours(name)]
    found = [path for name in ours for path in (data_dir / name, *_below(data_dir / name))]
    if ours and len(ours) == len(names):
        found.append(data_dir)
    return [path for path in found if _tighten_one(path)]


def tighten_database(path: Path) -> None:
    """A SQLite file and what stands beside it, wherever it is."""
    for ending in ("", "-wal", "-shm", "-journal", ".lock"):
        _tighten_one(path.with_name(path.name + ending))


def _is_ours(name: str) -> bool:
    return any(name.startswith(known[:-1]) if known.endswith("*") else name == known for known in _OURS)


def _below(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):  # does not follow links
        yield from (Path(place, name) for name in (*folders, *files))


def _tighten_one(path: Path) -> bool:
    try:
        mode = os.lstat(path).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)) or not mode & 0o077:
            return False
        _change_mode(path, FOLDER if stat.S_ISDIR(mode) else FILE)
        return True
    except OSError:  # gone, or it belongs to another user
        return False


def _change_mode(path: Path, mode: int) -> None:
    """On Linux by a handle, so that nobody can put a link in its place meanwhile; O_PATH leaves the locks of SQLite."""
    if sys.platform != "linux":
        os.chmod(path, mode)
        return
    handle = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if stat.S_ISLNK(os.fstat(handle).st_mode):
            return
        os.chmod(f"/proc/self/fd/{handle}", mode)
    finally:
        os.close(handle)
