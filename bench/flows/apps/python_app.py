"""Floor: plain function calls, no engine."""

from __future__ import annotations


def noop(x: int) -> int:
    return x + 1


def chain(n: int) -> None:
    x = 0
    for _ in range(n):
        x = noop(x)
    assert x == n


def fan(n: int) -> None:
    root = noop(0)
    assert sum([noop(root) for _ in range(n)]) == 2 * n


def flows(n: int) -> None:
    assert [noop(0) for _ in range(n)] == [1] * n
