"""The `influxdb` client for 1.x: write_points cuts into batches by itself.

python influxdb_app.py URL DATABASE dicts SERIES STEPS START_MS STEP_MS BATCH
"""

from __future__ import annotations

import json
import random
import sys
import time
from urllib.parse import urlsplit

from influxdb import InfluxDBClient


def main(url: str, database: str, kind: str, *numbers: str) -> None:
    series, steps, start_ms, step_ms, batch = map(int, numbers)
    chance = random.Random(1)
    ready = []
    for step in range(steps):
        for at in range(series):
            channel, point = str(1001 + at // 1000), str(10_001 + at % 1000)
            tags = {"channel_id": channel, "point_id": point, "point_type": "measurement"}
            fields = {"value": round(chance.uniform(-1000, 1000), 2)}
            made = {"measurement": "telemetry", "tags": tags, "fields": fields, "time": start_ms + step * step_ms}
            ready.append(made)
    where = urlsplit(url)
    client = InfluxDBClient(host=where.hostname, port=where.port, database=database)
    began, cpu = time.perf_counter(), time.process_time()
    client.write_points(ready, time_precision="ms", batch_size=batch)
    print(json.dumps({"seconds": time.perf_counter() - began, "cpu_s": time.process_time() - cpu}))
    client.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
