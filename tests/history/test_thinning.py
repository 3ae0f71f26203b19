"""Which changes the thinner lets through, row by row."""

from __future__ import annotations

import pytest

from tradewind.history.policy import Thinning
from tradewind.history.sample import BAD, Row
from tradewind.history.thinning import Thinner

S = "comsrv:1:m:1"
WIDE, SLOW = Thinning(1.0, 0), Thinning(0.0, 1000)


def taken(thinning: Thinning, *rows: tuple[int, float] | tuple[int, float, int]) -> list[bool]:
    thinner = Thinner()
    return [thinner.take(Row(S, *row), thinning, 0.0) for row in rows]


@pytest.mark.parametrize(
    ("thinning", "rows", "expected"),
    [
        (WIDE, [(10, 5.0), (20, 5.9), (30, 6.0)], [True, False, True]),
        (WIDE, [(10, 5.0), (10, 5.5)], [True, True]),  # a correction of the same moment
        (WIDE, [(10, 5.0), (20, 5.1, BAD), (30, 5.2, BAD), (40, 5.3)], [True, True, False, True]),
        (SLOW, [(1000, 5.0), (1999, 9.0), (2000, 7.0)], [True, False, True]),
        # An older row, as after a board that began anew: recorded, and what follows is judged as before.
        (WIDE, [(100, 5.0), (50, 5.1), (60, 5.2), (110, 5.3), (120, 6.0)], [True, True, True, False, True]),
        (SLOW, [(5000, 5.0), (100, 9.0), (5500, 7.0), (6000, 8.0)], [True, True, False, True]),
    ],
)
def test_rows_are_taken_or_left_out(
    thinning: Thinning, rows: list[tuple[int, float] | tuple[int, float, int]], expected: list[bool]
) -> None:
    assert taken(thinning, *rows) == expected


def test_an_older_row_drops_nothing_that_is_held_back() -> None:
    thinner = Thinner()
    assert thinner.take(Row(S, 5000, 1.0), SLOW, 0.0)
    assert not thinner.take(Row(S, 5500, 2.0), SLOW, 0.0)
    assert thinner.take(Row(S, 100, 9.0), SLOW, 0.0)
    assert (thinner.newest_ms(S), thinner.left_out) == (5500, 0)
    assert thinner.due(0.9) == [] and thinner.due(1.0) == [Row(S, 5500, 2.0)]
    assert not thinner.is_holding
