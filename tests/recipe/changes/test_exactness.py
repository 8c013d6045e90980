"""Exactness: every setting has an effect on a resumed run, and the right one."""

from __future__ import annotations

import pytest

from jupyter_mntrain.launch.settings import exactness_notes
from jupyter_mntrain.model.records.setting import Effect
from jupyter_mntrain.recipe.changes.exactness import EFFECTS, changed_settings, effect_of
from jupyter_mntrain.recipe.parse import parse_recipe
from jupyter_mntrain.recipe.sections import Recipe
from tests.wording import says

CONSTANT = ("train.epochs=3", "optimizer.schedule=constant", "optimizer.warmup_steps=50")
RARELY = ("data_parallel.replicas=2", "data_parallel.sync_every=8")
COMPRESSED = ("pipeline.transfer=int8",)
FLAT = ("optimizer.schedule=constant", "optimizer.warmup_steps=1")


def names() -> list[str]:
    recipe = Recipe()
    return [
        f"{section}.{field}"
        for section in recipe.__struct_fields__
        for field in getattr(recipe, section).__struct_fields__
    ]


def test_every_setting_has_an_effect_and_no_effect_is_of_nothing() -> None:
    known = names()
    assert all(effect_of(name) for name in known)
    sections = {name.partition(".")[0] for name in known}
    assert EFFECTS.keys() <= {*known, *sections}


@pytest.mark.parametrize(
    ("before", "after", "effect"),
    [
        ((), ("train.steps=200",), "other"),
        (("optimizer.min_ratio=1",), ("train.steps=200",), "none"),
        (("optimizer.min_ratio=1",), ("optimizer.warmup_steps=20",), "none"),
        (("optimizer.min_ratio=1",), ("optimizer.warmup_steps=80",), "other"),
        ((), ("optimizer.learning_rate=0.01",), "other"),
        (("optimizer.schedule=constant",), ("train.steps=200",), "none"),
        (("optimizer.schedule=constant",), ("optimizer.schedule=wsd",), "other"),
        (("optimizer.min_ratio=1",), ("optimizer.schedule=wsd",), "none"),
        (("optimizer.schedule=wsd",), ("optimizer.decay_share=0.9",), "other"),
        (("train.epochs=3",), ("train.epochs=5",), "other"),
        (("train.epochs=3", "optimizer.min_ratio=1"), ("train.epochs=5",), "other"),
        (CONSTANT, ("train.epochs=5",), "none"),
        ((), ("train.seed=7",), "none"),
        (("adapters.rank=4",), ("train.seed=7",), "refused"),
        (("adapters.rank=4", "model.path=/models/a"), ("train.seed=7",), "none"),
        (("adapters.rank=4",), ("adapters.rank=8",), "refused"),
        (("adapters.rank=4",), ("adapters.quantize_base=nf4",), "other"),
        (("adapters.rank=4",), ('adapters.train_whole=["head"]',), "refused"),
        ((), ("train.detect_anomaly=true",), "none"),
        ((), ("train.overfit_batch=true",), "other"),
        ((), ("model.layers=3",), "refused"),
        ((), ("train.batch_size=64",), "refused"),
        ((), ("evaluation.interval_steps=5",), "refused"),
        (("evaluation.interval_steps=5",), ("evaluation.interval_steps=7",), "none"),
        ((), ("evaluation.share=0.2",), "none"),
        (("evaluation.interval_steps=5",), ("evaluation.share=0.2",), "refused"),
        ((), ("data.source=/elsewhere",), "checked"),
        ((), ("pipeline.microbatches=16",), "rounding"),
        (("data_parallel.replicas=2",), ("data_parallel.sync_every=8",), "other"),
        (RARELY, ("data_parallel.sync_every=0",), "refused"),
        (RARELY, ("data_parallel.sync_every=10",), "other"),
        (RARELY, ("data_parallel.replicas=3",), "other"),
        ((*RARELY, *FLAT, "train.steps=50"), ("train.steps=90",), "other"),
        ((*RARELY, *FLAT, "train.steps=80"), ("train.steps=90",), "none"),
        ((), ("checkpoint.keep=5",), "none"),
        ((), ("pipeline.transfer=int8",), "other"),
        (COMPRESSED, ("pipeline.transfer=int4",), "other"),
        (COMPRESSED, ("train.seed=7",), "other"),
        (COMPRESSED, ("pipeline.split=[3,5]",), "other"),
        (COMPRESSED, ("pipeline.microbatches=16",), "other"),
        (COMPRESSED, ("pipeline.in_flight=[4,1]",), "none"),
        (COMPRESSED, ("pipeline.schedule=gpipe",), "rounding"),
        (COMPRESSED, ("pipeline.schedule=zbv",), "other"),
        (('pipeline.transfer=["none"]',), ("train.seed=7",), "none"),
    ],
)
def test_a_change_does_what_the_docs_say(
    before: tuple[str, ...], after: tuple[str, ...], effect: Effect
) -> None:
    old, new = parse_recipe("", before), parse_recipe("", (*before, *after))
    changes = changed_settings(old, new, step=50)
    (change,) = (one for one in changes if not one.is_automatic)
    assert change.effect == effect
    assert change.name == after[0].partition("=")[0]
    assert str(change).startswith(f"{change.name} ")


