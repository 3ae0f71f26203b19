"""Lists: order, pages, filters that combine; rows for CSV."""

from __future__ import annotations

import pytest

from tests.alarms.alarm_room import SEED_MS, AlarmRoom, hot
from tradewind.alarms.listing import AlarmQuery, export_rows
from tradewind.errors import Invalid


async def pages(room: AlarmRoom, query: AlarmQuery) -> list[str]:
    found: list[str] = []
    while True:
        page = await room.store.list(query)
        assert len(page.alarms) <= query.limit
        found += [alarm.id for alarm in page.alarms]
        if not page.next:
            return found
        query = AlarmQuery(**{name: getattr(query, name) for name in query.__struct_fields__} | {"after": page.next})


async def fill(room: AlarmRoom) -> list[dict[str, str]]:
    levels, categories = ("Critical", "High", "Low"), ("temperature", "power")
    for n in range(60):
        category, level = categories[n % 2], levels[n % 3]
        raised = await room.store.raise_(hot(f"comsrv:{n % 4}:m:{n}", category=category, level=level))
        if n % 5 == 0:
            await room.store.acknowledge(raised.id, "li")
        if n % 7 == 0:
            await room.store.resolve(raised.id, "li")
        if n % 2:  # two each at the same time
            room.advance(1)
    return sorted((await room.audit()).values(), key=lambda h: (int(h["first_seen"]), h["id"]), reverse=True)


QUERIES = {
    "all": {},
    "open": {"status": ["open"]},
    "active": {"status": ["active"]},
    "new": {"status": ["new"]},
    "one level": {"status": ["open"], "level": ["critical"]},
    "levels": {"level": ["critical", "warning"]},
    "resolved": {"status": ["Resolved"]},
    "category": {"category": ["power"]},
    "channel": {"source": "comsrv:1:*"},
    "point": {"source": "comsrv:1:m:5"},
    "times": {"from_ms": SEED_MS + 5000, "to_ms": SEED_MS + 20_000},
    "all of them": {
        "status": ["Acknowledged", "New"],
        "level": ["High"],
        "category": ["power"],
        "source": "comsrv:*",
        "rule_id": "rule_1",
        "from_ms": SEED_MS + 3000,
        "to_ms": SEED_MS + 28_000,
    },
    "none": {"category": ["none"]},
}


@pytest.mark.parametrize("limit", [1, 7, 100])
async def test_filters_combine_and_pages_neither_miss_nor_repeat(room: AlarmRoom, limit: int) -> None:
    records = await fill(room)
    for name, words in QUERIES.items():
        query = AlarmQuery.of_words(**words, limit=limit)  # type: ignore[arg-type]

        def fits(h: dict[str, str], query: AlarmQuery = query) -> bool:
            head = query.source.removesuffix("*")
            is_source = h["source_point"].startswith(head) if query.source.endswith("*") else h["source_point"] == head
            return (
                (not query.status or h["status"] in query.status)
                and (not query.level or h["level"] in query.level)
                and (not query.category or h["category"] in query.category)
                and (not query.source or is_source)
                and (query.from_ms is None or int(h["first_seen"]) >= query.from_ms)
                and (query.to_ms is None or int(h["first_seen"]) <= query.to_ms)
            )

        expected = [h["id"] for h in records if fits(h)]
        assert await pages(room, query) == expected, name
        assert expected or name == "none"


@pytest.mark.parametrize("before", [1, 3])
async def test_a_page_goes_on_although_its_last_alarm_has_left_the_list(room: AlarmRoom, before: int) -> None:
    raised = await room.store.raise_many([hot(f"a:{n}") for n in range(20)])  # all at the same time
    seen: list[str] = []
    after = ""
    for _ in range(before):
        page = await room.store.list(AlarmQuery.of_words(status=["open"], limit=5, after=after))
        seen += (alarm.id for alarm in page.alarms)
        after = page.next
    await room.store.resolve(seen[-1], "li")
    rest = await pages(room, AlarmQuery.of_words(status=["open"], limit=5, after=after))
    assert seen + rest == sorted((r.id for r in raised), reverse=True)


async def test_a_rare_match_costs_a_bounded_look(room: AlarmRoom, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tradewind.alarms.listing.LOOK", 10)
    monkeypatch.setattr("tradewind.alarms.listing.LOOK_MOST", 30)
    rare = await room.store.raise_(hot("rare:1", category="rare"))
    room.advance(1)
    await room.store.raise_many([hot(f"a:{n}") for n in range(70)])
    query = AlarmQuery.of_words(category=["rare"])
    page = await room.store.list(query)
    assert page.alarms == [] and page.next
    assert await pages(room, query) == [rare.id]


async def test_bad_words_are_refused() -> None:
    with pytest.raises(Invalid) as caught:
        AlarmQuery.of_words(status=["gone"], level=["loud"], limit=0)
    assert {problem.path for problem in caught.value.problems} == {"status", "level", "limit"}


@pytest.mark.parametrize("after", ["x", "5-x", "٣-alarm_1", f"{10**16}-alarm_1", "1-alarm_1\0"])
async def test_a_bad_place_is_refused(room: AlarmRoom, after: str) -> None:
    with pytest.raises(Invalid, match="no place"):
        await room.store.list(AlarmQuery(after=after))


@pytest.mark.parametrize(("field", "text"), [("level", "Loud"), ("count", "many"), ("data", "{"), ("status", "")])
async def test_one_that_a_hand_has_spoilt_hides_no_other(room: AlarmRoom, field: str, text: str) -> None:
    spoilt, whole = await room.store.raise_many([hot("a:1"), hot("a:2")])
    await room.plane.redis.hset(room.plane.keys.alarm(spoilt.id), field, text)
    assert [alarm.id for alarm in (await room.store.list(AlarmQuery())).alarms] == [whole.id]


async def test_rows_for_csv(room: AlarmRoom) -> None:
    await room.store.raise_(hot("a:1", title="=cmd()\x1b[2J\0", actual="-5", threshold="\n=1", tags=["x"]))
    room.advance(1)
    await room.store.raise_many([hot(f"a:{n}", title="plain") for n in range(2, 6)])
    rows = [row async for row in export_rows(room.store, AlarmQuery(limit=2))]
    assert rows[0][:5] == ["id", "title", "description", "level", "status"]
    assert len(rows) == 6
    last = dict(zip(rows[0], rows[-1], strict=True))
    assert (last["title"], last["threshold_value"]) == ("'=cmd()\ufffd[2J\ufffd", "'\n=1")
    assert (last["actual_value"], last["tags"], last["resolved_at"]) == ("-5", '["x"]', "")


@pytest.mark.parametrize("any_redis", ["redis_7"], indirect=True)
async def test_the_first_page_costs_the_same_with_many_alarms(room: AlarmRoom) -> None:
    """What it costs is counted in commands of the server, not in time."""

    async def cost() -> int:
        before = (await room.redis.info("commandstats")).get("cmdstat_hgetall", {}).get("calls", 0)
        page = await room.store.list(AlarmQuery.of_words(status=["open"], level=["High"], limit=50))
        assert len(page.alarms) == 50
        after: int = (await room.redis.info("commandstats"))["cmdstat_hgetall"]["calls"]
        return after - before

    await room.store.raise_many([hot(f"a:{n}") for n in range(60)])
    few = await cost()
    await room.store.raise_many([hot(f"b:{n}") for n in range(5000)])
    assert await cost() == few == 50
