"""Task and node types belong to live workers: what they offer never expires, and counts no more once they have left."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.tasks.room import Room
from tradewind.cli.examine import _types
from tradewind.errors import Invalid
from tradewind.flows.known_types import KnownTypes
from tradewind.flows.node_registry import NodeRegistry
from tradewind.flows.plane import FlowPlane
from tradewind.flows.spec import Handle, NodeType
from tradewind.tasks.check import check_tasks
from tradewind.tasks.control import TaskControl
from tradewind.tasks.function import Parameter, Signature
from tradewind.tasks.leader_store import TYPE_KEEP_MS
from tradewind.tasks.worker_store import WorkerStore

ONE = Signature(params=[Parameter("a", ["int"])], max_attempts=2)
TWO = Signature(params=[Parameter("a", ["int"]), Parameter("b", ["str"])], max_attempts=7)


async def join(
    room: Room, worker_id: str, types: dict[str, Any], nodes: dict[str, NodeType] | None = None
) -> WorkerStore:
    store = WorkerStore(room.plane, worker_id, secrets.token_hex(4))
    record = {
        "id": worker_id, "capacity": 1, "status": "active", "pull": "1", "started_ms": room.clock.ms,
        "supported_types": msgspec.json.encode(list(types)),
    }  # fmt: skip
    encoded = {n: s if isinstance(s, bytes) else msgspec.json.encode(_seen(s, room)) for n, s in types.items()}
    await store.register(record, encoded, {n: msgspec.json.encode(kind) for n, kind in (nodes or {}).items()})
    return store


def _seen(signature: Signature, room: Room) -> Signature:
    return msgspec.structs.replace(signature, seen_ms=room.clock.ms)


async def attempts(room: Room, *args: Any) -> int | list[str]:
    """How many attempts a submission of `f` gets, or why it is refused."""
    types = await room.control.types()
    try:
        raw = {"type": "f", "args": list(args)}
        return check_tasks([raw], types, now_ms=room.clock.ms, max_payload=1000)[0].request.max_attempts
    except Invalid as error:
        return [problem.code for problem in error.problems]


async def test_two_signatures_at_once_are_accepted_if_either_fits(room: Room) -> None:
    await join(room, "w1", {"f": ONE})
    room.clock.advance(1)
    await join(room, "w2", {"f": TWO})
    assert await attempts(room, 1) == 2
    assert await attempts(room, 1, "x") == 7
    assert await attempts(room, "no") == ["wrong_type", "missing_arg"], "told by the youngest one's signature"


async def test_the_signature_of_a_worker_that_has_left_counts_no_more(room: Room) -> None:
    await join(room, "w1", {"f": ONE})
    room.clock.advance(1)
    newer = await join(room, "w2", {"f": TWO})
    await newer.leave()
    assert await attempts(room, 1) == 2
    assert await attempts(room, 1, "x") == ["too_many_args"]


async def test_without_a_worker_a_known_type_takes_any_arguments(room: Room) -> None:
    only = await join(room, "w1", {"f": ONE})
    await only.leave()
    assert await attempts(room, "whatever the next version takes", 3) == 2
    assert await attempts(room) == 2
    assert (await room.control.types())["f"].is_remembered


async def test_a_worker_that_takes_anything_widens_what_is_accepted(room: Room) -> None:
    await join(room, "w1", {"f": ONE})
    await join(room, "service", {"f": b""})
    assert await attempts(room, "anything", 1, 2) == 1, "its own signature has one attempt"
    assert await attempts(room, 5) == 2


async def test_a_type_of_a_live_worker_never_expires(make_room: Callable[..., Room]) -> None:
    room = make_room(scheduler={"heartbeat_ttl_s": 3600})
    worker = await join(room, "w1", {"f": ONE})
    leader = await room.lead()
    room.clock.advance(2 * TYPE_KEEP_MS / 1000)
    await worker.beat()
    await leader.sweep()
    assert await attempts(room, 1) == 2
    await worker.leave()
    await leader.sweep()
    assert await attempts(room, 1) == 2, "remembered from its end on, not from its start"
    room.clock.advance(TYPE_KEEP_MS / 1000 + 1)
    await leader.sweep()
    assert await attempts(room, 1) == ["unknown_type"]


async def test_an_offer_lives_with_its_workers(room: Room) -> None:
    worker = await join(room, "w1", {"f": ONE})
    same = await join(room, "w2", {"f": ONE})
    names = [name async for name in room.redis.scan_iter(match=f"{room.keys.p}task:types:*")]
    assert len(names) == 1, "equal workers make one offer, whenever they have started"
    most = room.plane.all_settings.scheduler.heartbeat_ttl_s * 1000
    await room.redis.pexpire(names[0], 500)
    await worker.beat()
    assert most - 5000 < await room.redis.pttl(names[0]) <= most
    await same.leave()
    assert await attempts(room, 1) == 2


async def test_doctor_tells_of_two_signatures(room: Room) -> None:
    await join(room, "w1", {"f": ONE, "g": ONE})
    assert [check.status for check in await _types(room.plane)] == ["ok"]
    await join(room, "w2", {"f": TWO, "g": ONE})
    (check,) = await _types(room.plane)
    assert check.status == "warn" and "f (" in check.detail and "g (" not in check.detail
    assert "w1" in check.detail and "w2" in check.detail


def node(name: str, *inputs: str) -> NodeType:
    return NodeType(name, inputs=tuple(Handle(i, required=False) for i in inputs), outputs=(Handle("out"),))


def flow_with(handle: str) -> dict[str, Any]:
    return {
        "id": "f1", "interval": 0,
        "nodes": [{"id": "s", "type": "src"}, {"id": "n", "type": "n"}],
        "edges": [{"source": "s", "source_handle": "out", "target": "n", "target_handle": handle}],
    }  # fmt: skip


async def problems(room: Room, handle: str) -> list[str]:
    types = KnownTypes(FlowPlane(room.plane), NodeRegistry())
    _, found, _ = await types.check(flow_with(handle))
    return [problem.code for problem in found]


async def test_node_types_belong_to_live_workers_too(room: Room) -> None:
    both = {"src": b"", "n": b""}
    await join(room, "w1", both, {"src": node("src"), "n": node("n", "a")})
    assert await problems(room, "a") == []
    assert await problems(room, "b") != []
    newer = await join(room, "w2", both, {"src": node("src"), "n": node("n", "b")})
    assert await problems(room, "a") == [], "either fits"
    assert await problems(room, "b") == [], "either fits"
    assert await problems(room, "c") != []
    await newer.leave()
    assert await problems(room, "b") != []
    assert await problems(room, "a") == []


@pytest.mark.parametrize("days", [1, 8, 400])
async def test_a_node_type_of_a_live_worker_never_expires(room: Room, days: int) -> None:
    described = {"src": node("src"), "n": node("n", "a")}
    await join(room, "w1", {"src": b"", "n": b""}, described)
    old = {
        name: msgspec.json.encode({"seen_ms": 1_700_000_000_000 - days * 86_400_000, "node_type": kind})
        for name, kind in described.items()
    }
    await room.redis.hset(room.keys.node_types(), mapping=old)
    assert await problems(room, "a") == []
    assert await problems(room, "c") != []
    assert await room.redis.hlen(room.keys.node_types()) == 2, "its memory counts from its worker's end"


async def test_control_objects_share_nothing(room: Room) -> None:
    await join(room, "w1", {"f": ONE})
    assert (await TaskControl(room.plane).types())["f"].params == ONE.params
