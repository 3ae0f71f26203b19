"""Hamilton: a driver built once per graph, executed in this process. Nothing is kept."""

from __future__ import annotations

from typing import Any

from hamilton import ad_hoc_utils, driver

_built: dict[tuple[str, int], Any] = {}


def prepare(kind: str, n: int) -> None:
    if (kind, n) not in _built:
        _built[kind, n] = _build(f"{kind}{n}", _source(kind, n))


def _source(kind: str, n: int) -> str:
    if kind == "flows":
        return "def end() -> int:\n    return 0 + 1\n"
    if kind == "chain":
        lines = ["def n0() -> int:\n    return 0\n"]
        lines += [f"def n{k}(n{k - 1}: int) -> int:\n    return n{k - 1} + 1\n" for k in range(1, n)]
        return "".join([*lines, f"def end(n{n - 1}: int) -> int:\n    return n{n - 1} + 1\n"])
    names = [f"leaf{k}" for k in range(n)]
    lines = ["def root() -> int:\n    return 0 + 1\n"]
    lines += [f"def {name}(root: int) -> int:\n    return root + 1\n" for name in names]
    lines.append(f"def end({', '.join(f'{name}: int' for name in names)}) -> int:\n    return {' + '.join(names)}\n")
    return "".join(lines)


def _build(name: str, source: str) -> Any:
    space: dict[str, Any] = {}
    exec(source, space)
    functions = [made for made in space.values() if getattr(made, "__code__", None)]
    for function in functions:
        function.__module__ = name
    module = ad_hoc_utils.create_temporary_module(*functions, module_name=name)
    return driver.Builder().with_modules(module).build()


def _end(kind: str, n: int) -> Any:
    return _built[kind, n].execute(["end"])["end"]


def chain(n: int) -> None:
    assert _end("chain", n) == n


def fan(n: int) -> None:
    assert _end("fan", n) == 2 * n


def flows(n: int) -> None:
    assert [_end("flows", n) for _ in range(n)] == [1] * n
