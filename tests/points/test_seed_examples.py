"""Every example of seed 001, sections 1 to 4.3, on a real station: its processes, its API, the real `redis-cli`.

| seed | example | test |
|---|---|---|
| 1.2, 1.3, 2.2 | `25.123456`, `25.123456:1642592400000`, and back | test_values: test_the_seed_s_examples_of_point_data |
| 2.1 | `StandardFloat::new(25.123456789)`, from and to a bare number | here: test_numbers_become_standard_floats_and_back |
| 2.3 | comsrv: hash and message of point 10001 | here: test_hashes_of_a_channel, test_messages_of_a_channel |
| 2.3 | modsrv: `total_power` = `1200.500000` | here: test_measurements_of_a_model |
| 2.4 | 25.1, 25.123456789, 0.000001 | test_values: test_numbers_have_six_decimals_as_in_the_seed |
| 3.1 | letters, digits, `_`; `:` between; 256 characters | test_values: test_the_seed_s_check_of_keys; test_address |
| 3.2 | `SUBSCRIBE comsrv:1001:m:10001`, three `PSUBSCRIBE` | here: test_subscriptions_down_to_a_point |
| 4.1 (3.1.2, 3.1.3) | hashes m, s, c, a of channel 1001; `10001:25.123456` | here: test_hashes_of_a_channel, test_messages_of_a_channel |
| 4.1 (3.1.5) | HGET, HMGET, HGETALL, HLEN | here: test_reads_of_a_channel |
| 4.1 (3.1.5) | HSET, HMSET, PUBLISH by another program | here: test_another_program_writes_a_channel |
| 4.2 | alarms | belongs to the alarm room |
| 4.3 (3.3.2) | `modsrv:power_calc:measurement`, HGET, HMGET, HGETALL, PUBLISH | here: test_measurements_of_a_model |
| 4.3 (3.3.2) | `modsrv:power_calc:control`, `value:ts:source` | here: test_a_command_and_its_control_value; test_values: test_control_values_are_read_from_the_right; models/test_store: test_a_control_value_has_the_form_of_the_seed_and_is_published |
| 4.3 (3.3.2) | `cmd:{id}`, `cmd:list:{model}` | here: test_a_command_and_its_control_value; test_command_store: test_the_record_is_the_seeds |
| 4.3 (3.3.3) | six states | here: test_the_six_states; test_command_store, test_command_model |
| 4.3 (3.3.4) | HSET, HMSET by another program | here: test_another_program_writes_a_model |
| 4.3 (3.3.5) | values for ever, commands 24 h, lists of 1000 | here: test_a_command_and_its_control_value; test_command_store: test_the_list_has_the_last_thousand_and_loses_expired_records |
"""  # noqa: E501

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.station_process import Site as Roles
from tests.points.station_http import Api
from tests.process import Server, die_with_parent, find, free_port, wait_for
from tests.servers import redis_server
from tradewind.points.command_record import CommandStatus
from tradewind.points.values import PointData, StandardFloat

DAY_S = 86_400
#: What the devices of channel 1001 say.
SAID = {"m": {"10001": 25.123456, "10002": 26.789012, "10003": 24.56789}, "s": {"20001": 1, "20002": 0, "20003": 1}}
CHANNEL = {
    "id": 1001,
    "protocol": "virtual",
    "poll_interval_ms": 100,
    "points": [
        *(
            {"kind": kind, "id": point, "mapping": {"initial_value": value}}
            for kind, points in SAID.items()
            for point, value in points.items()
        ),
        *({"kind": kind, "id": point} for kind, point in [("c", 30001), ("c", 30002), ("a", 40001), ("a", 40002)]),
    ],
}
COMPUTED = {"total_power": 1200.5, "efficiency": 0.856, "load_factor": 0.78, "reactive_power": 350.2}
MODEL = {
    "name": "power_calc",
    "inputs": [{"name": f"in_{n}", "source": f"comsrv:1003:m:{n}"} for n in range(4)],
    "calculations": [{"id": f"out_{n}", "expression": f"in_{n}"} for n in range(4)],
    "outputs": [{"field": field, "source": f"out_{n}"} for n, field in enumerate(COMPUTED)],
    "controls": {"max_power": {"address": "comsrv:1001:a:40002", "max": 2000}},
}


