"""Measures history, one part after the other, and says which targets are reached.

    .venv/bin/python bench/history/run.py [--quick] [--only PART …]

Parts: the embedded sink, InfluxDB with its peers, end to end into both, trends. Each runs in a fresh process, with
servers of its own. The promise that nothing is lost is another program: soak.py.
"""

from __future__ import annotations

import sqlite3
import sys

import embedded
import endtoend
import goals
import influx
import report
import trend

from parts import Bench, Part

BENCH = Bench(
    __doc__ or "",
    "History",
    "history",
    {
        "embedded": Part("Embedded sink", embedded.measure, goals.of_embedded, report.embedded_text),
        "influx": Part("InfluxDB", influx.measure, goals.of_influx, report.influx_text),
        "end": Part("End to end, embedded sink", endtoend.measure, goals.of_end, report.end_text),
        "end-influx": Part(
            "End to end, InfluxDB", endtoend.measure, goals.of_end, report.end_text, {"is_influx": True}
        ),
        "trend": Part("Trends", trend.measure, goals.of_trend, report.trend_text),
    },
    ("tradewind", "redis", "hiredis", "uvloop", "msgspec", "numpy", "httpx2"),
    f"SQLite {sqlite3.sqlite_version}. Servers on TCP of the same machine; Redis keeps nothing on disk, the sinks do. "
    "Medians over the passes.",
    {"redis-server": "redis-server", "influxd": "influxdb"},
)

if __name__ == "__main__":
    sys.exit(BENCH.main())
