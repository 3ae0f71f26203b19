"""Runs a stream through a rule engine until the time is up: `app.py STREAM SECONDS [MODE]`. Prints a line of JSON.

For Python peers, in their own environments: nothing but the standard library.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence

#: Makes the rules ready for a limit and so many points: then takes the values of a sweep, says how many were above it.
Build = Callable[[float, int], Callable[[Sequence[float]], int]]


def run(build: Build) -> None:
    with open(sys.argv[1]) as file:
        stream = json.load(file)
    limit, sweeps = stream["limit"], stream["sweeps"]
    began = time.perf_counter()
    judge = build(limit, len(sweeps[0]))
    built_s = time.perf_counter() - began
    changes = matched = 0
    until = time.perf_counter() + float(sys.argv[2])
    began = time.perf_counter()
    for values in sweeps:
        matched += judge(values)
        changes += len(values)
        if time.perf_counter() >= until:
            break
    took = time.perf_counter() - began
    print(json.dumps({"checks": changes, "changes": changes, "matched": matched, "seconds": took, "built_s": built_s}))
