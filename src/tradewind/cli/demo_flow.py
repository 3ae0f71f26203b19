"""The decision loop of `tradewind demo`: a flow that looks at a price every two seconds and decides."""

from __future__ import annotations

from typing import Any

from tradewind.cli.http import Http

FLOW: dict[str, Any] = {
    "id": "decision-loop",
    "description": "Buy while the price is below its average.",
    "interval": 2,
    "nodes": [
        {"id": "price", "type": "constant", "config": {"value": {"last": 98.5, "closes": [101.0, 99.5, 102.25]}}},
        {"id": "average", "type": "expression", "config": {"expression": 'avg(price["closes"])'}},
        {"id": "cheap", "type": "condition", "config": {"expression": 'price["last"] < average'}},
        {"id": "buy", "type": "log", "config": {"message": "would buy"}},
        {"id": "wait", "type": "log", "config": {"message": "would wait"}},
    ],
    "edges": [
        {"source": "price", "source_handle": "value", "target": "average", "target_handle": "price"},
        {"source": "price", "source_handle": "value", "target": "cheap", "target_handle": "price"},
        {"source": "average", "source_handle": "result", "target": "cheap", "target_handle": "average"},
        {"source": "cheap", "source_handle": "true", "target": "buy", "target_handle": "value"},
        {"source": "cheap", "source_handle": "false", "target": "wait", "target_handle": "value"},
    ],
}


def start(http: Http) -> None:
    http.post("/flows", FLOW)
    http.post(f"/flows/{FLOW['id']}/start")


def stop(http: Http) -> dict[str, Any]:
    """Let the running cycle end; how many cycles of the last ones ended how."""
    http.post(f"/flows/{FLOW['id']}/drain")
    ends: dict[str, int] = {}
    for cycle in http.get(f"/flows/{FLOW['id']}/cycles")["items"]:
        ends[cycle["status"]] = ends.get(cycle["status"], 0) + 1
    return ends
