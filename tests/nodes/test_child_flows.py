"""`map` and `subflow`: expressions over lists, and cycles of other flows."""

from __future__ import annotations

from typing import Any

import pytest

from tests.nodes.host import Cycle, Host, new_call, once, outputs, payloads, problems, to_end
from tradewind.flows.call import Suspend
from tradewind.flows.node_errors import NodeExecutionException, NodeTimeoutException, NodeValidationException


def double(signals: dict[str, Any]) -> Cycle:
    """A flow with one node: twice its input; fails for text."""
    value = signals["take.item"]
    return ("failed", {}) if isinstance(value, str) else ("completed", {"twice": {"result": value * 2}})


BY_FLOW = {"flow": "double", "input": "take.item", "output": "twice.result"}


async def test_map_computes_each_item_in_order() -> None:
    config = {"expression": "item * factor + index"}
    assert await outputs("map", config, {"items": [1, 2, 3], "factor": 10}) == {"results": [10, 21, 32], "errors": []}
    assert await outputs("map", config, {"items": [], "factor": 1}) == {"results": [], "errors": []}


async def test_map_fails_at_the_first_bad_item() -> None:
    with pytest.raises(NodeExecutionException, match="at item 1"):
        await outputs("map", {"expression": "1 / item"}, {"items": [1, 0, 2]})


async def test_map_can_collect_errors_and_go_on() -> None:
    sent = await outputs("map", {"expression": "1 / item", "on_error": "collect"}, {"items": [1, 0, 2]})
    assert sent["results"] == [1.0, None, 0.5]
    assert [error["index"] for error in sent["errors"]] == [1]
    assert "division by zero" in sent["errors"][0]["error"]


async def test_map_takes_many_items_but_not_any_number() -> None:
    sent = await outputs("map", {"expression": "item + 1"}, {"items": list(range(5000))})
    assert sent["results"] == list(range(1, 5001))
    with pytest.raises(NodeValidationException, match="at most 100000"):
        await outputs("map", {"expression": "item"}, {"items": [0] * 100_001})
    with pytest.raises(NodeValidationException, match="at most 1000 "):
        await outputs("map", BY_FLOW, {"items": [0] * 1001}, Host({"double": double}))


async def test_map_starts_a_cycle_per_item_so_many_at_once() -> None:
    host = Host({"double": double})
    sent = await outputs("map", {**BY_FLOW, "concurrency": 4}, {"items": list(range(10))}, host)
    assert sent == {"results": [2 * i for i in range(10)], "errors": []}
    assert host.at_once == [4, 4, 2]
    assert host.started == [("double", {"take.item": i}) for i in range(10)]
    assert host.reports == [0, 0.4, 0.8]


async def test_map_gives_all_outputs_unless_one_is_named() -> None:
    config = {key: value for key, value in BY_FLOW.items() if key != "output"}
    sent = await outputs("map", config, {"items": [1]}, Host({"double": double}))
    assert sent["results"] == [{"twice": {"result": 2}}]


async def test_a_failed_cycle_fails_the_map_or_is_collected() -> None:
    items = {"items": [1, "x", 3]}
    with pytest.raises(NodeExecutionException, match=r"at item 1: cycle 2 of flow 'double' ended failed"):
        await outputs("map", BY_FLOW, items, Host({"double": double}))
    sent = await outputs("map", {**BY_FLOW, "on_error": "collect"}, items, Host({"double": double}))
    assert sent["results"] == [2, None, 6]
    assert [error["index"] for error in sent["errors"]] == [1]


async def test_an_output_that_is_not_sent_is_an_error_of_its_item() -> None:
    config = {**BY_FLOW, "output": "twice.other", "on_error": "collect"}
    sent = await outputs("map", config, {"items": [1]}, Host({"double": double}))
    assert sent["results"] == [None]
    assert "sent nothing on 'twice.other'" in sent["errors"][0]["error"]


async def test_map_over_an_unknown_flow() -> None:
    with pytest.raises(NodeExecutionException, match="no flow 'double'"):
        await outputs("map", BY_FLOW, {"items": [1]})
    sent = await outputs("map", {**BY_FLOW, "on_error": "collect"}, {"items": [1, 2]})
    assert sent["results"] == [None, None]
    assert len(sent["errors"]) == 2


