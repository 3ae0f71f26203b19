"""JSON as it is stored and sent: what would silently become null is found wherever it hides."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tradewind.codec import has_non_finite


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("hide", [lambda x: x, lambda x: {"a": x}, lambda x: [1, x], lambda x: (1, [{"a": {"b": x}}])])
def test_a_number_that_is_none_is_found_anywhere(bad: float, hide: Any) -> None:
    assert has_non_finite(hide(bad)) is True
    assert has_non_finite(hide(1.5)) is False
    assert has_non_finite(hide("NaN")) is False
