"""`condition`, `switch` and `delay`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.nodes.host import Host, new_call, once, outputs, payloads, problems, to_end
from tradewind.flows.call import Stop, Suspend
from tradewind.flows.node_errors import NodeValidationException


async def test_a_condition_goes_on_at_one_handle_only() -> None:
    config = {"expression": "price < threshold"}
    assert await outputs("condition", config, {"price": 1, "threshold": 2}) == {"true": True}
    assert await outputs("condition", config, {"price": 3, "threshold": 2}) == {"false": False}


async def test_a_condition_passes_its_value_on() -> None:
    config = {"expression": "value['close'] > 1"}
    assert await outputs("condition", config, {"value": {"close": 5}}) == {"true": {"close": 5}}
    assert await outputs("condition", {"expression": "ok"}, {"ok": 0, "value": None}) == {"false": None}


@pytest.mark.parametrize(
    ("stop", "price", "reason"),
    [
        ("never", 3, None),
        (False, 3, None),
        ("on_false", 3, "Condition not met: price < 2"),
        (True, 3, "Condition not met: price < 2"),
        ("on_false", 1, None),
        ("on_true", 1, "Condition met: price < 2"),
        ("on_true", 3, None),
    ],
)
async def test_a_condition_stops_the_rest_when_told(stop: Any, price: int, reason: str | None) -> None:
    result = await once(new_call("condition", {"expression": "price < 2", "stop": stop}, {"price": price}))
    assert result.stop == (Stop(reason) if reason else None)
    assert payloads(result) == ({"true": True} if price < 2 else {"false": False})


async def test_a_stop_can_end_the_whole_flow() -> None:
    result = await once(new_call("condition", {"expression": "0", "stop": True, "scope": "flow"}))
    assert result.stop == Stop("Condition not met: 0", "flow")


async def test_a_condition_refuses_other_words() -> None:
    for wrong in ({"stop": "sometimes"}, {"scope": "world"}, {"expresion": "1"}):
        with pytest.raises(NodeValidationException):
            await outputs("condition", {"expression": "1", **wrong})
    assert problems("condition", {"expression": "1 +"})
    assert problems("condition", {"expression": "price > 1"}, ["value"])


@pytest.mark.parametrize(
    ("result", "handle"),
    [("buy", "go_buy"), ("sell", "go_sell"), ("hold", "other"), (None, "other")],
)
@pytest.mark.parametrize(
    "cases",
    [
        {"buy": "go_buy", "sell": "go_sell"},
        [{"equals": "buy", "handle": "go_buy"}, {"equals": "sell", "handle": "go_sell"}],
        [{"when": "result == 'buy'", "handle": "go_buy"}, {"when": "value == 'sell'", "handle": "go_sell"}],
    ],
)
async def test_a_switch_takes_the_first_case_that_fits(cases: Any, result: Any, handle: str) -> None:
    assert await outputs("switch", {"cases": cases, "default": "other"}, {"value": result}) == {handle: result}


@pytest.mark.parametrize(
    ("value", "handle"), [(1, "one"), (1.0, "one"), (True, "yes"), (False, "else"), (0, "else"), ([1], "list")]
)
async def test_true_is_not_one_for_a_switch(value: Any, handle: str) -> None:
    cases = [{"equals": 1, "handle": "one"}, {"equals": True, "handle": "yes"}, {"equals": [1], "handle": "list"}]
    config = {"expression": "x", "cases": cases, "default": "else"}
    assert await outputs("switch", config, {"x": value}) == {handle: value}


async def test_a_mapping_compares_values_as_json() -> None:
    config = {"expression": "x > 1", "cases": {"true": "high", "false": "low"}}
    assert await outputs("switch", config, {"x": 2}) == {"high": True}
    assert await outputs("switch", config, {"x": 0, "value": "passed"}) == {"low": "passed"}
    assert await outputs("switch", {"expression": "x", "cases": {"3": "three", "null": "none"}}, {"x": 3}) == {
        "three": 3
    }


async def test_a_switch_without_a_fitting_case_sends_nothing_and_says_so() -> None:
    host = Host()
    assert await outputs("switch", {"cases": {"a": "b"}}, {"value": "z"}, host) == {}
    assert host.logs == [("WARNING", "No case fits z, and there is no default", None)]


def test_bad_cases_are_problems_of_the_config() -> None:
    cases = [{"handle": "a"}, {"handle": "b", "equals": 1, "when": "x"}, {"handle": "c", "when": "y >"}]
    found = problems("switch", {"expression": "x", "cases": cases}, ["x"])
    assert [p.path.split(" ")[0] for p in found] == ["cases[0]", "cases[1]", "cases[2].when"]
    assert problems("switch", {"cases": {}}, ["x"])[0].path == "expression"  # `value` is not wired


async def test_a_delay_waits_without_running_and_passes_on() -> None:
    call = new_call("delay", {"seconds": 90}, {"value": [1], "other": 2})
    with pytest.raises(Suspend) as caught:
        await once(call)
    assert caught.value.delay_s == 90
    assert payloads(await to_end(call)) == {"value": [1], "other": 2}


async def test_a_delay_of_nothing_does_not_wait() -> None:
    assert payloads(await once(new_call("delay", {"seconds": 0}, {"value": 1}))) == {"value": 1}


async def test_a_delay_at_the_start_of_a_flow_sends_null() -> None:
    assert await outputs("delay", {"seconds": 1}) == {"value": None}


@pytest.mark.parametrize("seconds", [-1, 1e9, "soon"])
async def test_a_delay_has_bounds(seconds: Any) -> None:
    with pytest.raises(NodeValidationException):
        await outputs("delay", {"seconds": seconds})
