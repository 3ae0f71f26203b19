"""What the bounded connection relies on in uvicorn's private parts: a new version that moves them fails here."""

from __future__ import annotations

import inspect
from typing import Any

import httptools
import pytest
import uvicorn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from tradewind.api.connection import Connection

PROTOCOL = {
    "connection_made": ["transport"],
    "connection_lost": ["exc"],
    "data_received": ["data"],
    "on_message_begin": [],
    "on_url": ["url"],
    "on_header": ["name", "value"],
    "on_headers_complete": [],
    "on_body": ["body"],
    "on_message_complete": [],
    "on_response_complete": [],
    "_start_asgi_task": ["cycle", "app"],
    "_unset_keepalive_if_required": [],
}


@pytest.mark.parametrize("name", PROTOCOL)
def test_every_method_that_is_changed_or_called_is_there(name: str) -> None:
    assert list(inspect.signature(getattr(HttpToolsProtocol, name)).parameters)[1:] == PROTOCOL[name]


def test_nothing_is_overridden_but_what_is_listed() -> None:
    ours = {name for name, value in vars(Connection).items() if inspect.isfunction(value)}
    theirs = {name for name, value in vars(HttpToolsProtocol).items() if inspect.isfunction(value)}
    assert (ours & theirs) - {"__init__"} == set(PROTOCOL) - {"_unset_keepalive_if_required"}


def test_every_field_that_is_read_or_set_is_there() -> None:
    fields = _assigned(HttpToolsProtocol)
    assert {"cycle", "pipeline", "flow", "transport", "headers", "parser", "connections", "loop"} <= fields
    fields = _assigned(RequestResponseCycle)
    assert {
        "disconnected", "keep_alive", "message_event", "more_body", "response_complete", "response_started",
        "waiting_for_100_continue",
    } <= fields  # fmt: skip
    assert {"read_paused", "write_paused"} <= _assigned(FlowControl)
    assert list(inspect.signature(uvicorn.Server.on_tick).parameters) == ["self", "counter"]


def _assigned(kind: type) -> set[str]:
    """Fields that its constructor sets."""
    return set(kind.__init__.__code__.co_names)  # type: ignore[misc]


def test_the_parser_gathers_a_header_by_itself_and_calls_for_trailers() -> None:
    """The bound on heads counts what comes without a call; trailers come as headers after the head."""
    calls: list[tuple[str, Any]] = []

    class Told:
        def on_url(self, url: bytes) -> None:
            calls.append(("url", url))

        def on_header(self, name: bytes, value: bytes) -> None:
            calls.append(("header", name))

        def on_headers_complete(self) -> None:
            calls.append(("head", None))

    parser = httptools.HttpRequestParser(Told())
    parser.feed_data(b"POST /a")
    parser.feed_data(b"b HTTP/1.1\r\nTransfer-Encoding: chunked\r\nX: ")
    assert calls == [("url", b"/a"), ("url", b"b"), ("header", b"Transfer-Encoding")]
    calls.clear()
    parser.feed_data(b"y" * 1000)
    assert calls == []
    parser.feed_data(b"\r\n\r\n0\r\nLate: z\r\n\r\n")
    assert calls == [("header", b"X"), ("head", None), ("header", b"Late")]
