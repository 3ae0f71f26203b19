"""What people see of an address, and what an error keeps to itself."""

from __future__ import annotations

import pytest

from tradewind.masking import masked_target, struck_out, target_words
from tradewind.notify.policy import Target


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://example.com", "https://example.com"),
        ("https://example.com/", "https://example.com/"),
        ("https://hooks.example.com/services/T0/B0/x9", "https://hooks.example.com/***"),
        ("https://example.com?key=s3cret", "https://example.com/***"),
        ("https://user:s3cret@example.com:8443/a", "https://user:***@example.com:8443/***"),
        ("https://t0ken@example.com/a", "https://***@example.com/***"),
        ("mailto://ann:s3cret@example.com?to=b@example.com", "mailto://ann:***@example.com/***"),
        ("tgram://123:s3cret/chat", "tgram://***"),
        ("slack://a/b/c", "slack://***"),
        ("rubbish", "***"),
    ],
)
def test_only_what_is_no_secret_is_shown(url: str, shown: str) -> None:
    assert masked_target(url) == shown


def test_an_error_is_told_without_secrets() -> None:
    target = Target("https://ann:p%40ssword@example.com/hook/t0ken?key=abcd", {"X-Token": "he4der"})
    text = "POST https://ann:p%40ssword@example.com/hook/t0ken?key=abcd: p@ssword t0ken abcd he4der of example.com"
    found = struck_out(text, {*target_words(target.url), *target.headers.values()})
    for secret in ("p%40ssword", "p@ssword", "t0ken", "abcd", "he4der"):
        assert secret not in found
    assert "example.com" in found


def test_an_address_of_ipv6_is_told_as_it_is() -> None:
    text = "::ffff:7f00:1 is not a public address"
    assert struck_out(text, target_words("http://ann:s3cret@[::ffff:7f00:1]:8080/t0ken")) == text
