"""The sections of a recipe: every field typed, ranged and with a default that works."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from jupyter_mntrain.model._record import UserRecord

PYTHON_LIBRARY = "python-library"

_Count = Annotated[int, Meta(ge=1, le=1_000_000)]
_Seed = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Beta = Annotated[float, Meta(ge=0.0, lt=1.0)]


class ModelSection(UserRecord, frozen=True):
    """What is trained: a preset from scratch, or a Hugging Face directory to go on from.

    ``layers`` to ``tie_embeddings`` change a preset; a directory says them itself. ``dtype`` is
    that of parameters, activations and transfers alike.
    """

    preset: str | None = None
    path: str | None = None
    dtype: Literal["float32", "bfloat16"] = "float32"
    attention: Literal["sdpa", "eager"] = "sdpa"
    layers: Annotated[int, Meta(ge=1, le=1000)] | None = None
    hidden_size: Annotated[int, Meta(ge=8, le=65536)] | None = None
    intermediate_size: Annotated[int, Meta(ge=8, le=262144)] | None = None
    heads: Annotated[int, Meta(ge=1, le=1024)] | None = None
    key_value_heads: Annotated[int, Meta(ge=1, le=1024)] | None = None
    tie_embeddings: bool | None = None


class DataSection(UserRecord, frozen=True):
    """What it is trained on. Every node reads its own copy; the trainer compares them.

    ``source`` is ``python-library`` or a path: a folder, a .txt or a .jsonl file. ``tokenizer``
    ``auto`` takes the model directory's own, or trains one of ``vocabulary_size`` on the source.
    """

    source: Annotated[str, Meta(min_length=1)] = PYTHON_LIBRARY
    text_field: Annotated[str, Meta(min_length=1)] = "text"
    sequence_length: Annotated[int, Meta(ge=8, le=131072)] = 256
    tokenizer: Literal["auto", "train"] = "auto"
    vocabulary_size: Annotated[int, Meta(ge=257, le=262144)] = 2048
    seed: _Seed = 0


class PipelineSection(UserRecord, frozen=True):
    """How the layers are cut and the microbatches ordered.

    ``stages_per_rank`` is 1, or 2 and more for ``interleaved-1f1b`` (default 2). ``split`` is the
    number of layers of each stage.
    """

    schedule: Literal["gpipe", "1f1b", "interleaved-1f1b"] = "1f1b"
    microbatches: Annotated[int, Meta(ge=1, le=65536)] = 8
    stages_per_rank: Annotated[int, Meta(ge=1, le=64)] | None = None
    split: Literal["even"] | tuple[Annotated[int, Meta(ge=1, le=1000)], ...] = "even"


class OptimizerSection(UserRecord, frozen=True):
    """AdamW with linear warm-up and a cosine down to ``min_ratio`` of the learning rate.

    ``warmup_steps`` left out is a tenth of all steps, at most 100. ``clip_norm`` 0 never clips.
    """

    learning_rate: Annotated[float, Meta(gt=0.0, le=10.0)] = 1e-3
    betas: tuple[_Beta, _Beta] = (0.9, 0.95)
    epsilon: Annotated[float, Meta(gt=0.0, le=1.0)] = 1e-8
    weight_decay: Annotated[float, Meta(ge=0.0, le=10.0)] = 0.1
    warmup_steps: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    clip_norm: Annotated[float, Meta(ge=0.0, le=1e9)] = 1.0
    min_ratio: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.1


class TrainSection(UserRecord, frozen=True):
    """How long and where. ``batch_size`` is sequences per optimiser step, over all microbatches.

    ``timeout_s`` is how long a rank waits for a silent peer before it gives up.
    """

    steps: Annotated[int, Meta(ge=1, le=100_000_000)] = 100
    batch_size: _Count = 32
    accumulation: Annotated[int, Meta(ge=1, le=65536)] = 1
    seed: _Seed = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    timeout_s: Annotated[float, Meta(ge=10.0, le=86400.0)] = 600.0
    log_interval: _Count = 10


class CheckpointSection(UserRecord, frozen=True):
    """What a run that was cut off goes on from: weights, optimizer and place in the data.

    ``directory`` may be shared by all nodes or be each node's own; each job gets a folder of its
    own in it. Left out, checkpoints lie with the job on each node, and go when the job does.
    ``interval_steps`` 0 saves at the end only. ``keep`` is how many stay.
    """

    directory: Annotated[str, Meta(min_length=1)] | None = None
    interval_steps: Annotated[int, Meta(ge=0, le=100_000_000)] = 100
    at_end: bool = True
    keep: Annotated[int, Meta(ge=1, le=1000)] = 2


class Recipe(UserRecord, frozen=True):
    """Everything the default trainer needs to know, as read from TOML."""

    model: ModelSection = ModelSection()
    data: DataSection = DataSection()
    pipeline: PipelineSection = PipelineSection()
    optimizer: OptimizerSection = OptimizerSection()
    train: TrainSection = TrainSection()
    checkpoint: CheckpointSection = CheckpointSection()

    @property
    def tokens_per_step(self) -> int:
        return self.train.batch_size * self.data.sequence_length

    @property
    def microbatch_size(self) -> int:
        """Sequences in one microbatch."""
        return self.train.batch_size // (self.train.accumulation * self.pipeline.microbatches)

    @property
    def warmup_steps(self) -> int:
        given = self.optimizer.warmup_steps
        return min(100, self.train.steps // 10) if given is None else given

    @property
    def stages_per_rank(self) -> int:
        given = self.pipeline.stages_per_rank
        if given is not None:
            return given
        return 2 if self.pipeline.schedule == "interleaved-1f1b" else 1

    def stages(self, world_size: int) -> int:
        """Pipeline stages on ``world_size`` ranks; a single rank is always one stage."""
        return 1 if world_size == 1 else world_size * self.stages_per_rank
