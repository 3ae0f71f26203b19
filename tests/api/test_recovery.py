"""Recovery and the journal of releases over HTTP: what is refused, and why. `tests/recovery` has what they do."""

from __future__ import annotations

from typing import Any

import pytest
from httpx2 import AsyncClient

from tests.api.conftest import SmallStation


async def _refused(client: AsyncClient, method: str, path: str, status: int, body: Any = None) -> str:
    answer = await client.request(method, f"/api/v1{path}", json=body)
    assert answer.status_code == status, answer.text
    return str(answer.json()["error"]["code"])


async def test_a_station_that_has_lost_nothing_says_so(client: AsyncClient, station: SmallStation) -> None:
    await station.recovery.check_in()
    shown = (await client.get("/api/v1/station/recovery")).json()
    assert (shown["state"], shown["recover"], shown["lost_at"], shown["restore"]) == ("ok", "manual", None, None)
    assert shown["station_id"] and set(shown["kinds"]) >= {"channels", "models", "rules", "flows", "alarms"}
    assert await _refused(client, "POST", "/station/restore", 409, {"accept": True}) == "nothing_lost"
    assert await _refused(client, "POST", "/station/restore", 409, {}) == "no_copy"


@pytest.mark.parametrize(
    "body",
    [{"from": "tape"}, {"kinds": []}, {"kinds": ["rules", 5]}, {"kinds": "rules"}, {"replace": 1}, {"dry_run": "yes"}],
)
async def test_a_restore_that_makes_no_sense_is_refused(client: AsyncClient, body: Any) -> None:
    assert await _refused(client, "POST", "/station/restore", 422, body) == "bad_restore"


async def test_the_journal_of_a_release(client: AsyncClient, station: SmallStation) -> None:
    assert await _refused(client, "GET", "/release", 404) == "no_release"
    begun = (await client.post("/api/v1/release", json={"changes": {"rules": ["a"]}, "note": "plant"})).json()
    assert (begun["state"], begun["is_ready"], begun["note"]) == ("preparing", False, "plant")
    step = {"method": "PUT", "path": "/rules", "body": {"remove": ["a"]}}
    path = f"/api/v1/release/{begun['id']}"
    answer = await client.post(f"{path}/steps", json={"from": 0, "steps": [step], "is_last": True})
    assert answer.status_code == 204, answer.text
    assert (await client.get(f"{path}/steps")).json() == {"steps": [step]}
    assert (await client.get(f"{path}/steps?from=1")).json() == {"steps": []}
    other = (await client.post("/api/v1/release", json={})).json()
    assert other["id"] != begun["id"]
    assert await _refused(client, "POST", f"/release/{begun['id']}/done", 409, {"done": 1}) == "release_moved"
    assert await _refused(client, "POST", f"/release/{begun['id']}/rollback", 409) == "release_moved"
    assert (await client.delete(f"/api/v1/release/{other['id']}")).status_code == 204
    assert not await station.plane.redis.exists(station.plane.keys.release()), "nothing is left"


@pytest.mark.parametrize(
    "step",
    [
        5,
        {"method": "GET", "path": "/rules"},
        {"method": "PUT", "path": "/tasks"},
        {"method": "PUT", "path": "http://192.0.2.1/rules"},
        {"method": "DELETE", "path": "/flows/a?force=1"},
        {"method": "PUT", "path": "/rules", "more": 1},
    ],
)
async def test_a_step_that_is_none_is_refused(client: AsyncClient, step: Any) -> None:
    begun = (await client.post("/api/v1/release", json={})).json()
    body = {"from": 0, "steps": [step], "is_last": True}
    assert await _refused(client, "POST", f"/release/{begun['id']}/steps", 422, body) == "bad_step"


@pytest.mark.parametrize(
    "body", [{"changes": []}, {"changes": {"tasks": ["a"]}}, {"changes": {"rules": [1]}}, {"note": 5}]
)
async def test_a_release_that_makes_no_sense_is_refused(client: AsyncClient, body: Any) -> None:
    assert await _refused(client, "POST", "/release", 422, body) == "bad_release"
