"""Alarms and rules of a real station on the live page: the table, its filters, what an operator does, the flood."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cli.conftest import StationProcess, station_process
from tests.web.browser import Page, open_page
from tests.web.test_flow_page import ask, press
from tests.web.test_points_page import row

HOSTILE = "<img src=x onerror=document.title='broken'>"
SOURCE = "comsrv:1001:m:1"
RULE: dict[str, Any] = {
    "id": "hot",
    "name": HOSTILE,
    "conditions": [{"field": "temperature", "source": SOURCE, "operator": ">", "value": "80"}],
    "actions": [{"type": "create_alarm", "parameters": {"level": "Critical", "title": "Too hot: {value} " + HOSTILE}}],
}


def send(station: StationProcess, value: float) -> None:
    ask(station, "POST", "points", {"channels": {"1001": {"m": {"1": value}}}})


@pytest.fixture(scope="module")
def station(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StationProcess]:
    with station_process(tmp_path_factory.mktemp("station")) as station:
        send(station, 20)
        ask(station, "POST", "rules", RULE)
        ask(station, "POST", "rules", {**RULE, "id": "off", "name": "never judged", "enabled": False})
        yield station


@pytest.fixture
def page(station: StationProcess) -> Iterator[Page]:
    with open_page() as page:
        page.open(station.url)
        page.wait_until("document.querySelectorAll('#rules tbody tr').length === 2")
        yield page


def choose(page: Page, name: str, value: str) -> None:
    page.evaluate(f"document.getElementById('alarm-{name}').value = {value!r}")
    page.evaluate(f"document.getElementById('alarm-{name}').dispatchEvent(new Event('change'))")


def answer(page: Page, label: str, **fields: str) -> None:
    page.wait_until("Boolean(document.querySelector('dialog'))")
    for name, value in {"who": "ada", **fields}.items():
        page.evaluate(f"document.getElementById('ask-{name}').value = {value!r}")
    press(page, "dialog", label)


def only(station: StationProcess, query: str) -> dict[str, Any]:
    (alarm,) = ask(station, "GET", f"alarms?{query}")["items"]
    return dict(ask(station, "GET", f"alarms/{alarm['id']}"))


def test_an_alarm_appears_is_acknowledged_shelved_shown_again_and_resolved(station: StationProcess, page: Page) -> None:
    page.wait_until("document.querySelector('#rules tbody').innerText.includes('inactive')")
    assert page.text("#alarms .empty") == "No open alarms."
    send(station, 85)
    shown = row(page, "alarms", "Too hot: 85")
    assert all(word in shown for word in ("Critical", "New", SOURCE, "85.0 (80.0)", "hot")), shown
    colour = page.evaluate("getComputedStyle(document.querySelector('#alarms .level')).backgroundColor")
    assert colour == "rgb(179, 38, 30)", "critical is red"
    assert page.evaluate("document.querySelectorAll('main img').length") == 0
    assert "active" in row(page, "rules", "ago"), "it has fired"
    assert "Last fired" in page.text("#rules thead") and "Last change" not in page.text("#rules thead")
    press(page, "#alarms tbody", "Acknowledge")
    answer(page, "Acknowledge", note="on my way")
    row(page, "alarms", "Acknowledged")
    found = only(station, "rule_id=hot")
    assert (found["acknowledged_by"], found["note"]) == ("ada", "on my way")
    press(page, "#alarms tbody", "Shelve")
    answer(page, "Shelve", minutes="soon")
    page.wait_until("document.getElementById('notice').innerText.includes('not a number')")
    press(page, "#alarms tbody", "Shelve")
    answer(page, "Shelve", minutes="30", note="fan is ordered")
    row(page, "alarms", "Suppressed")
    found = only(station, "rule_id=hot")
    assert found["journal"][-1]["note"] == "fan is ordered"
    assert 29 * 60_000 < found["shelved_until"] - found["last_seen"] < 32 * 60_000
    press(page, "#alarms tbody", "Unshelve")
    answer(page, "Unshelve")
    row(page, "alarms", "New")
    press(page, "#alarms tbody", "Resolve")
    answer(page, "Resolve", note="cooled")
    page.wait_until("document.querySelectorAll('#alarms tbody tr').length === 0")
    assert only(station, "rule_id=hot")["status"] == "Resolved"
    assert page.complaints == []


def test_a_test_says_what_a_rule_would_do_and_a_switch_turns_it_off(station: StationProcess, page: Page) -> None:
    send(station, 91)
    press(page, "#rules tbody tr:nth-child(1)", "Test")
    page.wait_until("Boolean(document.querySelector('dialog.report'))")
    told = page.text("dialog.report pre")
    assert "Level: true" in told and "temperature: true (91)" in told, told
    assert f"{SOURCE}: 91, good" in told and "create_alarm: Too hot: 91" in told, told
    press(page, "dialog", "Close")
    press(page, "#rules tbody tr:nth-child(2)", "Enable")
    page.wait_until("!document.querySelector('#rules tbody').innerText.includes('disabled')")
    press(page, "#rules tbody tr:nth-child(2)", "Disable")
    assert "no" in row(page, "rules", "disabled").split()
    assert ask(station, "GET", "rules/off")["enabled"] is False
    page.evaluate("document.getElementById('language').click()")
    page.wait_until("document.querySelector('#rules h2').innerText === '规则'")
    assert "已停用" in page.text("#rules tbody")
    assert page.text("#alarms h2") == "告警" and "所有级别" in page.text("#alarms .tools")
    page.evaluate("document.getElementById('language').click()")
    assert page.complaints == []


def test_filters_choose_by_level_and_status_and_a_flood_is_told_until_all_is_acknowledged(
    station: StationProcess, page: Page
) -> None:
    assert page.evaluate("document.getElementById('flood').hidden") is True
    for number in range(12):
        level = "Low" if number % 2 else "High"
        ask(station, "POST", "alarms", {"source": f"pump-{number}", "title": f"Pump {number} leaks", "level": level})
    page.wait_until("document.getElementById('flood').innerText.includes('come as a flood since')")
    rows = "[...document.querySelectorAll('#alarms tbody tr')]"
    page.wait_until(f"{rows}.filter(each => each.innerText.includes('leaks')).length === 12")
    choose(page, "level", "High")
    page.wait_until(f"{rows}.length === 6 && {rows}.every(each => each.innerText.includes('High'))")
    press(page, "#alarms .tools", "Acknowledge all shown")
    answer(page, "Acknowledge", note="the main valve")
    page.wait_until("document.getElementById('notice').innerText === '6 acknowledged.'")
    choose(page, "status", "Acknowledged")
    page.wait_until(f"{rows}.length === 6 && {rows}.every(each => each.innerText.includes('Acknowledged'))")
    choose(page, "status", "Closed")
    page.wait_until("document.querySelector('#alarms .empty').innerText === 'Nothing found.'")
    choose(page, "level", "")
    choose(page, "status", "Resolved")
    page.wait_until(f"{rows}.length > 0 && {rows}.every(each => each.innerText.includes('Resolved'))")
    choose(page, "status", "")
    page.wait_until(f"{rows}.filter(each => each.innerText.includes('leaks')).length === 12")
    assert page.complaints == []
