"""The commands of `tradewind command` against a real station with a simulated device."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Canned, Cli, StationProcess
from tests.cli.points_plant import Plant
from tests.servers import wait_for
from tradewind.cli.command import number, target
from tradewind.errors import Invalid


@pytest.fixture
def plant(cli: Cli, station: StationProcess, tmp_path: Path) -> Plant:
    plant = Plant(cli, tmp_path)
    plant.run()
    return plant


def test_a_command_is_sent_carried_out_and_shown(cli: Cli, plant: Plant) -> None:
    address = plant.address("a", 4)
    ran = cli("command", "send", address, "-1.5", "--reason", "less", "--who", "ann", "--wait", "--json")
    assert ran.code == 0, ran.out
    assert (ran.json["status"], ran.json["result"], ran.json["value"]) == ("success", "done", -1.5)
    assert (ran.json["who"], ran.json["source"], ran.json["reason"]) == ("ann", "cli", "less")
    wait_for(lambda: plant.value(plant.address("m", 1)) == 0.5, "the device to follow", 20)
    shown = cli("command", "show", ran.json["id"])
    for word in (address, "-1.5", "ann (cli)", "less"):
        assert word in shown.out
    assert ran.json["id"] in cli("command", "list", "--model", f"channel_{plant.number}").out
    assert cli("command", "cancel", ran.json["id"]).code == 5  # it has ended


def test_a_switch_is_read_back(cli: Cli, plant: Plant) -> None:
    ran = cli("command", "send", plant.address("c", 3), "on", "--wait")
    assert ran.code == 0, ran.err
    assert "success verified" in ran.out


def test_a_command_goes_through_a_control_of_a_model(cli: Cli, plant: Plant) -> None:
    assert cli("model", "put", str(plant.model_file)).code == 0
    control = f"modsrv:{plant.model}:control:target"
    ran = cli("command", "send", control, "2.5", "--timeout", "20")
    assert (ran.code, "success done" in ran.out) == (0, True), ran.err
    assert cli("command", "send", control, "4").code == 2  # above the model's own bound
    listed = cli("command", "list", "--model", plant.model, "--json").json["items"]
    assert [(command["address"], command["value"]) for command in listed] == [(plant.address("a", 4), 2.5)]


def test_a_key_makes_it_the_same_command(cli: Cli, plant: Plant) -> None:
    words = ("command", "send", plant.address("a", 4), "1", "--key", f"k{plant.number}", "--json")
    assert cli(*words).json["id"] == cli(*words).json["id"]
    assert cli("command", "send", plant.address("a", 4), "2", "--key", f"k{plant.number}").code == 5


@pytest.mark.parametrize("value", ["6", "0.3", "nan", "much"])
def test_what_the_point_does_not_allow_is_refused(cli: Cli, plant: Plant, value: str) -> None:
    assert cli("command", "send", plant.address("a", 4), value).code == 2


def test_a_command_that_ends_badly_is_exit_1(cli: Cli, canned: Canned) -> None:
    view = {"id": "cmd_1", "status": "failed", "result": "refused", "message": "the device refused it"}
    canned.answer("POST /api/v1/commands", 202, {"id": "cmd_1", "status": "pending"})
    canned.answer("GET /api/v1/commands/cmd_1", 200, view)
    ran = cli("command", "send", "comsrv:1:a:1", "1", "--wait")
    assert (ran.code, ran.out) == (1, "cmd_1 failed refused the device refused it\n")


def test_a_command_that_takes_too_long_is_exit_7(cli: Cli, canned: Canned) -> None:
    canned.answer("POST /api/v1/commands", 202, {"id": "cmd_1", "status": "pending"})
    canned.answer("GET /api/v1/commands/cmd_1", 200, {"id": "cmd_1", "status": "executing"})
    ran = cli("command", "send", "comsrv:1:a:1", "1", "--timeout", "0.2")
    assert ran.code == 7
    assert "tradewind command show cmd_1" in ran.err


def test_a_waiting_command_is_cancelled(cli: Cli, canned: Canned) -> None:
    canned.answer("POST /api/v1/commands/cmd_1/cancel", 200, {"id": "cmd_1", "status": "cancelled"})
    assert cli("command", "cancel", "cmd_1", "--reason", "wrong one").out == "cmd_1 cancelled\n"
    assert canned.asked[-1][1]["reason"] == "wrong one"


def test_targets_and_values_are_read() -> None:
    assert target("comsrv:1:a:2") == {"address": "comsrv:1:a:2"}
    assert target("modsrv:tank:control:target") == {"model": "tank", "field": "target"}
    with pytest.raises(Invalid, match="computed"):
        target("modsrv:tank:measurement:volume")
    assert [number(text) for text in ("-1.5", "on", "OFF", "true")] == [-1.5, 1.0, 0.0, 1.0]


def test_the_last_command_is_seen_at_the_point(cli: Cli, plant: Plant) -> None:
    address = plant.address("a", 4)
    assert cli("command", "send", address, "1.5", "--wait").code == 0
    assert "1.5: success done" in cli("point", "get", address).out
    assert "last command" not in cli("point", "get", plant.address("m", 1)).out


def test_nothing_is_owed(cli: Cli, plant: Plant) -> None:
    assert "nothing is owed" in cli("command", "owed").out
    assert cli("command", "dismiss", plant.address("c", 3), "--reason", "is off").code == 1
