"""Nodes on HTTP services in processes of their own: seed 002's call, answers that are not 200, a service that dies."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import servers
from tests.faults.flow_probe import FlowProbe, flow_site
from tests.faults.station_process import Site
from tests.process import die_with_parent, wait_for

PROGRAM = Path(__file__).parent / "flow_http_worker.py"


class Service:
    def __init__(self, folder: Path, path: str) -> None:
        self.notes, said = folder / "notes", folder / "said"
        self.notes.touch()
        with open(said, "wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, str(PROGRAM), path, str(self.notes)],
                stdout=output,
                stderr=subprocess.STDOUT,
                preexec_fn=die_with_parent,
            )
        wait_for(lambda: said.read_text().strip().isdigit(), "the service's port", 20)
        self.address = f"http://127.0.0.1:{said.read_text().strip()}"

    def asked(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.notes.read_text().splitlines()]


@contextlib.contextmanager
def _service(folder: Path, path: str) -> Iterator[Service]:
    folder.mkdir()
    service = Service(folder, path)
    try:
        yield service
    finally:
        service.process.kill()
        service.process.wait()


async def _register(there: FlowProbe, name: str, kind: str, service: Service) -> None:
    """As seed 004 says a worker registers."""
    key = there.keys.worker(name)
    fields = {
        "id": name, "name": name, "address": service.address, "capacity": 10, "current_load": 0,
        "supported_types": json.dumps([kind]), "last_heartbeat": int(time.time()),
    }  # fmt: skip
    await there.redis.hset(key, mapping=fields)
    await there.redis.pexpire(key, 60_000)
    await there.redis.sadd(there.keys.worker_type(kind), name)
    await there.redis.sadd(there.keys.worker_types(), kind)


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["local", "amqp"])
async def test_nodes_run_on_http_services(
    make_site: Callable[..., Site], request: pytest.FixtureRequest, transport: str, tmp_path: Path
) -> None:
    broker = request.getfixturevalue("rabbitmq").url if transport == "amqp" else ""
    with (
        servers.redis_server() as redis,
        _service(tmp_path / "one", "/execute") as one,
        _service(tmp_path / "two", "/nodes/execute") as two,
    ):
        async with flow_site(make_site, redis.url, broker) as (there, _):
            await _register(there, "svc1", "far", one)
            await _register(there, "svc2", "farther", two)
            wires = ("a.out>far.x", "far.doubled>b.x", "b.out>farther.x", "farther.doubled>c.x")
            nodes: dict[str, Any] = {"a": "f_step", "far": ("far", {"word": 7}), "b": "f_next", "c": "f_next"}
            flow_id = await there.register(nodes | {"farther": "farther"}, *wires)
            ended = await there.end(flow_id, await there.run(flow_id), 20)
            assert ended.status == "completed", ended.view
            assert ended.outputs["c"]["out"] == (1 * 2 + 1) * 2 + 1
            assert [call["path"] for call in one.asked()] == ["/execute"]
            assert [call["path"] for call in two.asked()] == ["/execute", "/nodes/execute"]
            body = one.asked()[0]["body"]
            data = body.pop("node_data")
            assert body.items() >= {
                "node_task_id": f"{flow_id}_0_far", "flow_id": flow_id, "component_id": 0, "cycle": 0, "node_id": "far",
                "node_type": "far",
            }.items()  # fmt: skip
            assert data["config"] == {"word": 7}
            assert data["input_edges"] == [
                {"source": "a", "source_handle": "out", "target": "far", "target_handle": "x"}
            ]
            assert data["output_edges"] == [
                {"source": "far", "source_handle": "doubled", "target": "b", "target_handle": "x"}
            ]

            bad: dict[str, Any] = {
                "again": ("far", {"answers": [500, 503, 200]}, {"retries": 3}),
                "busy": ("far", {"answers": [500]}),
                "wrong": ("far", {"answers": [422]}, {"retries": 3}),
                "after": "f_next",
                "ok": "f_next",
            }
            mixed = await there.register(bad, "wrong.doubled>after.x", "again.doubled>ok.x")
            ended = await there.end(mixed, await there.run(mixed), 40)
            assert ended.status == "failed"
            assert ended.states == {
                "again": "completed", "busy": "failed", "wrong": "failed", "after": "skipped", "ok": "completed",
            }  # fmt: skip
            assert "500" in ended.view["nodes"]["busy"]["error_message"]
            assert "422" in ended.view["nodes"]["wrong"]["error_message"]

            hangs = await there.register({"far": ("far", {"hang": 60}), "b": "f_next"}, "far.doubled>b.x")
            cycle = await there.run(hangs)
            await asyncio.to_thread(
                wait_for, lambda: any(c["body"]["flow_id"] == hangs for c in one.asked()), "the call", 20
            )
            one.process.kill()
            ended = await there.end(hangs, cycle, 15)
            assert (ended.status, ended.states) == ("failed", {"far": "failed", "b": "skipped"})
