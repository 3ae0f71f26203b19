from __future__ import annotations

import itertools
import time
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.errors import NotFound
from tradewind.flows.graph import MAX_CYCLES, analyse

Edges = list[tuple[str, str]]


def test_the_seeds_example_has_its_structure() -> None:
    nodes = ["node_A", "node_B", "node_C", "node_D", "node_E"]
    graph = analyse(nodes, [("node_A", "node_B"), ("node_B", "node_C"), ("node_D", "node_E")])
    assert graph.structure() == {
        "component_count": 2,
        "components": {
            "0": {
                "nodes": ["node_A", "node_B", "node_C"],
                "entry_nodes": ["node_A"],
                "node_count": 3,
                "is_dag": True,
            },
            "1": {"nodes": ["node_D", "node_E"], "entry_nodes": ["node_D"], "node_count": 2, "is_dag": True},
        },
        "entry_nodes": ["node_A", "node_D"],
    }


def test_components_count_by_their_first_declared_node() -> None:
    graph = analyse(["x", "b", "a", "y"], [("y", "x"), ("a", "b")])
    assert [c.nodes for c in graph.components] == [("y", "x"), ("a", "b")]
    assert graph.component_of == {"x": 0, "y": 0, "b": 1, "a": 1}
    assert graph.order == ("a", "b", "y", "x")
    assert graph.entry_nodes == ("a", "y")


def test_ties_are_in_declaration_order() -> None:
    graph = analyse(["end", "c", "a", "b"], [("c", "end"), ("b", "end"), ("a", "end")])
    assert graph.order == ("c", "a", "b", "end")
    assert graph.components[0].entry_nodes == ("c", "a", "b")


@pytest.mark.parametrize(
    ("edges", "cycles"),
    [
        ([("a", "b"), ("b", "a")], [("a", "b", "a")]),
        ([("b", "b")], [("b", "b")]),
        ([("a", "b"), ("b", "c"), ("c", "d"), ("d", "b")], [("b", "c", "d", "b")]),
        ([("c", "a"), ("a", "b"), ("b", "c"), ("c", "d")], [("a", "b", "c", "a")]),
        ([("a", "b"), ("b", "a"), ("c", "d"), ("d", "c"), ("b", "c")], [("a", "b", "a"), ("c", "d", "c")]),
    ],
)
def test_a_cycle_is_named_by_its_path(edges: Edges, cycles: list[tuple[str, ...]]) -> None:
    graph = analyse(["a", "b", "c", "d"], edges)
    assert graph.cycle == cycles[0]
    assert list(graph.cycles) == cycles
    assert sorted(graph.order) == ["a", "b", "c", "d"]


def test_only_the_component_with_the_cycle_is_no_dag() -> None:
    structure = analyse(["a", "b", "c"], [("a", "b"), ("b", "a")]).structure()
    assert structure["components"]["0"] == {
        "nodes": ["a", "b"],
        "entry_nodes": [],
        "node_count": 2,
        "is_dag": False,
        "error": "Contains cycle",
    }
    assert structure["components"]["1"]["is_dag"] is True


def test_more_cycles_than_are_shown_are_still_cycles() -> None:
    nodes = [str(i) for i in range(100)]
    graph = analyse(nodes, [(str(i), str(i ^ 1)) for i in range(100)])
    assert len(graph.cycles) == MAX_CYCLES
    assert not any(c.is_dag for c in graph.components)


def test_upstream_and_downstream() -> None:
    graph = analyse(list("abcde"), [("a", "c"), ("b", "c"), ("c", "d"), ("d", "e"), ("a", "e")])
    assert graph.upstream("d") == ("a", "b", "c")
    assert graph.downstream("b") == ("c", "d", "e")
    assert graph.upstream("a") == ()
    with pytest.raises(NotFound):
        graph.upstream("z")


def test_doubled_nodes_and_edges_and_unknown_ends_do_not_disturb() -> None:
    graph = analyse(["a", "b", "a"], [("a", "b"), ("a", "b"), ("a", "zzz"), ("zzz", "b")])
    assert graph.order == ("a", "b")
    assert graph.cycle is None


def test_an_empty_flow_has_no_components() -> None:
    assert analyse([], []).structure() == {"component_count": 0, "components": {}, "entry_nodes": []}


@pytest.mark.parametrize("chains", [1, 1000])
def test_100_000_nodes_are_analysed_in_flat_memory(chains: int) -> None:
    nodes = [f"n{i}" for i in range(100_000)]
    length = len(nodes) // chains
    edges = [(nodes[i], nodes[i + 1]) for i in range(len(nodes) - 1) if (i + 1) % length]
    started = time.perf_counter()
    graph = analyse(nodes, edges)
    took = time.perf_counter() - started
    assert len(graph.components) == chains
    assert graph.order[0] == "n0"
    assert len(graph.downstream("n0")) == length - 1
    assert took < 10  # about 0.4 s; only a quadratic or recursive algorithm would show here
    tracemalloc.start()
    analyse(nodes[:20_000], edges[:19_000])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20_000 * 1500


def test_a_long_cycle_is_found_without_recursion() -> None:
    nodes = [f"n{i}" for i in range(50_000)]
    graph = analyse(nodes, list(zip(nodes, [*nodes[1:], nodes[0]], strict=True)))
    assert graph.cycle == (*nodes, "n0")


@st.composite
def shapes(draw: st.DrawFn) -> tuple[list[str], Edges]:
    nodes = [f"n{i}" for i in range(draw(st.integers(1, 12)))]
    some = st.sampled_from(nodes)
    return draw(st.permutations(nodes)), draw(st.lists(st.tuples(some, some), max_size=25))


@given(shapes())
def test_any_shape_is_told_right(shape: tuple[list[str], Edges]) -> None:
    nodes, edges = shape
    graph = analyse(nodes, edges)
    place = {name: i for i, name in enumerate(graph.order)}
    assert sorted(graph.order) == sorted(nodes)
    assert sorted(n for c in graph.components for n in c.nodes) == sorted(nodes)
    assert all(graph.component_of[a] == graph.component_of[b] for a, b in edges)
    firsts = [min(nodes.index(n) for n in c.nodes) for c in graph.components]
    assert firsts == sorted(firsts)
    if graph.cycle is None:
        assert all(place[a] < place[b] for a, b in edges)
        assert all(a in graph.upstream(b) and b in graph.downstream(a) for a, b in edges)
        assert all(c.is_dag and c.entry_nodes for c in graph.components)
    for cycle in graph.cycles:
        assert cycle[0] == cycle[-1]
        assert all(step in edges for step in itertools.pairwise(cycle))
    on_cycles = {graph.component_of[cycle[0]] for cycle in graph.cycles}
    assert on_cycles == {c.id for c in graph.components if not c.is_dag}
    assert analyse(nodes, edges).structure() == graph.structure()