class Station:
    def __init__(self, redis: Server, api: Api) -> None:
        self.api = api
        self._cli = [find("redis-cli", "redis-tools"), "-p", str(redis.port)]

    def redis(self, *words: str) -> list[str]:
        """What `redis-cli` prints."""
        done = subprocess.run([*self._cli, *words], capture_output=True, text=True, check=True, timeout=20)
        return done.stdout.splitlines()

    def hash(self, key: str) -> dict[str, str]:
        lines = self.redis("HGETALL", key)
        if lines == [""]:  # as it prints nothing at all
            return {}
        return dict(zip(lines[::2], lines[1::2], strict=True))

    def becomes(self, key: str, expected: dict[str, str]) -> None:
        wait_for(lambda: self.hash(key) == expected, f"{key} = {expected}", 30)

    @contextlib.contextmanager
    def listening(self, folder: Path, *words: str) -> Iterator[Path]:
        """`redis-cli SUBSCRIBE …` into the file that this gives."""
        file = folder / "-".join(words).replace(":", "_").replace("*", "all")
        with file.open("wb") as out:
            process = subprocess.Popen([*self._cli, *words], stdout=out, preexec_fn=die_with_parent)
        try:
            wait_for(lambda: "subscribe" in file.read_text(), "subscription", 20)
            yield file
        finally:
            process.kill()
            process.wait()

    def command(self, **wanted: Any) -> str:
        """Carried out; its id."""
        command_id: str = self.api.post("/commands", {"reason": "test", **wanted})["id"]
        ended = self.api.get(f"/commands/{command_id}?wait=20")
        assert ended["status"] == "success", ended
        return command_id


def messages(file: Path) -> list[tuple[str, str]]:
    """(channel, message) of what a redis-cli printed that listens."""
    lines = file.read_text().splitlines()
    found = []
    while lines:
        words = 4 if lines[0] == "pmessage" else 3
        part, lines = lines[:words], lines[words:]
        if part[0] in ("message", "pmessage") and len(part) == words:
            found.append((part[-2], part[-1]))
    return found


@pytest.fixture(scope="module")
def station(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Station]:
    port = free_port()
    with redis_server() as redis:
        roles = Roles(tmp_path_factory.mktemp("station"), redis.url, api_port=port, points_point_channels="true")
        roles.start("api", "comsrv", "modsrv", "scheduler")
        station = Station(redis, Api(port))
        try:
            wait_for(station.api.is_up, "the API", 60)
            station.api.post("/channels", CHANNEL)
            station.api.post("/models", MODEL)
            yield station
        finally:
            roles.stop()


def push(station: Station, channel: int, **values: float) -> None:
    station.api.post("/points", {"channels": {str(channel): {"m": {n[1:]: value for n, value in values.items()}}}})


def test_numbers_become_standard_floats_and_back() -> None:
    assert str(StandardFloat.new(25.123456789)) == "25.123457"
    assert str(PointData.new(25.123456789).value) == "25.123457"
    assert float(StandardFloat.new(25.12)) == 25.12


def test_hashes_of_a_channel(station: Station) -> None:
    station.becomes("comsrv:1001:m", {"10001": "25.123456", "10002": "26.789012", "10003": "24.567890"})
    station.becomes("comsrv:1001:s", {"20001": "1", "20002": "0", "20003": "1"})
    for address, value in [("c:30001", 0), ("c:30002", 1), ("a:40001", 50.5), ("a:40002", 75.25)]:
        station.command(address=f"comsrv:1001:{address}", value=value)
    station.becomes("comsrv:1001:c", {"30001": "0", "30002": "1"})
    station.becomes("comsrv:1001:a", {"40001": "50.500000", "40002": "75.250000"})
    assert {station.redis("TTL", f"comsrv:1001:{kind}")[0] for kind in "msca"} == {"-1"}, "for ever"


def test_reads_of_a_channel(station: Station) -> None:
    wait_for(lambda: station.redis("HLEN", "comsrv:1001:m") == ["3"], "values", 30)
    assert station.redis("HGET", "comsrv:1001:m", "10001") == ["25.123456"]
    many = station.redis("HMGET", "comsrv:1001:m", "10001", "10002", "10003")
    assert many == ["25.123456", "26.789012", "24.567890"]


def test_messages_of_a_channel(station: Station, tmp_path: Path) -> None:
    with station.listening(tmp_path, "SUBSCRIBE", "comsrv:1002:m") as heard:
        push(station, 1002, p10001=25.123456, p10002=26.789012)
        push(station, 1002, p10001=25.1)
        expected = ["10001:25.123456", "10002:26.789012", "10001:25.100000"]
        wait_for(lambda: len(messages(heard)) >= 3, "messages", 20)
        assert messages(heard) == [("comsrv:1002:m", text) for text in expected]
        assert heard.read_text().splitlines()[:6] == [
            "subscribe", "comsrv:1002:m", "1", "message", "comsrv:1002:m", "10001:25.123456",
        ]  # fmt: skip


