"""History as files over HTTP: export to CSV or Parquet as a stream, import of CSV."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from tradewind.api.body import check_query, pieces_of, read_bytes
from tradewind.api.errors import Refused
from tradewind.api.history import AGG, BUCKET, GAP, LIMIT_S, PERIOD, TAG
from tradewind.api.history_request import EXPORT, query_choice, query_words
from tradewind.api.history_room import HistoryServices, refused_view
from tradewind.api.point_request import BAD
from tradewind.api.routing import Endpoint, Parameter, json_response
from tradewind.clock import now_ms
from tradewind.errors import Invalid, Overloaded, Problem
from tradewind.history.export import LAYOUTS, Export, columns_of
from tradewind.history.export_file import FORMATS, FRAMES, MEDIA_TYPES, file_bytes, file_writer
from tradewind.history.import_csv import read_csv
from tradewind.history.keeping import Keeping
from tradewind.history.question import Limits, read_question
from tradewind.history.sample import GOOD, Row
from tradewind.history.sink import SinkAway
from tradewind.history.store import RefusedSample
from tradewind.history.upload import sound_rows, upload
from tradewind.offload import offload
from tradewind.problems import Problems

#: Exports under way at once; each keeps a thread of the sink busy.
MAX_EXPORTS = 4
#: Series of a long file.
MAX_SERIES = 10_000
#: Of one import; some hundred thousand rows.
MAX_BODY_BYTES = 16_000_000
MAX_REFUSED = 1000
CSV_TYPES = ("text/csv", "application/csv", "text/plain")


class JsonRow(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    series: str
    ts_ms: int
    value: float
    quality: int = GOOD


class RowsBody(msgspec.Struct, forbid_unknown_fields=True):
    rows: list[msgspec.Raw]


#: In two steps: a call into C that decodes all rows of a long body would hold every other request.
_bodies = msgspec.json.Decoder(RowsBody)
_rows = msgspec.json.Decoder(list[JsonRow])


class HistoryFileRoutes:
    def __init__(self, room: HistoryServices, max_body_bytes: int) -> None:
        self._room = room
        self._max_body_bytes = max(max_body_bytes, MAX_BODY_BYTES)
        self._exports = 0

    async def export(self, request: Request) -> Response:
        words = query_words(request, EXPORT)
        kind, layout = query_choice(request, "format", FORMATS), query_choice(request, "layout", LAYOUTS)
        is_iso = query_choice(request, "time", ("ms", "iso")) == "iso"
        framed = query_choice(request, "framed", FRAMES)
        query = await self._room.questions()
        most = MAX_SERIES if layout == "long" else query.limits.max_series
        series = await query.expand(words.series, most)
        words = msgspec.structs.replace(words, series=series, bucket=words.bucket or "raw")
        limits = Limits(query.limits.max_points, most)
        question = read_question(words, limits, now_ms(), is_bounded=False)
        if self._exports >= MAX_EXPORTS:
            message = f"{MAX_EXPORTS} exports are under way already"
            raise Overloaded(message, code="too_many_exports", hint="try again when one has ended", retry_after_s=5)
        export = Export(query.sink, question, layout)
        lacks = await export.lacks()  # a sink that is away is told before the file begins
        writer = file_writer(kind, columns_of(question, layout), iso_times=is_iso, lacks=lacks)
        pieces = self._counted(file_bytes(writer, export, framed=framed, told=lacks))
        headers = {"Content-Disposition": f'attachment; filename="history.{kind}"', **_lack_headers(lacks)}
        media_type = MEDIA_TYPES[kind] if framed == "false" else "application/octet-stream"
        return StreamingResponse(pieces, media_type=media_type, headers=headers)

    async def _counted(self, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        self._exports += 1
        try:
            async for piece in pieces:
                yield piece
        finally:
            self._exports -= 1

    async def take(self, request: Request) -> Response:
        check_query(request, frozenset({"skip_bad"}))
        skip_bad = query_choice(request, "skip_bad", ("false", "true")) == "true"
        data = await read_bytes(request, self._max_body_bytes)
        rows, problems = await offload(_rows_of, request.headers.get("content-type", ""), data)
        if problems and not skip_bad:
            message = f"{problems.total} rows are bad: nothing was stored"
            hint = "correct what is named, or leave these out with skip_bad=true"
            raise Invalid(message, code="bad_rows", hint=hint, problems=problems)
        keeping: Keeping | None = None
        with contextlib.suppress(SinkAway):  # a policy that nobody can read costs no sample
            keeping = await self._room.keeping()
        done = await upload((await self._room.questions()).sink, rows, keeping)
        refused = [
            refused_view(RefusedSample("", row.series, row.ts_ms, repr(row.value), reason, 0))
            for row, reason in done.refused[:MAX_REFUSED]
        ]
        for each in refused:
            del each["at"]
        left_out = [{"code": p.code, "path": p.path, "hint": p.hint} for p in problems]
        return json_response(
            {
                "stored": done.stored,
                "refused_count": len(done.refused),
                "refused": refused,
                "too_old": msgspec.to_builtins(done.too_old),
                "rollups_only": done.rollups_only,
                "left_out_count": problems.total,
                "left_out": left_out,
            }
        )

    def endpoints(self) -> list[Endpoint]:
        every = "/api/v1/history"
        return [
            Endpoint(
                "GET", f"{every}/export", self.export, "A range of time as a file",
                {200: ("Sent as it is read; a connection that breaks is an error", "Text"), 422: BAD,
                 429: ("Too many exports at once", "Error")}, TAG,
                "All samples, or buckets. Long: `ts,address,value,quality`, series by series. Wide: a row for each "
                f"time. Parquet needs pyarrow in the station. At most {MAX_SERIES} series; wide: `history.max_series`. "
                "Where retention has removed a part of the range, headers say so: `History-Complete: false`, "
                "`History-Available-From` (from when on all series are whole, in ms), `History-Incomplete-Series` "
                "(how many are not); Parquet has it in its metadata, too. If it does so in the middle of an export the "
                "connection breaks.",
                query=(*PERIOD, _changed(BUCKET, "raw"), AGG, GAP, *_FILE), media_type="text/csv", limit_s=LIMIT_S,
            ),
            Endpoint(
                "POST", f"{every}/import", self.take, "Store samples from outside",
                {200: ("What was stored and what was not", "HistoryImported"), 422: BAD}, TAG,
                "As CSV (`ts,address,value[,quality]`, or wide) or JSON rows. If any row is bad nothing is stored, "
                "unless `skip_bad` is set. The same again changes nothing.", body="HistoryRows",
                body_types=("application/json", "text/csv"),
                query=(Parameter("skip_bad", "Leave bad rows out", {"type": "boolean", "default": False}),),
                limit_s=120,
            ),
        ]  # fmt: skip


def _lack_headers(lacks: Mapping[str, int]) -> dict[str, str]:
    if not lacks:
        return {"History-Complete": "true"}
    return {
        "History-Complete": "false",
        "History-Available-From": str(max(lacks.values())),
        "History-Incomplete-Series": str(len(lacks)),
    }


def _rows_of(content_type: str, data: bytes) -> tuple[list[Row], Problems]:
    """Raises Invalid, Refused."""
    problems = Problems()
    if content_type.partition(";")[0].strip().lower() in CSV_TYPES:
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise Refused(400, "the CSV is not UTF-8", code="bad_csv", hint="send UTF-8") from error
        return list(read_csv(text.splitlines(), problems.append)), problems
    try:
        found = [row for piece in pieces_of(_bodies.decode(data).rows) for row in _rows.decode(piece)]
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        hint = 'send {"rows": [["comsrv:1001:m:10001", ts_ms, value, quality], …]}, or CSV with Content-Type: text/csv'
        problem = Problem("bad_rows", "rows", str(error))
        raise Invalid(f"the rows cannot be read: {error}", code="bad_rows", hint=hint, problems=[problem]) from error
    rows = [Row(each.series, each.ts_ms, each.value, each.quality) for each in found]
    return sound_rows(rows, problems.append), problems


def _changed(parameter: Parameter, default: str) -> Parameter:
    return Parameter(parameter.name, parameter.about, {**parameter.schema, "default": default})


_WORD: dict[str, Any] = {"type": "string"}
_FILE = (
    Parameter("format", "Of the file", {**_WORD, "enum": list(FORMATS), "default": FORMATS[0]}),
    Parameter("layout", "A row for each sample, or for each time", {**_WORD, "enum": list(LAYOUTS), "default": "long"}),
    Parameter("time", "How CSV writes times", {**_WORD, "enum": ["ms", "iso"], "default": "ms"}),
    Parameter(
        "framed",
        "For a bar: before each piece of the file its size (4 bytes), the share done of 10,000 (2), rows so far (8), "
        "little-endian; a share of 10,000 is the end. `noted`: before the end also what retention has removed from the "
        "range, as JSON with a share of 65,535; the connection does not break for that then",
        {**_WORD, "enum": list(FRAMES), "default": FRAMES[0]},
    ),
)
