"""The spool: what was appended comes back in order after a crash, damage costs only what it hit, bounds are counted."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tradewind.errors import Unavailable
from tradewind.history.sample import Row
from tradewind.history.spool import Spool
from tradewind.history.spool_disk import SpoolFull
from tradewind.history.spool_file import HEAD_BYTES, read_heads

BIG, LONG_S, NOW = 1_000_000_000, 1e6, 1_700_000_000_000


def rows_of(first: int, count: int = 10) -> list[Row]:
    return [Row("comsrv:1001:m:1", NOW + n, n / 7, n % 3) for n in range(first, first + count)]


def spool_in(folder: Path, max_bytes: int = BIG, max_age_s: float = LONG_S) -> Spool:
    spool = Spool(folder, max_bytes, max_age_s)
    spool.open()
    return spool


def drained(spool: Spool, max_rows: int = 25) -> list[Row]:
    found: list[Row] = []
    while (portion := spool.peek(max_rows)) is not None:
        found += portion.rows
        spool.ack(portion.upto)
    return found


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.seg"))


def spoil(path: Path, offset: int, count: int = 1) -> None:
    data = bytearray(path.read_bytes())
    for at in range(offset, offset + count):
        data[at] ^= 0xFF
    path.write_bytes(data)


def test_rows_come_back_in_order_and_the_folder_is_empty_then(tmp_path: Path) -> None:
    spool = spool_in(tmp_path)
    for n in range(20):
        spool.append(rows_of(n * 10), NOW)
    assert spool.rows == 200 and not spool.is_empty and spool.oldest_ms == NOW
    assert drained(spool) == rows_of(0, 200)
    assert spool.is_empty and spool.rows == 0 and spool.size_bytes == 0
    assert segments(tmp_path) == []
    spool.append(rows_of(200), NOW)
    assert drained(spool) == rows_of(200)


def test_what_was_acknowledged_is_not_read_again_after_a_restart(tmp_path: Path) -> None:
    spool = spool_in(tmp_path)
    for n in range(4):
        spool.append(rows_of(n * 10), NOW)
    portion = spool.peek(20)
    assert portion is not None and portion.rows == rows_of(0, 20)
    spool.ack(portion.upto)
    assert spool.peek(5).rows == rows_of(20)  # type: ignore[union-attr]  # read, not acknowledged
    spool.close()
    assert drained(spool_in(tmp_path)) == rows_of(20, 20)


def test_a_lost_position_only_means_reading_again(tmp_path: Path) -> None:
    spool = spool_in(tmp_path)
    for n in range(3):
        spool.append(rows_of(n * 10), NOW)
    spool.ack(spool.peek(1).upto)  # type: ignore[union-attr]
    spool.close()
    (tmp_path / "position").write_bytes(b"torn")
    again = spool_in(tmp_path)
    assert drained(again) == rows_of(0, 30)
    assert again.dropped.corrupt == 0


@pytest.mark.parametrize("lost", [1, HEAD_BYTES, HEAD_BYTES + 3, -1])
def test_a_torn_tail_costs_only_the_torn_record(tmp_path: Path, lost: int) -> None:
    spool = spool_in(tmp_path)
    for n in range(3):
        spool.append(rows_of(n * 10), NOW)
    spool.close()
    path = segments(tmp_path)[0]
    last = read_heads(path)[-1]
    os.truncate(path, last.offset + lost if lost > 0 else last.next_offset + lost)
    again = spool_in(tmp_path)
    assert again.torn_bytes > 0
    again.append(rows_of(90), NOW)
    again.close()
    third = spool_in(tmp_path)
    assert third.torn_bytes == 0
    assert drained(third) == rows_of(0, 20) + rows_of(90)
    assert third.dropped.corrupt == 0


def test_a_last_record_whose_data_never_reached_the_disk_is_torn_and_not_damage(tmp_path: Path) -> None:
    spool = spool_in(tmp_path)
    for n in range(2):
        spool.append(rows_of(n * 10), NOW)
    spool.close()
    path = segments(tmp_path)[0]
    last = read_heads(path)[-1]
    spoil(path, last.offset + HEAD_BYTES, last.length)  # the size was stored and the data was not
    again = spool_in(tmp_path)
    assert again.torn_bytes == last.next_offset - last.offset
    again.append(rows_of(10), NOW)  # the cursor had not moved: it comes again
    again.close()
    third = spool_in(tmp_path)
    assert drained(third) == rows_of(0, 20)
    assert third.dropped.corrupt == 0


def test_a_tail_of_zeros_is_torn_too(tmp_path: Path) -> None:
    spool = spool_in(tmp_path)
    spool.append(rows_of(0), NOW)
    spool.close()
    with open(segments(tmp_path)[0], "ab") as file:
        file.write(bytes(5000))  # what a file system leaves when the size was stored and the data was not
    again = spool_in(tmp_path)
    assert again.torn_bytes == 5000
    assert drained(again) == rows_of(0)


@pytest.mark.parametrize("where", ["head", "payload", "magic", "both"])
@pytest.mark.parametrize("is_last_segment", [True, False])
def test_damage_in_the_middle_costs_only_what_it_hit_and_is_counted(
    tmp_path: Path, where: str, is_last_segment: bool
) -> None:
    spool = spool_in(tmp_path)
    for n in range(5):
        spool.append(rows_of(n * 10), NOW)
    spool.close()
    if not is_last_segment:
        spool = spool_in(tmp_path)
        spool.append(rows_of(50), NOW)
        spool.close()
    path = segments(tmp_path)[0]
    second = read_heads(path)[1]
    if where in ("head", "both"):
        spoil(path, second.offset + 6)
    if where in ("payload", "both"):
        spoil(path, second.offset + HEAD_BYTES + 5, 3)
    if where == "magic":
        spoil(path, second.offset, 4)
    again = spool_in(tmp_path)
    expected = rows_of(0) + rows_of(20, 30 if is_last_segment else 40)
    assert drained(again) == expected
    assert again.dropped.corrupt == 10
    again.close()
    assert spool_in(tmp_path).dropped.corrupt == 10


def test_a_segment_that_vanished_is_counted(tmp_path: Path) -> None:
    spool = spool_in(tmp_path)
    spool.append(rows_of(0), NOW)
    segments(tmp_path)[0].unlink()
    assert spool.peek(10) is None
    assert spool.dropped.corrupt == 10


def test_beyond_its_bytes_the_oldest_segment_goes_and_is_counted(tmp_path: Path) -> None:
    spool = spool_in(tmp_path, max_bytes=20_000)
    for n in range(400):
        spool.append(rows_of(n * 10), NOW)
        assert sum(path.stat().st_size for path in segments(tmp_path)) <= 20_000
    assert len(segments(tmp_path)) >= 6  # it goes piece by piece, not all at once
    left = drained(spool)
    assert left == rows_of(4000 - len(left), len(left))
    assert 0 < spool.dropped.bytes == 4000 - len(left)
    spool.close()
    assert spool_in(tmp_path).dropped.bytes == 4000 - len(left)


def test_only_rows_that_nobody_took_count_as_dropped(tmp_path: Path) -> None:
    spool = spool_in(tmp_path, max_bytes=3000)
    spool.append(rows_of(0), NOW)
    portion = spool.peek(10)
    assert portion is not None
    n = 1
    while not spool.dropped.bytes:
        spool.append(rows_of(n * 10), NOW)
        n += 1
    spool.ack(portion.upto)  # was being delivered when it was dropped: does no harm
    assert spool.rows + spool.dropped.bytes == n * 10
    assert drained(spool)[-1] == rows_of(n * 10 - 1, 1)[0]


def test_beyond_their_age_segments_go_and_are_counted(tmp_path: Path) -> None:
    spool = spool_in(tmp_path, max_age_s=60)
    spool.append(rows_of(0), NOW)
    spool.close()
    spool = spool_in(tmp_path, max_age_s=60)  # a segment of its own
    spool.append(rows_of(10), NOW + 50_000)
    spool.expire(NOW + 59_999)
    assert spool.rows == 20
    spool.expire(NOW + 60_000)
    assert spool.dropped.age == 10
    assert drained(spool) == rows_of(10)


def test_ages_are_not_by_a_clock_that_somebody_sets(tmp_path: Path) -> None:
    """Written before the time of the machine was set, and left by a process that was down for long."""
    spool = spool_in(tmp_path, max_age_s=60)
    spool.append(rows_of(0), 1000)
    spool.close()
    for first in (10, 20):
        spool = spool_in(tmp_path, max_age_s=60)
        spool.expire(spool.steady_ms())
        spool.append(rows_of(first), spool.steady_ms())
        assert spool.steady_ms() < 61_000
        spool.close()
    spool = spool_in(tmp_path, max_age_s=60)
    spool.expire(spool.steady_ms())
    assert drained(spool) == rows_of(0, 30) and spool.dropped.age == 0


def test_its_clock_goes_and_begins_with_that_of_the_machine(tmp_path: Path) -> None:
    spool = spool_in(tmp_path, max_age_s=0.02)
    assert abs(spool.steady_ms() - time.time() * 1000) < 5000
    spool.append(rows_of(0), spool.steady_ms())
    time.sleep(0.03)
    spool.expire(spool.steady_ms())
    assert spool.is_empty and spool.dropped.age == 10


def test_damage_before_the_torn_record_at_the_end_is_counted(tmp_path: Path) -> None:
    spool = spool_in(tmp_path)
    for n in range(4):
        spool.append(rows_of(n * 10), NOW)
    spool.close()
    (path,) = segments(tmp_path)
    heads = read_heads(path)
    for head in heads[2:]:
        spoil(path, head.offset + HEAD_BYTES)
    spool = spool_in(tmp_path)
    assert spool.dropped.corrupt == 10 and spool.torn_bytes > 0
    assert drained(spool) == rows_of(0, 20)
    spool.close()
    assert spool_in(tmp_path).dropped.corrupt == 10


@pytest.mark.parametrize("is_moved", [False, True])
def test_a_folder_that_is_removed_is_made_again_and_its_rows_are_counted(tmp_path: Path, is_moved: bool) -> None:
    folder = tmp_path / "spool"
    spool = spool_in(folder)
    spool.append(rows_of(0), NOW)
    portion = spool.peek(100)
    if is_moved:
        folder.rename(tmp_path / "elsewhere")
    else:
        shutil.rmtree(folder)
    spool.append(rows_of(10), NOW)
    assert portion is not None and spool.dropped.corrupt == 10
    spool.ack(portion.upto)  # of the rows that were there before: not of the new ones
    spool.close()
    spool = spool_in(folder)
    assert spool.dropped.corrupt == 10 and drained(spool) == rows_of(10)


def test_a_segment_that_is_removed_while_it_is_written_takes_no_more(tmp_path: Path) -> None:
    spool = spool_in(tmp_path)
    spool.append(rows_of(0), NOW)
    segments(tmp_path)[0].unlink()
    spool.append(rows_of(10), NOW)
    assert drained(spool) == rows_of(10) and spool.dropped.corrupt == 10


def test_one_process_at_a_time(tmp_path: Path) -> None:
    spool = spool_in(tmp_path)
    with pytest.raises(Unavailable, match="another process") as caught:
        spool_in(tmp_path)
    assert caught.value.code == "spool_taken"
    spool.append(rows_of(0), NOW)
    spool.close()
    assert drained(spool_in(tmp_path)) == rows_of(0)


def test_every_batch_is_synced_before_append_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[str, int]] = []
    real = os.fdatasync

    def noted(file: int) -> None:
        real(file)
        synced.append((os.readlink(f"/proc/self/fd/{file}"), os.fstat(file).st_size))

    monkeypatch.setattr(os, "fdatasync", noted)
    spool = spool_in(tmp_path)
    for n in range(3):
        spool.append(rows_of(n * 10), NOW)
        path = segments(tmp_path)[0]
        assert synced[-1] == (str(path), path.stat().st_size)


def test_a_batch_that_cannot_be_synced_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = spool_in(tmp_path)
    spool.append(rows_of(0), NOW)

    def broken(file: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", broken)
        with pytest.raises(Unavailable, match="Input/output"):
            spool.append(rows_of(10), NOW)
    spool.append(rows_of(20), NOW)
    assert drained(spool) == rows_of(0) + rows_of(20)
    assert spool.dropped.corrupt == 0


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True)
    if made.returncode:
        pytest.skip("a tmpfs cannot be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_takes_nothing_and_breaks_nothing(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "256k") as disk:
        spool = spool_in(disk / "spool")
        taken = 0
        with pytest.raises(SpoolFull, match="disk is full"):
            while True:
                spool.append(rows_of(taken, 100), NOW)
                taken += 100
        with pytest.raises(SpoolFull):
            spool.append(rows_of(taken, 1000), NOW)
        assert spool.rows == taken > 0
        assert sum(path.stat().st_size for path in segments(disk / "spool")) == spool.size_bytes  # no halves are left
        spool.close()
        spool = spool_in(disk / "spool")  # also after a restart
        assert spool.rows == taken
        first = spool.peek(taken // 2)
        assert first is not None
        spool.ack(first.upto)
        found = [*first.rows, *drained(spool)]
        spool.append(rows_of(taken, 100), NOW)  # there is space again
        assert found + drained(spool) == rows_of(0, taken + 100)
        assert spool.dropped.corrupt == spool.dropped.bytes == 0
        spool.close()


def test_a_killed_process_leaves_all_that_append_took(tmp_path: Path) -> None:
    """`python -m tests.history.spool_process FOLDER` says after each append how many rows are safe."""
    safe = 0
    for _ in range(4):
        argv = [sys.executable, "-m", "tests.history.spool_process", str(tmp_path), str(safe)]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            for line in process.stdout:
                safe = int(line)
                if safe % 500 == 0:
                    break
        finally:
            process.kill()
            rest = process.stdout.read().split()
            process.wait()
        complete = [int(word) for word in rest[:-1]]
        safe = max([safe, *complete])
        spool = spool_in(tmp_path)
        safe = max(safe, spool.rows)  # one more may have been taken that nobody was told of
        assert spool.rows == safe
        spool.close()
    assert drained(spool_in(tmp_path)) == rows_of(0, safe)