def test_a_seed_matters_where_weights_are_rounded_at_random() -> None:
    base = ("model.dtype=bfloat16", "optimizer.precision=stochastic-rounding")
    old, new = parse_recipe("", base), parse_recipe("", (*base, "train.seed=7"))
    assert [one.effect for one in changed_settings(old, new, step=50)] == ["other"]


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (
            (),
            ("train.steps=200",),
            ["train.steps 100 → 200", "optimizer.warmup_steps 10 → 20 (auto)"],
        ),
        (
            ("train.epochs=3",),
            ("train.steps=200",),
            [
                "train.steps – → 200",
                "train.epochs 3.0 → –",
                "optimizer.warmup_steps – → 20 (auto)",
            ],
        ),
        (("train.steps=2000",), ("train.steps=4000",), ["train.steps 2000 → 4000"]),
        (("optimizer.warmup_steps=10",), ("train.steps=200",), ["train.steps 100 → 200"]),
        ((), ("optimizer.warmup_steps=20",), ["optimizer.warmup_steps 10 → 20"]),
        ((), ("optimizer.warmup_steps=10",), []),
        (("model.dtype=float32",), ("optimizer.precision=plain",), []),
        (
            ("pipeline.schedule=1f1b",),
            ("pipeline.schedule=zbv",),
            ["pipeline.schedule 1f1b → zbv", "pipeline.stages_per_rank 1 → 2 (auto)"],
        ),
        ((), ("model.layers=3",), ["model.layers 8 → 3"]),
        ((), ("model.preset=llama-160m",), ["model.preset llama-8m → llama-160m"]),
        ((), ("data.source=/elsewhere",), ["data.source python-library → /elsewhere"]),
    ],
)
def test_what_changes_by_itself_is_named_too_and_what_stays_is_not(
    before: tuple[str, ...], after: tuple[str, ...], told: list[str]
) -> None:
    old, new = parse_recipe("", before), parse_recipe("", (*before, *after))
    assert list(map(str, changed_settings(old, new, step=50))) == told


def test_a_note_names_the_settings_that_change_the_losses_and_no_other() -> None:
    changes = ("train.steps=200", "pipeline.microbatches=16", "checkpoint.keep=5")
    old, new = parse_recipe(""), parse_recipe("", changes)
    other, rounded = (one.cause for one in exactness_notes(changed_settings(old, new, step=50)))
    assert says("train.steps, optimizer.warmup_steps: ", other)
    assert says("pipeline.microbatches: ", rounded)
    assert exactness_notes(changed_settings(old, old, step=50)) == ()
