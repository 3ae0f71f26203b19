"""How values go through a graph: chains, fans, aggregates, optional inputs."""

from __future__ import annotations

from typing import Any

from tests.flows.engine import Engine


async def test_a_chain_hands_each_value_on(station: Engine) -> None:
    nodes = {"n0": ("e_send", {"values": {"a": 7}})} | {f"n{i}": "e_note" for i in range(1, 10)}
    ended = await station.go(nodes, *(f"n{i}.a>n{i + 1}.x" for i in range(9)))
    assert ended.status == "completed"
    assert ended.counts == {"total": 10, "open": 0, "completed": 10, "failed": 0, "skipped": 0, "terminated": 0}
    assert ended.got("n9") == 7


async def test_a_diamond_joins_both_ways(station: Engine) -> None:
    nodes = {"s": ("e_send", {"values": {"a": 1}}), "l": "e_note", "r": "e_note", "j": "e_two"}
    ended = await station.go(nodes, "s.a>l.x", "s.a>r.x", "l.a>j.x", "r.a>j.y")
    assert ended.status == "completed"
    assert ended.got("j") == (1, 1)


async def test_a_fan_out_and_in_counts_every_edge(station: Engine) -> None:
    nodes = {"s": "e_send", "j": ("aggregate", {"op": "sum"}), "end": "e_note"}
    nodes |= {f"m{i}": ("expression", {"expression": f"x + {i}"}) for i in range(40)}
    edges = [f"s.a>m{i}.x" for i in range(40)] + [f"m{i}.result>j.data" for i in range(40)]
    ended = await station.go(nodes, *edges, "j.result>end.x")
    assert ended.status == "completed"
    assert ended.got("end") == 40 + sum(range(40))


async def test_three_sources_of_one_aggregate_are_keyed_by_their_handles(station: Engine) -> None:
    nodes = {
        "p": ("e_send", {"values": {"a": 1}}),
        "q": ("e_send", {"values": {"b": 2}}),
        "r": ("e_send", {"values": {"data": 3}}),
        "j": "e_gather",
    }
    ended = await station.go(nodes, "p.a>j.data", "q.b>j.data", "r.data>j.data")
    assert ended.got("j") == {"a": 1, "b": 2, "data": 3}


async def test_equal_handles_of_two_sources_are_told_apart_by_their_nodes(station: Engine) -> None:
    nodes = {
        "p": ("e_send", {"values": {"data": 1}}),
        "q": ("e_send", {"values": {"data": 2, "b": 3}}),
        "j": "e_gather",
    }
    ended = await station.go(nodes, "p.data>j.data", "q.data>j.data", "q.b>j.data")
    assert ended.got("j") == {"p:data": 1, "q:data": 2, "b": 3}


async def test_one_output_feeds_several_handles_of_one_node(station: Engine) -> None:
    ended = await station.go({"s": "e_send", "t": "e_two"}, "s.a>t.x", "s.a>t.y")
    assert ended.got("t") == (1, 1)


async def test_an_unwired_optional_input_has_its_default(station: Engine) -> None:
    ended = await station.go({"s": "e_send", "t": "e_two"}, "s.a>t.x")
    assert ended.got("t") == (1, "nothing")


async def test_an_input_of_the_flow_itself_wins_over_the_default(station: Engine) -> None:
    ended = await station.go({"s": "e_send", "t": ("e_two", {}, {"inputs": {"y": 5}})}, "s.a>t.x")
    assert ended.got("t") == (1, 5)


async def test_an_optional_input_whose_source_fails_has_its_default(station: Engine) -> None:
    ended = await station.go({"s": "e_send", "bad": "e_fail", "t": "e_two"}, "s.a>t.x", "bad.a>t.y")
    assert ended.states == {"s": "completed", "bad": "failed", "t": "completed"}
    assert ended.got("t") == (1, "nothing")
    assert ended.status == "failed"


async def test_an_output_that_was_not_sent_skips_its_branch_only(station: Engine) -> None:
    nodes = {"s": ("e_send", {"values": {"b": 2}}), "left": "e_note", "deep": "e_note", "right": "e_note"}
    ended = await station.go(nodes, "s.a>left.x", "left.a>deep.x", "s.b>right.x")
    assert ended.states == {"s": "completed", "left": "skipped", "deep": "skipped", "right": "completed"}
    assert ended.status == "completed"
    assert ended.nodes["deep"]["message"].startswith("upstream_skipped")


async def test_a_plain_function_and_one_in_a_thread_are_nodes(station: Engine) -> None:
    nodes = {"s": ("e_send", {"values": {"a": 2}}), "t": ("e_thread", {"seconds": 0.02}), "end": "e_note"}
    ended = await station.go(nodes, "s.a>t.x", "t.result>end.x")
    assert ended.got("end") == 3


async def test_a_payload_of_a_megabyte_passes(station: Engine) -> None:
    nodes = {"s": ("e_big", {"size": 1_000_000}), "t": "e_size", "end": "e_note"}
    ended = await station.go(nodes, "s.result>t.x", "t.result>end.x")
    assert ended.got("end") == 1_000_000


async def test_payloads_keep_their_json(station: Engine) -> None:
    value: dict[str, Any] = {"": [], "empty": {}, "n": None, "big": 2**53 + 1, "f": 0.1, "deep": [[[1]]]}
    value["text"] = 'quotes " \\ ü 价格 \n'
    ended = await station.go({"s": ("e_send", {"values": {"a": value}}), "t": "e_note"}, "s.a>t.x")
    assert ended.got("t") == value


async def test_components_run_side_by_side(station: Engine) -> None:
    flow_id = await station.register(
        {"a": "e_block", "b": "e_note", "c": "e_send", "d": "e_note"}, "a.a>b.x", "c.a>d.x"
    )
    cycle = await station.run(flow_id)
    await station.node_is(flow_id, cycle, "d", "completed")
    assert (await station.states(flow_id, cycle))["b"] == "pending"
    assert await station.redis.hget(station.keys.cycle(flow_id, cycle), "status") == b"running"


async def test_thirty_flows_of_one_node_at_once(station: Engine) -> None:
    ids = [await station.register({"s": "e_send"}) for _ in range(30)]
    cycles = [await station.run(flow_id) for flow_id in ids]
    for flow_id, cycle in zip(ids, cycles, strict=True):
        assert (await station.end(flow_id, cycle)).status == "completed"
