"""Questions to a real InfluxDB beyond the contract: many, large, hostile; what several sinks on one database see."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx2 as httpx
import pytest

from tests import servers
from tests.history.class_contract import Kept
from tradewind.errors import Invalid
from tradewind.history import influx, influx_classes, influx_keep, influx_list, influx_query, influx_read
from tradewind.history.influx import InfluxSink
from tradewind.history.influx_answer import Table
from tradewind.history.influx_http import CHUNK_ROWS
from tradewind.history.influx_keep import _duration_ms
from tradewind.history.sample import MAX_TS_MS, Row
from tradewind.settings import InfluxSettings

A, B, MODEL = "comsrv:1001:m:10001", "comsrv:1001:s:7", "modsrv:power_calc:measurement:total_power"
T0, HOUR, DAY = 1_790_035_200_000, 3_600_000, 86_400_000
HOSTILE = [
    "comsrv:1001:m:1' OR 'a'='a",
    'comsrv:1001:m:1"; DROP DATABASE "x',
    "comsrv:1001:m:1/ OR /",
    "comsrv:.*:m:.*",
    "modsrv:a|b:measurement:c",
    "modsrv:a:measurement:x; DELETE FROM telemetry",
    "modsrv:a':measurement:b\n",
    "",
]


@pytest.fixture(scope="module")
def server() -> Iterator[servers.Server]:
    with servers.influx_server() as server:
        yield server


@pytest.fixture
def settings(server: servers.Server) -> InfluxSettings:
    return InfluxSettings(url=server.url, database=f"t{secrets.token_hex(5)}")


@pytest.fixture
async def sink(settings: InfluxSettings) -> AsyncIterator[InfluxSink]:
    async with InfluxSink(settings) as sink:
        yield sink


@pytest.mark.parametrize("text", HOSTILE)
async def test_nothing_hostile_reaches_the_server(sink: InfluxSink, text: str) -> None:
    await sink.write([Row(A, T0, 1.0, 0)])
    assert influx_query.choices([text]) == []
    assert await sink.read([text], 0, T0 + DAY, 10) == {text: []}
    assert await sink.buckets([text], 0, T0 + DAY, DAY, ["mean", "integral"], 10) == {text: []}
    assert await sink.latest([text, A]) == {text: None, A: (T0, 1.0, 0)}
    assert await sink.series(text.removesuffix("*"), 10, "") == []
    assert await sink.forget([text]) == 0
    assert (await sink.stats()).rows == 1


@pytest.mark.parametrize("text", [*HOSTILE, "comsrv:*", "modsrv:*", "*", "comsrv:1001:*", "comsrv:1' OR 1:*", "x:*"])
def test_a_pattern_adds_nothing_to_a_question_but_an_id(text: str) -> None:
    for choice in influx_query.of_pattern(text):
        assert choice.where in ("", "\"channel_id\" = '1001'", "\"model\" = 'a'")


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*", {A, B, MODEL}),
        ("comsrv:*", {A, B}),
        ("comsrv:1001:*", {A, B}),
        ("comsrv:1001:m:*", {A}),
        ("comsrv:10*", {A, B}),
        ("*:7", {B}),
        ("modsrv:power_calc:*", {MODEL}),
        ("modsrv:*:total_power", {MODEL}),
        ("com*", {A, B}),
        (B, {B}),
        ("comsrv:2:*", set()),
        ("comsrv:100?:*", set()),
        ("", set()),
    ],
)
async def test_patterns(sink: InfluxSink, pattern: str, names: set[str]) -> None:
    await sink.write([Row(name, T0, 1.0, 0) for name in (A, B, MODEL)])
    assert {info.address for info in await sink.series(pattern, 10, "")} == names


async def test_every_question_is_bound_in_time(sink: InfluxSink, monkeypatch: pytest.MonkeyPatch) -> None:
    """GROUP BY time without bounds made one small series an answer of 49 MB."""
    asked: list[str] = []
    ask = sink._http.ask

    async def noted(text: str, each: object, **more: object) -> None:
        asked.extend(text.split(";"))
        await ask(text, each, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(sink._http, "ask", noted)
    await sink.write([Row(A, T0, 1.0, 0)])
    await sink.read([A], -5, MAX_TS_MS * 2, 10)
    await sink.buckets([A], -(2**70), 2**70, 1000, ["mean", "good"], 10)
    await sink.buckets([A], 0, MAX_TS_MS * 2, HOUR, ["integral"], 10)
    await sink.latest([A])
    await sink.series("*", 10, "")
    await sink.stats()
    selects = [text for text in asked if text.startswith("SELECT")]
    assert len(selects) > 15
    assert all(" time >= " in text and " time <= " in text for text in selects)
    assert all("fill(none)" in text for text in selects if "GROUP BY time" in text)


async def test_a_large_answer_comes_in_pieces_and_whole(sink: InfluxSink) -> None:
    count = 2 * CHUNK_ROWS + 7
    await sink.write([Row(name, T0 + n * 10, float(n), n % 2) for name in (A, B) for n in range(count)])
    got = await sink.read([B, A], T0, T0 + DAY, 10**6)
    for name in (A, B):
        assert got[name] == [(T0 + n * 10, float(n), n % 2) for n in range(count)]
    assert len((await sink.read([A], T0, T0 + DAY, CHUNK_ROWS + 1))[A]) == CHUNK_ROWS + 1
    # The integral is computed piece by piece; what holds over the border of two pieces counts.
    [(_, total, n)] = (await sink.buckets([A], T0, T0 + count * 10, DAY, ["integral", "count"], 9))[A]
    assert n == count and total == pytest.approx(sum(range(count)) / 100)


async def test_thousands_of_series_at_once(sink: InfluxSink) -> None:
    names = [f"comsrv:{n % 7}:{'ms'[n % 2]}:{n}" for n in range(2500)]
    names += [f"modsrv:m{n % 3}:measurement:f-{n}" for n in range(50)]
    await sink.write([Row(name, T0 + n, n / 2, 0) for n, name in enumerate(names)])
    assert len(influx_query.choices(names)) == 4
    assert await sink.latest(names) == {name: (T0 + n, n / 2, 0) for n, name in enumerate(names)}
    got = await sink.buckets(names, 0, T0 + DAY, DAY, ["max", "good"], 9)
    assert [got[name] for name in names] == [[(T0, n / 2, 1)] for n in range(len(names))]
    assert [info.address for info in await sink.series("*", 10_000, "")] == sorted(names)


@pytest.mark.parametrize("channels", [1, 20, 5000])
async def test_a_page_of_very_many_series_asks_for_figures_of_the_page_only(
    sink: InfluxSink, channels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = sorted(f"comsrv:{n % channels}:m:{n}" for n in range(20_000))
    await sink.write([Row(name, T0 + n, 1.0, 0) for n, name in enumerate(names)])
    answered = 0
    ask = sink._http.ask

    async def noted(text: str, each: Any, **more: Any) -> None:
        def count(number: int, table: Table) -> None:
            nonlocal answered
            answered += "key" not in table.columns
            each(number, table)

        await ask(text, count, **more)

    monkeypatch.setattr(sink._http, "ask", noted)
    for after in ("", names[9999]):
        answered, begun = 0, time.monotonic()
        behind = [name for name in names if name > after]
        assert [info.address for info in await sink.series("*", 1000, after)] == behind[:1000]
        assert (
            answered <= 3 * 3000
        )  # first, last and count; a channel of which a third is wanted is asked for as a whole
        assert time.monotonic() - begun < 10  # 0.5 to 1.5 s when nothing else runs
    answered = 0
    assert await sink.names("*", 15_000) == names[:15_000]
    assert await sink.names("comsrv:0:m:*", 15_000) == [name for name in names if name.startswith("comsrv:0:")][:15_000]
    assert answered == 0


async def test_pages_follow_each_other_without_a_gap(sink: InfluxSink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(influx_list, "MOST_AT_ONCE", 4)
    monkeypatch.setattr(influx_list, "MANY", 10)
    names = [f"comsrv:{channel}:{kind}:{n}" for channel in (1, 10, 100, 2, 21) for kind in "ms" for n in range(7)]
    names += [f"modsrv:m{n % 5}:{'measurement' if n % 2 else 'control'}:f{n}" for n in range(40)]
    await sink.write([Row(name, T0, 1.0, 0) for name in names])
    for pattern in ("*", "comsrv:1*", "comsrv:*:s:3", "modsrv:*", "*:control:*"):
        wanted = sorted(name for name in names if influx_query.matches(pattern, name))
        for size in (1, 6, 13, 200):
            found: list[str] = []
            while page := await sink.series(pattern, size, found[-1] if found else ""):
                found += [info.address for info in page]
            assert found == wanted


async def test_an_integral_that_needs_too_much_is_refused(sink: InfluxSink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(influx_read, "MAX_SCAN", 100)
    await sink.write([Row(A, T0 + n, 1.0, 0) for n in range(101)])
    assert (await sink.buckets([A], T0, T0 + 100, DAY, ["integral"], 9))[A]
    with pytest.raises(Invalid) as caught:
        await sink.buckets([A], T0, T0 + 101, DAY, ["integral"], 9)
    assert "shorter" in caught.value.hint


async def test_numbers_that_are_not_finite_do_not_cost_the_others(sink: InfluxSink) -> None:
    await sink.write([Row(A, T0 + n, 1.7e308, n % 2) for n in range(4)] + [Row(B, T0 + n, 1.0, 0) for n in range(4)])
    got = await sink.buckets([A, B], T0, T0 + DAY, DAY, ["mean", "sum", "stddev", "good", "last"], 9)
    [(_, mean, total, _, good, last)] = got[A]
    assert (mean, total, good, last) == (None, None, 2, 1.7e308)
    assert got[B] == [(T0, 1.0, 4.0, 0.0, 4, 1.0)]


async def test_control_and_measurement_of_one_model_are_two_series(sink: InfluxSink) -> None:
    control = MODEL.replace("measurement", "control")
    await sink.write([Row(MODEL, T0, 1.0, 0), Row(control, T0, 2.0, 0)])
    assert await sink.latest([MODEL, control]) == {MODEL: (T0, 1.0, 0), control: (T0, 2.0, 0)}
    assert await sink.forget([MODEL]) == 1
    assert await sink.latest([MODEL, control]) == {MODEL: None, control: (T0, 2.0, 0)}


async def test_a_second_writer_takes_away_the_mark_that_the_first_one_made(
    settings: InfluxSettings, sink: InfluxSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with InfluxSink(settings) as second:
        await second.write([Row(B, T0, 0.0, 0)])
        await sink.write([Row(A, T0, 1.0, 2)])
        monkeypatch.setattr(influx, "IDLE_S", 0.0)  # as if the lead had passed on
        await second.write([Row(A, T0, 2.0, 0)])
        assert (await second.latest([A]))[A] == (T0, 2.0, 0)


async def test_what_others_keep_in_the_database_is_left_alone(settings: InfluxSettings, sink: InfluxSink) -> None:
    await sink.write([Row(A, T0, 1.0, 0)])
    async with httpx.AsyncClient(base_url=settings.url, params={"db": settings.database}) as client:
        lines = f"cpu,host=a load=1 {T0}\ntelemetry,host=a\\ b value=5 {T0 - DAY}\ntelemetry value=6 {T0 + DAY}"
        assert (await client.post("/write", params={"precision": "ms"}, content=lines.encode())).status_code == 204
        assert [info.address for info in await sink.series("*", 10, "")] == [A]
        assert (await sink.stats()).series == 1
        async with InfluxSink(settings, raw_days=1) as keeper:
            assert (await keeper.retain(T0 + 100 * DAY)).rows == 3
            assert (await keeper.retain(T0 + 100 * DAY)).rows == 0
        left = (await client.post("/query", data={"q": "SELECT count(load) FROM cpu"})).json()
    assert left["results"][0]["series"][0]["values"][0][1] == 1


async def test_retention_is_seen_by_every_process_and_goes_in_bounded_steps(
    settings: InfluxSettings, sink: InfluxSink
) -> None:
    await sink.write([Row(A, T0 + n * DAY, 1.0, 0) for n in range(100)])
    assert (await sink.stats()).raw_from_ms is None
    assert (await sink.retain(T0 + 1000 * DAY)).rows == 0  # no days given: for ever
    async with InfluxSink(settings, raw_days=10) as keeper:
        removed = [(await keeper.retain(T0 + 100 * DAY)).rows for _ in range(5)]
    assert removed == [30, 30, 30, 0, 0]
    stats = await sink.stats()
    assert stats.raw_from_ms == stats.minute_from_ms == stats.hour_from_ms == T0 + 90 * DAY == stats.oldest_ms
    assert stats.rows == 10 and stats.bytes > 0


async def test_what_comes_late_does_not_move_the_mark_back(settings: InfluxSettings, sink: InfluxSink) -> None:
    await sink.write([Row(A, T0 + n * DAY, 1.0, 0) for n in range(100)])
    async with InfluxSink(settings, raw_days=10) as keeper:
        while (await keeper.retain(T0 + 100 * DAY)).rows:
            pass
        await keeper.write([Row(A, T0 + 5 * DAY, 1.0, 0)])
        assert (await keeper.retain(T0 + 100 * DAY)).rows == 1
        assert (await keeper.kept_from([A]))[A].raw_ms == T0 + 90 * DAY


async def test_classes_go_in_bounded_steps_and_every_process_knows(
    settings: InfluxSettings, sink: InfluxSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(influx_classes, "TOGETHER", 10)
    monkeypatch.setattr(influx_classes, "BUDGET_S", 0.0001)  # one step a call
    names = [f"comsrv:{n % 3}:{'ms'[n % 2]}:{n}" for n in range(30)] + [MODEL]
    await sink.write([Row(name, T0 + n * DAY, 1.0, 0) for name in names for n in range(10)])
    kept = Kept({"brief": 2}, {"comsrv:*": "brief"}, raw_days=0)
    async with InfluxSink(settings, keeping=kept) as keeper:
        removed = [(await keeper.retain(T0 + 10 * DAY)).rows for _ in range(5)]
        assert removed == [80, 80, 80, 0, 0]
    marks = await sink.kept_from([*names, "comsrv:1:m:404"])
    assert {marks[name].raw_ms for name in names[:-1]} == {T0 + 8 * DAY}
    assert marks[MODEL].raw_ms is None and marks["comsrv:1:m:404"].raw_ms is None
    assert (await sink.stats()).series == 31  # the marks are none
    await sink.forget(names[:1])
    assert (await sink.kept_from(names[:1]))[names[0]].raw_ms is None


async def test_the_way_of_2x_to_list_series_gives_the_same(settings: InfluxSettings, sink: InfluxSink) -> None:
    """1.6 serves InfluxQL at the same place; only writing differs."""
    await sink.write([Row(name, T0 + n, 1.0, 0) for n in range(3) for name in (A, B, MODEL)])
    async with InfluxSink(settings.model_copy(update={"bucket": settings.database})) as second:
        for pattern in ("*", "comsrv:1001:m:*", "modsrv:*"):
            assert await second.series(pattern, 10, "") == await sink.series(pattern, 10, "")
        stats = await second.stats()
        assert (stats.rows, stats.series) == (9, 3)


def test_durations_of_policies() -> None:
    assert _duration_ms("168h0m0s") == 7 * DAY
    assert _duration_ms("1h30m0s") == HOUR * 3 // 2
    assert _duration_ms("0s") == _duration_ms("") == _duration_ms("INF") == 0


async def test_figures_that_are_dear_are_not_asked_for_again_at_once(
    sink: InfluxSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await sink.stats()
    assert await sink.stats() is not first
    monkeypatch.setattr(influx_keep, "DEAR_S", 0.0)
    dear = await sink.stats()
    assert await sink.stats() is dear


async def test_figures_that_nobody_waited_for_are_there_for_the_next_one(
    sink: InfluxSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    await sink.write([Row(A, T0, 1.0, 0)])
    monkeypatch.setattr(influx_keep, "DEAR_S", 0.0)
    ask, may_go, asked = sink._http.ask, asyncio.Event(), 0

    async def slow(text: str, each: Any, **more: Any) -> None:
        nonlocal asked
        asked += "count(" in text
        await may_go.wait()
        await ask(text, each, **more)

    monkeypatch.setattr(sink._http, "ask", slow)
    for _ in range(2):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await sink.stats()
    may_go.set()
    assert (await sink.stats()).rows == 1 and asked == 1
