"""`tradewind apply` is killed (kill -9) at each of its requests: the release is finished, rolled back or taken over."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.cli import apply_process
from tests.cli.conftest import Canned, Cli, StationProcess, station_process
from tests.servers import wait_for
from tests.soak import SOAK
from tradewind.redis.embedded import socket_of
from tradewind.redis.keys import Keys

MODEL = """
    inputs: [{name: x, source: "comsrv:1001:m:1"}]
    calculations: [{id: y, expression: x + NUMBER}]
    outputs: [{field: y, source: y}]
"""
RULE = """
    conditions: [{field: t, operator: ">", value: NUMBER, source: "comsrv:1001:m:1"}]
    actions: [{type: create_alarm, parameters: {level: High, title: hot}}]
"""


def _release(folder: Path, number: int, extra: str) -> Path:
    """A station folder; releases differ in every kind, and have something of their own (`extra`) of most."""
    channel = "    protocol: virtual\n    enabled: false\n"
    channel += f"    points: [{{kind: m, id: 1, name: p, mapping: {{expression: '{number}'}}}}]\n"
    secret = f"    protocol: mqtt\n    enabled: false\n    parameters: {{host: 192.0.2.1, password: word{number}}}\n"
    secret += "    points: [{kind: m, id: 1, name: p, mapping: {topic: a}}]\n"
    policy = f"targets:\n  office: {{url: 'https://example.com/{number}/secret', enabled: false}}\n"
    policy += f"routes: [{{min_level: {('Low', 'Medium', 'High')[number - 1]}, targets: [office]}}]\n"
    files = {
        "channels.yaml": f"channels:\n  - id: 1001\n{channel}  - id: 1003\n{secret}  - id: {2000 + number}\n{channel}",
        "models.yaml": "models:\n"
        + "".join(f"  - name: {name}{MODEL}" for name in ("kept", extra)).replace("NUMBER", str(number))
        + f"templates:\n  - name: t_{extra}\n    properties: {{source: {{type: text}}}}\n"
        + '    inputs: [{name: x, source: "modsrv:{source}:measurement:y"}]\n    outputs: [{field: x, source: x}]\n',
        "rules.yaml": f"groups:\n  - {{id: g_kept, name: g{number}}}\n  - {{id: g_{extra}, name: g}}\nrules:\n"
        + "".join(f"  - id: r_{name}\n    group_id: g_{extra}{RULE}" for name in ("kept", extra)).replace(
            "NUMBER", str(number)
        ),
        "notify.yaml": policy,
        "history.yaml": f"batch_config: {{size: {100 * number}}}\n",
        "flows/kept.yaml": f"interval: {number}h\nnodes:\n  - {{id: a, type: constant, config: {{value: {number}}}}}\n",
        f"flows/{extra}.yaml": "interval: 1h\nnodes:\n  - {id: a, type: constant, config: {value: 1}}\n",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


class Gate:
    """Stands before the station; stops a chosen one of the requests that change something, before or after the station
    has carried it out."""

    def __init__(self, port: int) -> None:
        self.stop_at, self.is_after = -1, False
        self.calls: list[str] = []
        self.held = threading.Event()
        gate = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                # How often it is noted how far it is depends on time, and stops nothing.
                is_change = self.command != "GET" and not self.path.endswith(("/validate", "/done"))
                if is_change:
                    gate.calls.append(f"{self.command} {self.path}")
                is_held = is_change and len(gate.calls) - 1 == gate.stop_at
                if is_held and not gate.is_after:
                    gate.held.set()
                    return
                station = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
                kept = {k: v for k, v in self.headers.items() if k.lower() in ("content-type", "accept")}
                station.request(self.command, self.path, body or None, kept)
                answer = station.getresponse()
                data = answer.read()
                if is_held:
                    gate.held.set()
                    return
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() in ("content-type",):
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
                station.close()

            do_GET = do_POST = do_PUT = do_DELETE = _serve

            def log_message(self, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def kill_apply(self, folder: Path, at: int, *, is_after: bool) -> bool:
        """Start an apply and kill it at that request; False: it has fewer, and has ended."""
        self.calls, self.stop_at, self.is_after = [], at, is_after
        self.held.clear()
        process = apply_process.start(self.url, str(folder))
        wait_for(lambda: self.held.is_set() or not process.is_alive(), "the request", 60)
        process.kill()
        process.join()
        return self.held.is_set()


@pytest.fixture
def own(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[StationProcess]:
    with station_process(tmp_path_factory.mktemp("own")) as station:
        monkeypatch.setenv("TRADEWIND_URL", station.url)
        yield station


@pytest.fixture
def gate(own: StationProcess) -> Iterator[Gate]:
    gate = Gate(own.port)
    yield gate
    gate.server.shutdown()
    gate.server.server_close()


def _state(station: StationProcess) -> dict[str, Any]:
    """Everything that a release changes; versions of channels tell their secrets apart."""

    def get(path: str) -> Any:
        link = http.client.HTTPConnection("127.0.0.1", station.port, timeout=30)
        link.request("GET", f"/api/v1{path}")
        answer = json.loads(link.getresponse().read())
        link.close()
        return answer

    def plain(items: list[dict[str, Any]], *names: str) -> dict[str, Any]:
        return {item["id"]: {name: item.get(name) for name in names} for item in items}

    flows = [item["id"] for item in get("/flows?limit=1000")["items"]]
    return {
        "channels": {item["id"]: item["version"] for item in get("/channels")["items"] if item["version"]},
        "models": {item["name"]: item["config"] for item in get("/models?config=true")["items"]},
        "templates": get("/model-templates")["items"],
        "rules": plain(get("/rules")["items"], "conditions", "actions", "group_id", "enabled"),
        "groups": plain(get("/rule-groups")["items"], "name"),
        "policy": {k: v for k, v in get("/notifications/policy").items() if k != "version"},
        "history": get("/history/policy"),
        "flows": {name: get(f"/flows/{name}")["config"] for name in flows},
    }


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_apply_that_is_killed_at_any_request_is_finished_or_rolled_back(
    cli: Cli, own: StationProcess, gate: Gate, tmp_path: Path
) -> None:
    old, new = _release(tmp_path / "old", 1, "former"), _release(tmp_path / "new", 2, "coming")

    def applied(folder: Path) -> dict[str, Any]:
        ran = cli("apply", "-f", str(folder), "--prune", "--start")
        assert ran.code == 0, ran.err
        return _state(own)

    before, after = applied(old), applied(new)
    assert all(before[kind] != after[kind] for kind in before), "the releases differ in every kind"
    assert applied(old) == before

    def killed(at: int, *, is_after: bool) -> tuple[bool, bool, str]:
        """Whether its journal is there then, whether all steps stand in it, and what it was."""
        assert gate.kill_apply(new, at, is_after=is_after)
        call = gate.calls[-1]
        is_begun = is_after or call != "POST /api/v1/release"
        is_noted = call != "POST /api/v1/release" and (is_after or not call.endswith("/steps"))
        is_ended = is_after and call.startswith("DELETE /api/v1/release")
        return is_begun and not is_ended, is_noted, f"request {at}, {call}, carried out: {is_after}"

    assert not gate.kill_apply(new, 999, is_after=False)
    many = len(gate.calls)
    assert many >= 12, "a request for every kind, and those of the journal"
    applied(old)

    def rolled_back(at: int, *, is_after: bool) -> None:
        is_open, is_noted, where = killed(at, is_after=is_after)
        ran = cli("apply", "--rollback")
        assert ran.code == (0 if is_open else 4), f"{where}: {ran.err}"
        assert _state(own) == (before if is_open or not is_noted else after), f"rolled back after {where}"
        if not is_open:
            applied(old)

    def resumed(at: int, *, is_after: bool) -> None:
        is_open, is_noted, where = killed(at, is_after=is_after)
        ran = cli("apply", "--resume")
        assert ran.code == (0 if is_open else 4), f"{where}: {ran.err}"
        assert _state(own) == (after if is_noted else before), f"resumed after {where}"
        assert cli("apply", "--rollback").code == 4, "the journal is gone"
        assert applied(old) == before

    ways = [(rolled_back, False), (resumed, True), (rolled_back, True), (resumed, False)]
    for at in range(many):  # at every request one way to go on; at the first and the last, which differ most, all
        for go_on, is_after in ways if at in (0, many - 1) or SOAK > 1 else [ways[at % 4]]:
            go_on(at, is_after=is_after)


def test_the_next_apply_takes_an_interrupted_one_over_and_can_be_rolled_back_to_before_both(
    cli: Cli, own: StationProcess, gate: Gate, tmp_path: Path
) -> None:
    old, new = _release(tmp_path / "old", 1, "former"), _release(tmp_path / "new", 2, "coming")
    third = _release(tmp_path / "third", 3, "later")
    assert cli("apply", "-f", str(old)).code == 0
    before = _state(own)
    assert gate.kill_apply(new, 4, is_after=True)
    shown = cli("apply", "-f", str(third), "--dry-run")
    assert "was interrupted" in shown.err and "--rollback" in shown.err
    with redis.Redis(unix_socket_path=str(socket_of(own.data))) as store:
        store.hset(Keys().release(), "beat_ms", 1)  # long ago
    checks = {check["name"]: check for check in cli("doctor", "--data-dir", str(own.data), "--json").json["checks"]}
    assert checks["release"]["status"] == "warn" and "--rollback" in checks["release"]["hint"]
    assert gate.kill_apply(third, 5, is_after=True)
    assert cli("apply", "--rollback").code == 0
    assert _state(own) == before
    assert gate.kill_apply(new, 4, is_after=True)
    ran = cli("apply", "-f", str(third), "--prune")
    assert ran.code == 0 and "takes its place" in ran.err, ran.err
    assert cli("apply", "--resume").code == 4, "it is over"
    assert cli("apply", "-f", str(third), "--prune", "--json").json["changed"] is False


def test_a_release_with_a_step_missing_is_not_finished(cli: Cli, canned: Canned) -> None:
    release = {"id": "r1", "state": "open", "is_ready": True, "total": 3, "done": 1}
    canned.answer("GET /api/v1/release", 200, release)
    canned.answer("GET /api/v1/release/r1/steps", 200, {"steps": []})
    ran = cli("apply", "--resume")
    assert ran.code == 5 and "step 1 of 3 is missing" in ran.err, ran.err
    assert [call for call, _ in canned.asked if not call.startswith("GET")] == [], "nothing was changed, nothing ended"


def test_resume_and_rollback_stand_alone(cli: Cli, station: StationProcess, tmp_path: Path) -> None:
    assert cli("apply").code == 2
    assert cli("apply", "--resume", "--rollback").code == 2
    assert cli("apply", "-f", str(tmp_path), "--resume").code == 2
    assert cli("apply", "--resume").code == 4
    assert cli("apply", "--rollback").code == 4
