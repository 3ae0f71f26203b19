"""An export says what retention has removed from its range: to programs, over HTTP and on the command line."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest

from tests import servers
from tests.api.conftest import ask, small_station
from tests.cli.conftest import Canned
from tests.cli.conftest import canned as canned
from tests.history.class_contract import Kept, retain_all
from tests.history.query_sinks import DAY, DAY0, HOUR, MINUTE, A, B, influx_for_module
from tradewind.api import create_app
from tradewind.cli.main import main
from tradewind.clock import iso, now_ms
from tradewind.history.export import Export, columns_of
from tradewind.history.export_file import Lacks, file_bytes, file_writer, unframed
from tradewind.history.influx import InfluxSink
from tradewind.history.question import Limits, Question, Words, read_question
from tradewind.history.sample import Row
from tradewind.history.sink import KeptFrom, Sink, SinkAway
from tradewind.history.sqlite import SqliteSink
from tradewind.settings import HistorySettings, InfluxSettings

influx = pytest.fixture(scope="module")(influx_for_module)
NOW = DAY0 + 10 * DAY
ROWS = [Row(name, DAY0 + n * 6 * HOUR, float(n)) for name in (A, B) for n in range(40)]


@pytest.fixture(params=["sqlite", "influx"])
async def sink(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Sink]:
    """A is kept for 3 days, B for ever."""
    keeping = Kept({"brief": 3}, {A: "brief"}, raw_days=0)
    if request.param == "influx":
        server: servers.Server = request.getfixturevalue("influx")
        made: Sink = InfluxSink(InfluxSettings(url=server.url, database="lacks"), keeping=keeping)
    else:
        made = SqliteSink(tmp_path / "history", keeping=keeping, now=lambda: NOW)
    async with made as sink:
        await sink.write(ROWS)
        await retain_all(sink, NOW)
        yield sink


def asked(*series: str, **more: Any) -> Question:
    words = Words(series=series, **{"from_": DAY0, "to": NOW, "bucket": "raw", **more})
    return read_question(words, Limits(10, 10_000), NOW, is_bounded=False)


async def exported(sink: Sink, question: Question, framed: str, told: dict[str, int] | None) -> bytes:
    export = Export(sink, question, "long")
    writer = file_writer("csv", columns_of(question, "long"))
    return b"".join([piece async for piece in file_bytes(writer, export, framed=framed, told=told)])


async def test_what_is_missing_is_told_for_exactly_the_series_that_lost_it(sink: Sink) -> None:
    assert await Export(sink, asked(A, B), "long").lacks() == {A: DAY0 + 7 * DAY}
    assert await Export(sink, asked(B), "long").lacks() == {}
    assert await Export(sink, asked(A, from_=DAY0 + 7 * DAY), "long").lacks() == {}
    hours = await Export(sink, asked(A, bucket="1h", agg=["mean"]), "long").lacks()
    assert hours == ({} if sink.has_rollups else {A: DAY0 + 7 * DAY})


async def test_a_noted_export_has_it_before_its_end_and_the_file_is_the_same(sink: Sink) -> None:
    notes: list[Lacks] = []
    framed = await exported(sink, asked(A, B), "noted", None)
    for pieces in ([framed], [framed[at : at + 5] for at in range(0, len(framed), 5)]):
        notes.clear()
        plain = b"".join(unframed(pieces, lambda share, rows: None, notes.append))
        assert plain == await exported(sink, asked(A, B), "false", None)
        assert notes == [Lacks(1, [(A, DAY0 + 7 * DAY)])]
    assert plain.count(b"\n") == 1 + 12 + 40
    await exported(sink, asked(B), "noted", {})
    assert b"".join(unframed([await exported(sink, asked(B), "noted", {})], lambda *_: None, notes.append))
    assert len(notes) == 1


async def test_what_goes_in_the_middle_of_an_export_breaks_it_off_unless_it_can_be_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SqliteSink(tmp_path, now=lambda: NOW) as sink:
        await sink.write(ROWS)
        question = asked(A, B)
        assert await Export(sink, question, "long").lacks() == {}

        async def kept_from(series: Any) -> dict[str, KeptFrom]:
            return {name: KeptFrom(DAY0 + DAY) for name in series}

        monkeypatch.setattr(sink, "kept_from", kept_from)
        with pytest.raises(SinkAway, match="meanwhile"):
            await exported(sink, question, "false", {})
        with pytest.raises(SinkAway, match="meanwhile"):
            await exported(sink, question, "true", {A: DAY0 + DAY})
        # What was told once is not told again by breaking off: the server's own retention moves all the time.
        assert await exported(sink, question, "false", {A: DAY0 + 1, B: DAY0 + 1})
        notes: list[Lacks] = []
        assert b"".join(unframed([await exported(sink, question, "noted", {})], lambda *_: None, notes.append))
        assert notes[0].count == 2


@pytest.fixture
def quiet_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("TRADEWIND_TOKEN", raising=False)
    yield


async def test_over_http_and_on_the_command_line(
    redis_7: servers.Server,
    key_prefix: str,
    tmp_path: Path,
    canned: Canned,
    quiet_environment: None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    today = now_ms() // DAY * DAY
    history, edge = HistorySettings(raw_days=2), today - 2 * DAY
    params = {"series": A, "from": str(edge - DAY), "to": str(today)}
    async with small_station(redis_7.url, key_prefix, tmp_path, history=history) as station:
        sink = (await station.history.questions()).sink
        await sink.write([Row(A, edge - DAY + n * MINUTE, 1.0) for n in range(2 * 1440)])
        await retain_all(sink, today)
        async with ask(create_app(station)) as client:

            async def get(**more: str) -> Any:
                found = await client.get("/api/v1/history/export", params={**params, **more})
                assert found.status_code == 200, found.text
                return found

            found = await get()
            assert found.headers["history-complete"] == "false"
            assert found.headers["history-available-from"] == str(edge)
            assert found.headers["history-incomplete-series"] == "1"
            assert found.text.splitlines()[0] == "ts,address,value,quality" and "#" not in found.text
            whole = await get(bucket="1h", agg="mean")
            assert whole.headers["history-complete"] == "true" and "history-available-from" not in whole.headers
            table = parquet.read_table(io.BytesIO((await get(format="parquet")).content))
            assert table.num_rows == 1440
            assert table.schema.metadata[b"history.complete"] == b"false"
            assert table.schema.metadata[b"history.available_from"] == f'{{"{A}":{edge}}}'.encode()
            framed = (await get(framed="noted")).content
    canned.answer("GET /api/v1/history/export", 200, framed)
    out = tmp_path / "out.csv"
    command = ["history", "export", A, "--from", params["from"], "--to", params["to"], "-o", str(out)]
    assert main(command) == 0
    shown = capsys.readouterr()
    assert f"{A}: retention has removed what lies before" in shown.err and "--bucket 1m" in shown.err
    assert "retention" not in shown.out and out.read_bytes() == found.content
    assert "framed=noted" in canned.asked[-1][0]
    assert main([*command, "--json"]) == 0
    told = capsys.readouterr().out
    assert '"complete": false' in told or '"complete":false' in told
    assert str(edge) in told and iso(edge) not in told
