"""Answers of a server that InfluxDB 1.6 does not give at will, and the shape of requests to 2.x and 3.x."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncIterator
from email.utils import formatdate
from typing import Any, Literal

import pytest

from tests.history.class_contract import Kept
from tests.history.history_room import until
from tests.history.influx_fake import Drip, FakeInflux, Reply, Request, Reset, Silence, fake_influx
from tests.servers import free_port
from tradewind.errors import Invalid
from tradewind.history.influx import MAX_LINES, InfluxSink
from tradewind.history.influx_http import InfluxHttp, retry_after
from tradewind.history.sample import Row
from tradewind.history.sink import SinkAway
from tradewind.settings import InfluxSettings

A, MODEL = "comsrv:1001:m:10001", "modsrv:power_calc:measurement:total_power"
T0 = 1_790_000_000_000


@pytest.fixture
async def fake() -> AsyncIterator[FakeInflux]:
    async with fake_influx() as server:
        yield server


def rows(count: int) -> list[Row]:
    return [Row(A, T0 + n, n / 4, 0) for n in range(count)]


def sink_of(fake: FakeInflux, timeout_s: float = 10.0, raw_days: int = 0, **settings: Any) -> InfluxSink:
    return InfluxSink(InfluxSettings(url=fake.url, **settings), raw_days, timeout_s=timeout_s)


async def refused_with(fake: FakeInflux, reply: Reply) -> SinkAway:
    fake.answer = lambda request: reply
    async with sink_of(fake) as sink:
        with pytest.raises(SinkAway) as caught:
            await sink.write(rows(3))
    return caught.value


async def test_a_write_to_1x(fake: FakeInflux) -> None:
    async with sink_of(fake, database="plant", user="ann", password="pässword") as sink:
        assert (await sink.write([Row(A, T0, 1.5, 0), Row(MODEL, T0, -2.0, 0)])).stored == 2
    [write] = fake.writes
    assert (write.method, write.path, write.params) == ("POST", "/write", {"db": "plant", "precision": "ms"})
    assert "content-encoding" not in write.headers  # on one machine
    assert write.headers["authorization"] == "Basic " + base64.b64encode("ann:pässword".encode()).decode()
    assert write.lines == [
        f"telemetry,channel_id=1001,point_id=10001,point_type=measurement value=1.5 {T0}",
        f"model,field=total_power,model=power_calc value=-2.0 {T0}",
    ]


async def test_a_write_to_2x_and_3x(fake: FakeInflux) -> None:
    async with sink_of(fake, bucket="plant/raw", org="acme", token="t0ken") as sink:
        await sink.write(rows(2))
        await sink.latest([A])
    [write] = fake.writes
    assert (write.method, write.path) == ("POST", "/api/v2/write")
    assert write.params == {"bucket": "plant/raw", "org": "acme", "precision": "ms"}
    assert write.headers["authorization"] == "Token t0ken"
    assert len(write.lines) == 2
    question = fake.requests[-1]
    assert (question.path, question.params["db"], question.params["rp"]) == ("/query", "plant", "raw")
    assert question.headers["authorization"] == "Token t0ken"


async def test_lines_travel_compressed_when_the_setting_says_so(fake: FakeInflux) -> None:
    async with sink_of(fake, gzip="always") as sink:
        assert (await sink.write(rows(MAX_LINES))).stored == MAX_LINES
    [write] = fake.writes
    assert write.headers["content-encoding"] == "gzip" and len(write.body) < 10 * MAX_LINES
    assert len(write.lines) == MAX_LINES


@pytest.mark.parametrize(
    ("url", "gzip", "is_gzip"),
    [
        ("http://localhost:8086", "auto", False),
        ("http://127.0.0.2:8086", "auto", False),
        ("http://[::1]:8086", "auto", False),
        ("http://localhost:8086", "always", True),
        ("http://influx.plant:8086", "auto", True),
        ("http://10.0.0.7:8086", "auto", True),
        ("https://localhost.plant", "auto", True),
        ("http://10.0.0.7:8086", "never", False),
    ],
)
def test_lines_are_compressed_by_default_unless_the_server_is_on_this_machine(
    url: str, gzip: Literal["auto", "always", "never"], is_gzip: bool
) -> None:
    assert InfluxHttp(InfluxSettings(url=url, gzip=gzip)).is_gzip is is_gzip


async def test_removing_in_2x_is_asked_for_by_predicate(fake: FakeInflux) -> None:
    table = b'{"results":[{"series":[{"name":"telemetry","columns":["time","n"],"values":[[%d,7]]}]}]}' % T0
    fake.to_questions = lambda request: Reply(200, table)
    async with sink_of(fake, bucket="plant", org="acme", raw_days=1) as sink:
        assert await sink.forget([A, "nonsense"]) == 7
        assert (await sink.retain(T0 + 2 * 86_400_000)).rows == 7
    deletes = [request for request in fake.requests if request.path == "/api/v2/delete"]
    assert all(request.params == {"bucket": "plant", "org": "acme"} for request in deletes)
    wanted = '_measurement=\\"telemetry\\" AND channel_id=\\"1001\\" AND point_type=\\"measurement\\"'
    assert f'{wanted} AND point_id=\\"10001\\"' in deletes[0].body.decode()
    # The series and its mark; whether the server deletes; then three measurements and the old mark of retention.
    assert len(deletes) == 7
    [mark] = fake.writes
    assert mark.lines[0].startswith("history_retention raw_from_ms=")


async def test_classes_in_2x_are_removed_series_by_series(fake: FakeInflux) -> None:
    tags = b'{"channel_id":"1001","point_id":"10001","point_type":"measurement"}'
    count = b'{"results":[{"series":[{"name":"telemetry","tags":%s,"columns":["time","n"],"values":[[0,7]]}]}]}' % tags
    values = (
        b'{"results":[{"series":[{"name":"telemetry","columns":["key","value"],"values":[["channel_id","1001"]]}]}]}'
    )

    def found(request: Request) -> Reply:
        if "history_retention" in request.question or "SHOW RETENTION" in request.question:
            return Reply(200, b'{"results":[]}')
        return Reply(200, values if "TAG VALUES" in request.question else count)

    fake.to_questions = found
    kept = Kept({"brief": 2}, {A: "brief"}, raw_days=0)
    async with InfluxSink(InfluxSettings(url=fake.url, bucket="plant", org="acme"), keeping=kept) as sink:
        assert (await sink.retain(T0 + 5 * 86_400_000)).rows == 7
    [mark] = fake.writes
    assert mark.lines[0].startswith(
        "history_retention_telemetry,channel_id=1001,point_id=10001,point_type=measurement "
    )
    assert mark.lines[0].endswith(
        f"raw_from_ms={T0 // 86_400_000 * 86_400_000 + 3 * 86_400_000}i {T0 + 5 * 86_400_000}"
    )
    deletes = [request.body.decode() for request in fake.requests if request.path == "/api/v2/delete"]
    assert '\\"telemetry\\" AND channel_id=\\"1001\\"' in deletes[-1] and len(deletes) == 3
    assert fake.requests.index(mark) < next(
        at for at, request in enumerate(fake.requests) if request.body.decode() == deletes[-1]
    )


async def test_a_server_that_deletes_nothing_is_told_and_nothing_is_marked_as_removed(fake: FakeInflux) -> None:
    """3.x has no /api/v2/delete."""
    table = b'{"results":[{"series":[{"name":"telemetry","columns":["time","n"],"values":[[%d,7]]}]}]}' % T0
    fake.to_questions = lambda request: Reply(200, table)
    missing = Reply(404, b'{"error":"not \\"found\\""}')
    fake.answer = lambda request: missing if request.path.endswith("delete") else Reply()
    async with sink_of(fake, bucket="plant", raw_days=1) as sink:
        with pytest.raises(SinkAway):
            await sink.retain(T0 + 2 * 86_400_000)
        [told] = fake.writes
        assert told.lines[0].startswith('history_retention problem="InfluxDB at')
        assert not any("raw_from_ms" in line for line in told.lines)
        problem = b'{"results":[{"series":[{"name":"x","columns":["time","p"],"values":[[1,"gone"]]}]}]}'
        empty = b'{"results":[]}'
        fake.to_questions = lambda request: Reply(200, problem if "problem" in request.question else empty)
        assert "retention of the bucket" in (await sink.stats()).problems[0]


async def test_two_connections_serve_many_writes_of_5000_lines(fake: FakeInflux) -> None:
    async with sink_of(fake) as sink:
        assert (await sink.write(rows(4 * MAX_LINES + 1))).stored == 4 * MAX_LINES + 1
        await sink.write(rows(10))
    assert sorted(len(write.lines) for write in fake.writes) == [1, 10, *[MAX_LINES] * 4]
    assert fake.connections <= 2


@pytest.mark.parametrize(("shift", "together"), [(0, 2), (1, 1)])
async def test_two_requests_are_on_their_way_unless_they_share_a_key(
    fake: FakeInflux, shift: int, together: int
) -> None:
    first, second = rows(MAX_LINES), rows(2 * MAX_LINES)[MAX_LINES - shift : 2 * MAX_LINES - shift]
    fake.may_answer.clear()
    async with sink_of(fake) as sink:
        writing = asyncio.create_task(sink.write(first + second))
        await until(lambda: len(fake.writes) == together)
        await asyncio.sleep(0.1)  # one more would be here by now
        assert len(fake.writes) == together
        fake.may_answer.set()
        assert (await writing).stored == 2 * MAX_LINES
    assert [len(write.lines) for write in fake.writes] == [MAX_LINES] * 2


async def test_an_error_is_told_when_no_request_is_on_its_way_any_more(fake: FakeInflux) -> None:
    def answer(request: Request) -> Reply:
        fake.may_answer.clear()  # the other one waits
        return Reply(503)

    fake.answer = answer
    async with sink_of(fake) as sink:
        writing = asyncio.create_task(sink.write(rows(4 * MAX_LINES)))
        await until(lambda: len(fake.writes) == 2)
        assert not (await asyncio.wait({writing}, timeout=0.2))[0]
        fake.answer = lambda request: Reply()
        fake.may_answer.set()
        with pytest.raises(SinkAway):
            await writing
        assert len(fake.writes) == 2  # no third one began
        assert (await sink.write(rows(4 * MAX_LINES))).stored == 4 * MAX_LINES


async def test_whoever_gives_up_leaves_no_request_behind(fake: FakeInflux) -> None:
    fake.may_answer.clear()
    async with sink_of(fake) as sink:
        writing = asyncio.create_task(sink.write(rows(2 * MAX_LINES)))
        await until(lambda: len(fake.writes) == 2)
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        assert not [task for task in asyncio.all_tasks() if task.get_name() == "history request"]


async def test_429_names_its_time(fake: FakeInflux) -> None:
    error = await refused_with(fake, Reply(429, headers={"Retry-After": "17"}))
    assert error.retry_after_s == 17.0 and "429" in error.message


@pytest.mark.parametrize("status", [500, 502, 503, 504])
async def test_5xx_is_tried_again_later(fake: FakeInflux, status: int) -> None:
    error = await refused_with(fake, Reply(status, b'{"code":"internal error","message":"out of luck"}'))
    assert "out of luck" in error.message and error.retry_after_s is None
    assert len(fake.writes) == 1  # nothing is split


@pytest.mark.parametrize("status", [401, 403])
async def test_a_missing_right_is_said_with_what_to_do(fake: FakeInflux, status: int) -> None:
    error = await refused_with(fake, Reply(status, b'{"error":"authorization failed"}'))
    assert "authorization failed" in error.message and "influx.token" in error.hint


@pytest.mark.parametrize("status", [200, 202, 302, 405, 418])
async def test_what_is_no_influxdb_costs_no_sample(fake: FakeInflux, status: int) -> None:
    error = await refused_with(fake, Reply(status, b"<html>", {"Location": "http://127.0.0.1:1/"}))
    assert "influx.url" in error.hint and len(fake.writes) == 1


async def test_a_missing_bucket_is_not_created_but_named(fake: FakeInflux) -> None:
    fake.answer = lambda request: Reply(404, b'{"code":"not found","message":"bucket \\"plant\\" not found"}')
    async with sink_of(fake, bucket="plant") as sink:
        with pytest.raises(SinkAway) as caught:
            await sink.write(rows(1))
    assert "'plant'" in caught.value.hint


async def test_a_reset_connection(fake: FakeInflux) -> None:
    def reset(request: Request) -> Reply:
        raise Reset

    fake.answer = reset
    async with sink_of(fake) as sink:
        with pytest.raises(SinkAway):
            await sink.write(rows(1))
        fake.answer = lambda request: Reply()
        assert (await sink.write(rows(1))).stored == 1


@pytest.mark.parametrize("kind", [Silence, Drip])
async def test_a_server_that_does_not_come_to_an_end_is_given_up(fake: FakeInflux, kind: type[Exception]) -> None:
    def answer(request: Request) -> Reply:
        raise kind

    fake.answer = answer
    async with sink_of(fake, timeout_s=0.3) as sink:
        began = time.monotonic()
        with pytest.raises(SinkAway) as caught:
            await sink.write(rows(1))
    assert caught.value.code == "sink_timeout" and time.monotonic() - began < 5


async def test_nobody_at_the_port_and_no_password_in_the_words() -> None:
    url = f"http://ann:secret@127.0.0.1:{free_port()}"
    async with InfluxSink(InfluxSettings(url=url)) as sink:
        for call in (sink.write(rows(1)), sink.latest([A]), sink.stats(), sink.series("*", 5, "")):
            with pytest.raises(SinkAway) as caught:
                await call
            assert "secret" not in caught.value.message


async def test_a_closed_sink_is_away() -> None:
    with pytest.raises(SinkAway):
        await InfluxSink(InfluxSettings(url="http://127.0.0.1:1")).write(rows(1))


async def test_one_bad_line_stands_alone_whatever_the_words(fake: FakeInflux) -> None:
    """A server that stores nothing of a bad request, as a proxy in front of it may do."""
    stored: set[str] = set()

    def answer(request: Request) -> Reply:
        if any(" value=123.0 " in line for line in request.lines):
            return Reply(400, b'{"code":"invalid","message":"I do not like this"}')
        stored.update(request.lines)
        return Reply()

    fake.answer = answer
    async with sink_of(fake) as sink:
        written = await sink.write(rows(1000))
    assert written.stored == 999 and [(row.value, why) for row, why in written.refused] == [(123.0, "refused")]
    assert len(stored) == 999 and len(fake.writes) < 25


async def test_every_line_refused_for_something_unknown_costs_no_sample(fake: FakeInflux) -> None:
    error = await refused_with(fake, Reply(400, b'{"code":"invalid","message":"organization has no plan"}'))
    assert "organization has no plan" in error.message


async def test_a_type_conflict_of_2x_is_a_matter_of_lines(fake: FakeInflux) -> None:
    text = b'{"code":"unprocessable entity","message":"partial write: field type conflict: input field dropped=3"}'
    fake.answer = lambda request: Reply(422, text)
    async with sink_of(fake) as sink:
        written = await sink.write(rows(3))
    assert [why for _, why in written.refused] == ["type_conflict"] * 3
    assert len(fake.writes) == 1  # the server said that it dropped them all


async def test_a_line_too_large_for_the_server_is_put_aside(fake: FakeInflux) -> None:
    fake.answer = lambda request: Reply(413 if any(" value=1.0 " in line for line in request.lines) else 204)
    async with sink_of(fake) as sink:
        written = await sink.write(rows(8))
    assert (written.stored, [(row.value, why) for row, why in written.refused]) == (7, [(1.0, "too_large")])


async def test_a_server_that_leaves_during_the_split_is_away(fake: FakeInflux) -> None:
    fake.answer = lambda request: Reply(400 if len(request.lines) > 2 else 503, b'{"error":"unable to parse"}')
    async with sink_of(fake) as sink:
        with pytest.raises(SinkAway):
            await sink.write(rows(8))


async def test_whoever_may_only_write_can_write(fake: FakeInflux) -> None:
    fake.to_questions = lambda request: Reply(403, b'{"error":"not authorized to read"}')
    async with sink_of(fake) as sink:
        assert (await sink.write(rows(1))).stored == 1
        # Whether there is a mark to take away is not known, so the quality is always said.
        assert ",quality=0i " in fake.writes[0].lines[0]
        with pytest.raises(SinkAway):
            await sink.latest([A])


@pytest.mark.parametrize("body", [b"<html>hello</html>", b'{"results": 5}', b'{"results":[{"series":[{"values":1}]}]}'])
async def test_an_answer_that_is_none(fake: FakeInflux, body: bytes) -> None:
    fake.to_questions = lambda request: Reply(200, body)
    async with sink_of(fake) as sink:
        with pytest.raises(SinkAway):
            await sink.latest([A])


async def test_a_limit_of_the_server_is_the_askers_matter(fake: FakeInflux) -> None:
    fake.to_questions = lambda request: Reply(
        200, b'{"results":[{"error":"max-select-buckets limit exceeded: (9/2)"}]}'
    )
    async with sink_of(fake) as sink:
        with pytest.raises(Invalid):
            await sink.buckets([A], 0, T0, 1000, ["mean"], 10)


async def test_an_error_in_the_middle_of_an_answer_is_not_an_end(fake: FakeInflux) -> None:
    body = b'{"results":[{"series":[{"name":"telemetry","columns":[],"values":[]}],"partial":true}]}\n'
    fake.to_questions = lambda request: Reply(200, body + b'{"error":"shard unavailable"}\n')
    async with sink_of(fake) as sink:
        with pytest.raises(SinkAway) as caught:
            await sink.read([A], 0, T0, 10)
    assert "shard unavailable" in caught.value.message


def test_retry_after_in_all_its_forms() -> None:
    assert retry_after({"retry-after": "3"}) == 3.0
    assert retry_after({"retry-after": "99999999"}) == 3600.0
    assert retry_after({"retry-after": "-4"}) == 0.0
    assert retry_after({}) is None and retry_after({"retry-after": "soon"}) is None
    assert retry_after({"retry-after": "nan"}) is None
    until = retry_after({"retry-after": formatdate(time.time() + 60, usegmt=True)})
    assert until is not None and 50 < until <= 60


@pytest.mark.parametrize(("status", "hint"), [(503, "log"), (429, "log"), (401, "influx.token"), (404, "DBRP")])
async def test_a_question_that_is_not_answered(fake: FakeInflux, status: int, hint: str) -> None:
    fake.to_questions = lambda request: Reply(status, b"{}", {"Retry-After": "5"})
    async with sink_of(fake) as sink:
        for call in (
            sink.latest([A]),
            sink.read([A], 0, T0, 9),
            sink.buckets([A], 0, T0, T0, ["max"], 9),
            sink.stats(),
        ):
            with pytest.raises(SinkAway) as caught:
                await call
            assert hint in caught.value.hint
            assert caught.value.retry_after_s == (5.0 if status in (429, 503) else None)
