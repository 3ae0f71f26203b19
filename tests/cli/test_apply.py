"""`tradewind apply` against a real station: the folder as a whole, the difference, and only what differs."""

from __future__ import annotations

import random
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Canned, Cli, StationProcess, station_process
from tests.servers import wait_for

#: The second feeds the first, so they cannot be put in the order of the file.
MODELS = """\
models:
  - name: NAME_b
    inputs: [{name: x, source: "modsrv:NAME_a:measurement:y"}]
    calculations: [{id: z, expression: x * 2}]
    outputs: [{field: z, source: z}]
  - name: NAME_a
    inputs: [{name: x, source: "comsrv:NUMBER:m:1"}]
    calculations: [{id: y, expression: x + 1}]
    outputs: [{field: y, source: y}]
"""
INSTANCE = """\
  - name: NAME_c
    template: NAME_t
    properties: {source: NAME_b}
templates:
  - name: NAME_t
    properties: {source: {type: text}}
    inputs: [{name: x, source: "modsrv:{source}:measurement:z"}]
    outputs: [{field: x, source: x}]
"""
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "microgrid"


class Folder:
    """A station folder with names of its own, so that tests can share a station."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.number = str(random.randrange(10**9, 10**12))
        self.name = f"n{self.number}"
        self.write(
            "channels.yaml",
            f"channels:\n  - id: {self.number}\n    protocol: virtual\n    poll_interval_ms: 100\n",
        )
        self.write(f"{self.number}/telemetry.csv", "point_id,name,unit,scale\n1,power,kW,1\n2,other,kW,1\n")
        self.write("models.yaml", MODELS.replace("NAME", self.name).replace("NUMBER", self.number))
        self.write(
            f"flows/{self.name}.yaml",
            "interval: 1h\nnodes:\n  - {id: a, type: constant, config: {value: 1}}\n",
        )

    def write(self, name: str, text: str) -> None:
        (self.path / name).parent.mkdir(parents=True, exist_ok=True)
        (self.path / name).write_text(text)

    def change(self, name: str, old: str, new: str) -> None:
        text = (self.path / name).read_text()
        assert old in text
        self.write(name, text.replace(old, new))


@pytest.fixture
def folder(tmp_path: Path, station: StationProcess) -> Folder:
    return Folder(tmp_path)


def apply(cli: Cli, folder: Folder, *flags: str) -> dict[str, Any]:
    ran = cli("apply", "-f", str(folder.path), "--json", *flags)
    assert ran.code == 0, ran.out
    answer: dict[str, Any] = ran.json
    return answer


def test_a_folder_is_applied_and_a_second_time_changes_nothing(cli: Cli, folder: Folder) -> None:
    first = apply(cli, folder)
    assert first["changes"]["channels"]["added"] == [folder.number]
    assert set(first["changes"]["models"]["added"]) == {f"{folder.name}_a", f"{folder.name}_b"}
    assert first["changes"]["flows"]["added"] == [folder.name]
    assert cli("channel", "show", folder.number).code == 0
    assert cli("model", "show", f"{folder.name}_b").code == 0
    assert cli("flow", "show", folder.name, "--json").json["status"] == "registered"
    second = cli("apply", "-f", str(folder.path))
    assert (second.code, second.out.splitlines()[-1]) == (0, "no difference (4 unchanged)")


def test_a_dry_run_shows_the_difference_and_changes_nothing(cli: Cli, folder: Folder) -> None:
    shown = cli("apply", "-f", str(folder.path), "--dry-run")
    assert shown.code == 0
    assert f"+ channel {folder.number}" in shown.out
    assert "would apply: 4; unchanged: 0" in shown.out
    assert cli("channel", "show", folder.number).code == 4
    apply(cli, folder)
    folder.change(f"{folder.number}/telemetry.csv", "1,power,kW,1", "1,power,kW,0.1")
    folder.change("models.yaml", "x + 1", "x + 3")
    shown = cli("apply", "-f", str(folder.path), "--dry-run")
    assert "~ points[m:1].scale: 1.0 → 0.1" in shown.out
    assert '~ calculations[y].expression: "x + 1" → "x + 3"' in shown.out
    assert "would apply: 2; unchanged: 2" in shown.out
    assert apply(cli, folder)["changed"] is True
    assert apply(cli, folder)["changed"] is False


def test_everything_that_is_wrong_is_told_at_once_with_file_and_line(cli: Cli, folder: Folder) -> None:
    folder.change(f"{folder.number}/telemetry.csv", "2,other,kW,1", "2,other,kW,much")
    folder.change("models.yaml", "x * 2", "x *")
    folder.change(f"flows/{folder.name}.yaml", "interval: 1h", "interval: sometimes")
    ran = cli("apply", "-f", str(folder.path))
    assert ran.code == 2
    assert "3 problems in" in ran.err
    assert f"{folder.number}/telemetry.csv:3:scale: " in ran.err
    assert "models.yaml:4:calculations[0].expression: " in ran.err
    assert f"flows/{folder.name}.yaml:1:interval: " in ran.err
    assert cli("channel", "show", folder.number).code == 4


def test_bad_rows_can_be_left_out_but_nothing_else(cli: Cli, folder: Folder) -> None:
    table = f"{folder.number}/telemetry.csv"
    folder.change(table, "2,other,kW,1", "2,other,kW,much\n3,third,kW,1")
    shown = apply(cli, folder, "--skip-bad")
    assert [problem["path"] for problem in shown["left_out"]] == [f"{table}:3:scale"]
    points = cli("channel", "show", folder.number, "--json").json["config"]["points"]
    assert [point["id"] for point in points] == ["1", "3"]
    told = cli("apply", "-f", str(folder.path), "--skip-bad")
    assert told.code == 0 and f"left out: {table}:3:scale: " in told.err
    folder.change("models.yaml", "x * 2", "x *")
    ran = cli("apply", "-f", str(folder.path), "--skip-bad")
    assert ran.code == 2 and "1 problem in" in ran.err
    folder.write(table, "name,unit\npower,kW\n")
    assert cli("apply", "-f", str(folder.path), "--skip-bad").code == 2, "a table without ids is more than a bad row"


def test_what_only_the_station_can_know_is_checked_before_anything_is_changed(cli: Cli, folder: Folder) -> None:
    folder.change(f"flows/{folder.name}.yaml", "type: constant", "type: nowhere")
    ran = cli("apply", "-f", str(folder.path))
    assert ran.code == 2
    assert f"flows/{folder.name}.yaml:3:nodes[0].type" in ran.err
    assert cli("channel", "show", folder.number).code == 4
    assert cli("model", "show", f"{folder.name}_a").code == 4


def test_bad_files_are_told_without_a_station(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRADEWIND_URL", "http://127.0.0.1:1")
    folder = Folder(tmp_path)
    assert cli("apply", "-f", str(tmp_path)).code == 6
    folder.change("channels.yaml", "protocol: virtual", "protocol: virtuel")
    folder.write("flows/broken.yaml", "a: [")
    ran = cli("apply", "-f", str(tmp_path))
    assert ran.code == 2
    assert 'channels.yaml:3:protocol: did you mean "virtual"?' in ran.err
    assert "flows/broken.yaml:" in ran.err


def test_a_folder_without_definitions_is_refused(cli: Cli, tmp_path: Path) -> None:
    assert cli("apply", "-f", str(tmp_path / "none")).code == 2
    ran = cli("apply", "-f", str(tmp_path))
    assert ran.code == 2
    assert "tradewind init" in ran.err


def test_what_is_not_in_the_folder_stays_unless_pruned(cli: Cli, folder: Folder) -> None:
    """On a station of its own kind: pruning removes what other tests made, so only the plan is looked at."""
    apply(cli, folder)
    text = (folder.path / "models.yaml").read_text()
    folder.write("models.yaml", "models:\n" + text[text.index(f"  - name: {folder.name}_a") :])
    kept = apply(cli, folder)
    assert f"{folder.name}_b" in kept["changes"]["models"]["kept"]
    assert kept["changed"] is False
    planned = apply(cli, folder, "--prune", "--dry-run")
    assert f"{folder.name}_b" in planned["changes"]["models"]["removed"]
    assert cli("model", "show", f"{folder.name}_b").code == 0


def test_a_kind_without_files_is_not_pruned(cli: Cli, folder: Folder) -> None:
    apply(cli, folder)
    (folder.path / "models.yaml").unlink()
    planned = apply(cli, folder, "--prune", "--dry-run")
    assert planned["changes"]["models"]["removed"] == []
    assert f"{folder.name}_a" in planned["changes"]["models"]["kept"]


def no_rules(canned: Canned) -> None:
    """A station without rules, and without a release that was interrupted."""
    canned.refuse("GET /api/v1/release", 404, "no_release", "no release is open")
    canned.answer("POST /api/v1/release", 201, {"id": "r1"})
    for path in ("steps", "done"):
        canned.answer(f"POST /api/v1/release/r1/{path}", 204, b"")
    canned.answer("DELETE /api/v1/release/r1", 204, b"")
    canned.answer("GET /api/v1/rules", 200, {"items": [], "next_cursor": None})
    canned.answer("GET /api/v1/rule-groups", 200, {"items": []})
    canned.answer("GET /api/v1/notifications/policy", 200, {"version": 0, "targets": {}})


def test_pruning_removes_flows_before_models_before_channels(cli: Cli, canned: Canned, tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write("channels.yaml", "channels: []\n")
    for name in (f"{folder.number}/telemetry.csv", f"flows/{folder.name}.yaml"):
        (tmp_path / name).unlink()
    (tmp_path / folder.number).rmdir()
    folder.write("models.yaml", "models: []\n")
    no_rules(canned)
    canned.answer("GET /api/v1/channels", 200, {"items": [{"id": "1", "version": "v"}], "next_cursor": None})
    canned.answer("GET /api/v1/model-templates", 200, {"items": [{"name": "t"}]})
    canned.answer("GET /api/v1/models", 200, {"items": [{"name": "m", "config": {}}], "next_cursor": None})
    canned.answer("GET /api/v1/flows", 200, {"items": [{"id": "f", "status": "running"}], "next_cursor": None})
    canned.answer("POST /api/v1/models/validate", 200, {"valid": True, "problems": []})
    canned.answer("DELETE /api/v1/flows/f", 204, b"")
    changed = {"models": [], "templates": [], "removed": ["m"], "removed_templates": ["t"]}
    canned.answer("PUT /api/v1/models", 200, changed)
    canned.answer("PUT /api/v1/channels", 200, {"channels": [], "changed": [], "removed": ["1"]})
    ran = cli("apply", "-f", str(tmp_path), "--prune")
    assert ran.code == 0, ran.err
    removed = [
        (call, body) for call, body in canned.asked if call.startswith(("DELETE", "PUT")) and "/release/" not in call
    ]
    assert removed == [
        ("DELETE /api/v1/flows/f", None),
        ("PUT /api/v1/models", {"remove": ["m"], "remove_templates": ["t"]}),
        ("PUT /api/v1/channels", {"remove": ["1"]}),
    ]


def test_an_error_on_the_way_says_how_far_it_came(cli: Cli, canned: Canned, tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    no_rules(canned)
    for path in ("channels", "models", "flows"):
        canned.answer(f"GET /api/v1/{path}", 200, {"items": [], "next_cursor": None})
        canned.answer(f"POST /api/v1/{path}/validate", 200, {"valid": True, "problems": []})
    canned.answer("GET /api/v1/model-templates", 200, {"items": []})
    canned.answer("PUT /api/v1/channels", 200, {})
    canned.refuse("PUT /api/v1/models", 503, "redis_away", "Redis is away")
    ran = cli("apply", "-f", str(tmp_path))
    assert ran.code == 6
    assert f"applied before that: channel {folder.number}; apply again to go on" in ran.err


@pytest.fixture
def own(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[StationProcess]:
    """A station of its own, for what would disturb others."""
    with station_process(tmp_path_factory.mktemp("own")) as station:
        monkeypatch.setenv("TRADEWIND_URL", station.url)
        yield station


def test_pruning_leaves_just_what_the_folder_has(own: StationProcess, cli: Cli, tmp_path: Path) -> None:
    old, new = Folder(tmp_path / "old"), Folder(tmp_path / "new")
    # A model that needs one of those that go: put and removed one by one, neither could come first.
    old.write("models.yaml", (old.path / "models.yaml").read_text() + INSTANCE.replace("NAME", old.name))
    assert apply(cli, old)["changes"]["templates"]["added"] == [f"{old.name}_t"]
    cli("point", "write", "comsrv:5:m:1=3")
    planned = apply(cli, new, "--prune", "--dry-run")
    assert apply(cli, new, "--prune")["changes"] == planned["changes"]
    assert planned["changes"]["channels"]["removed"] == [old.number]
    assert set(planned["changes"]["models"]["removed"]) == {f"{old.name}_{x}" for x in "abc"}
    kinds = {"channel": {"5", new.number}, "model": {f"{new.name}_a", f"{new.name}_b"}, "flow": {new.name}}
    for noun, names in kinds.items():
        found = {item.get("id") or item["name"] for item in cli(noun, "list", "--json").json["items"]}
        assert found == names, noun
    shown = cli("point", "get", f"comsrv:{old.number}:m:1", f"modsrv:{old.name}_a:measurement:y", "--json").json
    assert [point["value"] for point in shown["items"]] == [None, None], "values go with what they are of"
    assert apply(cli, new, "--prune")["changed"] is False


def test_a_hundred_channels_and_models_take_few_requests(own: StationProcess, cli: Cli, tmp_path: Path) -> None:
    channels = [f"  - {{id: {n}, protocol: virtual, points: [{{kind: m, id: 1}}]}}" for n in range(1, 101)]
    models = [
        f"  - {{name: m{n}, inputs: [{{name: x, source: 'comsrv:{n}:m:1'}}], outputs: [{{field: y, source: x}}]}}"
        for n in range(1, 101)
    ]
    (tmp_path / "channels.yaml").write_text("\n".join(["channels:", *channels]))
    (tmp_path / "models.yaml").write_text("\n".join(["models:", *models]))

    def requests() -> float:
        with urllib.request.urlopen(f"{own.url}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith("tradewind_http_requests_total"))

    before = requests()
    ran = cli("apply", "-f", str(tmp_path), "--json")
    assert ran.code == 0, ran.out
    first = ran.json
    assert (len(first["changes"]["channels"]["added"]), len(first["changes"]["models"]["added"])) == (100, 100)
    assert requests() - before < 20
    assert cli("apply", "-f", str(tmp_path), "--json").json["changed"] is False
    (tmp_path / "channels.yaml").write_text("channels: []")
    (tmp_path / "models.yaml").write_text("models: []")
    before = requests()
    assert cli("apply", "-f", str(tmp_path), "--prune", "--json").json["changed"] is True
    assert requests() - before < 20
    assert cli("channel", "list", "--json").json["items"] == []


def test_a_field_that_another_model_reads_is_renamed_in_one_go(cli: Cli, folder: Folder) -> None:
    apply(cli, folder)
    folder.change("models.yaml", "measurement:y", "measurement:yy")
    folder.change("models.yaml", "field: y", "field: yy")
    assert set(apply(cli, folder)["changes"]["models"]["changed"]) == {f"{folder.name}_a", f"{folder.name}_b"}


def test_a_model_of_the_station_that_would_break_stops_everything(cli: Cli, folder: Folder) -> None:
    apply(cli, folder)
    text = (folder.path / "models.yaml").read_text()
    folder.write("models.yaml", "models:\n" + text[text.index(f"  - name: {folder.name}_a") :])
    folder.change("models.yaml", "field: y", "field: other")
    folder.change("channels.yaml", "poll_interval_ms: 100", "poll_interval_ms: 200")
    ran = cli("apply", "-f", str(folder.path), "--dry-run")
    assert ran.code == 2
    assert f"model {folder.name}_b.inputs[0]" in ran.err
    assert cli("apply", "-f", str(folder.path)).code == 2
    assert cli("channel", "show", folder.number, "--json").json["config"]["poll_interval_ms"] == 100


MQTT = """\
channels:
  - id: NUMBER
    protocol: mqtt
    enabled: false
    parameters: {host: broker, username: ada, password: SECRET, tls: {key_file: a.key, ca_file: b, cert_file: c}}
    points: [{kind: m, id: 1, mapping: {topic: a}}]
