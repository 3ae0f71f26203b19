"""The driver process: `driver.py APP`, run by the engine's own interpreter, so only the standard library is used.

Says `{}` when it is ready, then reads `chain|fan|flows N` a line and answers one line of JSON: `seconds` of the run,
`prepared` seconds before its clock started, or `error`. An app has `chain(n)`, `fan(n)` and `flows(n)`, each of which
runs it once and raises when the result is wrong; what it returns replaces the driver's own figures. `prepare(kind, n)`,
when it has one, builds the graph or registers the flows.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time


def main() -> None:
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the engine prints must not stand between the answers
    app = importlib.import_module(sys.argv[1])
    print("{}", file=replies, flush=True)
    for line in sys.stdin:
        kind, n = line.split()
        try:
            asked = time.perf_counter()
            if hasattr(app, "prepare"):
                app.prepare(kind, int(n))
            began = time.perf_counter()
            told = getattr(app, kind)(int(n))
            reply = {"seconds": time.perf_counter() - began, "prepared": began - asked, **(told or {})}
        except Exception as error:  # noqa: BLE001 - whatever the engine raises is the answer
            reply = {"error": f"{type(error).__name__}: {error}"[:300]}
        print(json.dumps(reply), file=replies, flush=True)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # some clients keep threads or contexts that would not end by themselves
