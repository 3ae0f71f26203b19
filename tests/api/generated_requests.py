"""A station, and requests generated from its OpenAPI description. Run it alone in a network namespace: examples and
generated values name addresses, and the station goes where they say.

`python -m tests.api.generated_requests FOLDER [options of "schemathesis run"]` leaves in the folder `station.log`,
`openapi.json` and the events of the run, `requests.ndjson`. Thousands of requests, to look for more than the tests do:

    unshare --net python -m tests.loopback_only python -m tests.api.generated_requests /tmp/found --seed 7 -n 200
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from tests.process import ROOT, code_path, die_with_parent, wait_for

URL = "http://127.0.0.1:8400"
CHECKS = (
    "not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance",
    "response_headers_conformance",
)  # fmt: skip
EXAMPLE = ROOT / "examples" / "microgrid"


@contextlib.contextmanager
def station(folder: Path) -> Iterator[None]:
    command = [sys.executable, "-m", "tradewind.cli", "up", "--data-dir", str(folder / "data"), "--log-format", "json"]
    with open(folder / "station.log", "wb") as log:
        process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=die_with_parent
        )

    def is_up() -> bool:
        assert process.poll() is None, (folder / "station.log").read_text()
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{URL}/health", timeout=5) as answer:
            return bool(answer.status == 200)
        return False

    try:
        wait_for(is_up, "the start of the station")
        yield
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()


def main() -> int:
    folder, options = Path(sys.argv[1]).resolve(), sys.argv[2:]
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["PYTHONPATH"] = code_path()  # children run the code under test
    with station(folder):
        apply = [sys.executable, "-m", "tradewind.cli", "--url", URL, "apply", "-f", str(EXAMPLE)]
        subprocess.run(apply, check=True, stdout=subprocess.DEVNULL)
        with urllib.request.urlopen(f"{URL}/openapi.json", timeout=30) as answer:
            (folder / "openapi.json").write_bytes(answer.read())
        command = [
            str(Path(sys.executable).with_name("schemathesis")), "--no-color",
            "--config-file", str(Path(__file__).with_name("schemathesis.toml")),
            "run", f"{URL}/openapi.json", "--checks", ",".join(CHECKS),
            "--report", "ndjson", "--report-ndjson-path", str(folder / "requests.ndjson"), *options,
        ]  # fmt: skip
        return subprocess.run(command, cwd=folder, check=False, preexec_fn=die_with_parent).returncode


if __name__ == "__main__":
    sys.exit(main())
