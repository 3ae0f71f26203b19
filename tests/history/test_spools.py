"""Several spools of one data folder: who gets which, in which order they are delivered, and the bound over all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.history.memory_sink import MemorySink
from tradewind.errors import Unavailable
from tradewind.history import late_rows
from tradewind.history.late_rows import LateRows
from tradewind.history.sample import Row
from tradewind.history.spool import Spool
from tradewind.history.spool_disk import SpoolFull
from tradewind.history.spools import MAX_SPOOLS, Spools

ONE = "comsrv:1001:m:1"
BIG, LONG_S = 1_000_000, 1e6


def rows(*numbers: int, value: float | None = None) -> list[Row]:
    return [Row(ONE, number, float(number) if value is None else value) for number in numbers]


def opened(folder: Path, term: int, max_bytes: int = BIG) -> Spools:
    spools = Spools(folder / "spool", max_bytes, LONG_S)
    spools.open(term)
    return spools


def drained(spools: Spools) -> list[tuple[float, bool]]:
    """The values in the order of their delivery, and whether they were late."""
    found: list[tuple[float, bool]] = []
    while (next_ := spools.peek(1000)) is not None:
        spool, portion = next_
        found += [(row.value, portion.is_late) for row in portion.rows]
        spools.ack(spool, portion.upto)
    return found


def test_who_finds_the_spool_taken_has_one_of_its_own_and_gets_the_other_when_it_is_free(tmp_path: Path) -> None:
    hung, second = opened(tmp_path, 1), opened(tmp_path, 2)
    hung.append(rows(1, 2), hung.steady_ms())
    second.append(rows(3), second.steady_ms())
    second.look_around()
    assert second.elsewhere_bytes == hung.size_bytes > 0
    assert drained(second) == [(3.0, False)]
    hung.close()
    second.look_around()
    assert second.elsewhere_bytes == 0 and not second.is_empty
    second.append(rows(4), second.steady_ms())
    assert drained(second) == [(1.0, True), (2.0, True), (4.0, False)]  # what was left goes first, and is late
    second.look_around()
    assert hung.is_empty and not second.is_anything_left
    third = Spool(tmp_path / "spool", BIG, LONG_S)
    third.open()  # whoever has emptied it lets it go
    third.close()
    second.close()


def test_what_the_term_before_left_is_not_late_and_what_an_earlier_one_left_is(tmp_path: Path) -> None:
    for term, expected in ((2, False), (4, True), (1, True)):
        folder = tmp_path / str(term)
        first = opened(folder, 1 if term != 1 else 5)
        first.append(rows(1), 0)
        first.close()
        next_ = opened(folder, term)
        next_.append(rows(2), 0)
        next_.close()
        again = opened(folder, term + 1)  # late stays late, whoever opens it then
        assert drained(again) == [(1.0, expected), (2.0, False)]
        again.close()


def test_of_several_that_were_left_the_newest_term_goes_first(tmp_path: Path) -> None:
    first, second = opened(tmp_path, 1), opened(tmp_path, 2)
    first.append(rows(1), 0)
    second.append(rows(2), 0)
    third = opened(tmp_path, 3)
    first.close()
    second.close()
    third.look_around()
    assert drained(third) == [(2.0, True), (1.0, True)]
    third.close()


def test_who_stands_by_opens_only_what_waits(tmp_path: Path) -> None:
    left = opened(tmp_path, 1)
    left.append(rows(1), 0)
    left.close()
    spools = Spools(tmp_path / "spool", BIG, LONG_S)
    spools.open_left()
    assert not spools.is_open and drained(spools) == [(1.0, True)]
    with pytest.raises(Unavailable) as caught:
        spools.append(rows(2), 0)
    assert caught.value.code == "spool_closed"
    spools.close()


def test_the_bound_holds_over_all_of_them(tmp_path: Path) -> None:
    most = 20_000
    hung, second = opened(tmp_path, 1, most), opened(tmp_path, 2, most)
    for number in range(0, 2000, 20):
        hung.append(rows(*range(number, number + 20)), hung.steady_ms())
    hung_bytes = hung.size_bytes
    assert most / 3 < hung_bytes <= most
    second.look_around()
    full = 0
    for number in range(10_000, 14_000, 20):
        try:
            second.append(rows(*range(number, number + 20)), second.steady_ms())
        except SpoolFull as error:
            assert "other processes" in error.message and "hangs" in error.hint
            full += 1
        assert hung.size_bytes + second.size_bytes <= most
    assert second.dropped.bytes + full > 0
    hung.close()  # now it may drop what it could not get at: that is older
    second.look_around()
    before = second.dropped.bytes
    for number in range(20_000, 21_000, 20):
        second.append(rows(*range(number, number + 20)), second.steady_ms())
        assert second.size_bytes <= most
    assert second.dropped.bytes > before
    kept = [value for value, _ in drained(second)]
    assert kept[-20:] == [float(number) for number in range(20_980, 21_000)]
    assert second.dropped.bytes + len(kept) + full * 20 == 2000 + 4000 + 1000  # each row is delivered or counted
    second.close()


def test_a_hung_spool_that_fills_the_bound_is_told_and_nothing_is_dropped(tmp_path: Path) -> None:
    hung = opened(tmp_path, 1, 3000)
    while hung.size_bytes < 2500:
        hung.append(rows(*range(hung.rows, hung.rows + 20)), 0)
    second = opened(tmp_path, 2, 3000)
    with pytest.raises(SpoolFull):
        second.append([Row(f"comsrv:1001:m:{n}", 1, n * 1.7) for n in range(500)], 0)
    assert second.dropped.bytes == hung.dropped.bytes
    hung.close()
    second.close()


def test_more_than_may_be_is_told(tmp_path: Path) -> None:
    all_of_them = [opened(tmp_path, term) for term in range(MAX_SPOOLS)]
    with pytest.raises(Unavailable) as caught:
        opened(tmp_path, 99)
    assert caught.value.code == "spool_taken"
    for spools in all_of_them:
        spools.close()


async def test_late_rows_fill_what_is_missing_and_correct_only_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late_rows, "READ_ROWS", 3)
    sink = MemorySink()
    await sink.write(rows(*range(0, 20, 2), value=-1.0))
    late = LateRows(sink)
    first = await late.missing(rows(*range(20), 500_000))  # far apart, and more than one answer holds
    assert [row.ts_ms for row in first] == [*range(1, 20, 2), 500_000]
    await sink.write(first)
    assert list(await late.missing([Row(ONE, 19, 7.0), Row(ONE, 18, 7.0)])) == [Row(ONE, 19, 7.0)]
    assert list(await LateRows(sink).missing(rows(19, 21))) == rows(21)
