"""Rows of the exactness table: what is changed when a run is resumed. Imports no torch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from jupyter_mntrain.recipe.sections import Recipe

PAGE = Path(__file__).parents[2] / "docs" / "recipe_checkpoints.md"
RECORD = Path(__file__).with_name("exactness.json")
"""What was measured last, by kind of run and row."""
BEGIN = "<!-- written by python -m tests.train.exactness -->\n"
END = "<!-- until here -->\n"

RANKS = 2
OTHER_RANKS = (1, 3, 4)
STEPS, SAVED = 6, 3
"""Of the unbroken run, and those after which the other one goes on."""

KINDS: Mapping[str, tuple[str, ...]] = {
    "all weights": (),
    "tied": ("model.tie_embeddings=true",),
    "adapters": ("adapters.rank=4",),
    "with dropout": ("adapters.rank=4", "adapters.dropout=0.2"),
    "2 replicas": ("data_parallel.replicas=2",),
    "`sync_every`": ("data_parallel.replicas=2", "data_parallel.sync_every=2"),
    "bfloat16, stochastic": ("model.dtype=bfloat16", "optimizer.precision=stochastic-rounding"),
}


class Try(NamedTuple):
    """One change. The unbroken run has what is ``given``, and nothing of the change.

    Args:
        ended: the first run ended after its last step, rather than being cut off.
    """

    settings: tuple[str, ...]
    given: tuple[str, ...] = ()
    ranks: int = RANKS
    ended: bool = False


class Row(NamedTuple):
    """What the table calls some changes, and each of them."""

    shown: str
    tries: tuple[Try, ...]


def row(shown: str, *settings: str, given: tuple[str, ...] = ()) -> Row:
    """Each setting is a try of its own; several that belong together have a space between them."""
    return Row(shown, tuple(Try(tuple(one.split()), given) for one in settings))


_EVALUATED = (f"evaluation.interval_steps={STEPS}", "evaluation.sequences=4")
_CONSTANT = ("optimizer.schedule=constant",)

ROWS: tuple[Row, ...] = (
    Row("number of ranks", tuple(Try((), ranks=ranks) for ranks in OTHER_RANKS)),
    row("`pipeline.split`, `in_flight`", "pipeline.split=[3,1]", "pipeline.in_flight=[4,1]"),
    row(
        "`pipeline.deferred`",
        "pipeline.deferred=[0,3]",
        given=("pipeline.schedule=eager-zero-bubble", "pipeline.deferred=[0,1]"),
    ),
    row(
        "`checkpoint`, `output`, `report`",
        *("checkpoint.interval_steps=2", "checkpoint.keep=1", "checkpoint.at_end=false"),
        *("checkpoint.copies=2", "checkpoint.interval_minutes=5", "checkpoint.failure_hours=24"),
        *("checkpoint.copy_to={own}-copies", "output.shard_gb=0.001", "output.gather=false"),
        "output.at_end=true output.directory={own}-model output.replace=true",
        *('report.to=["tensorboard"]', "report.project=other", "report.run_name=other"),
    ),
    row(
        "`train.log_interval`, `timeout_s`, `on_nan`, `tf32`, `skip_limit`, `detect_anomaly`",
        *("train.log_interval=1", "train.timeout_s=200", "train.on_nan=report", "train.tf32=false"),
        *("train.skip_limit=3", "train.detect_anomaly=true"),
    ),
    row(
        "`evaluation`, where it stays switched on, except for `share`",
        *("evaluation.interval_steps=2", "evaluation.sequences=2", "evaluation.stop_after=9"),
        'evaluation.prompts=["bubble"] evaluation.prompt_tokens=2',
        "checkpoint.keep_best=1 checkpoint.interval_steps=6",
        given=_EVALUATED,
    ),
    row("`pipeline.microbatches`", "pipeline.microbatches=2", "pipeline.microbatches=8"),
    row(
        "`pipeline.transfer`",
        *(f'pipeline.transfer=["{one}"]' for one in ("int8", "int8-int4", "int4")),
    ),
    row(
        "`pipeline.schedule`, `stages_per_rank`",
        *("pipeline.schedule=1f1b", "pipeline.schedule=gpipe"),
        *("pipeline.schedule=eager-zero-bubble", "pipeline.schedule=interleaved-1f1b"),
        *("pipeline.schedule=looped-bfs", "pipeline.schedule=zbv", "pipeline.schedule=dualpipev"),
        "pipeline.schedule=interleaved-zero-bubble pipeline.stages_per_rank=1",
    ),
    row(
        "`data_parallel.replicas`, `shards`, `reshard_after_forward`",
        *("data_parallel.replicas=2", "data_parallel.shards=2", "data_parallel.replicas=1"),
        "data_parallel.replicas=1 data_parallel.sync_every=0",
        "data_parallel.shards=2 data_parallel.reshard_after_forward=true",
    ),
    row(
        "the rest of `data_parallel`",
        "data_parallel.replicas=2 data_parallel.sync_every=3",
        *(
            f"data_parallel.replicas=2 data_parallel.sync_every=2 data_parallel.{one}"
            for one in (
                *("outer_learning_rate=0.5", "outer_momentum=0.5", "sync_dtype=int8"),
                *("sync_fragments=2", "sync_delay=1"),
            )
        ),
    ),
    row(
        "`train.accumulation`",
        "train.accumulation=2",
        "train.accumulation=2 pipeline.microbatches=2",
    ),
    row("`train.deterministic`", "train.deterministic=true"),
    row(
        "`memory.checkpointing`, `checkpointing_every`, `fused_backward`",
        *("memory.checkpointing=full", "memory.checkpointing=selective"),
        "memory.checkpointing=full memory.checkpointing_every=2",
        "memory.fused_backward=true",
        given=("memory.checkpointing=none", "optimizer.clip_norm=0"),
    ),
    row(
        "`memory.loss`, `chunk_tokens`, `compile`",
        "memory.loss=chunked memory.chunk_tokens=8",
        "memory.compile=true",
        given=("memory.loss=plain", "memory.compile=false"),
    ),
    row("`model.attention`", "model.attention=eager"),
    row("`optimizer.grad_dtype`", "optimizer.grad_dtype=float32"),
    row(
        '`train.steps` with `schedule = "constant"`',
        "train.steps=8",
        given=_CONSTANT,
    ),
    Row(
        'more `train.steps` of a run that had ended, with `schedule = "constant"`',
        (Try((), _CONSTANT, ended=True),),
    ),
    row("`train.steps`", "train.steps=8"),
    row(
        "`optimizer.schedule`, `warmup_steps`, `min_ratio`",
        *("optimizer.schedule=linear", "optimizer.warmup_steps=5", "optimizer.min_ratio=0.5"),
    ),
    row("`optimizer.decay_share`", "optimizer.decay_share=0.6", given=("optimizer.schedule=wsd",)),
    row("`optimizer.power`", "optimizer.power=1", given=("optimizer.schedule=polynomial",)),
    row(
        "`optimizer.learning_rate`, `betas`, `epsilon`, `weight_decay`, `clip_norm`",
        *("optimizer.learning_rate=0.002", "optimizer.betas=[0.8,0.9]", "optimizer.epsilon=0.01"),
        *("optimizer.weight_decay=0.5", "optimizer.clip_norm=0.1"),
    ),
    row("`train.overfit_batch`", "train.overfit_batch=true"),
    row(
        "`train.skip_spikes`",
        "train.skip_spikes=1.001",
        given=("train.steps=24", *_CONSTANT),
    ),
    row("`train.seed`", "train.seed=1"),
    row("`adapters.dropout`", "adapters.dropout=0.4"),
    row("`adapters.quantize_base`", "adapters.quantize_base=nf4"),
    row(
        "other `adapters`",
        *("adapters.rank=8", "adapters.alpha=3", 'adapters.modules=["self_attn.q_proj"]'),
        *('adapters.train_whole=["head"]', "adapters.rank=0"),
    ),
    row(
        "`data`: other text, tokens or sequences",
        *("data.source={folder}/other.txt", "data.packing=best-fit", "data.sequence_length=8"),
        *("data.seed=1", "data.vocabulary_size=290", 'tokens.add=["<one>"]'),
    ),
    row(
        "other `model`",
        *("model.layers=5", "model.hidden_size=32", "model.intermediate_size=96"),
        *("model.heads=2 model.key_value_heads=2", "model.preset=qwen2-tiny"),
        "model.tie_embeddings=true",
    ),
    row("`model.dtype`", "model.dtype=bfloat16", "model.dtype=float32"),
    row("`train.batch_size`", "train.batch_size=16"),
    row(
        "`optimizer.kind`, `precision`",
        *("optimizer.kind=adafactor", "optimizer.precision=float32-master"),
        given=("model.dtype=bfloat16", "optimizer.precision=plain"),
    ),
    row("`evaluation` switched on", " ".join(_EVALUATED)),
    row("`evaluation.share`", "evaluation.share=0.2", given=_EVALUATED),
)

UNTRIED: Mapping[str, str] = {
    "another text, or the same by other words": "data.sources data.evaluation_path data.format "
    "data.text_field data.split data.split_special_tokens data.roles data.chat_template "
    "data.answers_only data.on_bad_rows "
    "data.bad_rows_limit data.too_long data.tokenizer model.path",
    "says train.steps": "train.epochs",
    "needs a GPU": "train.device memory.offload_activations",
    "an address": "report.prometheus_port report.prometheus_address",
    "where checkpoints are": "checkpoint.directory",
}
"""Fields that no row changes, by the reason."""


def fields_tried() -> set[str]:
    """Those that some row changes."""
    every = (setting for one in ROWS for each in one.tries for setting in each.settings)
    return {setting.partition("=")[0] for setting in every}


def fields() -> Iterator[str]:
    """All of a recipe."""
    for section in msgspec.structs.fields(Recipe):
        for one in msgspec.structs.fields(type(section.default)):
            yield f"{section.name}.{one.name}"


EQUAL, OTHER, REFUSED, NONE = "equal", "other", "refused", "–"

Measured = dict[str, dict[str, str]]
"""By row and kind: one of these, or the largest difference of a loss by rounding. ``–`` where runs
of that kind have no such setting, or have it anyway."""


def read_record() -> Measured:
    if not RECORD.exists():
        return {}
    return msgspec.json.decode(RECORD.read_bytes(), type=Measured)


def write_record(measured: Measured) -> None:
    RECORD.write_text(json.dumps(measured, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def table(measured: Measured) -> str:
    lines = [
        f"| changed | {' | '.join(KINDS)} |",
        f"| --- |{' --- |' * len(KINDS)}",
        *(
            f"| {one.shown} | {' | '.join(measured[one.shown].get(kind, '') for kind in KINDS)} |"
            for one in ROWS
        ),
    ]
    return "\n".join(lines) + "\n"


def page_with(measured: Measured) -> str:
    """docs/recipe_checkpoints.md with the table of these results."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table(measured)}{END}{after}"
