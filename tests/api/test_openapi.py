"""The OpenAPI description itself, and bodies that YAML can say but JSON cannot."""

from __future__ import annotations

from typing import Any

import jsonschema
import msgspec
import pytest
from httpx2 import AsyncClient

from tests.addresses import strange_addresses
from tests.api import hostile
from tests.api.conftest import SmallStation
from tests.api.flow_station import Flows

YAML = {"Content-Type": "application/yaml"}
#: Numbers, words and documents that YAML has and JSON has not, or that are no definition.
ODD = [
    "name: .nan", "name: -.inf", f"name: {10**30}", f"- {2**64}", f"name: {'9' * 5000}", 'name: "\\ud800"',
    "- null\n- null", "[]", "", "null", "7", "text", "true", "{}", "a: {b: [.inf]}", "2024-01-01", "? [a]\n: b",
    "&a [*a]", "!!python/name:os",
]  # fmt: skip


async def _described(client: AsyncClient) -> dict[str, Any]:
    found: dict[str, Any] = (await client.get("/openapi.json")).json()
    return found


def _operations(described: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [(method, path, each) for path, found in described["paths"].items() for method, each in found.items()]


async def test_every_route_describes_what_the_door_and_the_store_may_answer(client: AsyncClient) -> None:
    for method, path, operation in _operations(await _described(client)):
        needed = {"408", "414", "421", "431", "503", "504"} | (
            {"409", "422", "429"} if path.startswith("/api/") else set()
        )
        needed |= {"403"} if method != "get" else set()
        assert needed <= set(operation["responses"]), (method, path)
        for parameter in operation.get("parameters", ()):
            assert parameter["schema"], (method, path, parameter)


async def test_examples_name_addresses_of_nobody(client: AsyncClient) -> None:
    assert not list(strange_addresses((await client.get("/openapi.json")).text))


async def test_examples_fit_their_schemas(client: AsyncClient) -> None:
    described = await _described(client)
    for name, schema in described["components"]["schemas"].items():
        if "example" in schema:
            whole = {**schema, "components": described["components"]}
            jsonschema.Draft202012Validator(whole).validate(schema["example"])
        assert schema, name


@pytest.mark.parametrize("path", ["/models/validate", "/rules/validate", "/channels/validate", "/models", "/rules",
                                  "/channels", "/flows", "/flows/validate", "/notifications/policy/validate",
                                  "/model-templates", "/rule-groups"])  # fmt: skip
async def test_odd_yaml_is_refused_or_judged_never_an_error_of_ours(client: AsyncClient, path: str) -> None:
    for text in ODD:
        answer = await client.post(f"/api/v1{path}", content=text, headers=YAML)
        assert answer.status_code in (200, 400, 422), (text[:80], answer.status_code, answer.text[:300])
        if answer.status_code == 200:
            assert answer.json()["valid"] is False or text == "{}", text[:80]
        if answer.status_code == 400:
            assert answer.json()["error"]["code"] in ("bad_yaml", "bad_text"), answer.text


async def test_yaml_may_hold_a_list_where_json_may(api: Flows) -> None:
    text = msgspec.yaml.encode([hostile.TARGETED]).decode()
    assert (await api.ask("POST", "/models/validate", 200, content=text, headers=YAML))["valid"]
    assert (await api.ask("PUT", "/models", 200, content=text, headers=YAML))["models"] == ["power"]
    assert "flow" not in str(await api.ask("PUT", "/models", 422, content="- 7", headers=YAML))


async def test_recorder_words_are_words(api: Flows, station: SmallStation) -> None:
    """What is wrong with the disk is told, and what a stranger wrote is no error of ours."""
    status = station.plane.keys.history_status()
    fields = {"disk_error": "the disk is full", "written": "12", "batches": "²", "behind": "--5", "lag_ms": "9" * 5000}
    await station.plane.link.client.hset(status, mapping=fields)
    recorder = (await api.get("/history/status"))["recorder"]
    assert recorder["disk_error"] == "the disk is full" and recorder["written"] == 12
    assert (recorder["batches"], recorder["behind"], recorder["lag_ms"]) == (0, 0, 0)


async def test_no_route_ignores_a_parameter_that_it_does_not_know(client: AsyncClient) -> None:
    """Whoever misspells a filter must not get everything. Callers from outside put what they like into a webhook's."""
    open_to_all = {"/health", "/metrics", "/api/v1/flows/{id}/webhook"}
    for method, path, _ in _operations(await _described(client)):
        if path in open_to_all:
            continue
        answer = await client.request(method, path.replace("{n}", "1").replace("{c}", "1"), params={"wiat": "1"})
        problems = answer.json()["error"]["problems"]
        told = [(problem["code"], problem["path"]) for problem in problems]
        assert answer.status_code == 422 and ("unknown_parameter", "wiat") in told, (method, path, answer.text)
