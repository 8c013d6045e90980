"""What the trainer refuses about a model directory: agent, doctor and plan say the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jupyter_mntrain.agent.machine.facts import find_path
from jupyter_mntrain.doctor.workload.contents import WholeModel
from jupyter_mntrain.families.directories import (
    FORMATS,
    WeightFormat,
    lacking_weights,
    listed_files,
    refuse_directory,
)
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.records.doctor.machine import AskedPath
from jupyter_mntrain.plan.choosing.job_plan import plan_job
from jupyter_mntrain.recipe.sections import ModelSection, Recipe
from jupyter_mntrain.train.model.weights import fingerprint
from tests.doctor.healthy import changed, healthy
from tests.wording import says, wording

SAFETENSORS, PICKLED = FORMATS
LLAMA = {"model_type": "llama"}


def directory(path: Path, config: object = LLAMA, *files: str) -> Path:
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    for name in files:
        (path / name).touch()
    return path


def listing(path: Path, name: str, *files: str) -> None:
    weight_map = {f"{one}.weight": one for one in files}
    (path / name).write_text(json.dumps({"weight_map": weight_map}))


@pytest.mark.parametrize("single", [one.single for one in FORMATS])
def test_a_single_file_is_whole(tmp_path: Path, single: str) -> None:
    assert lacking_weights(directory(tmp_path / "m", LLAMA, single), "m") is None


def test_a_model_is_whole_in_one_format(tmp_path: Path) -> None:
    """A download left out the files of one format, and not their index."""
    here = directory(tmp_path / "m", LLAMA, PICKLED.single)
    listing(here, SAFETENSORS.listing, "a.safetensors", "b.safetensors")
    assert lacking_weights(here, "m") is None
    (here / PICKLED.single).unlink()
    lacking = lacking_weights(here, "m")
    assert lacking is not None
    assert says("2 of 2 files", str(lacking))
    assert "a.safetensors" in str(lacking)


def test_an_index_may_name_anything(tmp_path: Path) -> None:
    here = directory(tmp_path / "m")
    (here / SAFETENSORS.listing).write_text('{"weight_map": {"x": []}}')
    assert lacking_weights(here, "m") is not None


def test_without_weights_all_names_are_told(tmp_path: Path) -> None:
    lacking = lacking_weights(directory(tmp_path / "m"), "m")
    assert lacking is not None
    assert all(name in str(lacking) for one in FORMATS for name in one)


@pytest.mark.parametrize("text", ["{", "[]", '{"weight_map": 1}', '{"weight_map": []}'])
def test_a_broken_index_is_told(tmp_path: Path, text: str) -> None:
    here = directory(tmp_path / "m")
    (here / SAFETENSORS.listing).write_text(text)
    with pytest.raises(RecipeError, match=SAFETENSORS.listing):
        lacking_weights(here, "m")


@pytest.mark.parametrize(
    "config",
    [
        *({"model_type": "bloom"}, {"model_type": "mixtral"}, {}, []),
        {"model_type": "llama", "quantization_config": {"quant_method": "awq"}},
        {"model_type": "gpt2", "add_cross_attention": True},
    ],
)
def test_agent_doctor_and_plan_say_what_the_trainer_says(tmp_path: Path, config: object) -> None:
    path = str(directory(tmp_path / "m", config, SAFETENSORS.single))
    with pytest.raises(RecipeError) as of_trainer:
        refuse_directory(Path(path), path)
    found = find_path(AskedPath(use="model", path=path), {})
    assert found.trouble == of_trainer.value.problem
    finding = next(iter(WholeModel().findings(changed(healthy(), 0, paths=(found,)))))
    assert (finding.level, finding.problem and finding.problem.cause) == (
        "stops",
        of_trainer.value.cause,
    )
    with pytest.raises(RecipeError) as of_plan:
        plan_job(Recipe(model=ModelSection(path=path)), (), ())
    assert of_plan.value.problem == of_trainer.value.problem


def test_a_model_that_can_be_used_has_no_trouble(tmp_path: Path) -> None:
    path = str(directory(tmp_path / "m", LLAMA, SAFETENSORS.single))
    found = find_path(AskedPath(use="model", path=path), {})
    assert found.trouble is None
    finding = next(iter(WholeModel().findings(changed(healthy(), 0, paths=(found,)))))
    assert finding.level == "passed"


@pytest.mark.parametrize("name", ["/etc/passwd", "../other/model.safetensors", "a/../../b", "a\0b"])
@pytest.mark.parametrize("format_", FORMATS)
def test_an_index_reads_nothing_outside_of_its_directory(
    tmp_path: Path, format_: WeightFormat, name: str
) -> None:
    here = directory(tmp_path / "m")
    listing(here, format_.listing, "a.safetensors", name)
    with pytest.raises(RecipeError, match=wording("not in its directory")):
        listed_files(here / format_.listing)
    with pytest.raises(RecipeError, match=wording("not in its directory")):
        fingerprint(here)
