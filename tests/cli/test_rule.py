"""The commands of `tradewind rule` and `tradewind rule-group` against a real station."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Cli, StationProcess
from tests.cli.points_plant import Plant
from tests.servers import wait_for

RULES = """\
groups:
  - {id: NAME_g, name: Tanks}
rules:
  - id: NAME_high
    name: Too full
    group_id: NAME_g
    priority: 5
    conditions:
      - {field: level, operator: ">", value: 3, source: "comsrv:NUMBER:m:1"}
    actions:
      - {type: create_alarm, parameters: {level: High, title: "level is {value}"}}
  - id: NAME_low
    conditions: [{field: level, operator: "<", value: 0, source: "comsrv:NUMBER:m:1"}]
"""


class Rules(Plant):
    def __init__(self, cli: Cli, folder: Path) -> None:
        super().__init__(cli, folder)
        self.name = f"r{self.number}"
        self.rule_file = folder / "rules.yaml"
        self.rule_file.write_text(RULES.replace("NAME", self.name).replace("NUMBER", self.number))

    def change(self, old: str, new: str) -> None:
        text = self.rule_file.read_text()
        assert old in text
        self.rule_file.write_text(text.replace(old, new))


@pytest.fixture
def rules(cli: Cli, station: StationProcess, tmp_path: Path) -> Rules:
    return Rules(cli, tmp_path)


def test_rules_are_created_shown_updated_switched_and_removed(cli: Cli, rules: Rules) -> None:
    name, file = rules.name, str(rules.rule_file)
    made = cli("rule", "create", file)
    assert (made.code, made.out.splitlines()) == (
        0, [f"group {name}_g created", f"rule {name}_high created", f"rule {name}_low created"],
    ), made.err  # fmt: skip
    again = cli("rule", "create", file)
    assert again.code == 5 and "exists" in again.err
    shown = cli("rule", "show", f"{name}_high")
    assert shown.code == 0
    for word in ("Too full", "create_alarm", f"comsrv:{rules.number}:m:1"):
        assert word in shown.out
    listed = cli("rule", "list", "--group", f"{name}_g", "--json").json["items"]
    assert [rule["id"] for rule in listed] == [f"{name}_high"]
    assert f"{name}_low" in cli("rule", "list", "--search", name).out
    rules.change("value: 3", "value: 4")
    assert f"rule {name}_high stored" in cli("rule", "update", file).out
    assert cli("rule", "show", f"{name}_high", "--json").json["version"] == 2
    assert cli("rule", "disable", f"{name}_high", f"{name}_low").out == f"{name}_high disabled\n{name}_low disabled\n"
    assert [r["id"] for r in cli("rule", "list", "--state", "disabled", "--search", name, "--json").json["items"]] == [
        f"{name}_high", f"{name}_low",
    ]  # fmt: skip
    assert cli("rule", "enable", f"{name}_low").code == 0
    assert cli("rule", "delete", f"{name}_low").code == 2  # nobody is there to ask
    removed = cli("rule", "delete", f"{name}_low", f"{name}_none", "--yes")
    assert (removed.code, removed.out) == (4, f"{name}_low removed\n")
    assert cli("rule", "show", f"{name}_low").code == 4


def test_bad_rules_are_refused_with_file_and_line_and_none_is_stored(cli: Cli, rules: Rules) -> None:
    rules.change('operator: "<"', 'operator: "lower"')
    rules.change("priority: 5", "priority: high")
    ran = cli("rule", "update", str(rules.rule_file))
    assert ran.code == 2
    assert f"{rules.rule_file}:7:priority" in ran.err
    assert f"{rules.rule_file}:13:conditions[0].operator" in ran.err
    assert cli("rule", "show", f"{rules.name}_high").code == 4
    rules.rule_file.write_text("rules:\n  - conditions: []\n")
    assert "rules.yaml:2:id: give it an id" in cli("rule", "create", str(rules.rule_file)).err
    assert cli("rule", "update", "none.yaml").code == 2


def test_a_rule_is_tried_out_before_it_is_stored_fires_and_has_a_history(cli: Cli, rules: Rules) -> None:
    rules.run()
    name, file = f"{rules.name}_high", str(rules.rule_file)
    tried = cli("rule", "test", name, "--file", file, "--json")
    assert (tried.code, tried.json["level"]) == (0, False), tried.out
    assert cli("rule", "test", "--file", file).code == 2  # two rules: which?
    assert cli("rule", "test", name).code == 4  # it is not stored
    assert cli("rule", "update", file).code == 0
    assert "is false now" in cli("rule", "test", name).out
    wait_for(lambda: cli("rule", "show", name, "--json").json["state"] == "inactive", "it being judged", 20)
    assert cli("command", "send", rules.address("a", 4), "2", "--wait").code == 0
    wait_for(lambda: cli("rule", "show", name, "--json").json["state"] == "active", "the rule firing", 20)
    assert "would do" in cli("rule", "test", name).out
    (execution,) = cli("rule", "history", name, "--json").json["items"]
    assert execution["triggered"] is True and execution["actions_executed"] == ["create_alarm"]
    assert "rise" in cli("rule", "history", name).out
    (alarm,) = cli("alarm", "list", "--rule", name, "--json").json["items"]
    assert (alarm["title"], alarm["level"], alarm["source_point"]) == ("level is 4", "High", rules.address("m", 1))
    assert cli("rule", "delete", name, "--yes").code == 0
    assert cli("alarm", "show", alarm["id"], "--json").json["status"] == "Resolved"


def test_groups_are_made_changed_and_removed(cli: Cli, rules: Rules) -> None:
    name = f"{rules.name}_g"
    assert cli("rule-group", "create", name, "--name", "Tanks").out == f"{name} created\n"
    assert cli("rule-group", "create", name).code == 5
    assert cli("rule-group", "update", name, "--description", "all of them").code == 0
    shown = cli("rule-group", "show", name, "--json").json
    assert (shown["name"], shown["description"], shown["rules"]) == ("Tanks", "all of them", [])
    assert name in cli("rule-group", "list").out and "Tanks" in cli("rule-group", "show", name).out
    assert cli("rule", "update", str(rules.rule_file)).code == 0
    assert cli("rule-group", "delete", name).code == 5
    assert cli("rule-group", "delete", name, "--cascade", "--ungroup").code == 2
    assert cli("rule-group", "delete", name, "--cascade").code == 2  # nobody is there to ask
    assert cli("rule-group", "delete", name, "--ungroup").out == f"{name} removed\n"
    assert cli("rule", "show", f"{rules.name}_high", "--json").json["group_id"] == ""
    assert cli("rule-group", "show", name).code == 4


def test_a_backtest_lists_when_a_rule_would_have_fired(cli: Cli, rules: Rules, tmp_path: Path) -> None:
    name, source = f"{rules.name}_high", rules.address("m", 1)
    file = tmp_path / "samples.csv"
    file.write_text(f"ts,address,value\n1000,{source},1\n2000,{source},5\n3000,{source},1\n")
    ran = cli("rule", "backtest", name, "--file", str(rules.rule_file), "--csv", str(file))
    assert ran.code == 0, ran.err
    assert "1970-01-01T00:00:02.000Z" in ran.out and "1 times" in ran.out
    assert cli("rule", "backtest", name, "--csv", str(file)).code == 4  # it is not stored
    assert cli("rule", "update", str(rules.rule_file)).code == 0
    found = cli("rule", "backtest", name, "--csv", str(file), "--json").json
    assert [event["edge"] for event in found["events"]] == ["rise", "fall"]
    assert "there are more" in cli("rule", "backtest", name, "--csv", str(file), "--limit", "1").out
    assert cli("rule", "backtest", name, "--from", "1", "--to", "2", "--json").json["silent"] == [source]
    assert cli("rule", "backtest", name, "--from", "24h", "--to", "-1h", "--json").json["silent"] == [source]
    assert cli("rule", "backtest", name, "--from", "soon").code == 2
    assert cli("rule", "backtest", name).code == 2
    assert cli("rule", "backtest", name, "--csv", "none.csv").code == 2
    file.write_text(f"ts,address,value\nnever,{source},1\n")
    bad = cli("rule", "backtest", name, "--csv", str(file))
    assert bad.code == 2 and "line 2" in bad.err
