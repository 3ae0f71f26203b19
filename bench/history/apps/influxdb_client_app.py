"""influxdb-client's batching WriteApi. It only knows `/api/v2/write`; a server of 1.x has the same thing at `/write`:
the path and the query are changed as they go out, and nothing else is.

    python influxdb_client_app.py URL DATABASE dicts|lines SERIES STEPS START_MS STEP_MS BATCH
"""

from __future__ import annotations

import json
import random
import sys
import time

from influxdb_client import InfluxDBClient
from influxdb_client.client.write_api import WriteOptions


def records(kind: str, series: int, steps: int, start_ms: int, step_ms: int) -> list[object]:
    chance = random.Random(1)
    made: list[object] = []
    for step in range(steps):
        ts = start_ms + step * step_ms
        for at in range(series):
            channel, point, value = 1001 + at // 1000, 10_001 + at % 1000, round(chance.uniform(-1000, 1000), 2)
            if kind == "lines":
                tags = f"channel_id={channel},point_id={point},point_type=measurement"
                made.append(f"telemetry,{tags} value={value} {ts}")
                continue
            tag_values = {"channel_id": str(channel), "point_id": str(point), "point_type": "measurement"}
            made.append({"measurement": "telemetry", "tags": tag_values, "fields": {"value": value}, "time": ts})
    return made


def main(url: str, database: str, kind: str, *numbers: str) -> None:
    series, steps, start_ms, step_ms, batch = map(int, numbers)
    ready = records(kind, series, steps, start_ms, step_ms)
    failures: list[str] = []
    with InfluxDBClient(url=url, token="", org="-") as client:
        api = client.api_client
        call = api.call_api

        def call_v1(path: str, method: str, *args: object, **options: object) -> object:
            if path == "/api/v2/write":
                path, args = "/write", (args[0], [("db", database), ("precision", "ms")], *args[2:])
            return call(path, method, *args, **options)

        api.call_api = call_v1
        options = WriteOptions(batch_size=batch, flush_interval=1000)
        began, cpu = time.perf_counter(), time.process_time()
        with client.write_api(options, error_callback=lambda where, data, error: failures.append(str(error))) as writer:
            writer.write(database, "-", ready, write_precision="ms")
        found = {"seconds": time.perf_counter() - began, "cpu_s": time.process_time() - cpu}
    if failures:
        raise SystemExit(f"{len(failures)} batches failed: {failures[0][:500]}")
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
