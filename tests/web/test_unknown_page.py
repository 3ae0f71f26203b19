"""A station whose store is frozen (SIGSTOP): the page says what it does not know, and never that there is nothing."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import redis

from tests.cli.conftest import StationProcess, station_process
from tests.web.browser import Page, open_page
from tests.web.test_alarms_page import RULE, send
from tests.web.test_flow_page import ask
from tests.web.test_points_page import row

QUALITY = "document.querySelector('#points tbody .status')?.textContent"


@contextmanager
def frozen(station: StationProcess) -> Iterator[None]:
    with redis.Redis(unix_socket_path=str(station.data / "redis" / "redis.sock")) as client:
        pid = int(client.info("server")["process_id"])
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def knowledge(name: str) -> str:
    """As the page has it of a panel; null before that is there."""
    return f"(document.getElementById({name!r})?.dataset.known ?? null)"


def shows(page: Page, name: str, state: str) -> None:
    page.wait_until(f"{knowledge(name)} === {state!r}", 30)


def test_with_a_critical_alarm_open_a_frozen_store_is_never_shown_as_no_alarm(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("station")
    with station_process(folder) as station:
        send(station, 20)
        ask(station, "POST", "rules", RULE)
        with open_page() as page:
            page.open(station.url)
            page.wait_until("document.querySelector('#rules tbody')?.innerText.includes('inactive')")
            send(station, 85)
            assert "Critical" in row(page, "alarms", "Too hot: 85")
            page.wait_until(f"{QUALITY} === 'good'")
            with frozen(station):
                shows(page, "alarms", "stale")
                assert "Too hot: 85" in page.text("#alarms tbody"), "what was known stands, with its age"
                assert "as of" in page.text("#alarms .head")
                page.wait_until(f"{QUALITY} === 'unknown'", 30)
                shows(page, "rules", "stale")
            shows(page, "alarms", "current")
            page.wait_until(f"{QUALITY} === 'good'", 30)
        with frozen(station), open_page() as page:  # one that is opened while nobody can be asked
            page.open(station.url)
            shows(page, "rules", "unknown")
            shown = page.text("main")
            for word in ("No open alarms", "No rules", "No worker is registered", "No tasks yet", "No flows yet"):
                assert word not in shown, word
            assert page.evaluate(knowledge("alarms")) in ("stale", "unknown")


def test_an_api_that_never_had_an_answer_says_that_nothing_is_known(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Nobody has watched before the store froze: no part was ever answered."""
    folder = tmp_path_factory.mktemp("station")
    with station_process(folder) as station, frozen(station), open_page() as page:
        page.open(station.url)
        shows(page, "alarms", "unknown")
        assert page.text("#alarms .empty") == "Not known: the station has not been able to tell yet."
        assert page.evaluate(knowledge("queues")) == "unknown"
        assert "–" in page.text("#throughput") and "0" not in page.text("#throughput .counts")