"""


def test_a_secret_is_never_shown_and_makes_no_difference_by_itself(cli: Cli, folder: Folder) -> None:
    def write(secret: str, host: str = "broker") -> None:
        text = MQTT.replace("NUMBER", folder.number).replace("SECRET", secret)
        folder.write("channels.yaml", text.replace("broker", host))

    (folder.path / folder.number / "telemetry.csv").unlink()
    write("hunter-2")
    ran = cli("apply", "-f", str(folder.path))
    assert (ran.code, "hunter-2" in ran.out + ran.err) == (0, False), ran.err
    assert apply(cli, folder)["changed"] is False
    write("hunter-2", "elsewhere")
    changes = ['~ parameters.host: "broker" → "elsewhere"']
    assert apply(cli, folder)["changes"]["channels"]["changed"] == {folder.number: changes}
    write("hunter-3", "elsewhere")
    changes = ['~ parameters.password: "***" → "*** (changed)"']
    assert apply(cli, folder)["changes"]["channels"]["changed"] == {folder.number: changes}
    write('"***"', "elsewhere")
    assert apply(cli, folder)["changed"] is False, "what is shown may be given back"
    write('"***"')
    assert apply(cli, folder)["changed"] is True
    write("hunter-3")
    assert apply(cli, folder)["changed"] is False, "and the station kept the secret"
    for args in (("channel", "show", folder.number), ("channel", "show", folder.number, "--json")):
        shown = cli(*args)
        assert "***" in shown.out and "a.key" in shown.out and "hunter" not in shown.out


def test_flows_are_started_once_on_demand(cli: Cli, folder: Folder) -> None:
    assert apply(cli, folder, "--start")["started"] == [folder.name]
    assert cli("flow", "show", folder.name, "--json").json["status"] == "running"
    assert apply(cli, folder, "--start")["started"] == []
    cli("flow", "stop", folder.name)
    assert apply(cli, folder, "--start")["started"] == []  # somebody stopped it on purpose


def test_an_input_that_no_channel_has_is_a_warning(cli: Cli, folder: Folder) -> None:
    folder.change("models.yaml", f"comsrv:{folder.number}:m:1", f"comsrv:{folder.number}:m:99")
    ran = cli("apply", "-f", str(folder.path), "--dry-run")
    assert ran.code == 0
    assert f"comsrv:{folder.number}:m:99, which channel {folder.number} lacks" in ran.err


@pytest.mark.slow
def test_the_micro_grid_runs_and_its_dispatch_moves_the_battery(cli: Cli, station: StationProcess) -> None:
    assert cli("apply", "-f", str(EXAMPLE), "--start").code == 0
    assert cli("apply", "-f", str(EXAMPLE), "--json").json["changed"] is False

    def completed() -> bool:
        cycles = cli("flow", "cycles", "dispatch", "--json").json["items"]
        return any(cycle["status"] == "completed" for cycle in cycles)

    wait_for(completed, "a dispatch cycle that completes", 30)
    model = cli("model", "show", "power_balance", "--json").json
    values = {point["address"].rpartition(":")[2]: point["value"] for point in model["values"]}
    assert set(values) == set(model["outputs"])
    assert 0 <= values["self_consumption"] <= 100
    assert cli("flow", "drain", "dispatch").code == 0  # else it would have the battery do something else soon
    wait_for(lambda: cli("flow", "show", "dispatch", "--json").json["status"] == "stopped", "the flow stopped", 20)
    sent = cli("command", "send", "modsrv:power_balance:control:battery_power", "-20", "--wait", "--timeout", "20")
    assert sent.code == 0, sent.err

    def charges() -> bool:
        points = cli("point", "get", "comsrv:1002:m:10001", "--json").json["items"]
        return bool(points[0]["value"] < -1)

    wait_for(charges, "the battery to charge", 20)
    assert cli("flow", "delete", "dispatch", "--yes").code == 0
    assert cli("model", "remove", "power_balance", "--yes").code == 0
    assert cli("channel", "remove", "1001", "1002", "1003", "1004", "--yes").code == 0


RULES = """\
groups:
  - {id: NAME_g, name: Power}
