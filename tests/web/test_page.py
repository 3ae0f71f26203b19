from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.web.browser import Page, open_page
from tradewind.web import PAGE_CSP, STATIC

HOSTILE = "<img src=x onerror=document.title='broken'>"
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


def snapshot() -> dict[str, Any]:
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    task = {"id": "t1", "type": HOSTILE, "status": "FAILED", "priority": "high", "attempt": 3, "worker_id": "w1"}
    task |= {"created_at": now, "started_at": now, "finished_at": now, "progress": None}
    task["error"] = {"type": "ValueError", "message": "no <b>bold</b>", "traceback": "line 1\nline 2"}
    worker = {"id": "w1", "name": "host:1", "status": "online", "capacity": 10, "load": 4, "queued": 1, "running": 3}
    worker |= {"types": ["echo"], "labels": [], "last_heartbeat": now, "address": ""}
    parts: dict[str, Any] = {
        "queues": [{"name": "high", "length": 1234, "paused": True}],
        "counts": {"SUCCESS": 10, "FAILED": 1},
        "workers": [worker],
        "tasks": [task],
    }
    health = {"status": "degraded", "parts": {"redis": {"status": "ok", "detail": "7.0.15"}}}
    known = {name: {"data": data, "at": now, "state": "current"} for name, data in parts.items()}
    return {"at": now, "health": health, **known}


class Station(ThreadingHTTPServer):
    """Serves the page and a stream of snapshots; clearing `is_up` breaks the streams and refuses new ones."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.is_up = threading.Event()
        self.is_up.set()
        self.is_closing = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"


class Handler(BaseHTTPRequestHandler):
    server: Station

    def do_GET(self) -> None:
        if self.path == "/api/v1/events":
            self.stream()
        elif self.path == "/openapi.json":
            self.answer(b'{"info": {"title": "Station seven", "version": "0.1.0"}}', "application/json")
        else:
            path = STATIC / (self.path.removeprefix("/static/") if self.path != "/" else "index.html")
            self.answer(path.read_bytes(), TYPES[path.suffix])

    def answer(self, body: bytes, content_type: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Security-Policy", PAGE_CSP)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def stream(self) -> None:
        if not self.server.is_up.is_set():
            self.send_error(503)
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        while self.server.is_up.is_set() and not self.server.is_closing.wait(0.2):
            self.wfile.write(f"event: snapshot\ndata: {json.dumps(snapshot())}\n\n".encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def station() -> Iterator[Station]:
    with Station() as server:
        thread = threading.Thread(target=server.serve_forever, name="stub-station")
        thread.start()
        yield server
        server.is_closing.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def page(station: Station) -> Iterator[Page]:
    with open_page() as page:
        page.open(station.url)
        page.wait_until("document.querySelectorAll('#tasks tbody tr').length === 1")
        yield page


def test_snapshot_is_shown_and_the_content_policy_is_kept(page: Page) -> None:
    page.wait_until("document.getElementById('version').textContent === 'v0.1.0'")
    assert page.text("#station") == "Station seven"
    assert page.text("#overall") == "degraded"
    assert "Redis" in page.text("#health") and "7.0.15" in page.text("#health")
    assert "1,234" in page.text("#queues") and "paused" in page.text("#queues")
    assert "4 / 10" in page.text("#workers")
    assert "FAILED" in page.text("#tasks")
    assert page.evaluate("document.getElementById('banner').hidden") is True
    assert page.complaints == []


def test_text_of_tasks_is_never_read_as_html(page: Page) -> None:
    assert HOSTILE in page.text("#tasks tbody")
    assert page.evaluate("document.querySelectorAll('main img, main b').length") == 0


def test_error_is_told_in_full_to_a_reader_with_a_keyboard(page: Page) -> None:
    page.evaluate("document.querySelector('#tasks td.outcome').focus()")
    assert page.text("#tip") == "ValueError: no <b>bold</b>\n\nline 1\nline 2"
    page.evaluate("document.dispatchEvent(new KeyboardEvent('keydown', {key: 'Escape'}))")
    assert page.evaluate("document.getElementById('tip').hidden") is True


def test_focus_survives_the_next_snapshot(page: Page) -> None:
    page.evaluate("document.querySelector('#tasks td.outcome').focus()")
    page.evaluate("before = document.getElementById('updated').textContent")
    page.wait_until("document.getElementById('updated').textContent !== before")
    assert page.evaluate("document.activeElement.classList.contains('outcome')") is True


def test_language_toggle_translates_the_page_and_is_remembered(page: Page, station: Station) -> None:
    page.evaluate("document.getElementById('language').click()")
    assert page.text("#queues h2") == "队列"
    page.open(station.url)
    page.wait_until("document.querySelector('#tasks h2')?.textContent === '最近任务'")
    assert page.evaluate("document.documentElement.lang") == "zh-CN"


def test_lost_stream_is_announced_and_found_again(page: Page, station: Station) -> None:
    station.is_up.clear()
    page.wait_until("document.body.dataset.stale === 'true'")
    assert page.text("#banner").startswith("Connection lost. Showing data of ")
    station.is_up.set()
    page.wait_until("document.body.dataset.stale === 'false' && document.getElementById('banner').hidden")


@pytest.mark.parametrize("path", sorted(STATIC.iterdir()), ids=lambda path: path.name)
def test_static_files_name_no_other_host_and_hold_nothing_inline(path: Path) -> None:
    text = path.read_text()
    hosts = [url for url in re.findall(r"(?:https?:)?//[\w.-]+\.\w+", text) if "www.w3.org" not in url]
    assert hosts == []
    if path.suffix == ".html":
        assert re.findall(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", text) == []
    assert "innerHTML" not in text
