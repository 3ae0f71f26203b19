"""The "full" form, as a graphical editor saves a flow, made into the plain form.

Nodes carry `position` and `data`; `data.config` and `data.inputs[].value` become the config. Whatever only the editor
needs is left out, but a word that looks like a misspelt one of ours stays, so that it is reported.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection
from functools import lru_cache
from typing import Any

from tradewind.flows.syntax_fields import Report
from tradewind.problems import MOST_LETTERS

#: Words of editors that resemble ours.
_EDITOR = frozenset(
    ["label", "handles", "inputs", "outputs", "type", "source", "target", "node", "edge", "name", "version"]
)


def is_full(document: dict[str, Any]) -> bool:
    nodes = document.get("nodes")
    if "viewport" in document:
        return True
    return isinstance(nodes, list) and any(
        isinstance(node, dict) and ("position" in node or isinstance(node.get("data"), dict)) for node in nodes
    )


def to_plain(
    document: dict[str, Any],
    report: Report,
    *,
    flow_fields: frozenset[str],
    node_fields: frozenset[str],
    edge_fields: frozenset[str],
) -> dict[str, Any]:
    """The same flow in the plain form, as far as it can be told; nothing of it is checked except `data.inputs`."""
    plain = _ours(document, flow_fields, report)
    edges = plain.get("edges")
    connected = set()
    if isinstance(edges, list):
        plain["edges"] = [_ours(edge, edge_fields, report) if isinstance(edge, dict) else edge for edge in edges]
        for edge in plain["edges"]:
            if isinstance(edge, dict):
                connected.add((str(edge.get("target")), str(edge.get("target_handle") or edge.get("targetHandle"))))
    nodes = plain.get("nodes")
    if isinstance(nodes, list):
        plain["nodes"] = [
            _plain_node(node, f"nodes[{i}]", node_fields, connected, report) if isinstance(node, dict) else node
            for i, node in enumerate(nodes)
        ]
    return plain


def _plain_node(
    node: dict[str, Any], path: str, fields: frozenset[str], connected: set[tuple[str, str]], report: Report
) -> dict[str, Any]:
    data = node.get("data")
    plain = _ours(node, fields, report)
    if not isinstance(data, dict):
        return plain
    for name in fields - {"id", "inputs"}:
        if plain.get(name) is None and data.get(name) is not None:
            plain[name] = data[name]
    values = _values(data.get("inputs"), f"{path}.data.inputs", report)
    config = plain.get("config")
    if config is not None and not isinstance(config, dict):
        return plain  # reported when the config is read
    merged = dict(config or {})
    for name, value in values.items():
        if (str(node.get("id")), name) in connected:
            continue  # the editor keeps what was typed before the edge was drawn
        if name in merged and merged[name] != value:
            report.add("both_given", f"{path}.data.config.{name}", "data.inputs gives another value; give one of them")
        merged[name] = value
    if merged or config is not None:
        plain["config"] = merged
    return plain


def _values(inputs: Any, path: str, report: Report) -> dict[str, Any]:
    """What `data.inputs` gives: a list of {id | name | handle, value}, or an object of values. Nulls are left out."""
    if inputs is None:
        return {}
    if isinstance(inputs, dict):
        return {name: value for name, value in inputs.items() if value is not None}
    if not isinstance(inputs, list):
        report.add("not_a_list", path, 'give a list such as [{"id": "price", "value": 1.5}]')
        return {}
    values = {}
    for i, item in enumerate(inputs):
        if not isinstance(item, dict):
            report.add("not_an_object", f"{path}[{i}]", 'give an object such as {"id": "price", "value": 1.5}')
            continue
        if item.get("value") is None:
            continue
        name = next((item[key] for key in ("id", "name", "handle") if item.get(key) is not None), None)
        if not isinstance(name, str):
            report.add("missing_field", f"{path}[{i}].id", "name the handle or config field that gets the value")
        else:
            values[name] = item["value"]
    return values


def _ours(raw: dict[str, Any], known: frozenset[str], report: Report) -> dict[str, Any]:
    return {key: value for key, value in raw.items() if key in known or _looks_misspelt(key, known, report)}


def _looks_misspelt(key: str, known: frozenset[str], report: Report) -> bool:
    """After so many strange words in one flow they are an editor's, all of them: comparing is slow."""
    if len(key) > MOST_LETTERS or not report.comparisons_left:
        return False
    report.comparisons_left -= 1
    return _is_misspelt(key, known)


@lru_cache(maxsize=4096)
def _is_misspelt(key: str, known: Collection[str]) -> bool:
    return key not in _EDITOR and bool(difflib.get_close_matches(key, known, 1, 0.8))
