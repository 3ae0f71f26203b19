"""`tradewind flow run FILE --once`: a process of its own, an embedded station in it, nothing left behind."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.conftest import Ran, clean_env, run_process

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "flows"
NODES = """
import asyncio, time
from tradewind.flows.node import node

@node
def blow(reason: str = "it blew up") -> str:
    raise RuntimeError(reason)

@node
async def sleepy(seconds: float = 60) -> float:
    await asyncio.sleep(seconds)
    return seconds

@node
def stuck(seconds: float = 60) -> float:
    time.sleep(seconds)
    return seconds
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "my_nodes.py").write_text(NODES)
    (tmp_path / "tmp").mkdir()
    return tmp_path


def once(folder: Path, flow: str | Path, *args: str) -> Ran:
    """`flow` is a file or the nodes of one. What the run made in the temporary folder must be gone."""
    if isinstance(flow, str):
        text, flow = flow, folder / "my-flow.yaml"
        flow.write_text(f"interval: 0\n{text}")
    ran = run_process("flow", "run", str(flow), "--once", *args, cwd=folder, TMPDIR=str(folder / "tmp"))
    assert list((folder / "tmp").iterdir()) == []
    return ran


def test_a_price_leads_to_an_action(folder: Path) -> None:
    ran = once(folder, EXAMPLES / "price-decision-action.yaml")
    assert ran.code == 0
    assert "buy.value" in ran.out
    assert "4 completed, 1 skipped" in ran.out
    assert "decision completed" in ran.err
    assert "buy: Buying APT at 9.5" in ran.err


def test_a_signal_takes_the_place_of_what_a_node_sends(folder: Path) -> None:
    ran = once(folder, EXAMPLES / "price-decision-action.yaml", "--signal", "choice.value=wait", "--json")
    assert ran.code == 0
    assert (ran.json["outputs"], ran.err) == ({"wait": {"value": "wait"}}, "")


def test_three_sources_come_together(folder: Path) -> None:
    ran = once(folder, EXAMPLES / "three-sources.yaml", "--json")
    assert ran.code == 0
    assert ran.json["cycle_status"] == "completed"
    assert ran.json["outputs"] == {"report": {"value": 3.0}}
    assert "Mean power: 3.0 kW" in [line["message"] for line in ran.json["logs"]]


def test_a_condition_that_stops_the_cycle_is_a_good_end(folder: Path) -> None:
    stopped = once(folder, EXAMPLES / "stop-on-condition.yaml")
    assert stopped.code == 0
    assert "stopped by enough" in stopped.out
    assert "2 terminated" in stopped.out
    held = once(folder, EXAMPLES / "stop-on-condition.yaml", "--signal", "enough.value=80", "--json")
    assert held.json["outputs"] == {"report": {"value": 3.0}}


def test_a_failed_cycle_is_exit_1_and_names_node_and_message(folder: Path) -> None:
    nodes = "nodes: [{id: a, type: blow}, {id: b, type: log, config: {message: x}}]\n"
    edges = "edges: [{source: a, source_handle: result, target: b, target_handle: value}]\n"
    ran = once(folder, nodes + edges, "--import", "my_nodes")
    assert ran.code == 1
    assert "error: cycle of 'my-flow' failed: node 'a': RuntimeError: it blew up" in ran.err
    told = once(folder, nodes + edges, "--import", "my_nodes", "--json")
    assert (told.code, told.json["cycle_status"], told.json["nodes"]["b"]["status"]) == (1, "failed", "skipped")


def test_an_invalid_file_is_exit_2_with_all_problems(folder: Path) -> None:
    ran = once(folder, "nodes:\n  - {id: a, type: nope}\n  - {id: a, type: log}\n")
    assert ran.code == 2
    path = folder / "my-flow.yaml"
    assert f"{path}:3 nodes[0].type: " in ran.err
    assert f"{path}:4 nodes[1].id: " in ran.err
    assert f"{path}:4 nodes[1]" in ran.err
    assert once(folder, "nodes: [\n", "--json").json["error"]["code"] == "bad_yaml"
    unknown = once(folder, EXAMPLES / "three-sources.yaml", "--signal", "nope.data=1")
    assert unknown.code == 2
    assert "signals.nope.data" in unknown.err


@pytest.mark.parametrize("type", ["sleepy", "stuck"])
def test_what_takes_too_long_is_exit_7_and_is_not_waited_for(folder: Path, type: str) -> None:
    began = time.monotonic()
    ran = once(folder, f"nodes: [{{id: a, type: {type}}}]\n", "--import", "my_nodes", "--timeout", "0.5")
    assert ran.code == 7
    assert "not done after 0.5 s: a running" in ran.err
    assert time.monotonic() - began < 45


def test_a_flow_may_call_another(folder: Path) -> None:
    (folder / "inner.yaml").write_text("interval: 0\nnodes: [{id: c, type: constant, config: {value: 7}}]\n")
    outer = "nodes: [{id: call, type: subflow, config: {flow: inner}}]\n"
    ran = once(folder, outer, "--with", "inner.yaml", "--json")
    assert ran.code == 0, ran.out
    assert ran.json["outputs"]["call"]["outputs"] == {"c": {"value": 7}}


def test_nodes_find_the_labels_that_they_ask_for(folder: Path) -> None:
    ran = once(folder, "nodes: [{id: a, type: constant, config: {value: 1}, labels: [gpu]}]\n", "--timeout", "20")
    assert ran.code == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_nothing_behind(folder: Path, number: int) -> None:
    (folder / "f.yaml").write_text("interval: 0\nnodes: [{id: a, type: sleepy}]\n")
    command = [sys.executable, "-m", "tradewind.cli", "flow", "run", "f.yaml", "--once", "--import", "my_nodes"]
    env = clean_env(TMPDIR=str(folder / "tmp"))
    with subprocess.Popen(command, cwd=folder, env=env, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "a running\n"
        process.send_signal(number)
        assert process.wait(30) == 130
    assert list((folder / "tmp").iterdir()) == []


def test_a_terminal_shows_a_live_table(folder: Path) -> None:
    """Programs see lines, people a table that moves: drawn, taken away, and then the outcome."""
    text = "nodes: [{id: a, type: delay, config: {seconds: 0.5}}, {id: b, type: constant, config: {value: 1}}]\n"
    (folder / "f.yaml").write_text(f"interval: 0\n{text}")
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "tradewind.cli", "flow", "run", "f.yaml", "--once"]
    env = clean_env(TERM="xterm", COLUMNS="100", LINES="30")
    shown = b""
    try:
        with subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=follower) as process:
            while process.poll() is None or select.select([leader], [], [], 0.1)[0]:
                if select.select([leader], [], [], 0.1)[0]:
                    shown += os.read(leader, 65536)
            assert process.stdout is not None
            out = process.stdout.read().decode()
    finally:
        os.close(leader)
        os.close(follower)
    assert process.returncode == 0
    assert "a.value" in out
    drawn = shown.decode()
    assert "delay" in drawn
    assert "constant" in drawn
    assert drawn.count("\x1b[?25l") == drawn.count("\x1b[?25h") == 1, "the cursor is hidden, and shown again"
