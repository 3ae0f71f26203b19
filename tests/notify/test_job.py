"""Deliveries: what a group keeps, drops and says."""

from __future__ import annotations

from tradewind.notify.job import LISTED, Job, parcel
from tradewind.notify.message import Message, read_entry


def alarm(n: int, event: str = "raised", level: str = "High") -> Message:
    return Message(event, level, f"alarm {n}", "too hot", 1_700_000_000_000 + n, f"k{n}", "alarm", f"alarm_{n}")


def test_one_message_is_told_as_it_is() -> None:
    job = Job("j", "ops", 0)
    job.add(alarm(1))
    told = parcel(job)
    assert told.title == "[High] alarm 1"
    assert told.text == "2023-11-14T22:13:20.001Z High raised: alarm 1 too hot"
    assert told.document["messages"][0] | {"x": 1} == {
        "event": "raised", "level": "High", "title": "alarm 1", "text": "too hot", "at": "2023-11-14T22:13:20.001Z",
        "key": "k1", "kind": "alarm", "alarm_id": "alarm_1", "x": 1,
    }  # fmt: skip


def test_a_large_group_counts_all_and_lists_the_worst() -> None:
    job = Job("j", "ops", 0)
    for n in range(5000):
        job.add(alarm(n, level="Low"))
    for n in range(5000, 5010):
        job.add(alarm(n, level="Critical"))
    told = parcel(job)
    assert told.title == "[Critical] 5010 messages: 5010 raised"
    assert len(told.document["messages"]) == LISTED
    assert told.document["omitted"] == 5010 - LISTED
    levels = [message["level"] for message in told.document["messages"]]
    assert levels.count("Critical") == 10
    assert told.document["messages"][0]["alarm_id"] == "alarm_0", "the first one is kept"
    assert told.text.endswith(f"… and {5010 - LISTED} more of the same or a lower level")


def test_a_late_delivery_says_when_it_was_and_what_is_so_now() -> None:
    job = Job("j", "ops", 0)
    job.add(alarm(1))
    at = 1_700_000_000_001
    assert not job.is_late(at + 600_000) and job.is_late(at + 600_001)
    told = parcel(job, {"alarm_1": "Resolved"})
    assert told.title == "[High] alarm 1 (2023-11-14T22:13:20.001Z, now Resolved)"
    assert told.text == "2023-11-14T22:13:20.001Z High raised: alarm 1 too hot, now Resolved"
    assert told.document["messages"][0]["now"] == "Resolved"
    assert parcel(job, {}).title == "[High] alarm 1 (2023-11-14T22:13:20.001Z)"
    job.add(alarm(2))
    told = parcel(job, {"alarm_1": "Closed", "alarm_2": ""})
    assert told.title == "[High] 2 messages: 2 raised (since 2023-11-14T22:13:20.001Z)"
    assert [line.endswith("now Closed") for line in told.text.splitlines()] == [True, False]
    assert "now" not in told.document["messages"][1]


def test_good_news_alone_is_called_so() -> None:
    job = Job("j", "ops", 0)
    job.add(alarm(1, "cleared"))
    assert parcel(job).title == "[Cleared] alarm 1"
    assert parcel(job).is_good_news
    job.add(alarm(2))
    assert parcel(job).title == "[High] 2 messages: 1 cleared, 1 raised"
    assert not parcel(job).is_good_news


def test_the_end_of_what_never_arrived_is_taken_out_also_when_it_is_not_listed() -> None:
    job = Job("j", "ops", 0)
    for n in range(300):
        job.add(alarm(n, "cleared"), after="lost")
    job.add(alarm(301, "cleared"), after="other")
    job.drop_after({"lost"})
    assert job.count == 1
    assert job.counts["cleared"] == 1
    job.drop_after({"other"})
    assert job.count == 0 and not job.messages


def test_an_entry_that_makes_no_sense_is_read_all_the_same() -> None:
    entry = {b"level": b"\xff", b"at": b"soon", b"targets": b"{", b"title": b"a\r\nBcc: x@y.z", b"flood": b"?"}
    message = read_entry(entry, 5)
    assert message == Message(event="message", level="Info", title="a Bcc: x@y.z", at=5)
