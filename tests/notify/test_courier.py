"""Deliveries to a real web server and a real mail server on this machine, allowed by a setting."""

from __future__ import annotations

import json
import time

import msgspec
import pytest

from tests.nodes.web import Web, serve
from tests.notify.mail import serve_mail
from tradewind.notify.courier import Courier
from tradewind.notify.failure import FIRST_WAIT_S, LONGEST_WAIT_S, DeliveryFailed, wait_ms
from tradewind.notify.job import Job, Parcel, parcel
from tradewind.notify.message import Message
from tradewind.notify.policy import Target
from tradewind.settings import NotifySettings

HOME = NotifySettings(allow_private=True, timeout_s=5)


def a_parcel(**fields: str) -> Parcel:
    job = Job("job1", "ops", 0)
    given = {"event": "raised", "level": "High", "title": "Öl <b>heiß</b>", "text": "95 °C", "alarm_id": "alarm_1"}
    job.add(Message(**(given | fields), at=1_700_000_000_000))  # type: ignore[arg-type]
    return parcel(job)


async def failure(target: Target, settings: NotifySettings = HOME) -> DeliveryFailed:
    with pytest.raises(DeliveryFailed) as caught:
        await Courier(settings).deliver(target, a_parcel())
    return caught.value


async def test_a_webhook_gets_json_with_an_idempotency_key_and_its_headers(web: Web) -> None:
    web.json("/hook", {}, 202)
    await Courier(HOME).deliver(Target(web.address + "/hook", {"X-Token": "abc"}), a_parcel())
    ((method, _, headers, body),) = web.asked
    assert method == "POST"
    assert headers["idempotency-key"] == "job1"
    assert headers["content-type"] == "application/json"
    assert headers["x-token"] == "abc"
    document = json.loads(body)
    assert document["id"] == "job1"
    assert document["title"] == "[High] Öl <b>heiß</b>"
    assert document["messages"][0]["alarm_id"] == "alarm_1"


@pytest.mark.parametrize(
    ("status", "is_final"), [(500, False), (503, False), (429, False), (408, False), (400, True), (404, True)]
)
async def test_which_answers_are_worth_another_attempt(web: Web, status: int, is_final: bool) -> None:
    web.text("/hook", "sorry", status, **{"Retry-After": "7"})
    error = await failure(Target(web.address + "/hook"))
    assert error.is_final is is_final
    assert error.retry_after_s == (0 if is_final else 7)
    assert str(error) == f"answered {status}: sorry"


async def test_silence_and_absence_are_worth_another_attempt(web: Web) -> None:
    began = time.monotonic()
    error = await failure(Target(web.address + "/hang"), NotifySettings(allow_private=True, timeout_s=0.3))
    assert not error.is_final and "within 0.3 s" in str(error)
    assert time.monotonic() - began < 3
    with serve() as gone:
        pass
    assert not (await failure(Target(gone.address))).is_final
    assert not (await failure(Target("http://no-such-host.invalid/"))).is_final


async def test_a_large_answer_is_not_read_to_its_end(web: Web) -> None:
    web.answers["/hook"] = (400, {}, b"x" * 50_000_000)
    assert len(str(await failure(Target(web.address + "/hook")))) < 300


async def test_redirects_keep_the_post_within_bounds_and_secrets_at_home(web: Web) -> None:
    with serve() as other:
        web.text("/a", "", 307, Location="/b")
        web.text("/b", "", 308, Location=other.address + "/c")
        other.text("/c", "taken")
        target = Target(web.address.replace("//", "//user:pass@") + "/a", {"X-Token": "abc"})
        await Courier(HOME).deliver(target, a_parcel())
        assert [asked[0] for asked in web.asked + other.asked] == ["POST"] * 3
        assert "x-token" in web.asked[0][2] and "authorization" in web.asked[0][2]
        assert "x-token" in web.asked[1][2]
        assert "x-token" not in other.asked[0][2] and "authorization" not in other.asked[0][2]
        assert other.asked[0][2]["idempotency-key"] == "job1"
        assert other.asked[0][3] == web.asked[0][3]
    web.text("/loop", "", 307, Location="/loop")
    web.asked.clear()
    error = await failure(Target(web.address + "/loop"))
    assert error.is_final and "more than 3 redirects" in str(error)
    assert len(web.asked) == 4


async def test_an_error_tells_no_secret(web: Web) -> None:
    web.text("/hook/t0ken?key=s3cret", "no access for t0ken with s3cret", 403)
    error = await failure(Target(web.address + "/hook/t0ken?key=s3cret"))
    assert "t0ken" not in str(error) and "s3cret" not in str(error)


