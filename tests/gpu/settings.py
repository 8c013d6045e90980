"""Settings of the recipes that the GPU acceptance trains."""

from __future__ import annotations

from collections.abc import Sequence

from tests.gpu.findings import Bench
from tests.gpu.ranks import Case

STEPS = 4
TIMEOUT_S = 60
"""For a silent rank: shorter than a case's limit, so that the reason is torch's own."""

EXACT = 1e-4
"""Of losses in float32, without TF32."""
ROUNDED = 1e-2
"""Of losses in bfloat16 or TF32."""

WITHOUT_TF32 = {"NVIDIA_TF32_OVERRIDE": "0"}
"""So that matrix products of float32 are those of a CPU, whatever the trainer allows."""

REPEATABLE = ("model.attention=eager",)
"""The fast kernels of attention add up gradients in any order, so no two runs are bit-equal."""

_COMMON = (
    "model.preset=llama-tiny",
    "model.dtype=float32",
    "model.tie_embeddings=false",
    "data.vocabulary_size=320",
    "data.sequence_length=64",
    "pipeline.schedule=1f1b",
    "pipeline.microbatches=2",
    "train.batch_size=8",
    f"train.steps={STEPS}",
    f"train.timeout_s={TIMEOUT_S}",
    "optimizer.warmup_steps=0",
    "optimizer.min_ratio=1.0",
    "memory.loss=plain",
    "report.to=[]",
    "output.at_end=false",
)


def settings(bench: Bench, *changes: str, device: str | None = None) -> list[str]:
    """Settings of a tiny model, in float32 and with plain loss, with changes."""
    own = [f"data.source={_text(bench)}", f"train.device={device or bench.device}"]
    return [*_COMMON, *own, *changes]


def case(bench: Bench, name: str, changes: Sequence[str] = (), **more: object) -> Case:
    """A case that trains a tiny model."""
    return {"name": name, "settings": settings(bench, *changes), **more}


def _text(bench: Bench) -> str:
    """A text to train on, the same everywhere."""
    path = bench.directory / "text.txt"
    if not path.exists():
        lines = (f"bubble {n} schedule {n * n} microbatch {n % 7}\n" for n in range(4000))
        path.write_text("".join(lines))
    return str(path)