rules:
  - id: NAME_high
    group_id: NAME_g
    conditions: [{field: p, operator: ">", value: 5, source: "comsrv:NUMBER:m:1"}]
    actions: [{type: create_alarm, parameters: {level: High, title: much}}]
"""
SINGLE = """\
id: NAME_low
conditions: [{field: p, operator: "<", value: 0, source: "comsrv:NUMBER:m:1"}]
"""
NOTIFY = """\
targets:
  office: {url: "https://hooks.example.com/first-word"}
routes:
  - {targets: [office], min_level: Critical}
"""


@pytest.fixture
def with_rules(folder: Folder) -> Folder:
    for name, text in (("rules.yaml", RULES), ("rules/low.yaml", SINGLE)):
        folder.write(name, text.replace("NAME", folder.name).replace("NUMBER", folder.number))
    return folder


def test_rules_and_their_groups_are_applied_changed_and_pruned(cli: Cli, with_rules: Folder) -> None:
    folder, name = with_rules, with_rules.name
    first = apply(cli, folder)
    assert first["changes"]["groups"]["added"] == [f"{name}_g"]
    assert first["changes"]["rules"]["added"] == [f"{name}_high", f"{name}_low"]
    assert apply(cli, folder)["changed"] is False
    assert cli("rule", "show", f"{name}_high", "--json").json["version"] == 1
    folder.change("rules.yaml", "value: 5", "value: 6")
    shown = cli("apply", "-f", str(folder.path), "--dry-run")
    assert f"~ rule {name}_high" in shown.out and "5 → 6" in shown.out
    assert list(apply(cli, folder)["changes"]["rules"]["changed"]) == [f"{name}_high"]
    folder.write("rules.yaml", "rules: []\n")
    assert f"{name}_high" in apply(cli, folder)["changes"]["rules"]["kept"]


def test_what_is_wrong_with_rules_is_told_with_file_and_line(cli: Cli, with_rules: Folder) -> None:
    folder = with_rules
    folder.change("rules.yaml", 'operator: ">"', 'operator: "above"')
    folder.change("rules/low.yaml", "conditions:", "condition:")
    ran = cli("apply", "-f", str(folder.path))
    assert ran.code == 2
    assert "rules.yaml:6:conditions[0].operator: " in ran.err
    assert "rules/low.yaml:" in ran.err
    folder.change("rules.yaml", 'operator: "above"', 'operator: ">"')
    folder.change("rules.yaml", f"group_id: {folder.name}_g", "group_id: nowhere")  # only the station knows its groups
    folder.change("rules/low.yaml", "condition:", "conditions:")
    ran = cli("apply", "-f", str(folder.path))
    assert ran.code == 2 and "rules.yaml:5:group_id: there is no group 'nowhere'" in ran.err
    assert cli("channel", "show", folder.number).code == 4  # nothing was applied
    folder.change("rules.yaml", "group_id: nowhere", f"group_id: {folder.name}_g")
    folder.change("rules.yaml", f"{folder.number}:m:1", f"{folder.number}:m:9")
    assert f"which channel {folder.number} lacks" in " ".join(apply(cli, folder, "--dry-run")["warnings"])


def test_a_station_of_its_own_loses_rules_that_the_folder_lacks_and_takes_a_policy(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with station_process(tmp_path) as station:
        monkeypatch.setenv("TRADEWIND_URL", station.url)
        folder = Folder(tmp_path / "plant")
        for name, text in (("rules.yaml", RULES), ("rules/low.yaml", SINGLE), ("notify.yaml", NOTIFY)):
            folder.write(name, text.replace("NAME", folder.name).replace("NUMBER", folder.number))
        first = apply(cli, folder)
        assert first["changes"]["notifications"]["added"] == ["policy"]
        assert apply(cli, folder)["changed"] is False
        folder.change("notify.yaml", "first-word", "other-word")
        ran = cli("apply", "-f", str(folder.path), "--dry-run")
        assert "*** (changed)" in ran.out and "word" not in ran.out
        assert apply(cli, folder)["changed"] is True and apply(cli, folder)["changed"] is False
        folder.change("notify.yaml", "targets: [office]", "targets: [nobody]")
        refused = cli("apply", "-f", str(folder.path))
        assert refused.code == 2 and "notify.yaml:4:routes[0].targets" in refused.err
        folder.write("notify.yaml", NOTIFY.replace("first-word", "***"))  # as it is shown: what is stored stays
        folder.write("rules.yaml", "rules: []\n")
        pruned = apply(cli, folder, "--prune")
        assert pruned["changes"]["rules"]["removed"] == [f"{folder.name}_high"]
        assert pruned["changes"]["groups"]["removed"] == [f"{folder.name}_g"]
        assert [rule["id"] for rule in cli("rule", "list", "--json").json["items"]] == [f"{folder.name}_low"]
