"""Back-tests over HTTP that go on after the last sample: delays that still run, sources that grow stale."""

from __future__ import annotations

from tests.api.flow_station import Flows
from tests.api.test_rules import HOT, SOURCE, T0

SAMPLES = {SOURCE: [[T0, 70], [T0 + 1000, 80]]}


async def edges(api: Flows, rule: dict[str, object], **more: object) -> list[tuple[str, str]]:
    body = {"rule": {**HOT, **rule}, "samples": SAMPLES, **more}
    return [(event["edge"], event["at"][14:]) for event in (await api.post("/rules/hot/backtest", body))["events"]]


async def test_the_time_goes_on_after_the_last_sample(api: Flows) -> None:
    assert await edges(api, {"for_ms": 60_000}) == []
    assert await edges(api, {"for_ms": 60_000}, to=T0 + 60_999) == []
    assert await edges(api, {"for_ms": 60_000}, to=T0 + 61_000) == [("rise", "01:01.000Z")]


async def test_a_source_that_is_silent_for_longer_than_is_given_is_stale(api: Flows) -> None:
    end = T0 + 61_000
    assert await edges(api, {"for_ms": 60_000}, to=end, stale_s=30) == []
    assert await edges(api, {"on_bad": "false"}, to=end) == [("rise", "00:01.000Z")]
    stale = await edges(api, {"on_bad": "false"}, to=end, stale_s=30)
    assert [edge for edge, _ in stale] == ["rise", "fall"] and stale[1][1].startswith("00:31")
    for wrong in (0, -1, "30", True, 1e9):
        body = {"rule": HOT, "samples": SAMPLES, "stale_s": wrong}
        assert await api.error("POST", "/rules/hot/backtest", 422, json=body) == "bad_backtest"
