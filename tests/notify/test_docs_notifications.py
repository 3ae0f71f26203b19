"""The page on notifications shows policies that work and names what there is."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec

from tests.notify.test_plan import alarm
from tradewind.notify.guard import guard_of
from tradewind.notify.job import Job, parcel
from tradewind.notify.message import WORDS
from tradewind.notify.policy import Policy, Target
from tradewind.notify.policy_check import read_policy
from tradewind.settings import NotifySettings

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "notifications.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```json\n(.*?)```", PAGE, re.S)


def test_the_policy_of_the_page_is_taken() -> None:
    policy = read_policy(json.loads(BLOCKS[0]), Policy(), guard_of(NotifySettings()))
    assert set(policy.targets) == {"ops", "mail", "boss"}


def test_every_field_of_a_target_and_every_event_is_described() -> None:
    for field in msgspec.structs.fields(Target):
        assert f".{field.name}`" in PAGE or f"`{field.name}`" in PAGE, field.name
    for word in WORDS:
        assert f"`{word}`" in PAGE, word


def test_a_webhook_gets_the_fields_of_the_page() -> None:
    job = Job("id", "ops", 0)
    job.add(alarm(text="t", key="k", kind="alarm", rule_id="r", category="c"))
    document, shown = parcel(job).document, json.loads(BLOCKS[1])
    assert list(document) == list(shown)
    assert set(document["messages"][0]) == set(shown["messages"][0])
