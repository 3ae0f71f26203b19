"""Requests generated from the OpenAPI description against a real station: no 5xx, and only answers that it describes.

5xx are described, for a store that is away (503) and for what takes too long (504); here the store is there and nothing
takes long, so each is a failure, and so is a 429 that nobody describes.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.loopback_only import alone
from tests.process import die_with_parent
from tests.soak import SOAK

SEED = 20240101
#: All of them take minutes: see generated_requests.py.
EVERY = max(1, 12 // SOAK)


def _events(folder: Path) -> list[dict[str, Any]]:
    with open(folder / "requests.ndjson", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_generated_requests_are_answered_as_described(tmp_path: Path) -> None:
    options = ("--seed", str(SEED), "--phases", "examples,coverage,fuzzing", "--max-examples", "1")
    command = alone(sys.executable, "-m", "tests.api.generated_requests", str(tmp_path), *options)
    ran = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        env={**os.environ, "TRADEWIND_GENERATED_EVERY": str(EVERY)}, preexec_fn=die_with_parent, timeout=880,
    )  # fmt: skip
    assert ran.returncode == 0, f"{ran.stdout[-8000:]}\n{ran.stderr[-2000:]}"

    described = json.loads((tmp_path / "openapi.json").read_bytes())
    asked: Counter[str] = Counter()
    statuses: Counter[int] = Counter()
    for event in _events(tmp_path):
        recorder = event.get("ScenarioFinished", {}).get("recorder") or {}
        for each in recorder.get("interactions", {}).values():
            asked[recorder["label"]] += 1
            answer = each["response"]
            statuses[answer["status_code"] if answer else 0] += 1
            if answer and "text/event-stream" in answer["headers"].get("content-type", [""])[0]:
                _check_events(described, recorder["label"], answer)  # of a busy station it may have heard none
    operations = {f"{method.upper()} {path}" for path, each in described["paths"].items() for method in each}
    assert operations <= set(asked)
    assert sum(asked.values()) > 1_000 and statuses[200] > 200, (asked, statuses)  # it tries more than refusals


def _check_events(described: dict[str, Any], label: str, answer: dict[str, Any]) -> None:
    """The data of events is JSON within text, which schemathesis leaves alone."""
    method, path = label.split(" ")
    media = described["paths"][path][method.lower()]["responses"]["200"]["content"]["text/event-stream"]
    schema = {**media["schema"]["properties"]["data"]["contentSchema"], "components": described["components"]}
    text = base64.b64decode(answer["content"]["$base64"]).decode()
    for event in text.split("\n\n")[:-1]:  # the last may have been cut off
        data = "".join(line.removeprefix("data: ") for line in event.splitlines() if line.startswith("data: "))
        if data and not event.startswith(("event: lost", "event: unknown", "event: gone")):
            jsonschema.Draft202012Validator(schema).validate(json.loads(data))
