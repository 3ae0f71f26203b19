"""The flows of a real station on the live page: the table, one flow with its graph, what can be done there."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cli.conftest import StationProcess, station_process
from tests.web.browser import Page, open_page

HOSTILE = "<img src=x onerror=document.title='broken'>"
CHAIN = 250


def flow(flow_id: str, nodes: list[dict[str, Any]], edges: list[str], **more: Any) -> dict[str, Any]:
    """Edges as `source.handle target.handle`."""
    ends = [[end.split(".") for end in edge.split()] for edge in edges]
    wired = [{"source": a, "source_handle": b, "target": c, "target_handle": d} for (a, b), (c, d) in ends]
    return {"id": flow_id, "interval": 0, "nodes": nodes, "edges": wired, **more}


FLOWS = [
    flow(
        "ask",
        [
            {"id": "offer", "type": "constant", "config": {"value": {"amount": 5}}},
            {"id": "boss", "type": "approval", "config": {"approvers": ["ada"]}},
            {"id": "sell", "type": "log", "config": {"message": "sold by {value.by}"}},
            {"id": "keep", "type": "log", "config": {"message": "kept"}},
        ],
        ["offer.value boss.request", "boss.approved sell.value", "boss.rejected keep.value"],
    ),
    flow(
        "broken",
        [
            {"id": "bad", "type": "expression", "config": {"expression": "1 / zero"}, "inputs": {"zero": 0}},
            {"id": "after", "type": "log", "config": {"message": "never"}},
            {"id": "other", "type": "log", "config": {"message": HOSTILE}},
        ],
        ["bad.result after.value"],
        description=HOSTILE,
    ),
    flow(
        "wait",
        [
            {"id": "give", "type": "expression", "config": {"expression": "x * 2"}, "external": ["x"]},
            {"id": "say", "type": "log", "config": {"message": "got {value}"}},
        ],
        ["give.result say.value"],
        interval="1h",
    ),
    flow(
        "long",
        [{"id": f"n{i}", "type": "delay", "config": {"seconds": 0}} for i in range(CHAIN)],
        [f"n{i - 1}.value n{i}.value" for i in range(1, CHAIN)],
    ),
]


def ask(station: StationProcess, method: str, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{station.url}/api/v1/{path}", data, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        text = answer.read()
    return json.loads(text) if text else None


@pytest.fixture(scope="module")
def station(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StationProcess]:
    with station_process(tmp_path_factory.mktemp("station")) as station:
        for definition in FLOWS:
            ask(station, "POST", "flows", definition)
        yield station


@pytest.fixture
def page(station: StationProcess) -> Iterator[Page]:
    with open_page() as page:
        page.open(station.url)
        page.wait_until(f"document.querySelectorAll('#flows tbody tr').length === {len(FLOWS)}")
        yield page


def look(page: Page, **chosen: Any) -> None:
    page.evaluate(f"location.hash = new URLSearchParams({json.dumps(chosen)}).toString()")
    page.wait_until(f"document.querySelector('#flow .bar .name').textContent === {json.dumps(chosen['flow'])}")


def press(page: Page, selector: str, label: str) -> None:
    """The button with that text or label, once it is there."""
    found = (
        f"[...document.querySelectorAll({json.dumps(selector + ' button')})]"
        f".find(each => each.textContent === {json.dumps(label)} && !each.hidden)"
    )
    page.wait_until(f"Boolean({found})")
    page.evaluate(f"{found}.click()")


def states(page: Page) -> dict[str, str]:
    shown = "[...document.querySelectorAll('#graph .node')].map(each => [each.dataset.node, each.dataset.state])"
    return dict(page.evaluate(shown))


def wait_for_states(page: Page, wanted: dict[str, str]) -> None:
    end = time.monotonic() + 20
    while states(page) != wanted:
        assert time.monotonic() < end, f"{states(page)}\n{page.text('#flow')}\n{page.complaints}"
        time.sleep(0.05)


def test_an_approval_is_asked_for_and_given_on_the_page(station: StationProcess, page: Page) -> None:
    press(page, "#flows tbody tr:nth-child(1)", "Run now")
    look(page, flow="ask")
    wait_for_states(page, {"offer": "completed", "boss": "awaiting_input", "sell": "pending", "keep": "pending"})
    press(page, "#nodes", "Approve")
    page.evaluate("document.getElementById('ask-by').value = 'ada'")
    press(page, "dialog", "Approve")
    wait_for_states(page, {"offer": "completed", "boss": "completed", "sell": "completed", "keep": "skipped"})
    page.wait_until("document.querySelector('#logs').innerText.includes('sold by ada')")
    page.wait_until("document.querySelector('#cycles tbody').innerText.includes('3 completed, 1 skipped')")
    assert page.evaluate("localStorage.getItem('tradewind.name')") == "ada"
    assert page.complaints == []


def test_an_edge_shows_its_signals_and_a_node_why_it_stands_so(station: StationProcess, page: Page) -> None:
    cycle = ask(station, "POST", "flows/ask/cycles?wait=0.5", {})["cycle"]
    look(page, flow="ask", cycle=cycle)
    wait_for_states(page, {"offer": "completed", "boss": "awaiting_input", "sell": "pending", "keep": "pending"})
    page.evaluate("document.querySelector('#graph .edge[data-source=offer]').dispatchEvent(new MouseEvent('click'))")
    page.wait_until("document.querySelector('#signals tbody')?.innerText.includes('amount')")
    assert "offer → boss" in page.text("#signals .head")
    page.evaluate("document.querySelector('#graph .node[data-node=sell]').dispatchEvent(new MouseEvent('click'))")
    page.wait_until("document.querySelector('#why').innerText.includes('boss:approved')")
    press(page, "#cycles", "Stop")
    press(page, "dialog", "Stop")
    wait_for_states(page, {"offer": "completed"} | dict.fromkeys(["boss", "sell", "keep"], "terminated"))


def test_a_failure_is_shown_where_it_happened_and_nothing_is_read_as_html(station: StationProcess, page: Page) -> None:
    ask(station, "POST", "flows/broken/cycles?wait=10", {})
    look(page, flow="broken", node="bad")
    wait_for_states(page, {"bad": "failed", "after": "skipped", "other": "completed"})
    page.wait_until("document.querySelector('#why').innerText.includes('division by zero')")
    assert "division by zero" in page.text("#cycles tbody")
    look(page, flow="broken")
    page.wait_until("document.querySelector('#logs').innerText.includes('onerror')")
    assert page.text("#flow .bar .about") == HOSTILE
    assert page.evaluate("document.querySelectorAll('main img, main b').length") == 0
    assert page.evaluate("document.title") != "broken"


def test_states_of_a_flow_are_changed_by_its_buttons(station: StationProcess, page: Page) -> None:
    row = "#flows tbody tr:nth-child(4)"

    def is_now(status: str) -> None:
        page.wait_until(f"document.querySelector('{row} .status').textContent === '{status}'")

    press(page, row, "Start")
    is_now("running")
    page.wait_until(f"/every 1h.*in (59 m|1 h)/s.test(document.querySelector('{row}').innerText)")
    press(page, row, "Pause")
    is_now("paused")
    press(page, row, "Resume")
    is_now("running")
    press(page, row, "Stop")
    assert page.evaluate("document.activeElement.textContent") == "Cancel"
    press(page, "dialog", "Cancel")
    assert ask(station, "GET", "flows/wait")["status"] == "running"
    press(page, row, "Stop")
    press(page, "dialog", "Stop")
    is_now("stopped")


def test_a_signal_from_outside_is_given_and_a_bad_one_is_refused(station: StationProcess, page: Page) -> None:
    ask(station, "POST", "flows/wait/cycles", {})
    look(page, flow="wait")
    wait_for_states(page, {"give": "awaiting_input", "say": "pending"})
    press(page, "#nodes", "Give input")
    page.wait_until("document.getElementById('ask-handle')?.value === 'x'")
    page.evaluate("document.getElementById('ask-value').value = 'twenty'")
    press(page, "dialog", "Give input")
    page.wait_until("document.getElementById('notice').textContent === 'The value is not JSON.'")
    press(page, "#nodes", "Give input")
    page.wait_until("Boolean(document.getElementById('ask-value'))")
    page.evaluate("document.getElementById('ask-value').value = '21'")
    press(page, "dialog", "Give input")
    wait_for_states(page, {"give": "completed", "say": "completed"})
    page.wait_until("document.querySelector('#logs').innerText.includes('got 42')")


def test_the_graph_is_walked_with_the_arrow_keys(station: StationProcess, page: Page) -> None:
    look(page, flow="ask")
    page.wait_until("document.querySelectorAll('#graph .node').length === 4")
    assert page.evaluate("document.querySelectorAll('#graph .node[tabindex=\"0\"]').length") == 1
    page.evaluate("document.querySelector('#graph .node[data-node=offer]').focus()")
    for key, node in [("ArrowRight", "boss"), ("ArrowRight", "sell"), ("ArrowDown", "keep"), ("ArrowLeft", "boss")]:
        page.evaluate(
            f"document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {{key: '{key}', bubbles: true}}))"
        )
        assert page.evaluate("document.activeElement.dataset.node") == node
    page.evaluate("document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter', bubbles: true}))")
    page.wait_until("location.hash.includes('node=boss')")


def test_the_layout_goes_from_left_to_right_and_nothing_lies_upon_another(page: Page) -> None:
    graph = """import('./static/graph.js').then(({ layout }) => {
        const ids = Array.from({ length: 200 }, (_, i) => `n${i}`);
        const pairs = ids.flatMap((id, i) => [7, 11].filter((d) => i % 5 && i + d < 200)
            .map((d) => ({ source: id, target: `n${i + d}` })));
        const { places, width, height } = layout(ids, pairs);
        const spots = [...places.values()];
        return {
            apart: new Set(spots.map(({ x, y }) => `${x},${y}`)).size,
            forward: pairs.every(({ source, target }) => places.get(source).x + 156 < places.get(target).x),
            inside: spots.every(({ x, y }) => x >= 0 && y >= 0 && x + 156 <= width && y + 40 <= height),
            loops: layout(['a', 'b'], [{ source: 'a', target: 'b' }, { source: 'b', target: 'a' }]).places.size,
        };
    })"""
    assert page.evaluate(graph) == {"apart": 200, "forward": True, "inside": True, "loops": 2}


def test_a_flow_registered_again_is_drawn_as_it_runs_now(station: StationProcess, page: Page) -> None:
    one = [{"id": "old", "type": "constant", "config": {"value": 1}}]
    ask(station, "POST", "flows", flow("changing", one, [], interval="1h"))
    ask(station, "POST", "flows/changing/cycles?wait=10", {})
    look(page, flow="changing")
    wait_for_states(page, {"old": "completed"})
    ask(station, "POST", "flows", flow("changing", [{**one[0], "id": "new"}], [], interval="1h"))
    ask(station, "POST", "flows/changing/cycles?wait=10", {})
    wait_for_states(page, {"new": "completed"})
    look(page, flow="changing", cycle=0)
    wait_for_states(page, {"new": "none", "old": "completed"})
    ask(station, "DELETE", "flows/changing")


def test_a_flow_too_big_to_draw_is_a_table(station: StationProcess, page: Page) -> None:
    ask(station, "POST", "flows/long/cycles?wait=30", {})
    look(page, flow="long")
    page.wait_until(f"document.querySelectorAll('#nodes tbody tr').length === {CHAIN}")
    assert "More than 200 nodes are not drawn" in page.text("#graph")
    assert page.evaluate("document.querySelectorAll('#graph .node').length") == 0


def test_the_flow_is_shown_in_chinese_and_one_that_is_gone_says_so(station: StationProcess, page: Page) -> None:
    page.evaluate("document.getElementById('language').click()")
    assert page.text("#flows h2") == "流程"
    ask(station, "POST", "flows", {**FLOWS[0], "id": "short-lived"})
    look(page, flow="short-lived")
    page.wait_until("document.querySelector('#flow .bar .status').textContent === '已注册'")
    press(page, "#flow .bar", "删除")
    press(page, "dialog", "删除")
    page.wait_until("document.querySelector('#flow').hidden")
    assert "已删除" in page.text("#notice")
    look(page, flow="short-lived")
    page.wait_until("document.querySelector('#flow > .empty').innerText.includes('short-lived')")
    page.evaluate("document.getElementById('language').click()")
