"""Values and tables that come in over HTTP, as a station of real processes takes them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.faults.points_plant import Plant
from tests.points.station_http import Api
from tests.process import free_port, wait_for
from tradewind.clock import Clock

ROWS = 100_000
BAD_ROW = 77_776


def start_api(plant: Plant, *roles: str) -> Api:
    api = Api(free_port())
    plant.start("api", *roles, api_port=api.url.rpartition(":")[2])
    wait_for(api.is_up, "the API", 60)
    return api


def sample(value: Any, ts: int | None = None, point: str = "10001") -> dict[str, Any]:
    body: dict[str, Any] = {"channels": {"1001": {"m": {point: value}}}}
    return body if ts is None else {**body, "ts": ts}


async def test_late_repeated_future_and_non_finite_samples_that_are_pushed(plant: Plant) -> None:
    api = start_api(plant)
    now = Clock().now_ms()

    def stored(field: str) -> str:
        return plant.redis_cli("HGET", field, "10001").strip()

    def shown() -> tuple[str, str, str]:
        return stored("comsrv:1001:m"), stored("comsrv:1001:m:ts"), stored("comsrv:1001:m:q")

    api.post("/points", sample(1.5, now))
    assert shown() == ("1.500000", str(now), "")
    api.post("/points", sample(9, now - 1000))  # late: for history only
    assert shown() == ("1.500000", str(now), "")
    late = (await plant.feed())[-1]
    assert (late["k"], late["d"], late["t"], late["l"]) == ("comsrv:1001:m", "10001:9.000000", str(now - 1000), "1")
    count = len(await plant.feed())
    api.post("/points", sample(1.5, now))  # the same again: nothing
    assert len(await plant.feed()) == count
    api.post("/points", sample(2.5, now))  # of one time the last counts
    assert shown() == ("2.500000", str(now), "")
    api.post("/points", sample(3.5, now + 3_600_000))  # from the future: now, and uncertain
    value, ts, quality = shown()
    assert (value, quality) == ("3.500000", "uncertain")
    assert now <= int(ts) <= Clock().now_ms() + 1000

    before, count = shown(), len(await plant.feed())
    for text in ("NaN", "Infinity", "-Infinity", "1e999", '"NaN"', "null"):
        good, bad = '"10002": 7', f'"10001": {text}, "10003": {text}'
        for order in (f"{good}, {bad}", f"{bad}, {good}"):
            status, answer = api.call("POST", "/points", f'{{"channels": {{"1001": {{"m": {{{order}}}}}}}}}')
            assert status == 422, answer
            paths = {problem["path"] for problem in answer["error"]["problems"]}
            assert paths == {"channels.1001.m.10001", "channels.1001.m.10003"}, "each is named"
    assert shown() == before
    assert plant.redis_cli("HEXISTS", "comsrv:1001:m", "10002").strip() == "0", "nothing of a refused call is written"
    assert len(await plant.feed()) == count


@pytest.mark.slow
async def test_a_hundred_thousand_rows_with_one_bad_one_are_applied(plant: Plant, tmp_path: Path) -> None:
    api = start_api(plant, "comsrv")
    rows = [f"{n},point {n},0.1,kW" for n in range(ROWS)]
    rows[BAD_ROW] = f"{BAD_ROW},bad,zero point one,kW"
    (tmp_path / "channels.yaml").write_text(
        "channels:\n"
        "  - {id: 1001, protocol: http}\n"
        "  - {id: 1002, protocol: virtual, poll_interval_ms: 100, points: [{kind: m, id: 1}]}\n"
    )
    (tmp_path / "1001").mkdir()
    (tmp_path / "1001" / "telemetry.csv").write_text("point_id,name,scale,unit\n" + "\n".join(rows))

    def apply(*flags: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "tradewind.cli", "apply", "-f", str(tmp_path), "--json", *flags]
        env = {**os.environ, "TRADEWIND_URL": api.url}
        return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=100)

    began = time.monotonic()
    ran = apply("--skip-bad")
    took_s = time.monotonic() - began
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]
    assert [p["path"] for p in json.loads(ran.stdout)["left_out"]] == [f"1001/telemetry.csv:{BAD_ROW + 2}:scale"]
    assert took_s < 90, "a few seconds on a quiet machine"
    found = {channel["id"]: channel for channel in api.get("/channels")["items"]}
    assert found["1001"]["counts"]["m"] == ROWS - 1
    await plant.online("1002")
    api.post("/points", sample(7, point=str(ROWS - 1)))
    (point,) = api.get(f"/points?address=comsrv:1001:m:{ROWS - 1}")["items"]
    assert (point["value"], point["unit"]) == (7, "kW")
