"""Recipe sections: every field with its type, range and default."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from jupyter_mntrain.model._record import UserRecord
from jupyter_mntrain.recipe.parts.adapters import AdaptersSection
from jupyter_mntrain.recipe.parts.data import DataSection, Seed
from jupyter_mntrain.recipe.parts.data_parallel import DataParallelSection
from jupyter_mntrain.recipe.parts.results import (
    MOST_STEPS,
    CheckpointSection,
    EvaluationSection,
    OutputSection,
    ReportSection,
)
from jupyter_mntrain.recipe.schedules import KINDS, ScheduleName

OptimizerKind = Literal["adamw", "adafactor", "adamw-8bit", "adamw-4bit"]
LearningRateSchedule = Literal["cosine", "linear", "constant", "wsd", "polynomial"]
AttentionKind = Literal["sdpa", "eager", "varlen", "flex_attention", "flash_attention_2"]
LossKind = Literal["plain", "chunked", "liger"]
Precision = Literal["float32-master", "stochastic-rounding", "plain"]
Dtype = Literal["float32", "bfloat16"]
Checkpointing = Literal["none", "full", "selective"]

MOST_MICROBATCHES = 8
"""Where nothing plans their number."""

MOST_WARMUP_STEPS = 100
"""Where nothing is said."""

_Count = Annotated[int, Meta(ge=1, le=1_000_000)]
_Beta = Annotated[float, Meta(ge=0.0, lt=1.0)]


class ModelSection(UserRecord, frozen=True):
    """The model: a preset trained from scratch, or a Hugging Face directory to continue from.

    ``path`` may also be ``org/name`` or ``org/name@revision`` of the hub, which a launch fetches.
    ``layers`` to ``tie_embeddings`` override a preset; a directory defines them itself. ``dtype``
    applies to parameters, activations and transfers; ``auto`` is ``bfloat16`` if every rank has a
    GPU of compute capability 8.0 or newer, else ``float32``. ``attention`` ``auto`` is the
    fastest kernel of all ranks that keeps packed documents apart.
    """

    preset: str | None = None
    path: str | None = None
    dtype: Literal["auto"] | Dtype = "auto"
    attention: Literal["auto"] | AttentionKind = "auto"
    layers: Annotated[int, Meta(ge=1, le=1000)] | None = None
    hidden_size: Annotated[int, Meta(ge=8, le=65536)] | None = None
    intermediate_size: Annotated[int, Meta(ge=8, le=262144)] | None = None
    heads: Annotated[int, Meta(ge=1, le=1024)] | None = None
    key_value_heads: Annotated[int, Meta(ge=1, le=1024)] | None = None
    tie_embeddings: bool | None = None


class TokensSection(UserRecord, frozen=True):
    """Tokens that the tokenizer gets besides its own, like ``<|im_start|>`` and ``<|im_end|>``.

    Embedding and output projection get a row for each, at first the mean of all others.
    """

    add: tuple[Annotated[str, Meta(min_length=1, max_length=100)], ...] = ()


class PipelineSection(UserRecord, frozen=True):
    """The pipeline: how layers are split and microbatches ordered.

    A launch plans what is ``auto`` by the measured devices and links. Where nothing plans, as under
    torchrun by hand, ``schedule`` is ``eager-1f1b``, ``microbatches`` at most 8, and ``split`` is
    ``even``.

    ``eager-1f1b`` is 1F1B that sends as many microbatches ahead as the measured links between nodes
    need; on one node it is 1F1B. ``in_flight`` sets that by hand, one number per stage.
    ``eager-zero-bubble`` does so, too, and fills idle time with the gradients of the weights of
    linear layers, which nobody waits for: ``kept_back`` is how many microbatches' each stage puts
    off at most, 0 for none.
    ``stages_per_rank`` is 2 for ``zbv`` and ``dualpipev``, 2 or more (default 2) for the other
    schedules with several stages per rank, and otherwise 1. ``split`` is the number of layers of
    each stage.
    """

    schedule: Literal["auto"] | ScheduleName = "auto"
    microbatches: Literal["auto"] | Annotated[int, Meta(ge=1, le=65536)] = "auto"
    stages_per_rank: Annotated[int, Meta(ge=1, le=64)] | None = None
    split: Literal["auto", "even"] | tuple[Annotated[int, Meta(ge=1, le=1000)], ...] = "auto"
    in_flight: Literal["auto"] | tuple[Annotated[int, Meta(ge=1, le=65536)], ...] = "auto"
    kept_back: Literal["auto"] | tuple[Annotated[int, Meta(ge=0, le=65536)], ...] = "auto"


class OptimizerSection(UserRecord, frozen=True):
    """The optimizer. The learning rate warms up linearly, then follows ``schedule``.

    All schedules but ``constant`` end at ``min_ratio`` of the learning rate. ``polynomial`` falls
    with the power ``power`` of the steps left; ``wsd`` (warm-up, stable, decay) stays, and falls in
    a line over the last ``decay_share`` of all steps.
    ``warmup_steps`` defaults to a tenth of all steps, at most 100. ``clip_norm`` 0 disables
    clipping. ``grad_dtype`` is the dtype in which gradients are summed over microbatches and
    replicas; ``auto`` is that of the weights. ``adafactor`` ignores ``betas`` and ``epsilon``, and
    its learning rate is relative to the size of a weight. ``precision`` applies to bfloat16
    weights; ``auto`` is ``float32-master``, or ``stochastic-rounding`` if a GPU's memory is too
    small for the masters.
    """

    kind: OptimizerKind = "adamw"
    precision: Literal["auto"] | Precision = "auto"
    learning_rate: Annotated[float, Meta(gt=0.0, le=10.0)] = 1e-3
    betas: tuple[_Beta, _Beta] = (0.9, 0.95)
    epsilon: Annotated[float, Meta(gt=0.0, le=1.0)] = 1e-8
    weight_decay: Annotated[float, Meta(ge=0.0, le=10.0)] = 0.1
    schedule: LearningRateSchedule = "cosine"
    warmup_steps: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    clip_norm: Annotated[float, Meta(ge=0.0, le=1e9)] = 1.0
    min_ratio: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.1
    decay_share: Annotated[float, Meta(gt=0.0, le=1.0)] = 0.2
    power: Annotated[float, Meta(gt=0.0, le=100.0)] = 2.0
    grad_dtype: Literal["auto", "float32"] = "auto"


class MemorySection(UserRecord, frozen=True):
    """Memory savings.

    ``checkpointing`` ``full`` keeps only each layer's input and recomputes the rest in the backward
    pass; ``selective`` also keeps matrix products and attention. A launch plans ``auto``: ``none``
    where memory suffices. With ``checkpointing_every`` 2, that is done in every second layer of a
    stage, beginning with its first. ``offload_activations`` moves stored activations from the GPU
    to the host. ``loss`` ``chunked`` holds the logits of
    ``chunk_tokens`` tokens at a time; ``auto`` is ``liger`` if every rank has it and a GPU,
    else ``chunked`` if the logits of a microbatch exceed 128 MiB, else ``plain``. ``compile``
    compiles each layer, and what ``chunked`` does with a chunk, which takes a minute or more at the
    start; ``auto`` does so in runs of 1000 steps or more if every rank has a GPU of compute
    capability 7.0 or newer and its node has what compiling needs. ``fused_backward`` updates each
    weight as soon as its gradient is complete, and frees the gradient.
    """

    checkpointing: Literal["auto"] | Checkpointing = "auto"
    checkpointing_every: _Count = 1
    offload_activations: bool = False
    loss: Literal["auto"] | LossKind = "auto"
    chunk_tokens: _Count = 1024
    compile: Literal["auto"] | bool = "auto"
    fused_backward: bool = False


class TrainSection(UserRecord, frozen=True):
    """Duration and device. ``batch_size`` is sequences per optimizer step, over all pipelines.

    ``epochs`` in place of ``steps``: how often all sequences are trained on, which need not be
    whole. How many ``steps`` that takes is known once the data has been read; ``None`` until then.

    With ``tf32``, GPUs of compute capability 8.0 or newer multiply float32 matrices as TF32:
    several times as fast, with 11 significant bits in place of 24. Elsewhere it has no effect.

    ``timeout_s`` is how long a rank waits for a silent peer before it fails. With ``on_nan``
    "stop", a loss or gradient that is NaN or infinite ends the job on all ranks, before the next
    checkpoint is saved; "report" goes on. ``--on-nan`` at launch overrides it.

    With ``skip_spikes`` 3, a step whose loss or gradient norm is above three times the median of
    the last steps, NaN or infinite leaves the weights as they are, on all ranks; 0 skips none.
    ``skip_limit`` such steps in a row end the job.

    To search an error: ``overfit_batch`` trains on the first batch in every step.
    ``detect_anomaly`` raises an error in the operation whose gradient is the first to be NaN.
    ``deterministic`` uses operations that give the same result each time, and warns where there is
    none. ``launch --debug`` sets the last two.
    """

    steps: Annotated[int, Meta(ge=1, le=MOST_STEPS)] | None = 100
    epochs: Annotated[float, Meta(gt=0.0, le=1e6)] | None = None
    batch_size: _Count = 32
    accumulation: Annotated[int, Meta(ge=1, le=65536)] = 1
    seed: Seed = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    tf32: bool = True
    timeout_s: Annotated[float, Meta(ge=10.0, le=86400.0)] = 600.0
    log_interval: _Count = 10
    on_nan: Literal["stop", "report"] = "stop"
    skip_spikes: Annotated[float, Meta(ge=0.0, le=1e6)] = 0.0
    skip_limit: _Count = 10
    overfit_batch: bool = False
    detect_anomaly: bool = False
    deterministic: bool = False


class Recipe(UserRecord, frozen=True):
    """A recipe: all settings of the default trainer, as read from TOML."""

    model: ModelSection = ModelSection()
    data: DataSection = DataSection()
    tokens: TokensSection = TokensSection()
    pipeline: PipelineSection = PipelineSection()
    data_parallel: DataParallelSection = DataParallelSection()
    optimizer: OptimizerSection = OptimizerSection()
    adapters: AdaptersSection = AdaptersSection()
    memory: MemorySection = MemorySection()
    train: TrainSection = TrainSection()
    checkpoint: CheckpointSection = CheckpointSection()
    evaluation: EvaluationSection = EvaluationSection()
    output: OutputSection = OutputSection()
    report: ReportSection = ReportSection()

    @property
    def tokens_per_step(self) -> int:
        return self.train.batch_size * self.data.sequence_length

    @property
    def steps(self) -> int:
        """Optimizer steps in all. Of epochs only the ranks know them, once they read the data:
        where they may be unknown, ask ``train.steps``.
        """
        assert self.train.steps is not None  # noqa: S101
        return self.train.steps

    @property
    def schedule(self) -> ScheduleName:
        """Of the pipeline; ``auto`` is eager 1F1B until the job is planned."""
        return "eager-1f1b" if self.pipeline.schedule == "auto" else self.pipeline.schedule

    @property
    def microbatches(self) -> int:
        """Of one pass over the pipeline; ``auto`` is at most 8 until the job is planned."""
        given = self.pipeline.microbatches
        if given != "auto":
            return given
        share = self.train.batch_size // (self.data_parallel.width * self.train.accumulation)
        return max(one for one in range(1, MOST_MICROBATCHES + 1) if share % one == 0)

    @property
    def split(self) -> Literal["even"] | tuple[int, ...]:
        """Layers of each stage; ``auto`` is ``even`` until the job is planned."""
        return "even" if self.pipeline.split == "auto" else self.pipeline.split

    @property
    def checkpointing(self) -> Checkpointing:
        """What the backward pass computes again; ``auto`` is nothing until the job is planned."""
        return "none" if self.memory.checkpointing == "auto" else self.memory.checkpointing

    def recomputed(self, layers: int) -> int:
        """How many of a stage's layers are recomputed in the backward pass."""
        return 0 if self.checkpointing == "none" else -(-layers // self.memory.checkpointing_every)

    @property
    def microbatch_size(self) -> int:
        """Sequences per microbatch."""
        return self.train.batch_size // self.microbatches_per_step

    @property
    def microbatches_per_step(self) -> int:
        """Microbatches per optimizer step, over all pipelines."""
        return self.data_parallel.width * self.train.accumulation * self.microbatches

    @property
    def warmup_steps(self) -> int:
        given = self.optimizer.warmup_steps
        return min(MOST_WARMUP_STEPS, self.steps // 10) if given is None else given

    @property
    def decay_steps(self) -> int:
        """Steps over which ``wsd`` falls."""
        return max(1, round(self.optimizer.decay_share * self.steps))

    @property
    def dtype(self) -> Dtype:
        """Of the weights; ``auto`` is ``float32`` until the job's GPUs are known."""
        return "float32" if self.model.dtype == "auto" else self.model.dtype

    @property
    def compiles(self) -> bool:
        """Whether layers are compiled; ``auto`` does not until the job's GPUs are known."""
        return self.memory.compile is True

    @property
    def precision(self) -> Precision:
        """How weights are stored between steps; resolves ``auto``."""
        given = self.optimizer.precision
        if given != "auto":
            return given
        return "plain" if self.dtype == "float32" else "float32-master"

    @property
    def stages_per_rank(self) -> int:
        given = self.pipeline.stages_per_rank
        if given is not None:
            return given
        return KINDS[self.schedule].stages_per_rank

    @property
    def trains_adapters(self) -> bool:
        """Whether adapters are trained, and the weights beside them are frozen, but for
        ``adapters.train_whole``.
        """
        return self.adapters.rank > 0

    @property
    def trains_tied(self) -> bool:
        """Whether an embedding that is tied is trained."""
        return self.adapters.trains("embedding", is_tied=True)

    def pipeline_ranks(self, world_size: int) -> int:
        """Ranks per pipeline."""
        return world_size // self.data_parallel.width

    def stages(self, world_size: int) -> int:
        """Stages per pipeline; a single rank is one stage."""
        ranks = self.pipeline_ranks(world_size)
        return 1 if ranks == 1 else ranks * self.stages_per_rank