async def test_a_mail_that_is_sent_again_has_the_same_message_id_and_says_so() -> None:
    with serve_mail() as mail:
        to = "to=ann@example.com,bob@example.com"
        url = f"mailto://example.com:{mail.port}?smtp=127.0.0.1&from=tw@example.com&{to}&mode=insecure"
        once, courier = a_parcel(), Courier(HOME)
        for each in (once, msgspec.structs.replace(once, is_again=True), msgspec.structs.replace(once, id="job2")):
            await courier.deliver(Target(url), each)
        ids: dict[str, list[str]] = {}
        for _, (recipient,), message in mail.taken:
            ids.setdefault(recipient, []).append(message["Message-ID"])
        texts = [
            message.get_body(("html", "plain")).get_content() for _, (to, *_), message in mail.taken if "ann" in to
        ]
    assert len(mail.taken) == 6
    for first, again, other in ids.values():
        assert first == again != other and "job1" in first
    assert not set(ids["ann@example.com"]) & set(ids["bob@example.com"])
    assert ["may have come before: delivery job1" in text for text in texts] == [False, True, False]


async def test_a_mail_is_sent() -> None:
    with serve_mail() as mail:
        url = f"mailto://example.com:{mail.port}?smtp=127.0.0.1&from=tw@example.com&to=ann@example.com&mode=insecure"
        await Courier(HOME).deliver(Target(url), a_parcel(title="Öl <b>heiß</b>\r\nBcc: eve@example.com"))
        ((sender, recipients, message),) = mail.taken
    assert (sender, recipients) == ("tw@example.com", ["ann@example.com"])
    assert "Öl <b>heiß</b>" in message["Subject"]
    assert message["Bcc"] is None
    body = message.get_body(("html", "plain"))
    assert body is not None
    text = body.get_content()
    assert "95 °C" in text.replace("&nbsp;", " ").replace("&deg;", "°")
    if body.get_content_type() == "text/html":
        assert "<b>heiß" not in text, "what stands in a message is no markup"


async def test_a_mail_server_that_refuses_is_tried_again_and_says_why() -> None:
    with serve_mail() as mail:
        mail.refuse = 1
        url = f"mailto://example.com:{mail.port}?smtp=127.0.0.1&from=tw@example.com&to=ann@example.com&mode=insecure"
        error = await failure(Target(url))
        assert not error.is_final and str(error)
        await Courier(HOME).deliver(Target(url), a_parcel())
        assert len(mail.taken) == 1


async def test_a_service_over_http_is_used(web: Web) -> None:
    web.text("/hook", "ok")
    await Courier(HOME).deliver(Target(web.address.replace("http", "json") + "/hook"), a_parcel())
    assert json.loads(web.asked[0][3])["title"] == "[High] Öl <b>heiß</b>"


async def test_a_service_over_http_asks_no_proxy_of_the_environment(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy would hide from the guard where the call goes."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    web.text("/hook", "ok")
    await Courier(HOME).deliver(Target(web.address.replace("http", "json") + "/hook"), a_parcel())
    assert len(web.asked) == 1


async def test_the_answer_of_a_service_is_bounded(web: Web) -> None:
    web.packed("/hook", b" " * 50_000_000)
    failed = await failure(Target(web.address.replace("http", "json") + "/hook"))
    assert len(web.asked) == 1 and str(failed)


async def test_a_service_that_hangs_is_given_up_and_not_piled_up(web: Web) -> None:
    courier = Courier(NotifySettings(allow_private=True, timeout_s=0.4))
    target = Target(web.address.replace("http", "json") + "/hang?rto=20")
    for said in ("not done within 0.4 s", "the attempt before still hangs"):
        began = time.monotonic()
        with pytest.raises(DeliveryFailed, match=said):
            await courier.deliver(target, a_parcel())
        assert time.monotonic() - began < 5
    assert len(web.asked) == 1


async def test_an_address_that_no_service_knows_is_final() -> None:
    assert (await failure(Target("nonsense://x"))).is_final


def test_waits_grow_with_a_share_of_chance_up_to_a_bound() -> None:
    full = [wait_ms(n, chance=1.0) for n in range(1, 12)]
    assert full[:3] == [int(FIRST_WAIT_S * 1000 * 2**n) for n in range(3)]
    assert max(full) == LONGEST_WAIT_S * 1000
    assert wait_ms(3, chance=0.0) == full[2] // 2
    assert wait_ms(1, retry_after_s=60) == 60_000
    assert len({wait_ms(5) for _ in range(20)}) > 10


def test_attempts_last_for_a_day() -> None:
    waits = [wait_ms(n, chance=0.5) for n in range(1, NotifySettings().max_attempts)]
    assert 24 <= sum(waits) / 3_600_000 < 30
