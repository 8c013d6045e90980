"""Memory forecast, compared with what ranks actually build."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.layout import lay_out
from jupyter_mntrain.recipe.memory import memory_estimate
from jupyter_mntrain.recipe.parse import parse_recipe
from jupyter_mntrain.recipe.presets import FAMILIES
from jupyter_mntrain.recipe.rank_memory import forecast, model_config
from jupyter_mntrain.train.model.decoder import read_config
from jupyter_mntrain.train.model.stages import build_modules
from tests.recipe.test_memory import SMALL, VOCABULARY, built
from tests.wording import wording

OWN = (*SMALL, f"data.vocabulary_size={VOCABULARY}")


@pytest.mark.parametrize("tied", ["true", "false"])
@pytest.mark.parametrize("family", FAMILIES)
def test_it_is_what_the_rank_itself_says(family: str, tied: str) -> None:
    changes = (f"model.preset={family}-tiny", f"model.tie_embeddings={tied}", OWN[-1])
    recipe, shape, _, stage = built(*changes)
    (found,) = forecast(recipe, model_config(recipe), 1)
    assert found == memory_estimate(shape, recipe, [stage])


@pytest.mark.parametrize("schedule", ["eager-1f1b", "interleaved-1f1b"])
@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_every_rank_has_the_weights_that_it_builds(family: str, schedule: str) -> None:
    changes = (f"model.preset={family}-tiny", "model.layers=4", "model.tie_embeddings=true")
    recipe = parse_recipe("", [*OWN, *changes, f"pipeline.schedule={schedule}"])
    config = read_config(recipe.model, VOCABULARY)
    layout = lay_out(recipe, 2, config.num_hidden_layers)
    for rank, one in enumerate(forecast(recipe, model_config(recipe), 2)):
        modules = build_modules(recipe, config, layout, rank, torch.device("cpu"))
        tensors = [t for module in modules.values() for t in module.weights().values()]
        assert one.weights == sum(tensor.nbytes for tensor in tensors)


def test_a_directory_says_it_if_it_is_here(tmp_path: Path) -> None:
    recipe = parse_recipe("", [*SMALL[1:], f"model.path={tmp_path}"])
    assert model_config(recipe) is None
    preset = model_config(parse_recipe("", OWN))
    (tmp_path / "config.json").write_text(json.dumps(preset))
    assert forecast(recipe, model_config(recipe), 1) == forecast(recipe, preset, 1)
    with pytest.raises(
        RecipeError, match=wording("4 pipeline stages need 4 layers or more; the model has 3")
    ):
        forecast(parse_recipe("", [*OWN, "pipeline.microbatches=4"]), preset, 4)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"model_type": "llama"}', '{"model_type": "t5"}']
)
def test_what_is_no_model_of_ours_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    assert model_config(parse_recipe("", [f"model.path={tmp_path}"])) is None
