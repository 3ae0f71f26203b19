"""The difference of two sets of definitions."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.points.difference import ABSENT, FieldChange, diff, field_changes

CHANNEL: dict[str, Any] = {
    "id": "1001",
    "parameters": {"host": "a", "ports": [1, 2]},
    "points": [{"kind": "m", "id": "1", "scale": 0.1}, {"kind": "s", "id": "1"}, {"kind": "m", "id": "2"}],
}


def changed(**changes: Any) -> dict[str, Any]:
    return {**copy.deepcopy(CHANNEL), **changes}


def test_added_changed_removed_and_unchanged() -> None:
    difference = diff({"1": CHANNEL, "2": CHANNEL, "3": CHANNEL}, {"3": changed(name="x"), "4": CHANNEL, "1": CHANNEL})
    assert difference
    assert (difference.added, difference.removed, difference.unchanged) == (("4",), ("2",), 1)
    assert difference.changed == {"3": (FieldChange("name", ABSENT, "x"),)}
    assert list(difference.lines("channel")) == ["+ channel 4", "~ channel 3", '    + name: "x"', "- channel 2"]


def test_nothing_differs() -> None:
    assert not diff({"1": CHANNEL}, {"1": copy.deepcopy(CHANNEL)})
    assert not diff({}, {})


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"parameters": {"ports": [1, 2]}}, [FieldChange("parameters.host", "a", ABSENT)]),
        ({"parameters": {"host": "a", "ports": [1]}}, [FieldChange("parameters.ports", [1, 2], [1])]),
        ({"parameters": None}, [FieldChange("parameters", CHANNEL["parameters"], None)]),
        ({"id": 1001}, [FieldChange("id", "1001", 1001)]),
        (
            {"points": [{"kind": "m", "id": "0"}, *CHANNEL["points"]]},
            [FieldChange("points[m:0]", ABSENT, {"kind": "m", "id": "0"})],
        ),
        (
            {"points": [{"kind": "m", "id": "1", "scale": 1}, *CHANNEL["points"][1:]]},
            [FieldChange("points[m:1].scale", 0.1, 1)],
        ),
        ({"points": CHANNEL["points"][:2]}, [FieldChange("points[m:2]", {"kind": "m", "id": "2"}, ABSENT)]),
        (
            {"points": CHANNEL["points"][::-1]},
            [FieldChange("points[order]", ["m:1", "s:1", "m:2"], ["m:2", "s:1", "m:1"])],
        ),
    ],
)
def test_fields_are_named(changes: dict[str, Any], expected: list[FieldChange]) -> None:
    assert list(field_changes(CHANNEL, changed(**changes))) == expected


def test_edges_without_a_name_are_compared_by_place() -> None:
    old = {"edges": [{"source": "a", "target": "b"}, {"source": "b", "target": "c"}]}
    new = {"edges": [{"source": "a", "target": "b"}, {"source": "b", "target": "d"}, {"source": "d", "target": "e"}]}
    assert [str(change) for change in field_changes(old, new)] == [
        '~ edges[1].target: "c" → "d"',
        '+ edges[2]: {"source": "d", "target": "e"}',
    ]


def test_true_is_not_1_but_1_is_1_0() -> None:
    assert list(field_changes({"a": 1}, {"a": True}))
    assert not list(field_changes({"a": 1}, {"a": 1.0}))


def test_long_lists_of_changes_are_cut_for_people() -> None:
    difference = diff({"f": {str(n): 1 for n in range(30)}}, {"f": {str(n): 2 for n in range(30)}})
    lines = list(difference.lines("flow", most=3))
    assert len(lines) == 5 and lines[-1] == "    … and 27 more"


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["ab", "id", "kind"]), inner),
    max_leaves=10,
)


@given(_JSON, _JSON)
def test_only_equal_documents_have_no_difference(old: Any, new: Any) -> None:
    def plain(value: Any) -> Any:
        """With booleans apart from numbers."""
        if isinstance(value, dict):
            return {key: plain(one) for key, one in value.items()}
        return [plain(one) for one in value] if isinstance(value, list) else (type(value) is bool, value)

    assert bool(list(field_changes(old, new))) == (plain(old) != plain(new))
