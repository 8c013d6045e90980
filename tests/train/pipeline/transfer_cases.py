"""Cases of transfers in fewer bits, and their results. Imports no torch."""

from __future__ import annotations

import msgspec

VOCABULARY, LENGTH = 320, 16
STEPS = 2
"""Each with random numbers of its own."""

_BASE = (
    *("model.preset=llama-tiny", "model.layers=6", "model.hidden_size=72", "train.seed=7"),
    *(f"data.vocabulary_size={VOCABULARY}", f"data.sequence_length={LENGTH}"),
    *("model.dtype=float32", "train.batch_size=8", "pipeline.microbatches=4"),
    *("memory.loss=plain", "memory.compile=false", "pipeline.split=even"),
)
"""A hidden size of which the second tile is mostly filled up."""


def _case(schedule: str, transfer: str, *more: str) -> tuple[str, ...]:
    return (*_BASE, f"pipeline.schedule={schedule}", f"pipeline.transfer={transfer}", *more)


ORDERED = {
    "gpipe": _case("gpipe", "int4"),
    "1f1b": _case("1f1b", "int8-int4", "adapters.rank=4"),
    "eager-1f1b": _case(
        *("eager-1f1b", "int8-int4", "pipeline.in_flight=[4,2]"),
        *("train.accumulation=2", "train.batch_size=16", "memory.checkpointing=full"),
    ),
    "eager-zero-bubble": _case("eager-zero-bubble", "int4", "pipeline.deferred=[0,3]"),
    "8 bits, tied": _case("eager-1f1b", "int8", "model.tie_embeddings=true"),
    "bfloat16": _case("eager-1f1b", "bfloat16"),
    "off": _case("eager-1f1b", "none"),
    "a list": _case("interleaved-1f1b", '["int8-int4", "none", "int4"]'),
}
"""Torch computes their gradients in the order of microbatches: equal to the last bit."""

_OTHER = {
    "looped-bfs": _case("looped-bfs", "int8"),
    "interleaved-zero-bubble": _case("interleaved-zero-bubble", "int8-int4"),
    "zbv": _case("zbv", "int4"),
    "dualpipev": _case("dualpipev", '["int8", "none", "int4"]'),
}
_SIDE_BY_SIDE = {
    "replicas": _case("eager-1f1b", "int4", "data_parallel.replicas=2", "train.batch_size=16"),
    "shards": _case("1f1b", "int8-int4", "data_parallel.shards=2", "train.batch_size=16"),
}
CASES = {2: ORDERED | _OTHER, 4: _SIDE_BY_SIDE}
"""By the number of ranks: two nodes with as many each."""

RESUMED = (
    *_BASE,
    *("model.layers=2", "pipeline.schedule=eager-1f1b", "pipeline.transfer=int8-int4"),
    *("train.steps=4", "checkpoint.interval_steps=2", "checkpoint.keep=9", "train.device=cpu"),
    *("optimizer.warmup_steps=1", "report.to=[]", "output.at_end=false"),
    *("evaluation.interval_steps=0",),
)


class Outcome(msgspec.Struct):
    """The worst of all ranks and steps, or what each rank has."""

    gradient_error: float
    """Largest difference over the largest value, worst of all parameters."""
    loss_error: float
    evaluation_error: float
    """Of the loss on the same batch, where nothing is compressed."""
    sent_bytes: dict[int, dict[int, int]]
    expected_bytes: dict[int, dict[int, int]]
    coded: dict[int, int]
    """How often a step encodes and decodes."""
    compared: dict[int, list[tuple[int, bool, float]]]
    """Boundary, whether of gradients, and decibels."""


class Resumed(msgspec.Struct):
    """Losses of each step."""

    unbroken: tuple[float, ...]
    resumed: tuple[float, ...]
    uncompressed: tuple[float, ...]
