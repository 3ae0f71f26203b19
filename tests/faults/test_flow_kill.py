"""A cycle of fifty nodes in the middle of which something dies: it ends well, nothing that was done is done again.

Each test disturbs two cycles: one while its chain runs, one while its 38 nodes run side by side.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from tests import servers
from tests.faults.flow_probe import Ended, FlowProbe, Places, flow_site, open_runs
from tests.faults.station_process import RoleProcess, Site
from tests.soak import repeats

Disturb = Callable[[int], Awaitable[set[int]]]
TRANSPORTS = ["local", "amqp"]


async def _disturbed_cycles(there: FlowProbe, disturb: Disturb) -> int:
    """`disturb` gets the process id of a worker that is busy and gives back those whose runs were cut short.

    How many nodes ran more than once.
    """
    places, cut_short = Places(), 0
    flow_id = await there.register(places.nodes, *places.edges)
    for cycle, wanted in enumerate((f"{flow_id}_0_c4", f"{flow_id}_1_f2")):
        assert await there.run(flow_id) == cycle
        head = f"{flow_id}_{cycle}_"
        await there.in_ledger(lambda e, wanted=wanted: any(x.id == wanted for x in e), f"the start of {wanted}")  # type: ignore[misc]
        busy = list(open_runs(there.site.ledger(), head).values())
        cut = await disturb(busy[-1].pid if busy else 0)
        done, at = await there.done(flow_id, cycle), time.monotonic()
        ended = await there.end(flow_id, cycle)
        _assert_whole(ended, places)
        begins = ended.begins()
        for name, found in begins.items():
            # One that was handed over before a pause may begin right after it, later than the one in its place.
            assert sum(begin.pid not in cut for begin in found) <= 1, f"{name} ran twice for no reason: {found}"
            assert name not in done or found[-1].at < at, f"{name} had ended and ran again: {found}"
            cut_short += len(found) > 1
            assert len({begin.token for begin in found}) == len(found)
        await there.no_queues(flow_id, cycle, list(places.nodes))
    return cut_short


def _role(there: FlowProbe, pid: int) -> RoleProcess:
    (found,) = (process for process in there.site.processes if process.pid == pid)
    return found


async def _says(role: RoleProcess, text: str, times: int) -> bool:
    return role.output.count(text) >= times


def _assert_whole(ended: Ended, places: Places) -> None:
    assert ended.status == "completed", ended.view
    assert Counter(ended.states.values()) == {"completed": places.NODES}
    assert ended.view["counts"]["completed"] == places.NODES
    assert ended.outputs["tail"]["out"] == places.result, "a signal was lost, or counted twice"
    assert ended.begins().keys() == set(places.nodes)


@pytest.mark.slow
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_killed_worker_loses_no_node_and_no_signal(
    make_site: Callable[..., Site], request: pytest.FixtureRequest, transport: str
) -> None:
    broker = request.getfixturevalue("rabbitmq").url if transport == "amqp" else ""
    with servers.redis_server(appendonly=True) as redis:
        async with flow_site(make_site, redis.url, broker) as (there, _):

            async def kill(pid: int) -> set[int]:
                _role(there, pid).kill()
                there.site.start("worker")
                return {pid}

            assert await _disturbed_cycles(there, kill), "no kill has hit a running node: the test showed nothing"


@pytest.mark.slow
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_killed_leader_stops_no_cycle(
    make_site: Callable[..., Site], request: pytest.FixtureRequest, transport: str
) -> None:
    broker = request.getfixturevalue("rabbitmq").url if transport == "amqp" else ""
    with servers.redis_server(appendonly=True) as redis:
        async with flow_site(make_site, redis.url, broker, schedulers="abc") as (there, roles):

            async def kill(_: int) -> set[int]:
                roles[await there.until(there.leader, "a leader", 10)].kill()
                return set()

            await _disturbed_cycles(there, kill)


@pytest.mark.slow
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_restart_of_redis_loses_no_node_and_no_signal(
    make_site: Callable[..., Site], request: pytest.FixtureRequest, transport: str
) -> None:
    broker = request.getfixturevalue("rabbitmq").url if transport == "amqp" else ""
    with servers.redis_server(appendonly=True, extra=("--appendfsync", "always")) as redis:
        async with flow_site(make_site, redis.url, broker) as (there, roles):
            ends = iter([redis.kill, redis.stop])

            async def restart(_: int) -> set[int]:
                next(ends)()
                await asyncio.sleep(0.3)
                redis.start()
                return set()

            await _disturbed_cycles(there, restart)
        assert all(role.exit_code is None for role in roles.values()), there.site.logs()


@pytest.mark.slow
async def test_a_restart_of_the_broker_loses_no_signal(
    make_site: Callable[..., Site], rabbitmq: servers.Server
) -> None:
    with servers.redis_server(appendonly=True) as redis:
        async with flow_site(make_site, redis.url, rabbitmq.url) as (there, roles):
            ends = [rabbitmq.kill, rabbitmq.stop][: repeats(1)]  # a start takes the broker many seconds

            async def restart(_: int) -> set[int]:
                if ends:
                    ends.pop(0)()
                    rabbitmq.start()
                return set()

            await _disturbed_cycles(there, restart)
        assert all(role.exit_code is None for role in roles.values()), there.site.logs()


@pytest.mark.slow
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_worker_stopped_past_its_lease_commits_nothing_late(
    make_site: Callable[..., Site], request: pytest.FixtureRequest, transport: str
) -> None:
    broker = request.getfixturevalue("rabbitmq").url if transport == "amqp" else ""
    with servers.redis_server(appendonly=True) as redis:
        async with flow_site(make_site, redis.url, broker) as (there, roles):

            async def pause(pid: int) -> set[int]:
                lost = roles["a"].output.count("worker lost")
                role = _role(there, pid)
                role.pause()
                try:
                    await there.until(lambda: _says(roles["a"], "worker lost", lost + 1), "the loss", 15)
                finally:
                    role.resume()
                role.says("worker was lost and registers again", 10)
                return {pid}

            assert await _disturbed_cycles(there, pause), "no running node was met: the test showed nothing"
