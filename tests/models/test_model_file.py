"""Models from files, with file and line of every problem; the examples of the guide are such files and true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.models.examples import SEED
from tests.models.test_network import NOW, entry, settled
from tradewind.models.functions import FUNCTIONS
from tradewind.models.model_file import load_models
from tradewind.models.network import Network
from tradewind.models.outputs import Sample

PAGE = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


def test_files_of_a_folder_are_read_together(tmp_path: Path) -> None:
    (tmp_path / "models.yaml").write_text(EXAMPLES[2], encoding="utf-8")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "seed.yaml").write_text(SEED, encoding="utf-8")
    (tmp_path / "models" / "one.json").write_text(
        '{"name": "one", "inputs": [{"name": "a", "source": {"model": "power_meter", "field": "total_power"}}],'
        ' "outputs": [{"field": "a", "source": "a"}]}',
        encoding="utf-8",
    )
    loaded = load_models(tmp_path)
    assert loaded.problems == ()
    assert sorted(loaded.specs) == ["one", "power_meter", "pv_east", "pv_west"]
    assert sorted(loaded.templates) == ["pv_string"]


def test_problems_name_file_and_line_and_stop_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "models.yaml").write_text(
        "models:\n"
        "  - name: good\n"
        "    inputs: [{name: a, source: 'comsrv:1:m:1'}]\n"
        "    outputs: [{field: a, source: a}]\n"
        "  - name: bad\n"
        "    inputs:\n"
        "      - name: a\n"
        "        source: nowhere\n"
        "    outputs: [{field: a, source: b}]\n"
        "  - name: good\n"
        "    outputs: []\n"
        "modles: []\n",
        encoding="utf-8",
    )
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "broken.yaml").write_text("models: [", encoding="utf-8")
    loaded = load_models(tmp_path)
    assert list(loaded.specs) == ["good"]
    found = {(problem.code, problem.path) for problem in loaded.problems}
    assert ("bad_address", "models.yaml:8:inputs[0].source") in found
    assert ("missing_input", "models.yaml:9:outputs[0].source") in found
    assert ("duplicate_name", "models.yaml:10:name") in found
    assert ("unknown_field", "models.yaml:12:modles") in found
    assert any(path.startswith("models/broken.yaml") for _, path in found)


def test_a_folder_without_models_has_none(tmp_path: Path) -> None:
    assert load_models(tmp_path).models == {} and load_models(tmp_path).problems == ()


@pytest.mark.parametrize("text", EXAMPLES)
def test_the_examples_of_the_guide_have_no_problems(tmp_path: Path, text: str) -> None:
    (tmp_path / "models.yaml").write_text(text, encoding="utf-8")
    loaded = load_models(tmp_path)
    assert loaded.problems == () and loaded.specs


def test_the_examples_of_the_guide_compute(tmp_path: Path) -> None:
    (tmp_path / "models.yaml").write_text(EXAMPLES[0], encoding="utf-8")
    net = Network(load_models(tmp_path).specs)
    found = settled(net, entry(NOW, _10001=400.0, _10002=250.0), entry(NOW + 3_600_000, _10001=400.0, _10002=250.0))
    assert found["power_calc.total_power"] == Sample(100.0, NOW + 3_600_000)
    assert found["power_calc.energy"].value == 100.0
    assert found["plant.load_factor"].value == 0.2


def test_every_function_and_parameter_is_in_the_guide() -> None:
    for name, function in FUNCTIONS.items():
        assert f"`{name}`" in PAGE, name
        for param in function.params:
            assert f"`{param}`" in PAGE, param
