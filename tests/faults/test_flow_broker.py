"""Flows over RabbitMQ: a foreign program takes part, a full queue hangs nothing, a thousand cycles leave no queue."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import servers
from tests.faults.flow_probe import flow_site
from tests.faults.station_process import Site
from tests.process import die_with_parent, wait_for
from tests.soak import repeats

CYCLES = repeats(200)
FOREIGN = Path(__file__).parent / "flow_foreign.py"


def _ctl(broker: servers.Server, *words: str) -> str:
    """What rabbitmqctl says of that broker."""
    program = servers.find("/usr/lib/rabbitmq/bin/rabbitmqctl", "rabbitmq-server")
    user = "rabbitmq" if os.geteuid() == 0 else None
    done = subprocess.run(
        [program, "-q", *words],
        env={**os.environ, **broker._env},
        cwd=broker.dir,
        user=user,
        group=pwd.getpwnam(user).pw_gid if user else None,
        extra_groups=[] if user else None,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def _queues(broker: servers.Server) -> list[str]:
    return [line for line in _ctl(broker, "list_queues", "name", "--no-table-headers").splitlines() if line]


@pytest.mark.slow
async def test_a_foreign_program_takes_part_and_a_full_queue_hangs_nothing(
    make_site: Callable[..., Site], rabbitmq: servers.Server, tmp_path: Path
) -> None:
    with servers.redis_server() as redis:
        async with flow_site(make_site, redis.url, rabbitmq.url) as (there, _):
            flow_id = await there.register(
                {"a": "f_step", "b": ("f_two", {}, {"external": ["y"]}), "c": "f_step"}, "a.out>b.x", "b.out>c.x"
            )
            said = tmp_path / "foreign.log"
            with (
                open(said, "wb") as output,
                subprocess.Popen(
                    [sys.executable, str(FOREIGN), rabbitmq.url, flow_id],
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    preexec_fn=die_with_parent,
                ) as foreign,
            ):
                try:
                    await asyncio.to_thread(wait_for, lambda: "ready" in said.read_text(), "its start", 20)
                    ended = await there.end(flow_id, await there.run(flow_id), 15)
                    assert foreign.wait(10) == 0, said.read_text()
                finally:
                    foreign.kill()
            key, _, body = said.read_text().splitlines()[1].partition(" ")
            assert key == f"flow.{flow_id}.component.0.cycle.0.from.a.handle.out.to.b.handle.x"
            signal = json.loads(body)
            assert set(signal) == {
                "id", "type", "payload", "timestamp", "source_node", "source_handle", "flow_id", "cycle",
            }  # fmt: skip
            assert (signal["payload"], signal["source_node"], signal["flow_id"]) == (1, "a", flow_id)
            assert ended.status == "completed"
            assert ended.outputs["b"]["out"] == 1 + 10
            assert ended.outputs["c"]["out"] == 12

            _ctl(rabbitmq, "set_policy", "narrow", "^queue.flow", '{"max-length":1,"overflow":"reject-publish"}')
            try:
                nodes = {f"s{i}": "f_step" for i in range(60)} | {"join": "f_join"}
                narrow = await there.register(nodes, *(f"s{i}.out>join.all" for i in range(60)))
                since = time.monotonic()
                ended = await there.end(narrow, await there.run(narrow), 40)
                print(f"sixty signals through a queue of one in {time.monotonic() - since:.1f} s")  # noqa: T201
                assert (ended.status, ended.outputs["join"]["out"]) == ("completed", 60)
            finally:
                _ctl(rabbitmq, "clear_policy", "narrow")


@pytest.mark.slow
async def test_hundreds_of_cycles_leave_no_queue(make_site: Callable[..., Site], rabbitmq: servers.Server) -> None:
    before = sorted(_queues(rabbitmq))
    with servers.redis_server() as redis:
        async with flow_site(make_site, redis.url, rabbitmq.url) as (there, roles):
            short = await there.register({"only": "f_step"})
            for _ in range(40):  # they end sooner than their queues can be consumed
                assert (await there.end(short, await there.run(short))).status == "completed"
            flow_id = await there.register({"a": "f_step", "b": "f_next"}, "a.out>b.x")
            started = time.monotonic()
            for start in range(0, CYCLES, 50):
                cycles = await asyncio.gather(*(there.run(flow_id) for _ in range(50)))
                assert sorted(cycles) == list(range(start, start + 50))

                async def is_over() -> bool:
                    return not await there.redis.scard(there.keys.flow_running(flow_id))

                await there.until(is_over, f"the end of cycles {start} to {start + 49}", 30)
            print(f"{CYCLES} cycles in {time.monotonic() - started:.1f} s")  # noqa: T201

            async def is_clean() -> bool:
                return not await there.redis.hlen(there.keys.flows_queues())

            await there.until(is_clean, "the end of the queues", 20)
            assert sorted(_queues(rabbitmq)) == before
            assert not await there.redis.hlen(there.keys.flows_hosts())
            assert not await there.redis.zcard(there.keys.flows_unsent())
            begins = [entry.id for entry in there.site.ledger() if entry.kind == "begin"]
            assert len(begins) == len(set(begins)) == 2 * CYCLES + 40
        assert not [role.log.name for role in roles.values() if "lost the broker" in role.output]
