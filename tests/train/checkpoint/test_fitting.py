"""Fitting: the settings that a checkpoint does not fit are those whose hashes it compares."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_mntrain.recipe.changes.exactness import changed_settings
from jupyter_mntrain.recipe.parse import parse_recipe
from jupyter_mntrain.train.checkpoint.resuming import COMPARED
from jupyter_mntrain.train.prepare import prepare
from jupyter_mntrain.train.world import join_world
from tests.train.test_command import write_text

pytestmark = pytest.mark.slow

BASE = (
    *("model.preset=llama-tiny", "data.vocabulary_size=300", "data.sequence_length=16"),
    *("pipeline.microbatches=2", "train.device=cpu", "train.batch_size=4"),
)
FITS_BY_STATE = ("optimizer.kind", "optimizer.precision")
"""Refused because the checkpoint has other tensors of the optimizer."""

CHANGES = (
    *("model.preset=mistral-tiny", "model.dtype=bfloat16", "model.attention=eager"),
    *("model.layers=3", "model.hidden_size=128", "model.intermediate_size=64", "model.heads=2"),
    *("model.key_value_heads=1", "model.tie_embeddings=true"),
    *("data.sequence_length=32", "data.seed=3"),
    *("pipeline.schedule=gpipe", "pipeline.microbatches=4", "pipeline.split=[4]"),
    *("optimizer.kind=adafactor", "optimizer.learning_rate=0.01", "optimizer.clip_norm=0"),
    *("memory.checkpointing=full", "memory.loss=chunked"),
    *("train.steps=7", "train.batch_size=8", "train.accumulation=2", "train.seed=5"),
    *("evaluation.interval_steps=2", "evaluation.share=0.1", "evaluation.sequences=3"),
)
WITH_EVALUATION = ("evaluation.interval_steps=2",)
CHANGES_WITH_EVALUATION = (
    *("evaluation.interval_steps=3", "evaluation.share=0.1", "evaluation.sequences=3"),
    "evaluation.interval_steps=0",
)


@pytest.mark.parametrize(
    ("base", "changes"), [((), CHANGES), (WITH_EVALUATION, CHANGES_WITH_EVALUATION)]
)
def test_what_is_refused_before_the_start_is_what_ranks_refuse(
    tmp_path: Path, base: tuple[str, ...], changes: tuple[str, ...]
) -> None:
    source = f"data.source={write_text(tmp_path / 'text')}"
    before = parse_recipe("", (source, *BASE, *base))
    wrong = []
    with join_world("cpu", 60) as world:
        known = prepare(before, world).digests
        for one in changes:
            after = parse_recipe("", (source, *BASE, *base, one))
            found = prepare(after, world).digests
            is_other = any(found.get(name) != known.get(name) for name in COMPARED)
            change, *_ = changed_settings(before, after, step=3)
            is_refused = change.effect == "refused" and change.name not in FITS_BY_STATE
            if is_other != is_refused:
                wrong.append(str(change))
    assert not wrong
