"""History as files: every sample once and in order, exactly as it was, from both sinks; and back again."""

from __future__ import annotations

import builtins
import io
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest

from tests import servers
from tests.history.query_sinks import DAY0, HOUR, MINUTE, NOW, SECOND, A, B, C, influx_for_module, open_sink
from tradewind.errors import Invalid, Unavailable
from tradewind.history import export
from tradewind.history.export import Export, columns_of
from tradewind.history.export_file import file_bytes, file_writer, unframed
from tradewind.history.import_csv import read_csv
from tradewind.history.question import Limits, Question, Words, read_question
from tradewind.history.sample import Row
from tradewind.history.sink import Sink
from tradewind.history.upload import upload

ROWS = [
    *(Row(A, DAY0 + at * SECOND, at / 7) for at in range(500)),
    *(Row(B, DAY0 + at * 700, -1e-300 * at, at % 3) for at in range(50)),
    Row(C, DAY0, 1.7976931348623157e308),
]


@pytest.fixture(scope="module")
def influx() -> Iterator[servers.Server]:
    yield from influx_for_module()


@pytest.fixture(params=["embedded", "influx"])
async def sink(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Sink]:
    influx = request.getfixturevalue("influx") if request.param == "influx" else None
    async with open_sink(request.param, tmp_path, influx) as sink:
        await sink.write(ROWS)
        yield sink


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that every way to go on behind a block is gone."""
    monkeypatch.setattr(export, "BLOCK", 120)
    monkeypatch.setattr(export, "TOGETHER", 2)


def asked(*series: str, **more: Any) -> Question:
    words = Words(series=series, **{"from_": DAY0, "to": DAY0 + HOUR, "bucket": "raw", **more})
    return read_question(words, Limits(10, 10_000), NOW, is_bounded=False)


async def file_of(sink: Sink, question: Question, kind: str = "csv", layout: str = "long", **more: bool) -> bytes:
    writer = file_writer(kind, columns_of(question, layout), **more)
    return b"".join([piece async for piece in file_bytes(writer, Export(sink, question, layout))])


def read(text: bytes) -> list[Row]:
    problems: list[Any] = []
    rows = list(read_csv(text.decode().splitlines(), problems.append))
    assert not problems
    return rows


async def test_a_long_file_has_every_sample_exactly(sink: Sink) -> None:
    found = await file_of(sink, asked(A, B, C))
    assert found.startswith(b"ts,address,value,quality\n")
    assert read(found) == ROWS
    assert read(await file_of(sink, asked(A, B, C), iso_times=True)) == ROWS


async def test_a_wide_file_has_a_row_for_each_time(sink: Sink) -> None:
    found = await file_of(sink, asked(A, B, C), layout="wide")
    lines = found.decode().splitlines()
    assert lines[0] == f"ts,{A},{B},{C}"
    times = [int(line.partition(",")[0]) for line in lines[1:]]
    assert times == sorted({row.ts_ms for row in ROWS})
    assert sorted(read(found)) == sorted(Row(*row[:3]) for row in ROWS)


async def test_a_wide_file_of_series_with_other_rates_has_no_row_twice(sink: Sink) -> None:
    """The fast one is cut long before the slow one, whose later samples must wait for it."""
    fast, slow = "comsrv:3003:m:1", "comsrv:3003:m:2"
    rows = [Row(fast, DAY0 + at * 100, float(at)) for at in range(350)]
    rows += [Row(slow, DAY0 + at * SECOND, float(at)) for at in range(60)]
    await sink.write(rows)
    found = await file_of(sink, asked(fast, slow), layout="wide")
    assert sorted(read(found)) == sorted(rows)
    times = [int(line.partition(",")[0]) for line in found.decode().splitlines()[1:]]
    assert times == sorted({row.ts_ms for row in rows})


async def test_buckets_are_exported_in_both_layouts(sink: Sink) -> None:
    question = asked(A, B, bucket="1s", agg=["count", "max", "integral"], gap="5s")
    whole = await sink.buckets([A, B], DAY0, DAY0 + HOUR, SECOND, ("count", "max", "integral"), 10_000, 5000)
    lines = (await file_of(sink, question)).decode().splitlines()
    assert lines[0] == "ts,address,count,max,integral"
    told = [line.split(",") for line in lines[1:]]
    for name in (A, B):
        own = [(int(t), int(n), float(x) if x else None, float(i)) for t, a, n, x, i in told if a == name]
        assert own == [(*row[:3], pytest.approx(row[3])) for row in whole[name]]
    wide = (await file_of(sink, asked(A, B, bucket="1m", agg=["count", "max"]), layout="wide")).decode().splitlines()
    assert wide[0] == f"ts,{A} count,{A} max,{B} count,{B} max"
    assert wide[1].split(",")[:3] == [str(DAY0), "60", repr(59 / 7)] and wide[1].split(",")[3] == "50"
    assert wide[2] == f"{DAY0 + MINUTE},60,{119 / 7!r},,"


async def test_a_parquet_file_has_the_same_with_types(sink: Sink) -> None:
    table = parquet.read_table(io.BytesIO(await file_of(sink, asked(A, B, C), "parquet")))
    assert [str(field.type) for field in table.schema] == ["timestamp[ms, tz=UTC]", "string", "double", "int8"]
    found = [
        Row(each["address"], round(each["ts"].timestamp() * 1000), each["value"], each["quality"])
        for each in table.to_pylist()
    ]
    assert found == ROWS


async def test_a_file_without_samples_has_its_columns(sink: Sink) -> None:
    nothing = asked("comsrv:9:m:9")
    assert await file_of(sink, nothing) == b"ts,address,value,quality\n"
    assert parquet.read_table(io.BytesIO(await file_of(sink, nothing, "parquet"))).num_rows == 0


async def test_what_was_exported_can_be_imported_twice(sink: Sink) -> None:
    """The second time changes nothing."""
    rows = read(await file_of(sink, asked(A, B)))
    moved = [row._replace(series=row.series.replace("1001", "7007")) for row in rows]
    for _ in range(2):
        done = await upload(sink, moved)
        assert (done.stored, done.refused) == (len(moved), [])
        names = tuple(name.replace("1001", "7007") for name in (A, B))
        assert read(await file_of(sink, asked(*names))) == moved


def test_without_pyarrow_the_message_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    known = builtins.__import__

    def refuse(name: str, *rest: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return known(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(Invalid, match="pyarrow") as caught:
        file_writer("parquet", ["ts"])
    assert caught.value.code == "no_parquet" and "tradewind[parquet]" in caught.value.hint


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("layout", ["long", "wide"])
@pytest.mark.parametrize("bucket", ["raw", "1s"])
async def test_a_framed_file_tells_how_far_it_is(sink: Sink, kind: str, layout: str, bucket: str) -> None:
    question = asked(A, B, C, bucket=bucket, to=DAY0 + 600 * SECOND)
    plain = await file_of(sink, question, kind, layout)
    writer = file_writer(kind, columns_of(question, layout))
    framed = [piece async for piece in file_bytes(writer, Export(sink, question, layout), framed="true")]
    steps: list[tuple[float, int]] = []
    whole = b"".join(framed)
    for pieces in ([whole], [whole[at : at + 7] for at in range(0, len(whole), 7)]):
        steps.clear()
        assert b"".join(unframed(pieces, lambda share, rows: steps.append((share, rows)))) == plain
        assert len(steps) >= 4 and steps == sorted(steps)
        assert steps[-1][0] == 1.0 and steps[-2][0] < 1.0
        assert any(0.05 < share < 0.9 for share, _ in steps)
    rows = parquet.read_table(io.BytesIO(plain)).num_rows if kind == "parquet" else plain.count(b"\n") - 1
    assert steps[-1][1] == rows > 0
    for cut in (whole[:-1], b"".join(framed[:-1]), b""):
        with pytest.raises(Unavailable):
            list(unframed([cut], lambda share, rows: None))


async def test_an_export_of_nothing_has_an_end_too(sink: Sink) -> None:
    question = asked(A, from_=DAY0 - HOUR, to=DAY0 - MINUTE)
    writer = file_writer("csv", columns_of(question, "long"))
    framed = [piece async for piece in file_bytes(writer, Export(sink, question, "long"), framed="true")]
    assert b"".join(unframed(framed, lambda share, rows: None)) == b"ts,address,value,quality\n"
