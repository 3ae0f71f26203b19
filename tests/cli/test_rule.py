"""The commands of `tradewind rule` and `tradewind rule-group` against a real station."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Canned, Cli, StationProcess
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
    assert "tradewind rule update" in again.err and "PUT" not in again.err
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
    assert f"there is no rule '{name}_none'" in removed.err
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
    other = rules.rule_file.with_name("other.yaml")
    other.write_text("- 7\n- {id: 8}\n")
    rules.rule_file.write_text("groups: {}\nrules:\n  - conditions: []\n  - text\n")
    for word in ("create", "update"):
        ran = cli("rule", word, str(rules.rule_file), str(other))
        assert ran.code == 2
        for told in ("rules.yaml:3:id: give", "rules.yaml:4:rules[1]", "other.yaml:1:[0]", "other.yaml:2:id: an id is"):
            assert told in ran.err
    rules.rule_file.write_text("groups: 7\n")
    assert "rules.yaml:1:groups: give a list" in cli("rule", "update", str(rules.rule_file)).err
    rules.rule_file.write_text("rules: []\n")
    assert "defines nothing" in cli("rule", "update", str(rules.rule_file)).err
    assert cli("rule", "update", "none.yaml").code == 2


def test_a_rule_is_tried_out_before_it_is_stored_fires_and_has_a_history(cli: Cli, rules: Rules) -> None:
    rules.run()
    name, file = f"{rules.name}_high", str(rules.rule_file)
    tried = cli("rule", "test", name, "--file", file, "--json")
    assert (tried.code, tried.json["level"]) == (0, False), tried.out
    assert cli("rule", "test", "--file", file).code == 2  # two rules: which?
    nope = cli("rule", "test", "nope", "--file", file)
    assert nope.code == 2 and f"there is no rule 'nope' in {file}" in nope.err and name in nope.err
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
    assert "it did nothing in that time" in cli("rule", "history", name, "--to", "2020-01-01").out
    refused = cli("rule", "list", "--state", "on")
    assert refused.code == 2 and "active, inactive, waiting, stopped, disabled, faulty" in refused.err
    (alarm,) = cli("alarm", "list", "--rule", name, "--json").json["items"]
    assert (alarm["title"], alarm["level"], alarm["source_point"]) == ("level is 4", "High", rules.address("m", 1))
    assert cli("rule", "delete", name, "--yes").code == 0
    assert cli("alarm", "show", alarm["id"], "--json").json["status"] == "Resolved"


def test_groups_are_made_changed_and_removed(cli: Cli, rules: Rules) -> None:
    name = f"{rules.name}_g"
    assert cli("rule-group", "create", name, "--name", "Tanks").out == f"{name} created\n"
    again = cli("rule-group", "create", name)
    assert again.code == 5 and "rule-group update" in again.err and "PUT" not in again.err
    assert cli("rule-group", "update", name, "--description", "all of them").code == 0
    shown = cli("rule-group", "show", name, "--json").json
    assert (shown["name"], shown["description"], shown["rules"]) == ("Tanks", "all of them", [])
    assert name in cli("rule-group", "list").out and "Tanks" in cli("rule-group", "show", name).out
    assert cli("rule", "update", str(rules.rule_file)).code == 0
    refused = cli("rule-group", "delete", name)
    assert refused.code == 5 and "has 1 rule\n" in refused.err and "--cascade" in refused.err
    high = f"{rules.name}_high"
    assert cli("rule-group", "disable", name).out == f"{name} disabled: {high}\n"
    assert cli("rule", "show", high, "--json").json["enabled"] is False
    assert cli("rule-group", "disable", name).out == f"{name} disabled, as before\n"
    assert cli("rule-group", "enable", name, "--json").json["items"][0]["changed"] == [high]
    assert cli("rule-group", "enable", f"{name}_none").code == 4
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


ODD = """\
- id: NAME_odd
  name: "yes"
  description: "1e5 — null: #no\\nsecond line\\t"
  on_bad: "true"
  conditions:
    - {field: "08", operator: contains, value: "1e5", source: "comsrv:NUMBER:m:1"}
    - {type: schedule, cron: "0 8 * * 1-5"}
    - not: {type: alarm, rule_id: NAME_high, source: "comsrv:NUMBER:m:1"}
    - {type: range, source: "comsrv:NUMBER:m:1", min: -1e-7, max: 1.0e+20}
  actions:
    - {type: submit_task, parameters: {type: x.y, args: [null, true, "true", 1.5, [], {}], kwargs: {"on": "{{~}}"}}}
