"""What one evaluation costs: three expressions against a plain Python lambda (the ceiling) and `eval` of a code object.

    .venv/bin/python bench/expr.py

Takes a few seconds and writes nothing. The values are there already; making the dict is not counted.
"""

from __future__ import annotations

import timeit
from collections.abc import Callable, Mapping
from typing import Any

from tradewind.expr import compile_expression

CALLS = 50_000
PASSES = 9

Values = Mapping[str, Any]

CASES: list[tuple[str, Callable[[Values], Any], Values]] = [
    ("a * 2 + b > 10", lambda v: v["a"] * 2 + v["b"] > 10, {"a": 3.5, "b": 5.25}),
    (
        'price["close"] > price["open"] and status == "open"',
        lambda v: v["price"]["close"] > v["price"]["open"] and v["status"] == "open",
        {"price": {"open": 10.5, "close": 11.0}, "status": "open"},
    ),
    (
        "clamp(avg(closes[-20:]) / base - 1, -0.1, 0.1)",
        lambda v: max(-0.1, min(0.1, sum(v["closes"][-20:]) / 20 / v["base"] - 1)),
        {"closes": [100.0 + i % 7 for i in range(200)], "base": 101.5},
    ),
]
#: For `eval`, which does not know our functions.
HELPERS = {"avg": lambda x: sum(x) / len(x), "clamp": lambda x, low, high: max(low, min(high, x))}


def measure(function: Callable[..., Any], *arguments: Any) -> float:
    """Nanoseconds a call, the best of several passes."""
    space = {"f": function, **{f"x{i}": argument for i, argument in enumerate(arguments)}}
    call = f"f({', '.join(name for name in space if name != 'f')})"
    return min(timeit.repeat(call, globals=space, number=CALLS, repeat=PASSES)) / CALLS * 1e9


def main() -> None:
    print(f"{'ns an evaluation':52} {'ours':>6} {'lambda':>7} {'eval':>6} {'ours/lambda':>12}")
    for text, plain, values in CASES:
        expression = compile_expression(text)
        code = compile(text, "<eval>", "eval")
        space = {"__builtins__": {}, **HELPERS}
        assert expression(values) == eval(code, space, dict(values))
        ours, ceiling = measure(expression, values), measure(plain, values)
        evaluated = measure(eval, code, space, values)
        print(f"{text:52} {ours:6.0f} {ceiling:7.0f} {evaluated:6.0f} {ours / ceiling:12.1f}")
    text = CASES[0][0]
    print(f"\ncompile_expression({text!r}), not seen before: ", end="")
    texts = iter([f"{text} - {i}" for i in range(300)])
    print(f"{min(timeit.repeat(lambda: compile_expression(next(texts)), number=100, repeat=3)) / 100 * 1e6:.0f} us")


if __name__ == "__main__":
    main()
