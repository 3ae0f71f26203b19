"""Addresses of points: read, written, refused with a reason."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.errors import Invalid
from tradewind.points.address import Address, channel_of


@pytest.mark.parametrize(
    ("text", "key", "field"),
    [
        ("comsrv:1001:m:10001", "comsrv:1001:m", "10001"),
        ("comsrv:1001:a:40001", "comsrv:1001:a", "40001"),
        ("modsrv:power_calc:measurement:total_power", "modsrv:power_calc:measurement", "total_power"),
        ("modsrv:power-calc:control:level", "modsrv:power-calc:control", "level"),
    ],
)
def test_an_address_names_a_hash_and_a_field(text: str, key: str, field: str) -> None:
    address = Address.parse(text)
    assert (str(address), address.key, address.field) == (text, key, field)
    assert address == Address.parse(text) and len({address, Address.parse(text)}) == 1
    assert channel_of(key) == (key.split(":")[1] if address.is_point else "")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("comsrv:1001:m", "3 parts"),
        ("comsrv:1001:m:1:2", "5 parts"),
        ("comsrv:abc:m:1", "channel 'abc'"),
        ("comsrv:1001:x:1", "kind 'x'"),
        ("comsrv:1001:m:p1", "point 'p1'"),
        ("comsrv:1001:m:", "point ''"),
        ("comsrv:1001:m:1\n", "point"),
        ("comsrv:1001:m:١", "point"),
        (f"comsrv:1001:m:{'1' * 21}", "20 digits"),
        ("modsrv:power_calc:m:x", "'m' is neither"),
        ("modsrv:a b:measurement:x", "no name for a model"),
        ("modsrv:config:measurement:x", "no name for a model"),
        ("modsrv:power_calc:measurement:a.b", "no name for a field"),
        ("alarm:1:m:1", "neither comsrv nor modsrv"),
    ],
)
def test_what_is_no_address_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(Invalid, match=reason) as caught:
        Address.parse(text)
    assert caught.value.code == "bad_address" and caught.value.hint


def test_all_bad_addresses_are_named_at_once() -> None:
    with pytest.raises(Invalid) as caught:
        Address.parse_all(["comsrv:1:m:1", "x", "comsrv:1:q:1"])
    assert [problem.path for problem in caught.value.problems] == ["address[1]", "address[2]"]


@given(st.text(max_size=40))
def test_reading_never_fails_in_another_way(text: str) -> None:
    try:
        assert str(Address.parse(text)) == text
    except Invalid as error:
        assert error.code == "bad_address"
