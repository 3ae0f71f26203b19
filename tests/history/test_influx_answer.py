"""What InfluxDB says when it refuses, in words."""

from __future__ import annotations

import pytest

from tradewind.history.influx_answer import read_message


@pytest.mark.parametrize(
    ("body", "headers", "words"),
    [
        (b'{"error": "database not found"}', {}, "database not found"),
        (b'{"code": "invalid", "message": "bad token"}', {}, "bad token"),
        (b'{"error": "partial write", "data": [{"line": 2}]}', {}, "partial write: [{'line': 2}]"),
        (b'{"code": 5}', {"x-influxdb-error": "said in a header"}, "said in a header"),
        (b"plain text \xff\n", {}, "plain text �"),
        (b"{}", {}, "{}"),
    ],
)
def test_the_reason_is_found_wherever_a_version_puts_it(body: bytes, headers: dict[str, str], words: str) -> None:
    assert read_message(body, headers) == words
