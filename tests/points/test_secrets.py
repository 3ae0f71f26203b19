"""Secrets among the parameters of a channel: by their names, masked, and filled in again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.masking import MASK, is_secret
from tradewind.points.secrets import comparable, has_mask, masked, restored

NAMES = st.sampled_from(["password", "host", "token", "api_key", "key_file", "url", "more"])
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.sampled_from(["", "x", "secret words", "opc.tcp://ada:pw@host:4840/a"])
)
PARAMETERS = st.dictionaries(
    NAMES, st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner)), max_size=5
)


@pytest.mark.parametrize(
    "name",
    ["password", "user_password", "accessToken", "client_secret", "api_key", "apiKey", "API_KEY", "key", "PWD",
     "private-key", "passphrase", "token_2"],
)  # fmt: skip
def test_names_that_say_secret(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize(
    "name", ["host", "username", "key_file", "password_file", "keepalive_s", "keyboard", "keys_per_page", "monkey", ""]
)
def test_names_that_do_not(name: str) -> None:
    assert not is_secret(name)


def test_what_is_shown_has_no_secret_and_everything_else() -> None:
    channel = {
        "id": "1",
        "parameters": {
            "host": "a", "password": "pw", "pin_token": 1234, "tls": {"key": "pw", "key_file": "f", "verify": True},
            "secret": {"inner": ["pw", None, ""]}, "endpoint": "opc.tcp://ada:pw@host:4840",
        },
    }  # fmt: skip
    assert masked(channel) == {
        "id": "1",
        "parameters": {
            "host": "a", "password": MASK, "pin_token": MASK, "tls": {"key": MASK, "key_file": "f", "verify": True},
            "secret": {"inner": [MASK, None, ""]}, "endpoint": "opc.tcp://ada:***@host:4840",
        },
    }  # fmt: skip
    assert restored(masked(channel), channel) == (channel, [])


@given(parameters=PARAMETERS)
def test_what_is_shown_can_be_sent_back(parameters: Any) -> None:
    channel = {"id": "1", "parameters": parameters}
    shown = masked(channel)
    assert "pw@" not in str(shown) and "secret words" not in str([v for k, v in _pairs(shown) if is_secret(k)])
    assert restored(shown, channel) == (channel, [])
    assert masked(shown) == shown


def test_a_mask_without_a_stored_secret_is_named() -> None:
    given = {"id": "1", "parameters": {"password": MASK, "url": "http://a:***@b", "note": "*** stars ***"}}
    _, problems = restored(given, None)
    assert [(p.code, p.path) for p in problems] == [
        ("no_secret", "parameters.password"),
        ("no_secret", "parameters.url"),
    ]
    stored = {"parameters": {"password": "", "url": "http://a:pw@elsewhere"}}
    assert {p.path for p in restored(given, stored)[1]} == {"parameters.password", "parameters.url"}


def test_another_secret_of_the_same_channel_is_seen_and_not_shown() -> None:
    ours = {"id": "1", "parameters": {"host": "new", "password": "mine", "token": "t"}}
    shown = {"id": "1", "parameters": {"host": "old", "password": MASK}}
    stored = {"id": "1", "parameters": {"host": "old", "password": "mine"}}
    assert comparable(shown, ours, lambda guess: guess == stored) == masked(ours)
    changed = comparable(shown, ours, lambda guess: False)
    assert changed["parameters"] == {"host": "new", "password": "*** (changed)", "token": MASK}
    plain = {"id": "1", "parameters": {"host": "old"}}
    assert comparable(plain, ours, lambda guess: False) == masked(ours)


def test_only_parameters_are_looked_at() -> None:
    assert not has_mask({"name": MASK, "points": [{"mapping": {"password": MASK}}]})
    assert not has_mask([MASK]) and has_mask({"parameters": {"a": [{"b": MASK}]}})


def _pairs(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [pair for k, v in value.items() for pair in [(k, v), *_pairs(v)]]
    return [pair for item in value for pair in _pairs(item)] if isinstance(value, list) else []
