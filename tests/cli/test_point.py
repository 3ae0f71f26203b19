"""The commands of `tradewind point` against a real station."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

from tests.cli.conftest import Cli, StationProcess, run_process
from tests.cli.points_plant import Plant
from tradewind.cli.point import number_text, read_ts, read_values
from tradewind.errors import Invalid


@pytest.fixture
def number(station: StationProcess) -> str:
    return str(random.randrange(10**9, 10**12))


def test_values_are_written_and_read(cli: Cli, number: str) -> None:
    ran = cli("point", "write", f"comsrv:{number}:m:1=25.1", f"comsrv:{number}:s:2=1", f"comsrv:{number}:m:3=-4")
    assert (ran.code, ran.out) == (0, "3 accepted\n")
    found = cli("point", "get", f"comsrv:{number}:m:1", f"comsrv:{number}:m:9", "--json").json["items"]
    assert [(point["value"], point["quality"]) for point in found] == [(25.1, "good"), (None, "bad")]
    whole = cli("point", "get", "--channel", number)
    assert [line.split()[0].rpartition(":")[2] for line in whole.out.splitlines()[1:]] == ["1", "3", "2"]
    assert "25.1" in whole.out


def test_a_time_can_be_given(cli: Cli, number: str) -> None:
    assert cli("point", "write", f"comsrv:{number}:m:1=1", "--ts", "2026-01-01T00:00:00Z").code == 0
    found = cli("point", "get", f"comsrv:{number}:m:1", "--json").json["items"][0]
    assert (found["ts"], found["quality"]) == (1767225600000, "uncertain")


def test_every_bad_value_is_named_and_nothing_is_sent(cli: Cli, number: str) -> None:
    ran = cli("point", "write", f"comsrv:{number}:m:1=1", f"comsrv:{number}:m:2=warm", "m:3=1", f"comsrv:{number}:m:4")
    assert ran.code == 2
    for word in ("'warm' is no finite number", "m:3: ", "write ADDRESS=VALUE"):
        assert word in ran.err
    assert cli("point", "get", f"comsrv:{number}:m:1", "--json").json["items"][0]["value"] is None
    assert cli("point", "write", f"comsrv:{number}:s:1=7").code == 2  # the station refuses it
    for word in ("nan", "inf", ""):
        assert f"'{word}' is no finite number" in cli("point", "write", f"comsrv:{number}:m:1={word}").err


def test_points_are_found_by_a_part_of_their_name_or_address(cli: Cli, number: str) -> None:
    cli("point", "write", *(f"comsrv:{number}:m:{n}=25.1" for n in range(1, 6)))
    ran = cli("point", "find", f"{number}:m:3")
    assert ran.code == 0 and "25.1" in ran.out and f"comsrv:{number}:m:4" not in ran.out
    ran = cli("point", "find", number, "--limit", "2")
    assert "2 of 5 shown" in ran.err
    assert cli("point", "find", number, "--json").json["total"] == 5
    assert cli("point", "find", " ").code == 2


def test_what_is_wrong_is_said_once(cli: Cli, station: StationProcess) -> None:
    ran = cli("point", "get", "bad")
    assert ran.code == 2 and ran.err.count("is not an address") == 1, ran.err
    assert "it has 1 part, not 4" in ran.err


def test_a_device_is_not_written_past_its_commands(cli: Cli, station: StationProcess, tmp_path: Path) -> None:
    plant = Plant(cli, tmp_path)
    plant.run()
    assert "send a command" in cli("point", "write", plant.address("a", 4) + "=1").err


def test_changes_are_watched(cli: Cli, station: StationProcess, tmp_path: Path) -> None:
    plant = Plant(cli, tmp_path)
    plant.run()
    ran = cli("point", "watch", plant.address("m", 1), "--count", "1")
    assert ran.code == 0
    assert re.search(rf"{plant.address('m', 1)}  2( m)?  good", ran.out)  # a new unit is known within seconds
    lines = cli("point", "watch", "--channel", plant.number, "--seconds", "0.5", "--json").out.splitlines()
    assert {json.loads(line)["address"] for line in lines} >= {plant.address("m", 1), plant.address("s", 2)}


def test_a_watch_sees_what_comes(cli: Cli, number: str, station: StationProcess) -> None:
    address = f"comsrv:{number}:m:1"
    watch = ("point", "watch", address, "--count", "1", "--seconds", "20", "--json", "--url", station.url)
    assert json.loads(run_process(*watch).out)["value"] is None  # first what there is
    cli("point", "write", f"{address}=3")
    assert json.loads(run_process(*watch).out)["value"] == 3.0


def test_something_must_be_named(cli: Cli, station: StationProcess) -> None:
    for verb in ("get", "watch"):
        ran = cli("point", verb)
        assert ran.code == 2
        assert "--channel ID" in ran.err
    assert cli("point", "get", "nowhere").code == 2


def test_values_are_sorted_by_channel_and_kind() -> None:
    assert read_values(["comsrv:1:m:2=3", "comsrv:1:m:4=5.5", "comsrv:6:s:7=1"]) == {
        "1": {"m": {"2": 3.0, "4": 5.5}},
        "6": {"s": {"7": 1.0}},
    }
    with pytest.raises(Invalid):
        read_values(["modsrv:a:measurement:b=1"])


@pytest.mark.parametrize(
    ("value", "text"), [(2.0, "2"), (0.1, "0.1"), (-0.000001, "-0.000001"), (None, "-"), (1e6, "1000000")]
)
def test_numbers_are_short(value: float | None, text: str) -> None:
    assert number_text(value) == text


def test_times_are_milliseconds_or_iso() -> None:
    assert read_ts("1700000000000") == read_ts("2023-11-14T22:13:20Z") == read_ts("2023-11-14T23:13:20+01:00")
    with pytest.raises(Invalid):
        read_ts("soon")


def test_a_point_of_a_device_is_substituted_and_released(cli: Cli, station: StationProcess, tmp_path: Path) -> None:
    plant = Plant(cli, tmp_path)
    plant.run()
    level = plant.address("m", 1)
    ran = cli("point", "write", f"{level}=7")
    assert ran.code == 2 and "tradewind point substitute" in ran.err
    ran = cli("point", "substitute", level.removeprefix("comsrv:"), "-7.5", "--reason", "float is stuck", "--for", "1h")
    assert ran.code == 0 and ran.out.startswith(f"{level} = -7.5 until ")
    [shown] = cli("point", "get", level, "--json").json["items"]
    assert (shown["value"], shown["quality"]) == (-7.5, "substituted")
    assert "float is stuck; device 2" in cli("point", "get", level).out
    assert level in cli("point", "substitutions").out
    assert cli("point", "substitute", level, "1", "--reason", "x", "--for", "soon").code == 2
    assert cli("point", "release", level).out == f"{level} released\n"
    assert plant.value(level) == 2
    assert cli("point", "release", level).out == f"{level} was not substituted\n"
