"""Models that several tests use."""

from __future__ import annotations

from typing import Any

import yaml

#: The form of the seed's companion documents.
SEED = """
id: "power_calculation"
name: "功率计算模型"
inputs:
  - name: "voltage"
    source: "comsrv:1001:m:10001"
  - name: "current"
    source: "comsrv:1001:m:10002"

calculations:
  - id: "apparent_power"
    function: "multiply"
    inputs: ["voltage", "current"]

  - id: "real_power"
    function: "scale"
    inputs: ["apparent_power"]
    params:
      factor: 0.95

outputs:
  - name: "total_power"
    target: "modsrv:power_meter:measurement"
    field: "total_power"
    source: "real_power"
"""


def seed() -> Any:
    return yaml.safe_load(SEED)


def total(name: str = "total", channel: int = 1001, points: int = 2, **more: Any) -> dict[str, Any]:
    """The sum of the first points of a channel."""
    names = [f"p{i}" for i in range(points)]
    return {
        "name": name,
        "inputs": [{"name": n, "source": f"comsrv:{channel}:m:{i + 1}"} for i, n in enumerate(names)],
        "calculations": [{"id": "all", "function": "sum", "inputs": names}],
        "outputs": [{"field": "total", "source": "all"}],
        **more,
    }


def energy(name: str = "meter", source: Any = "comsrv:1001:m:1", **params: Any) -> dict[str, Any]:
    """Energy of a power."""
    return {
        "name": name,
        "inputs": [{"name": "power", "source": source}],
        "calculations": [{"id": "counter", "function": "energy", "inputs": ["power"], "params": params}],
        "outputs": [{"field": "energy", "source": "counter", "unit": "kWh"}],
    }