"""


def test_what_is_exported_is_taken_back_unchanged(cli: Cli, rules: Rules, tmp_path: Path) -> None:
    name, odd = rules.name, tmp_path / "odd.yaml"
    odd.write_text(ODD.replace("NAME", name).replace("NUMBER", rules.number))
    stored = cli("rule", "update", str(rules.rule_file), str(odd))
    assert stored.code == 0, stored.err
    ids = [f"{name}_high", f"{name}_low", f"{name}_odd"]

    def shown() -> dict[str, Any]:
        found = {each: cli("rule", "show", each, "--json").json for each in ids}
        return {each: {k: v for k, v in rule.items() if k not in ("state", "figures")} for each, rule in found.items()}

    before, listed = shown(), cli("rule", "list", "--search", name, "--json").out
    exported = cli("rule", "export", *ids)
    assert exported.code == 0, exported.err
    folder = tmp_path / "back"
    folder.mkdir()
    (folder / "rules.yaml").write_text(exported.out)
    (tmp_path / "listed.json").write_text(listed)
    for file in (folder / "rules.yaml", tmp_path / "listed.json"):
        assert cli("rule", "update", str(file)).code == 0
        assert shown() == before, "nothing differs, so not even the version moves"
    applied = cli("apply", "-f", str(folder), "--dry-run", "--json")
    assert applied.code == 0 and applied.json["changed"] is False, applied.err
    assert cli("rule", "delete", *ids, "--yes").code == 0
    assert cli("rule-group", "delete", f"{name}_g").code == 0
    created = cli("rule", "create", str(folder / "rules.yaml"))
    assert created.code == 0, created.err
    for rule_id, rule in shown().items():
        new = {field: rule[field] for field in ("created_at", "updated_at", "version")}
        assert rule == {**before[rule_id], **new}
    assert cli("rule", "export", *ids).out == exported.out


def test_some_rules_are_exported(cli: Cli, rules: Rules) -> None:
    name = rules.name
    assert cli("rule", "update", str(rules.rule_file)).code == 0
    inside = cli("rule", "export", "--group", f"{name}_g", "--json").json
    assert [rule["id"] for rule in inside["rules"]] == [f"{name}_high"]
    assert inside["groups"] == [{"id": f"{name}_g", "name": "Tanks"}]
    assert "groups" not in cli("rule", "export", f"{name}_low", "--json").json
    assert f"id: {name}_low" in cli("rule", "export").out
    assert cli("rule", "export", f"{name}_none").code == 4
    assert cli("rule", "export", "--group", f"{name}_none").code == 4
    assert cli("rule", "export", f"{name}_low", "--group", f"{name}_g").code == 4


def test_many_rules_are_removed_with_one_change(cli: Cli, canned: Canned) -> None:
    ids = [f"r{n}" for n in range(50)]
    canned.answer("PUT /api/v1/rules", 200, {"rules": [], "groups": [], "removed": ids, "warnings": []})
    ran = cli("rule", "delete", *ids, ids[0], "--yes")
    assert ran.code == 0 and ran.out.splitlines() == [f"{name} removed" for name in ids]
    assert canned.asked == [("PUT /api/v1/rules", {"remove": ids})]


def test_what_a_rule_names_and_is_not_there_is_a_warning(cli: Cli, rules: Rules) -> None:
    rules.change("    priority: 5", "    inhibited_by: [nobody]")
    for word in ("create", "update"):
        ran = cli("rule", word, str(rules.rule_file))
        assert ran.code == 0
        assert f"warning: {rules.rule_file}:7:inhibited_by[0]: there is no rule 'nobody'" in ran.err
    found = cli("rule", "update", str(rules.rule_file), "--json").json
    assert "unknown_rule" in [each["code"] for each in found["warnings"]]
