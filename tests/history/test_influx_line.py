"""Lines: what they say, and that InfluxDB reads from them what was meant."""

from __future__ import annotations

import math

import httpx2 as httpx
import numpy as np
import pytest

from tests import servers
from tradewind.errors import Invalid
from tradewind.history import influx_line
from tradewind.history.influx_line import LineMaker, address_of, escaped, head_of, place_of
from tradewind.history.sample import MAX_TS_MS, Row

A = "comsrv:1001:m:10001"
ODD = ["a b", "a,b", "a=b", "温度", "it's", 'say "hi"', r"back\slash", "ü=,  =", "{}", "#x", "1"]


@pytest.mark.parametrize(
    ("series", "head"),
    [
        (A, "telemetry,channel_id=1001,point_id=10001,point_type=measurement value="),
        ("comsrv:1:s:2", "telemetry,channel_id=1,point_id=2,point_type=signal value="),
        ("comsrv:1:c:2", "telemetry,channel_id=1,point_id=2,point_type=control value="),
        ("comsrv:1:a:2", "telemetry,channel_id=1,point_id=2,point_type=adjustment value="),
        ("modsrv:p-1:measurement:total_power", "model,field=total_power,model=p-1 value="),
        ("modsrv:p-1:control:setpoint", "model_control,field=setpoint,model=p-1 value="),
    ],
)
def test_every_kind_of_series_has_its_place_and_is_found_there(series: str, head: str) -> None:
    [line] = LineMaker().make([Row(series, 5, 1.0, 0)]).lines
    assert line == f"{head}1.0 5"
    place = place_of(series)
    assert address_of(place.measurement, dict(zip(influx_line.TAGS[place.measurement], place.values, strict=True))) == (
        series
    )


def test_what_others_wrote_is_no_series_of_ours() -> None:
    tags = {"channel_id": "1001", "point_id": "1", "point_type": "measurement"}
    assert address_of("telemetry", tags) == "comsrv:1001:m:1"
    assert address_of("cpu", tags) is None
    for name, value in (("channel_id", "x"), ("point_id", ""), ("point_type", "m"), ("point_type", "")):
        assert address_of("telemetry", {**tags, name: value}) is None
    assert address_of("model", {"model": "a b", "field": "c"}) is None


def test_quality_is_written_only_where_it_matters() -> None:
    maker = LineMaker()
    good, bad, again = Row(A, 1, 1.0, 0), Row(A, 2, 2.0, 2), Row(A, 2, 3.0, 0)
    assert maker.make([good]).lines[0].endswith(" value=1.0 1")
    assert maker.make([bad]).lines[0].endswith(" value=2.0,quality=2i 2")
    assert maker.make([again]).lines[0].endswith(" value=3.0,quality=0i 2")  # takes the mark away
    assert maker.make([Row("comsrv:1:m:2", 1, 1.0, 0)]).lines[0].endswith(" value=1.0 1")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_no_line_is_made_of_what_is_not_finite(value: float) -> None:
    made = LineMaker().make([Row(A, 1, 1.0, 0), Row(A, 2, value, 0), Row(A, 3, 1e308, 0), Row(A, 4, 1e308, 0)])
    assert [row.ts_ms for row in made.rows] == [1, 3, 4]
    assert [(refused.row.ts_ms, refused.reason) for refused in made.refused] == [(2, "not_finite")]
    assert not any("nan" in line or "inf" in line for line in made.lines)


def test_numbers_of_numpy_do_not_get_into_a_line_by_their_names() -> None:
    made = LineMaker().make([Row(A, 1, np.float64(1.5), 0), Row(A, 2, 2.5, 0)])
    assert not any("np." in line for line in made.lines)
    assert len(made.lines) + len(made.refused) == 2


def test_a_series_that_cannot_be_looked_up_is_refused_like_any_other() -> None:
    made = LineMaker().make([Row([], 1, 1.0, 0), Row(A, 1, 1.0, 0)])  # type: ignore[arg-type]
    assert [refused.reason for refused in made.refused] == ["bad_series"] and len(made.lines) == 1


def test_the_ends_of_time() -> None:
    made = LineMaker().make([Row(A, ts, 1.0, 0) for ts in (-1, 0, MAX_TS_MS, MAX_TS_MS + 1)])
    assert [row.ts_ms for row in made.rows] == [0, MAX_TS_MS]
    assert [refused.reason for refused in made.refused] == ["bad_time"] * 2


def test_ready_heads_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(influx_line, "MAX_HEADS", 10)
    maker = LineMaker()
    made = maker.make([Row(f"comsrv:1:m:{n}", 1, 1.0, 0) for n in range(100)])
    assert len(made.lines) == 100 and len(maker._heads) <= 10


def test_what_would_break_a_line_is_refused() -> None:
    for text in ("a\nb", "end\\", r"a\,b", r"a\ b"):
        with pytest.raises(Invalid):
            escaped(text)


async def test_influxdb_reads_escaped_tags_and_fields_as_they_were() -> None:
    with servers.influx_server() as server:
        async with httpx.AsyncClient(base_url=server.url, params={"db": "x", "epoch": "ms"}) as client:
            await client.post("/query", data={"q": "CREATE DATABASE x"})
            lines = [f"{head_of('telemetry', {'tag': text, 'o ,=k': 'v'})}1.0,{escaped(text)}=2 {n}"
                     for n, text in enumerate(ODD)]  # fmt: skip
            answer = await client.post("/write", params={"precision": "ms"}, content="\n".join(lines).encode())
            assert answer.status_code == 204, answer.text
            found = (await client.post("/query", data={"q": 'SELECT * FROM "telemetry" GROUP BY "tag"'})).json()
    tables = found["results"][0]["series"]
    assert sorted(table["tags"]["tag"] for table in tables) == sorted(ODD)
    assert all("o ,=k" in table["columns"] for table in tables)
    for table in tables:
        row = dict(zip(table["columns"], table["values"][0], strict=True))
        assert row[table["tags"]["tag"]] == 2 and row["value"] == 1
