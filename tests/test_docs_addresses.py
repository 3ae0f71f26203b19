"""Addresses in what people copy: documentation, examples, messages, the starter folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.addresses import strange_addresses

ROOT = Path(__file__).resolve().parents[1]
PLACES = [
    *sorted(ROOT.glob("*.md")),
    *(
        path
        for folder in ("docs", "examples", "deploy", "src")
        for path in sorted((ROOT / folder).rglob("*"))
        if path.is_file() and "static" not in path.parts and "__pycache__" not in path.parts
    ),
]
#: Addresses that are meant: those of metadata services, which are refused.
MEANT = {
    "src/tradewind/http_guard.py": {
        "http://2852039166/", "169.254.169.254", "100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254",
    },
    "docs/builtin-nodes.md": {"100.100.100.200"},
}  # fmt: skip


def test_every_address_in_docs_and_examples_belongs_to_nobody() -> None:
    found = []
    for path in PLACES:
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        name = str(path.relative_to(ROOT))
        found += [f"{name}: {each}" for each in strange_addresses(text) if each not in MEANT.get(name, ())]
    assert not found, "\n".join(["use 192.0.2.0/24, 2001:db8::/32 or example.com", *found])


@pytest.mark.parametrize(
    "text",
    ["host: 10.0.0.5", "http://192.168.1.20:80/x", "opc.tcp://plc.local:4840", "mailto://a@corp.com", "a@b.c",
     "amqp://u:p@10.0.0.7/", "fe80:0:0::1", "https://hooks.corp.com/x"],
)  # fmt: skip
def test_an_address_of_somebody_is_found(text: str) -> None:
    assert list(strange_addresses(text)), text


@pytest.mark.parametrize(
    "text",
    ["host: 192.0.2.5", "http://127.0.0.1:8400", "10.0.0.0/8", "https://hooks.example.com/x", "http://{host}:{port}",
     "redis://:secret@198.51.100.7/0", "at 12:30:45", "version 1.2.3", "2001:db8::7", "ada@example.org"],
)  # fmt: skip
def test_an_address_of_nobody_is_fine(text: str) -> None:
    assert not list(strange_addresses(text)), text