async def test_cycles_that_take_too_long_are_given_up() -> None:
    host = Host({"double": double})
    for on_error in ("fail", "collect"):
        call = new_call("map", {**BY_FLOW, "timeout": 60, "on_error": on_error}, {"items": [1]})
        with pytest.raises(Suspend) as caught:
            await once(call, host)
        assert caught.value.delay_s == 60
        call.state, call.children = caught.value.state, []
        if on_error == "fail":
            with pytest.raises(NodeTimeoutException, match="60 s"):
                await once(call, host)
        else:
            assert payloads(await once(call, host))["errors"][0]["index"] == 0


async def test_another_attempt_of_a_map_begins_anew() -> None:
    host = Host({"double": double})
    call = new_call("map", BY_FLOW, {"items": [1]})
    with pytest.raises(Suspend) as caught:
        await once(call, host)
    call.state, call.attempt = caught.value.state, 2
    assert payloads(await to_end(call, host))["results"] == [2]
    assert len(host.started) == 2


async def test_results_that_grow_too_large_are_refused() -> None:
    host = Host({"big": lambda signals: ("completed", {"n": {"out": "x" * 300_000}})})
    with pytest.raises(NodeValidationException, match="larger than"):
        await outputs("map", {"flow": "big", "input": "n.in", "concurrency": 1}, {"items": [0] * 9}, host)


def test_a_bad_map_is_found_at_registration() -> None:
    assert [p.code for p in problems("map", {}, ["items"])] == ["bad_map"]
    assert [p.code for p in problems("map", {"expression": "item", "flow": "f"}, ["items"])] == [
        "bad_map",
        "missing_input",
    ]
    assert [p.code for p in problems("map", {"expression": "item + x"}, ["items"])] == ["unknown_name"]
    assert not problems("map", {"expression": "item + x + index"}, ["items", "x"])
    assert not problems("map", BY_FLOW, ["items"])


async def test_a_subflow_gives_what_its_nodes_sent() -> None:
    host = Host({"double": double})
    config = {"flow": "double", "inputs": {"price": "take.item"}, "timeout": 120}
    call = new_call("subflow", config, {"price": 4})
    with pytest.raises(Suspend) as caught:
        await once(call, host)
    assert caught.value.delay_s == 120
    call.state, call.children = caught.value.state, host.children()
    assert payloads(await once(call, host)) == {"outputs": {"twice": {"result": 8}}}
    assert host.started == [("double", {"take.item": 4})]
    assert "Started cycle 1 of flow double" in host.logs[0][1]


@pytest.mark.parametrize("status", ["failed", "stopped", "timeout"])
async def test_a_subflow_fails_when_its_cycle_did_not_complete(status: str) -> None:
    with pytest.raises(NodeExecutionException, match=f"cycle 1 of flow 'other' ended {status}"):
        await outputs("subflow", {"flow": "other"}, {}, Host({"other": lambda signals: (status, {})}))


async def test_a_subflow_that_takes_too_long_fails() -> None:
    host = Host({"other": lambda signals: ("running", {})})
    with pytest.raises(NodeTimeoutException, match="had not ended after 3600 s"):
        await outputs("subflow", {"flow": "other"}, {}, host)


async def test_another_attempt_of_a_subflow_starts_a_new_cycle_only_after_a_failure() -> None:
    ends = iter(["failed", "completed"])
    host = Host({"other": lambda signals: (next(ends), {"n": {"out": 1}})})
    call = new_call("subflow", {"flow": "other"})
    with pytest.raises(NodeExecutionException):
        await to_end(call, host)
    call.attempt = 2
    assert payloads(await to_end(call, host)) == {"outputs": {"n": {"out": 1}}}
    assert len(host.started) == 2
    call.attempt = 3  # a worker died after the cycle had ended: what was done is not done again
    assert payloads(await once(call, host)) == {"outputs": {"n": {"out": 1}}}
    assert len(host.started) == 2


async def test_a_subflow_that_cannot_start_fails_for_good() -> None:
    with pytest.raises(NodeValidationException, match="no flow 'nobody'"):
        await outputs("subflow", {"flow": "nobody"})
    with pytest.raises(NodeValidationException, match="no value for price"):
        await outputs("subflow", {"flow": "double", "inputs": {"price": "take.item"}}, {}, Host({"double": double}))


def test_a_bad_subflow_is_found_at_registration() -> None:
    found = problems("subflow", {"flow": "f", "inputs": {"a": "n.in", "b": "n"}}, ["b"])
    assert [(p.code, p.path) for p in found] == [("unknown_name", "inputs.a"), ("bad_target", "inputs.b")]
    assert not problems("subflow", {"flow": "f", "inputs": {"a": "n.in"}}, ["a"])
