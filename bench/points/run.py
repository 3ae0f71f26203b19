"""Measures points and models, one part after the other, and says which targets are reached.

    .venv/bin/python bench/points/run.py [--quick] [--only PART …]

Parts: the board on redis-server and on the embedded Valkey, models, bulk ingest over HTTP, Modbus. Each runs in a fresh
process, with a server of its own.
"""

from __future__ import annotations

import sys

import board
import goals
import ingest
import modbus
import report

import models
from parts import Bench, Part

BENCH = Bench(
    __doc__ or "",
    "Points and models",
    "points",
    {
        "board": Part("Board", board.measure, goals.of_board, report.board_text, {}, goals.ceilings_of_board),
        "board-valkey": Part(
            "Board on the embedded server",
            board.measure,
            goals.of_board,
            report.board_text,
            {"is_valkey": True},
            goals.ceilings_of_board,
        ),
        "models": Part("Models", models.measure, goals.of_models, report.model_text, {}, goals.ceilings_of_models),
        "ingest": Part(
            "Bulk ingest over HTTP", ingest.measure, goals.of_ingest, report.ingest_text, {}, goals.ceilings_of_ingest
        ),
        "modbus": Part("Modbus", modbus.measure, goals.of_modbus, report.modbus_text, {}, goals.ceilings_of_modbus),
    },
    ("tradewind", "redis", "hiredis", "uvloop", "msgspec", "pymodbus"),
    "Servers on TCP of the same machine, nothing on disk. Medians over the passes; ratios are taken pass by pass.",
    {"redis-server": "redis-server"},
    ceiling_table=report.ceiling_table,
)

if __name__ == "__main__":
    sys.exit(BENCH.main())
