"""The commands of `tradewind flow` against a real station."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.cli.conftest import Canned, Cli, StationProcess, clean_env
from tests.servers import wait_for

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "flows"

APPROVAL = """
interval: 0
nodes:
  - {id: order, type: constant, config: {value: 5}}
  - {id: ask, type: approval, config: {message: "Buy?", approvers: [ann]}}
  - {id: buy, type: log, config: {message: "bought {value.request}"}}
edges:
  - {source: order, source_handle: value, target: ask, target_handle: request}
  - {source: ask, source_handle: approved, target: buy, target_handle: value}
"""
WAITING = """
interval: 0
webhook: true
nodes:
  - {id: news, type: expression, config: {expression: value}, external: [value]}
  - {id: long, type: delay, config: {seconds: 600}}
  - {id: after, type: log, config: {message: "after {value}"}}
edges:
  - {source: long, source_handle: value, target: after, target_handle: value}
"""


@pytest.fixture
def flow_id(cli: Cli, station: StationProcess) -> str:
    """The example with three sources under an id of its own."""
    found = f"three-{uuid.uuid4().hex[:8]}"
    assert cli("flow", "register", str(EXAMPLES / "three-sources.yaml"), "--id", found).code == 0
    return found


def write(folder: Path, text: str) -> tuple[str, str]:
    """A file whose name is the flow's id."""
    flow_id = f"f-{uuid.uuid4().hex[:8]}"
    path = folder / f"{flow_id}.yaml"
    path.write_text(text)
    return flow_id, str(path)


def test_a_flow_is_registered_listed_and_shown(cli: Cli, flow_id: str) -> None:
    listed = cli("flow", "list", "--all", "--json").json["items"]
    assert flow_id in [flow["id"] for flow in listed]
    table = cli("flow", "list", "--status", "registered", "--limit", "1000")
    assert f"{flow_id}" in table.out
    assert "every 1m" in table.out
    shown = cli("flow", "show", flow_id)
    assert shown.code == 0
    assert "result → report.value" in shown.out
    assert cli("flow", "show", flow_id, "--json").json["config"]["nodes"][0]["id"] == "roof"


def test_a_file_without_an_id_is_named_after_itself(cli: Cli, station: StationProcess, tmp_path: Path) -> None:
    flow_id, path = write(tmp_path, APPROVAL)
    ran = cli("flow", "register", path)
    assert (ran.code, ran.out) == (0, f"{flow_id} registered\n")


def test_states_move_as_they_are_told(cli: Cli, station: StationProcess, tmp_path: Path) -> None:
    flow_id, path = write(tmp_path, "interval: 1h\nnodes: [{id: a, type: constant, config: {value: 1}}]\n")

    def wait_ended(count: int) -> None:
        """Starting and resuming begin a cycle at once, and a flow whose cycle runs is not stopped by a drain."""

        def are_ended() -> bool:
            found = cli("flow", "cycles", flow_id, "--json").json["items"]
            return [cycle["status"] for cycle in found] == ["completed"] * count

        wait_for(are_ended, f"the end of {count} cycles", 20)

    assert cli("flow", "register", path, "--start").out == f"{flow_id} running\n"
    wait_ended(1)
    assert cli("flow", "pause", flow_id).out == f"{flow_id} paused\n"
    assert cli("flow", "resume", flow_id).out == f"{flow_id} running\n"
    wait_ended(2)
    assert cli("flow", "drain", flow_id).out == f"{flow_id} stopped\n"
    assert cli("flow", "resume", flow_id).code == 5
    assert cli("flow", "start", flow_id).out == f"{flow_id} running\n"
    assert cli("flow", "stop", flow_id).out == f"{flow_id} stopped\n"


