"""Points, channels, models and commands of a real station on the live page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cli.conftest import StationProcess, station_process
from tests.web.browser import Page, open_page
from tests.web.test_flow_page import ask, press

HOSTILE = "<img src=x onerror=document.title='broken'>"
BATTERY: dict[str, Any] = {
    "id": 1001,
    "name": HOSTILE,
    "protocol": "virtual",
    "poll_interval_ms": 100,
    "points": [
        {"kind": "m", "id": 1, "name": "power", "unit": "kW", "mapping": {"expression": "a40001 * 2"}},
        {"kind": "c", "id": 30001, "name": "breaker", "select_first": True, "mapping": {"initial_value": 0}},
        {"kind": "a", "id": 40001, "name": "limit", "max": 100, "unit": "kW", "mapping": {"initial_value": 3}},
    ],
}
HALF = {
    "name": "half",
    "inputs": [{"name": "p", "source": "comsrv:1001:m:1"}],
    "calculations": [{"id": "x", "expression": "p / 2"}],
    "outputs": [{"field": "power", "source": "x", "unit": "kW"}],
    "controls": {"limit": {"address": "comsrv:1001:a:40001"}},
}

#: More than the page shows.
MANY = [{"kind": "m", "id": number, "name": f"Cell {number} voltage", "unit": "V"} for number in range(1, 251)]


@pytest.fixture(scope="module")
def station(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StationProcess]:
    with station_process(tmp_path_factory.mktemp("station")) as station:
        ask(station, "POST", "channels", BATTERY)
        ask(station, "POST", "channels", {"id": 1002, "protocol": "virtual", "enabled": False})
        ask(station, "POST", "models", HALF)
        ask(station, "POST", "points", {"channels": {"7": {"m": {"5": 1234.5}}}})
        ask(station, "POST", "channels", {"id": 1003, "protocol": "http", "points": MANY})
        yield station


@pytest.fixture
def page(station: StationProcess) -> Iterator[Page]:
    with open_page() as page:
        page.open(station.url)
        page.wait_until("document.querySelectorAll('#channels tbody tr').length === 4")
        yield page


def row(page: Page, panel: str, words: str) -> str:
    rows = f"[...document.querySelectorAll('#{panel} tbody tr')]"
    page.wait_until(f"{rows}.some(each => each.innerText.includes({words!r}))")
    return str(page.evaluate(f"{rows}.find(each => each.innerText.includes({words!r})).innerText"))


def give(page: Page, value: str) -> None:
    page.wait_until("Boolean(document.getElementById('ask-value'))")
    page.evaluate(f"document.getElementById('ask-value').value = {value!r}")
    page.evaluate("document.getElementById('ask-who').value = 'ada'")
    press(page, "dialog", "Go on")
    page.wait_until("document.querySelector('dialog')?.innerText.includes('This changes something at a device')")
    press(page, "dialog", "Send")


def test_values_are_shown_live_and_a_command_changes_them(station: StationProcess, page: Page) -> None:
    page.wait_until("document.querySelector('#points tbody')?.innerText.includes('good')")
    page.wait_until("document.querySelector('#points tbody')?.innerText.includes('power')")  # what they are called
    assert "kW" in row(page, "points", "comsrv:1001:m:1")
    press(page, "#points tr:nth-child(3)", "Set")
    give(page, "21.5")
    page.wait_until("[...document.querySelectorAll('#points tbody tr')][0].innerText.includes('43')")
    page.wait_until("document.querySelector('#models tbody').innerText.includes('power 21.5 kW')")
    assert "success" in row(page, "commands", "comsrv:1001:a:40001")
    press(page, "#points tr:nth-child(2)", "Set")
    give(page, "1")
    assert "ada" in row(page, "commands", "comsrv:1001:c:30001"), "it was selected first"
    assert page.evaluate("document.querySelectorAll('main img').length") == 0
    assert all("409" in complaint for complaint in page.complaints), "only the refusal that asks to select"


def test_a_value_out_of_bounds_is_refused_with_the_reason(page: Page) -> None:
    press(page, "#models tbody", "Set limit")
    give(page, "500")
    page.wait_until("document.getElementById('notice').innerText.includes('at most 100 kW')")


def test_channels_say_how_they_are_and_show_their_points(station: StationProcess, page: Page) -> None:
    page.wait_until("document.querySelector('#channels tbody')?.innerText.includes('online')")
    assert "disabled" in row(page, "channels", "1002")
    assert "pushed" in page.text("#channels tbody") and HOSTILE in page.text("#channels tbody")
    press(page, "#channels tbody", "7")
    assert "1,234.5" in row(page, "points", "comsrv:7:m:5")
    press(page, "#models tbody", "half")
    row(page, "points", "modsrv:half:measurement:power")
    press(page, "#channels tr:nth-child(2)", "Reload")
    page.wait_until("document.getElementById('notice').innerText.includes('reloading')")
    page.evaluate("document.getElementById('language').click()")
    assert page.text("#points h2") == "点位" and "良好" in page.text("#points tbody")
    page.evaluate("document.getElementById('language').click()")
    assert page.complaints == []


def search(page: Page, text: str) -> None:
    page.evaluate(f"document.getElementById('point-search').value = {text!r}")
    page.evaluate("document.getElementById('point-search').dispatchEvent(new Event('input'))")


def test_a_search_finds_points_anywhere_by_address_and_name_and_shows_them_live(
    station: StationProcess, page: Page
) -> None:
    page.wait_until("document.querySelector('#points tbody')?.innerText.includes('good')")
    search(page, "CELL 237")
    page.wait_until("document.querySelectorAll('#points tbody tr').length === 1")
    assert "Cell 237 voltage" in row(page, "points", "comsrv:1003:m:237")
    ask(station, "POST", "points", {"channels": {"1003": {"m": {"237": 3.71}}}})
    page.wait_until("document.querySelector('#points tbody').innerText.includes('3.71')")
    search(page, "voltage")
    page.wait_until("document.querySelector('#points .head').innerText.includes('200 of 250 shown')")
    search(page, ":m:5")
    assert "1,234.5" in row(page, "points", "comsrv:7:m:5"), "pushed ones, too"
    search(page, "half:meas")
    row(page, "points", "modsrv:half:measurement:power")
    search(page, HOSTILE)
    page.wait_until("document.querySelector('#points .empty').innerText === 'Nothing found.'")
    search(page, "")
    assert "kW" in row(page, "points", "comsrv:1001:m:1")
    press(page, "#channels tbody", "7")
    row(page, "points", "comsrv:7:m:5")
    assert page.complaints == []
