"""The trend of a point on the live page of a real station."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.conftest import StationProcess, station_process
from tests.web.browser import Page, open_page
from tests.web.test_flow_page import ask, press
from tradewind.clock import now_ms

SERIES = "comsrv:7:m:5"


@pytest.fixture(scope="module")
def station(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StationProcess]:
    with station_process(tmp_path_factory.mktemp("station")) as station:
        ask(station, "POST", "points", {"channels": {"7": {"m": {"5": 10.0}}}})
        now = now_ms()
        # Half an hour of samples, with a silence of ten minutes in it.
        at = [now - ms for ms in range(60_000, 1_800_000, 5000) if not 600_000 < ms < 1_200_000]
        ask(station, "POST", "history/import", {"rows": [[SERIES, ts, 10 + (ts // 5000) % 4] for ts in at]})
        yield station


@pytest.fixture
def page(station: StationProcess) -> Iterator[Page]:
    with open_page() as page:
        page.open(station.url)
        page.wait_until("document.querySelector('#points tbody')?.innerText.includes('comsrv:7:m:5')")
        yield page


def line(page: Page) -> str:
    return str(page.evaluate("document.querySelector('#trend .line')?.getAttribute('d') ?? ''"))


def test_a_point_that_is_pressed_shows_its_trend(station: StationProcess, page: Page) -> None:
    assert page.text("#trend .empty") == "Press the address of a point, or type one."
    press(page, "#points tbody", SERIES)
    page.wait_until("Boolean(document.querySelector('#trend .line')?.getAttribute('d'))")
    drawn = line(page)
    assert drawn.count("L") > 100
    assert drawn.count("M") >= 2, "the silence is a hole in the line"
    assert page.evaluate("document.getElementById('trend-address').value") == SERIES
    told = str(page.evaluate("document.querySelector('#trend svg').getAttribute('aria-label')"))
    assert told.startswith(f"{SERIES}: between 9.85 and 13.15")
    page.evaluate(
        "(() => { const svg = document.querySelector('#trend svg'), box = svg.getBoundingClientRect();"
        " svg.dispatchEvent(new PointerEvent('pointermove', {clientX: box.right - 20, clientY: box.top + 9})) })()"
    )
    assert "…" in page.text("#trend .trend-told")
    page.evaluate("document.getElementById('language').click()")
    assert page.text("#trend h2") == "趋势"
    page.evaluate("document.getElementById('language').click()")
    assert page.complaints == []


def choose(page: Page, field: str, value: str) -> None:
    page.evaluate(f"document.getElementById({field!r}).value = {value!r}")
    page.evaluate(f"document.getElementById({field!r}).dispatchEvent(new Event('change'))")


def test_range_and_point_can_be_chosen(station: StationProcess, page: Page) -> None:
    choose(page, "trend-address", SERIES)
    page.wait_until("Boolean(document.querySelector('#trend .line')?.getAttribute('d'))")
    of_an_hour = line(page)
    choose(page, "trend-range", "7d")
    page.wait_until(f"(document.querySelector('#trend .area')?.getAttribute('d') ?? {of_an_hour!r}) !== {of_an_hour!r}")
    choose(page, "trend-address", "comsrv:7:m:404")
    page.wait_until("document.querySelector('#trend .empty').innerText === 'Nothing was recorded in this time.'")
    assert page.evaluate("document.querySelector('#trend svg').hasAttribute('hidden')")
    assert page.complaints == []
    choose(page, "trend-address", "<img src=x>")
    page.wait_until("document.querySelector('#trend .empty').innerText.includes('is no address')")
    assert page.evaluate("document.querySelectorAll('main img').length") == 0
    assert all("422" in complaint for complaint in page.complaints)
