"""Where an export is written to: a file takes its name when it is whole, what is no file stays what it is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tradewind.cli import history_file


@pytest.mark.parametrize("what", ["pipe", "link"])
def test_an_export_leaves_what_is_no_file_as_it_is(tmp_path: Path, what: str) -> None:
    """As root, `-o /dev/null` removes the device."""
    path = tmp_path / "out"
    if what == "pipe":
        os.mkfifo(path)
        reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        history_file._write(iter([b"ts\n"]), str(path))
        os.close(reader)
        assert path.is_fifo()
    else:
        (tmp_path / "real").write_text("")
        path.symlink_to(tmp_path / "real")
        history_file._write(iter([b"ts\n"]), str(path))
        assert path.is_symlink() and (tmp_path / "real").read_text() == "ts\n"