def test_a_refused_flow_names_file_and_line(cli: Cli, station: StationProcess, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("interval: 0\nnodes:\n  - id: a\n    type: constnt\n")
    ran = cli("flow", "register", str(path))
    assert ran.code == 2
    assert f"{path}:4 nodes[0].type: did you mean" in ran.err
    assert cli("flow", "show", "bad").code == 4


def test_of_several_files_the_refused_one_does_not_stop_the_others(
    cli: Cli, station: StationProcess, tmp_path: Path
) -> None:
    good, good_path = write(tmp_path, APPROVAL)
    _, bad_path = write(tmp_path, "interval: 0\nnodes: [{id: a, type: nope}]\n")
    ran = cli("flow", "register", bad_path, good_path, "--json")
    assert ran.code == 2
    assert [flow["id"] for flow in ran.json["items"]] == [good]
    assert ran.json["errors"][0]["id"] == bad_path
    assert cli("flow", "register", good_path, bad_path, "--id", "x").code == 2


def test_a_run_that_is_waited_for_shows_its_nodes(cli: Cli, flow_id: str) -> None:
    ran = cli("flow", "run", flow_id, "--wait", "--timeout", "20")
    assert ran.code == 0
    assert "5 completed" in ran.out
    assert "mean completed" in ran.err
    told = cli("flow", "run", flow_id, "--wait", "--signal", "mean.data=9", "--json").json
    assert (told["cycle"], told["cycle_status"]) == (1, "completed")
    cycles = cli("flow", "cycles", flow_id, "--json").json["items"]
    assert [cycle["cycle"] for cycle in cycles] == [1, 0]
    assert cli("flow", "cycles", flow_id).out.count("completed") >= 2
    assert "more: --before 1" in cli("flow", "cycles", flow_id, "--limit", "1").err
    assert "report" in cli("flow", "status", flow_id, "--cycle", "0").out


def test_a_failed_run_is_exit_1(cli: Cli, station: StationProcess, tmp_path: Path) -> None:
    bad = 'interval: 0\nnodes: [{id: a, type: expression, config: {expression: "1 / zero"}, inputs: {zero: 0}}]\n'
    flow_id, path = write(tmp_path, bad)
    assert cli("flow", "register", path).code == 0
    ran = cli("flow", "run", flow_id, "--wait")
    assert ran.code == 1
    assert "a failed" in ran.err
    assert cli("flow", "status", flow_id, "--watch").code == 1
    assert cli("flow", "status", flow_id).code == 0


def test_a_part_of_a_flow_is_run_with_signals_of_an_earlier_cycle(cli: Cli, flow_id: str) -> None:
    assert cli("flow", "run", flow_id, "--wait").code == 0
    part = ("--node", "mean", "--mode", "downstream", "--from-cycle", "0")
    told = cli("flow", "run", flow_id, *part, "--wait", "--json").json
    states = {name: node["status"] for name, node in told["nodes"].items()}
    assert states == {
        "roof": "skipped",
        "garage": "skipped",
        "battery": "skipped",
        "mean": "completed",
        "report": "completed",
    }
    assert cli("flow", "run", flow_id, "--mode", "sideways", "--node", "mean").code == 2
    assert cli("flow", "again", flow_id, "0", "--wait").code == 0


def test_logs_and_signals_of_a_cycle(cli: Cli, flow_id: str) -> None:
    assert cli("flow", "run", flow_id, "--wait").code == 0
    wait_for(lambda: "Cycle 0 completed" in cli("flow", "logs", flow_id).out, "the record", 10)
    lines = cli("flow", "logs", flow_id).out.splitlines()
    assert "Starting cycle 0" in lines[0]
    assert "report: Mean power: 3.0 kW" in lines[1]
    assert "Mean" in cli("flow", "logs", flow_id, "--node", "report", "--cycle", "0", "--level", "info").out
    assert cli("flow", "logs", flow_id, "--level", "error").out == "no lines\n"
    assert cli("flow", "logs", flow_id, "--level", "loud").code == 2
    newest = cli("flow", "logs", flow_id, "--limit", "1")
    assert "Cycle 0 completed" in newest.out
    assert "earlier ones: --cursor" in newest.err
    signals = cli("flow", "signals", flow_id, "0", "--node", "report", "--json").json["items"]
    assert [(s["source_node"], s["target_node"], s["payload"]) for s in signals] == [
        ("mean", "report", 3.0),
        ("report", "", 3.0),
    ]
    assert "mean.result" in cli("flow", "signals", flow_id, "0").out


def test_followed_logs_go_on_with_what_comes(cli: Cli, station: StationProcess, flow_id: str) -> None:
    command = [
        sys.executable,
        "-m",
        "tradewind.cli",
        "flow",
        "logs",
        flow_id,
        "--follow",
        "--json",
        "--url",
        station.url,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=clean_env()) as process:
        assert process.stdout is not None
        try:
            for cycle in (0, 1):
                assert cli("flow", "run", flow_id, "--wait").code == 0
                told = [json.loads(process.stdout.readline()) for _ in range(3)]
                assert [line["message"] for line in told] == [
                    f"Starting cycle {cycle}",
                    "Mean power: 3.0 kW",
                    f"Cycle {cycle} completed",
                ]
        finally:
            process.kill()


def test_an_approval_waits_and_is_answered(cli: Cli, station: StationProcess, tmp_path: Path) -> None:
    flow_id, path = write(tmp_path, APPROVAL)
    assert cli("flow", "register", path).code == 0

    def is_asked() -> bool:
        return bool(cli("flow", "status", flow_id, "--json").json["nodes"]["ask"]["status"] == "awaiting_input")

    for cycle, (answer, end) in enumerate([((), "completed"), (("--reject", "--note", "too dear"), "skipped")]):
        assert cli("flow", "run", flow_id).out == f"{flow_id} cycle {cycle} started\n"
        wait_for(is_asked, "the question", 10)
        late = cli("flow", "status", flow_id, "--watch", "--timeout", "0.3")
        assert late.code == 7
        refused = cli("flow", "approve", flow_id, str(cycle), "ask", "--by", "eve", *answer)
        assert refused.code == 2 and "eve may not decide" in refused.err
        assert is_asked()
        ran = cli("flow", "approve", flow_id, str(cycle), "ask", "--by", "ann", *answer)
        assert (ran.code, ran.out) == (0, "ask: given\n")
        told = cli("flow", "status", flow_id, "--watch", "--json").json
        assert told["nodes"]["buy"]["status"] == end
        assert cli("flow", "approve", flow_id, str(cycle), "ask", "--by", "ann").code == 5


def test_what_waits_is_explained_given_and_stopped(cli: Cli, station: StationProcess, tmp_path: Path) -> None:
    flow_id, path = write(tmp_path, WAITING)
    assert cli("flow", "register", path).code == 0
    assert cli("flow", "run", flow_id).code == 0
    assert "waits for long:value" in cli("flow", "why", flow_id, "0", "after").out
    assert cli("flow", "input", flow_id, "0", "news", '{"a": 1}').code == 0
    assert cli("flow", "input", flow_id, "0", "long", "1", "--handle", "nope").code == 2
    assert cli("flow", "why", flow_id, "0", "nope").code == 4
    assert cli("flow", "terminate", flow_id, "0", "long", "--reason", "enough").out == "node long: asked to stop\n"
    told = cli("flow", "status", flow_id, "--watch", "--json").json
    assert {name: node["status"] for name, node in told["nodes"].items()} == {
        "news": "completed",
        "long": "terminated",
        "after": "skipped",
    }
    assert cli("flow", "terminate", flow_id, "0", "long").code == 5

    assert cli("flow", "webhook", flow_id, '"hi"').out == f"{flow_id} cycle 1 started\n"
    component = cli("flow", "status", flow_id, "--json").json["nodes"]["long"]["component_id"]
    assert cli("flow", "stop-component", flow_id, "1", str(component)).code == 0
    assert cli("flow", "status", flow_id, "--watch", "--json").json["nodes"]["news"]["status"] == "completed"

    assert cli("flow", "webhook", flow_id).code == 0
    assert cli("flow", "stop-cycle", flow_id, "2").out == "cycle 2: asked to stop\n"
    ended = cli("flow", "status", flow_id, "--watch", "--json")
    assert (ended.code, ended.json["cycle_status"]) == (1, "stopped")


def test_delete_asks_first_and_leaves_nothing(cli: Cli, flow_id: str) -> None:
    refused = cli("flow", "delete", flow_id)
    assert refused.code == 2
    assert "--yes" in refused.err
    assert cli("flow", "show", flow_id).code == 0
    assert cli("flow", "delete", flow_id, "--yes").out == f"{flow_id} deleted\n"
    assert cli("flow", "show", flow_id).code == 4
    assert cli("flow", "delete", flow_id, "nope", "--yes", "--json").code == 4


def test_node_types_are_listed_and_shown(cli: Cli, station: StationProcess) -> None:
    listed = cli("node-type", "list", "--category", "control", "--json").json["items"]
    assert [kind["type"] for kind in listed] == ["condition", "delay", "switch"]
    assert "aggregate" in cli("node-type", "list").out
    shown = cli("node-type", "show", "condition")
    assert "on_false" in shown.out
    assert "Sent when the expression holds" in shown.out
    unknown = cli("node-type", "show", "nope")
    assert unknown.code == 4
    assert "aggregate" in unknown.err


@pytest.mark.parametrize(
    ("args", "hint"),
    [
        (("flow.yaml",), "--once"),
        (("f", "--import", "m"), "only with --once"),
        (("f", "--once", "--wait"), "it always waits"),
        (("f", "--signal", "price=5"), "give node.handle=JSON"),
        (("f", "--signal", "a.b=1", "--signal", "a.b=2"), "given twice"),
    ],
)
def test_a_run_that_makes_no_sense_is_exit_2(cli: Cli, canned: Canned, args: tuple[str, ...], hint: str) -> None:
    ran = cli("flow", "run", *args)
    assert ran.code == 2
    assert hint in ran.err
    assert canned.asked == []


def test_a_run_carries_signals_and_its_part(cli: Cli, canned: Canned) -> None:
    canned.answer("POST /api/v1/flows/f/cycles", 201, {"flow_id": "f", "cycle": 3})
    given = (
        "--signal",
        'a.x={"k": [1]}',
        "--signal",
        "a.y=word",
        "--node",
        "a",
        "--mode",
        "upstream",
        "--from-cycle",
        "2",
    )
    ran = cli("flow", "run", "f", *given)
    assert (ran.code, ran.out) == (0, "f cycle 3 started\n")
    signals = {"a.x": {"k": [1]}, "a.y": "word"}
    body = {"signals": signals, "node": "a", "mode": "upstream", "from_cycle": 2}
    assert canned.asked == [("POST /api/v1/flows/f/cycles", body)]
