"""The commands of `tradewind model` against a real station."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Cli, StationProcess
from tests.cli.points_plant import Plant
from tests.servers import wait_for


@pytest.fixture
def plant(cli: Cli, station: StationProcess, tmp_path: Path) -> Plant:
    return Plant(cli, tmp_path)


def test_a_model_is_stored_computed_shown_and_removed(cli: Cli, plant: Plant) -> None:
    plant.run()
    assert cli("model", "put", str(plant.model_file)).out == f"model {plant.model} stored\n"
    address = f"modsrv:{plant.model}:measurement:volume"
    wait_for(lambda: plant.value(address) == 20.0, "the volume", 20)
    shown = cli("model", "show", plant.model)
    assert shown.code == 0
    for word in (address, f"comsrv:{plant.number}:m:1", "target"):
        assert word in shown.out
    listed = cli("model", "list", "--json").json["items"]
    assert plant.model in [model["name"] for model in listed]
    assert plant.model in cli("model", "list").out
    assert cli("model", "remove", plant.model).code == 2  # nobody is there to ask
    assert cli("model", "remove", plant.model, "--yes").out == f"{plant.model} removed\n"
    assert cli("model", "show", plant.model).code == 4


def test_a_bad_model_is_refused_with_file_and_line(cli: Cli, plant: Plant) -> None:
    plant.model_file.write_text(plant.model_file.read_text().replace("level * 10", "levl * 10"))
    ran = cli("model", "put", str(plant.model_file))
    assert ran.code == 2
    assert f"{plant.model_file}:4:calculations[0].expression" in ran.err
    plant.model_file.write_text("models:\n  - inputs: []\n")
    assert "model.yaml:2:name: give it a name" in cli("model", "put", str(plant.model_file)).err
    plant.model_file.write_text("models: [1]\n")
    assert "model.yaml:1:models[0]" in cli("model", "put", str(plant.model_file)).err


def test_templates_are_stored_before_their_instances(cli: Cli, plant: Plant) -> None:
    name = f"t{plant.number}"
    source = 'source: "comsrv:{channel}:m:1"'
    plant.model_file.write_text(
        f"models:\n  - {{name: {plant.model}, template: {name}, properties: {{channel: '{plant.number}'}}}}\n"
        f"templates:\n  - name: {name}\n    properties: {{channel: {{type: text}}}}\n"
        f"    inputs: [{{name: x, {source}}}]\n"
        "    calculations: [{id: y, expression: x + 1}]\n    outputs: [{field: y, source: y}]\n"
    )
    ran = cli("model", "put", str(plant.model_file))
    assert (ran.code, ran.out) == (0, f"template {name} stored\nmodel {plant.model} stored\n"), ran.err
    assert cli("model", "show", plant.model, "--json").json["template"] == name


def test_models_of_a_file_may_stand_in_any_order_and_are_stored_all_or_none(cli: Cli, plant: Plant) -> None:
    name = plant.model
    plant.model_file.write_text(
        f"models:\n  - {{name: {name}_b, inputs: [{{name: x, source: 'modsrv:{name}_a:measurement:y'}}],\n"
        "     outputs: [{field: z, source: x}]}\n"
        f"  - {{name: {name}_a, inputs: [{{name: x, source: 'comsrv:1:m:1'}}], outputs: [{{field: y, source: x}}]}}\n"
        f"templates:\n  - {{name: {name}_t, outputs: []}}\n"
    )
    ran = cli("model", "put", str(plant.model_file))
    assert ran.code == 2
    assert f"{plant.model_file}:6:outputs: a template has outputs" in ran.err
    assert cli("model", "show", f"{name}_a").code == 4
    text = plant.model_file.read_text()
    plant.model_file.write_text(text.partition("templates:")[0])
    ran = cli("model", "put", str(plant.model_file))
    assert (ran.code, ran.out) == (0, f"model {name}_b stored\nmodel {name}_a stored\n"), ran.err
    plant.model_file.write_text(text.partition("templates:")[0].replace("field: y", "field: other"))
    ran = cli("model", "put", str(plant.model_file))
    assert f"{plant.model_file}:2:inputs[0].source" in ran.err