def test_subscriptions_down_to_a_point(station: Station, tmp_path: Path) -> None:
    with (
        station.listening(tmp_path, "SUBSCRIBE", "comsrv:1005:m:10001") as one,
        station.listening(tmp_path, "PSUBSCRIBE", "comsrv:1005:m:*") as measured,
        station.listening(tmp_path, "PSUBSCRIBE", "comsrv:1005:*") as channel,
        station.listening(tmp_path, "PSUBSCRIBE", "comsrv:*") as everything,
    ):
        station.api.post("/points", {"channels": {"1005": {"m": {"10001": 1, "10002": 2}, "s": {"20001": 1}}}})
        points = [("comsrv:1005:m:10001", "10001:1.000000"), ("comsrv:1005:m:10002", "10002:2.000000")]
        signal = [("comsrv:1005:s", "20001:1"), ("comsrv:1005:s:20001", "20001:1")]
        hashes = [("comsrv:1005:m", text) for _, text in points]
        wait_for(lambda: messages(one) == points[:1], "the point", 20)
        wait_for(lambda: messages(measured) == points, "the measurements", 20)
        wait_for(lambda: sorted(messages(channel)) == sorted([*points, *hashes, *signal]), "the channel", 20)
        wait_for(lambda: {*points, *hashes, *signal} <= set(messages(everything)), "everything", 20)


def test_another_program_writes_a_channel(station: Station) -> None:
    push(station, 1006, p10001=1)
    station.redis("HSET", "comsrv:1006:m", "10001", "25.123456")
    station.redis("HMSET", "comsrv:1006:m", "10001", "25.123456", "10002", "26.789012")
    station.redis("PUBLISH", "comsrv:1006:m", "10001:25.123456")
    found = station.api.get("/points?address=comsrv:1006:m:10001&address=comsrv:1006:m:10002")["items"]
    assert [point["value"] for point in found] == [25.123456, 26.789012]


def test_measurements_of_a_model(station: Station, tmp_path: Path) -> None:
    key = "modsrv:power_calc:measurement"
    with station.listening(tmp_path, "SUBSCRIBE", key) as heard:
        push(station, 1003, **{f"p{n}": value for n, value in enumerate(COMPUTED.values())})
        texts = dict(zip(COMPUTED, ("1200.500000", "0.856000", "0.780000", "350.200000"), strict=True))
        station.becomes(key, texts)
        assert station.redis("HGET", key, "total_power") == ["1200.500000"]
        assert station.redis("HMGET", key, "total_power", "efficiency") == ["1200.500000", "0.856000"]
        push(station, 1003, p0=1250.5)
        wait_for(lambda: (key, "total_power:1250.500000") in messages(heard), "message", 20)
        assert {(key, f"{field}:{text}") for field, text in texts.items()} <= set(messages(heard))
    assert station.redis("TTL", key) == ["-1"]


def test_another_program_writes_a_model(station: Station) -> None:
    key = "modsrv:foreign_calc:measurement"
    station.redis("HSET", key, "total_power", "1250.500000")
    station.redis("HMSET", key, "total_power", "1250.500000", "efficiency", "0.862000")
    found = station.api.get(f"/points?address={key}:total_power&address={key}:efficiency")["items"]
    assert [point["value"] for point in found] == [1250.5, 0.862]


def test_a_command_and_its_control_value(station: Station) -> None:
    command_id = station.command(model="power_calc", field="max_power", value=1600.0)
    record = station.hash(f"cmd:{command_id}")
    assert command_id.startswith("cmd_") and len(command_id) == len("cmd_550e8400-e29b-41d4-a716-446655440000")
    assert record["id"] == command_id
    assert (record["model_name"], record["field_name"], record["value"]) == ("power_calc", "max_power", "1600.0")
    assert (record["status"], record["message"], record["source"]) == ("success", "", "api_request")
    assert all(len(record[name]) == 13 and record[name].isdigit() for name in ("created_at", "updated_at"))
    assert 0 < int(station.redis("TTL", f"cmd:{command_id}")[0]) <= DAY_S
    assert station.redis("LRANGE", "cmd:list:power_calc", "0", "0") == [command_id]
    value, ts, source = station.hash("modsrv:power_calc:control")["max_power"].split(":")
    assert (value, source) == ("1600.0", "api_request") and len(ts) == 13
    assert station.redis("TTL", "modsrv:power_calc:control") == ["-1"]


def test_the_six_states() -> None:
    assert {state.value for state in CommandStatus} == {
        "pending", "executing", "success", "failed", "cancelled", "timeout",
    }  # fmt: skip


def test_the_table_above_names_tests_that_exist() -> None:
    rooms = (Path(__file__).parent, Path(__file__).parents[1] / "models")
    files = {path.stem: path.read_text() for room in rooms for path in room.glob("test_*.py")}
    named = set(re.findall(r"test_\w+", __doc__ or ""))
    assert len(named) > 15
    assert not {name for name in named if name not in files and not any(f"def {name}(" in s for s in files.values())}
