"""The micro-grid of `tradewind demo`: examples/microgrid applied to its station, watched, and judged at the end."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tradewind.cli.http import Http
from tradewind.cli.output import status_cell, table
from tradewind.errors import Unavailable

if TYPE_CHECKING:
    from rich.console import RenderableType

FLOW = "dispatch"
MODEL = "power_balance"
#: What is shown, by address.
SHOWN = {
    "comsrv:1001:m:10001": "solar",
    "comsrv:1002:m:10001": "battery",
    "comsrv:1002:m:10002": "charge",
    "comsrv:1003:m:10001": "load",
    f"modsrv:{MODEL}:measurement:net_grid_power": "grid",
    f"modsrv:{MODEL}:measurement:self_consumption": "self-consumption",
}
#: How long the first values and the last cycle may take.
PATIENCE_S = 15.0


def folder() -> Path:
    """In the package once it is built, else in the source tree. Raises Unavailable."""
    for place in (Path(__file__).parent / "microgrid", Path(__file__).parents[3] / "examples" / "microgrid"):
        if place.is_dir():
            return place
    raise Unavailable("the example of the demo is not installed", code="no_example", hint="install the whole package")


def start(http: Http) -> None:
    """Apply the folder as `tradewind apply --start` does, and wait for the first values."""
    from tradewind.cli.apply import refusal
    from tradewind.cli.apply_plan import make_plan, read_wanted
    from tradewind.cli.apply_steps import carry_out

    wanted = read_wanted(folder())
    plan = make_plan(http, wanted, prune=False, start=True)
    if wanted.problems:
        raise refusal(wanted)
    carry_out(http, plan)
    end = time.monotonic() + PATIENCE_S
    while any(point["value"] is None for point in values(http)) and time.monotonic() < end:
        time.sleep(0.1)


def values(http: Http) -> list[dict[str, Any]]:
    """The points that are shown, each with what it is called."""
    found = http.get("/points", {"address": list(SHOWN)})["items"]
    return [{**point, "name": SHOWN[point["address"]]} for point in found]


def stop(http: Http) -> dict[str, Any]:
    """Judge the points as they are now, let the running cycle end; what there is to say about all of it."""
    points = [
        point
        for channel in http.get("/channels")["items"]
        for point in http.get(f"/channels/{channel['id']}/points", {"kind": ["m", "s"]})["items"]
    ]
    computed = http.get(f"/models/{MODEL}")
    shown = values(http)
    http.post(f"/flows/{FLOW}/drain")
    return judge(points, computed, _ends(http), shown)


def judge(
    points: list[dict[str, Any]], model: dict[str, Any], cycles: dict[str, int], shown: list[dict[str, Any]]
) -> dict[str, Any]:
    """Points must be fresh and good, every output of the model must have a value, cycles must have completed."""
    poor = [point["address"] for point in points if point["quality"] != "good"]
    there = {point["address"].rpartition(":")[2] for point in model["values"] if point["value"] is not None}
    missing = [f"modsrv:{MODEL}:measurement:{field}" for field in model["outputs"] if field not in there]
    badly = [f"{count} cycles of {FLOW} {status}" for status, count in cycles.items() if status != "completed"]
    wrong = [*poor, *missing, *badly]
    is_ok = bool(points) and bool(there) and cycles.get("completed", 0) > 0 and not wrong
    return {"ok": is_ok, "points": len(points), "cycles": cycles, "wrong": wrong, "values": shown}


def _ends(http: Http) -> dict[str, int]:
    """How many of the last cycles ended how; one that runs gets time to end."""
    end = time.monotonic() + PATIENCE_S
    while True:
        ends: dict[str, int] = {}
        for cycle in http.get(f"/flows/{FLOW}/cycles")["items"]:
            ends[cycle["status"]] = ends.get(cycle["status"], 0) + 1
        if not ends.get("running") or time.monotonic() > end:
            return ends
        time.sleep(0.1)


def told(points: list[dict[str, Any]]) -> str:
    return ", ".join(f"{point['name']} {_number(point)}" for point in points)


def grid_table(points: list[dict[str, Any]]) -> RenderableType:
    rows = [(p["name"], _number(p), status_cell(p["quality"]), p["address"]) for p in points]
    return table(("micro-grid", "value", "quality", "address"), rows, empty="no points", right=("value",))


def summary(grid: dict[str, Any]) -> str:
    return f"micro-grid: {grid['points']} points, {grid['cycles'].get('completed', 0)} dispatch cycles"


def _number(point: dict[str, Any]) -> str:
    return "-" if point["value"] is None else f"{point['value']:.1f} {point['unit']}".rstrip()
