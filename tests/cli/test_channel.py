"""The commands of `tradewind channel` against a real station."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Cli, StationProcess
from tests.cli.points_plant import Plant
from tests.servers import wait_for


@pytest.fixture
def plant(cli: Cli, station: StationProcess, tmp_path: Path) -> Plant:
    return Plant(cli, tmp_path)


def test_a_channel_is_declared_listed_shown_and_removed(cli: Cli, plant: Plant) -> None:
    plant.run()
    listed = {channel["id"]: channel for channel in cli("channel", "list", "--json").json["items"]}
    assert listed[plant.number]["counts"] == {"m": 1, "s": 1, "c": 1, "a": 1}
    wait_for(lambda: "1m 1s 1c 1a" in cli("channel", "list", "--state", "online").out, "the channel online", 20)
    shown = cli("channel", "show", plant.number)
    assert "Tank" in shown.out
    assert f"comsrv:{plant.number}:m:1" in shown.out
    assert "level" in shown.out
    assert [p["address"] for p in cli("channel", "show", plant.number, "--json").json["points"]] == [
        plant.address(kind, point) for kind, point in (("m", 1), ("s", 2), ("c", 3), ("a", 4))
    ]
    assert cli("channel", "remove", plant.number).code == 2  # nobody is there to ask
    assert cli("channel", "remove", plant.number, "--yes").out == f"{plant.number} removed\n"
    assert cli("channel", "show", plant.number).code == 4


def test_the_status_of_channels_is_good_while_they_are_online(cli: Cli, plant: Plant) -> None:
    plant.run()
    wait_for(lambda: cli("channel", "status", plant.number).code == 0, "the channel online", 20)
    status = cli("channel", "status", plant.number, "--json").json["items"][0]["status"]
    assert status["failures"] == 0
    assert cli("channel", "status", plant.number, "4711").code == 4


def test_a_channel_whose_device_is_away_is_bad_status(cli: Cli, plant: Plant) -> None:
    text = f"id: {plant.number}\nprotocol: modbus_tcp\nparameters: {{host: 127.0.0.1, port: 1}}\ntimeout_ms: 200\n"
    point = "{slave_id: 1, function_code: 3, register_address: 0}"
    plant.channel_file.write_text(text + f"points: [{{kind: m, id: 1, data_type: int16, mapping: {point}}}]\n")
    assert cli("channel", "put", str(plant.channel_file)).code == 0
    wait_for(lambda: "offline" in cli("channel", "status", plant.number).out, "the channel offline", 20)
    assert cli("channel", "status", plant.number).code == 1
    assert cli("channel", "remove", plant.number, "--yes").code == 0


def test_a_channel_is_reloaded(cli: Cli, plant: Plant) -> None:
    plant.run()
    assert cli("channel", "reload", plant.number).out == f"{plant.number} reloading\n"
    assert cli("channel", "reload", "4711").code == 4


def test_a_bad_channel_is_refused_with_file_and_line(cli: Cli, plant: Plant) -> None:
    text = plant.channel_file.read_text().replace("step: 0.5", "step: much").replace('"2 + a4"', '"2 + nothing"')
    plant.channel_file.write_text(text)
    ran = cli("channel", "put", str(plant.channel_file))
    assert ran.code == 2
    assert f"{plant.channel_file}:10:points[3].step" in ran.err
    plant.channel_file.write_text(text.replace(f"id: {plant.number}\n    name", "name"))
    assert "channel.yaml:2:id: give the channel a number" in cli("channel", "put", str(plant.channel_file)).err
    plant.channel_file.write_text("channels: []")
    assert "defines nothing" in cli("channel", "put", str(plant.channel_file)).err
    assert cli("channel", "put", "none.yaml").code == 2
