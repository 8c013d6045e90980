"""One step of a recipe, for the doctor: as much memory as in training, and nothing stays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from jupyter_mntrain.model.environment import CHECKPOINT_VARIABLE, FIRST_STEP_VARIABLE
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.records.doctor.trial import read_line
from jupyter_mntrain.recipe.parse import check, parse_recipe
from jupyter_mntrain.train.data.batches import Batches
from jupyter_mntrain.train.data.sequences import rows_of
from jupyter_mntrain.train.data.tokens import random_tokens, untrained_tokenizer
from jupyter_mntrain.train.pipeline.first_step import first_step_of
from jupyter_mntrain.train.prepare import prepare
from jupyter_mntrain.train.world import join_world
from tests.train.ranks import run_command
from tests.train.test_loop import saved_model, text  # noqa: F401 - a fixture

RECIPE = """
[model]
preset = "llama-tiny"
[data]
source = "/no/such/corpus"
vocabulary_size = 300
sequence_length = 16
[pipeline]
microbatches = 2
[train]
steps = 900
batch_size = 4
device = "cpu"
[optimizer]
warmup_steps = 50
"""


def test_of_the_recipe_only_what_would_stay_is_left_out():
    given = ["checkpoint.directory=/cp", "output.directory=/out", "evaluation.interval_steps=5"]
    made = first_step_of(parse_recipe(RECIPE, given))
    check(made, 1)
    assert made.train.steps == 1
    assert (made.checkpoint.directory, made.output.directory) == (None, None)
    assert not made.checkpoint.at_end
    assert not made.output.at_end
    assert made.report.to == ()
    assert made.evaluation.interval_steps == 0
    assert made.train.batch_size == 4


@pytest.mark.parametrize("packing", ["wrapped", "best-fit", "none"])
def test_every_sequence_of_the_step_is_full(packing: str):
    section = parse_recipe(RECIPE, [f"data.packing={packing}"]).data
    tokens = random_tokens(section, 4, 300, untrained_tokenizer())
    rows = rows_of(tokens, section)
    assert len(rows) >= 4
    batch = Batches(rows, batch_size=4, seed=0).batch(0)
    assert batch.tokens == batch.counted == 4 * 16
    assert np.max(tokens.ids) < 300


@pytest.mark.slow
def test_it_needs_no_data_and_leaves_nothing(tmp_path: Path):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE)
    runs = tmp_path / "runs"
    environment = {FIRST_STEP_VARIABLE: "1", CHECKPOINT_VARIABLE: str(runs)}
    done = run_command(recipe, environment=environment)
    assert done.exit_code == 0, done.err
    (told,) = filter(None, map(read_line, done.out.splitlines()))
    assert told.seconds > 0
    assert told.peak_bytes is not None
    assert told.peak_bytes > 0
    assert not runs.exists()
    assert [one.name for one in tmp_path.iterdir()] == ["recipe.toml"]


def prepared(directory: Path) -> None:
    changes = [f"model.path={directory}", 'data.tokenizer="auto"']
    recipe = parse_recipe(RECIPE.replace('preset = "llama-tiny"', ""), changes)
    with join_world("cpu", 60) as world:
        ready = prepare(first_step_of(recipe), world, reads=False)
        assert ready.tokens.tokenizer.is_fast
        assert ready.config.vocab_size == 280


def test_a_models_tensors_are_looked_for(text: Path, tmp_path: Path):  # noqa: F811
    from transformers import Qwen2Config

    directory = saved_model(text, tmp_path / "model", vocabulary_size=280)
    prepared(directory)
    config = Qwen2Config.from_pretrained(directory)
    config.intermediate_size = 96
    config.save_pretrained(directory)
    with pytest.raises(RecipeError) as refused:
        prepared(directory)
    assert "mlp" in refused.value.cause
