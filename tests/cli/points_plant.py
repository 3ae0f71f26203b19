"""A simulated device of its own for each test of the commands about points, so that they can share a station."""

from __future__ import annotations

import random
from pathlib import Path

from tests.cli.conftest import Cli
from tests.servers import wait_for

CHANNEL = """\
channels:
  - id: NUMBER
    name: Tank
    protocol: virtual
    poll_interval_ms: 100
    points:
      - {kind: m, id: 1, name: level, unit: m, mapping: {expression: "2 + a4"}}
      - {kind: s, id: 2, name: pump, mapping: {expression: "c3"}}
      - {kind: c, id: 3, name: start, read_back: "s:2"}
      - {kind: a, id: 4, name: target, min: -5, max: 5, step: 0.5}
"""
MODEL = """\
models:
  - name: NAME
    inputs: [{name: level, source: "comsrv:NUMBER:m:1"}]
    calculations: [{id: volume, expression: level * 10}]
    outputs: [{field: volume, source: volume, unit: l}]
    controls: {target: {address: "comsrv:NUMBER:a:4", max: 3}}
"""


class Plant:
    def __init__(self, cli: Cli, folder: Path) -> None:
        self.cli = cli
        self.number = str(random.randrange(10**9, 10**12))
        self.model = f"tank{self.number}"
        self.channel_file = folder / "channel.yaml"
        self.model_file = folder / "model.yaml"
        self.channel_file.write_text(CHANNEL.replace("NUMBER", self.number))
        self.model_file.write_text(MODEL.replace("NAME", self.model).replace("NUMBER", self.number))

    def address(self, kind: str, point: int) -> str:
        return f"comsrv:{self.number}:{kind}:{point}"

    def value(self, address: str) -> float | None:
        found: float | None = self.cli("point", "get", address, "--json").json["items"][0]["value"]
        return found

    def run(self) -> None:
        """Declare the channel and wait for its first values."""
        assert self.cli("channel", "put", str(self.channel_file)).code == 0
        wait_for(lambda: self.value(self.address("m", 1)) is not None, "the first value", 20)
