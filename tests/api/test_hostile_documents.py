"""Whatever stands in place of any part of a definition is refused with its reason or taken, never an error of ours."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from httpx2 import AsyncClient

from tests.api import hostile

GROUPS = 8
#: Values that each place gets in its turn. All of them at all places take minutes: TRADEWIND_ALL_HOSTILE=1.
EACH = len(hostile.VALUES) if os.environ.get("TRADEWIND_ALL_HOSTILE") else 1


def bodies(document: Any, turn: int) -> Iterator[tuple[str, bytes]]:
    """What it says, and the body."""
    for place in hostile.places(document):
        where = ".".join(map(str, place))
        turns = [hostile.VALUES[(turn + i) % len(hostile.VALUES)] for i in range(EACH)]
        for value in (*hostile.ALWAYS, *turns):
            yield f"{where} = {value!r:.60}", msgspec.json.encode(hostile.with_value(document, place, value))
        if place and isinstance(place[-1], str):
            key = hostile.KEYS[turn % len(hostile.KEYS)]
            yield f"{where} called {key!r:.30}", msgspec.json.encode(hostile.with_key(document, place, key))
        turn += EACH


@pytest.mark.timeout(600)
@pytest.mark.parametrize("group", range(GROUPS))
async def test_no_value_in_place_of_a_part_is_an_error_of_ours(client: AsyncClient, group: int) -> None:
    failed: list[str] = []
    for at, (method, path, document) in enumerate(hostile.REQUESTS):
        if at % GROUPS != group:
            continue
        for what, body in bodies(document, at):
            answer = await client.request(method, f"/api/v1{path}", content=body)
            if answer.status_code >= 500:
                failed.append(f"{method} {path} {what}: {answer.status_code}")
    assert not failed, "\n".join([f"{len(failed)} answers", *failed[:80]])
