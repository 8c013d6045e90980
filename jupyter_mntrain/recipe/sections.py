"""Recipe sections: every field with its type, range and default."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from jupyter_mntrain.model._record import UserRecord
from jupyter_mntrain.model.api import LAST_PORT
from jupyter_mntrain.recipe.schedules import KINDS, ScheduleName

PYTHON_LIBRARY = "python-library"

MOST_STEPS = 100_000_000

REPORT_PROJECT = "mntrain"
"""Of a report whose recipe names none."""

OptimizerKind = Literal["adamw", "adafactor", "adamw-8bit", "adamw-4bit"]
LossKind = Literal["plain", "chunked", "liger"]
Precision = Literal["float32-master", "stochastic-rounding", "plain"]

_Count = Annotated[int, Meta(ge=1, le=1_000_000)]
_Seed = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Beta = Annotated[float, Meta(ge=0.0, lt=1.0)]


class ModelSection(UserRecord, frozen=True):
    """The model: a preset trained from scratch, or a Hugging Face directory to continue from.

    ``layers`` to ``tie_embeddings`` override a preset; a directory defines them itself. ``dtype``
    applies to parameters, activations and transfers.
    """

    preset: str | None = None
    path: str | None = None
    dtype: Literal["float32", "bfloat16"] = "float32"
    attention: Literal["sdpa", "eager", "flex_attention", "flash_attention_2"] = "sdpa"
    layers: Annotated[int, Meta(ge=1, le=1000)] | None = None
    hidden_size: Annotated[int, Meta(ge=8, le=65536)] | None = None
    intermediate_size: Annotated[int, Meta(ge=8, le=262144)] | None = None
    heads: Annotated[int, Meta(ge=1, le=1024)] | None = None
    key_value_heads: Annotated[int, Meta(ge=1, le=1024)] | None = None
    tie_embeddings: bool | None = None


class DataSection(UserRecord, frozen=True):
    """The training data. Every node reads its own copy; the trainer compares them.

    ``source`` is ``python-library`` or a path: a .txt, .md, .jsonl, .json or .parquet file, a
    folder of them, or a dataset saved by Hugging Face datasets, of which ``split`` is used.

    ``format`` ``chat`` reads conversations (``messages``, ``conversations``, or ``prompt`` and
    ``completion``) and renders them with ``chat_template`` (a .jinja file), the model's own chat
    template, or ChatML. With ``answers_only``, the loss counts only the assistant's turns.

    ``packing`` ``wrapped`` cuts one long text into sequences; ``best-fit`` fills each sequence with
    whole documents that do not attend to each other; ``none`` gives each document its own sequence.
    ``auto`` is ``wrapped`` for text, ``best-fit`` for chat. Documents longer than a sequence are
    cut.

    ``tokenizer`` ``auto`` uses the model directory's, or trains one of ``vocabulary_size`` on the
    source.
    """

    source: Annotated[str, Meta(min_length=1)] = PYTHON_LIBRARY
    format: Literal["text", "chat"] = "text"
    text_field: Annotated[str, Meta(min_length=1)] = "text"
    split: Annotated[str, Meta(min_length=1)] = "train"
    chat_template: Annotated[str, Meta(min_length=1)] | None = None
    answers_only: bool = False
    packing: Literal["auto", "wrapped", "best-fit", "none"] = "auto"
    sequence_length: Annotated[int, Meta(ge=8, le=131072)] = 256
    tokenizer: Literal["auto", "train"] = "auto"
    vocabulary_size: Annotated[int, Meta(ge=257, le=262144)] = 2048
    seed: _Seed = 0

    @property
    def is_wrapped(self) -> bool:
        """Whether sequences are cut from one long text, across documents."""
        return self.packing == "wrapped" or (self.packing == "auto" and self.format == "text")

    @property
    def is_packed(self) -> bool:
        """Whether a sequence has several documents that must not attend to each other."""
        return not self.is_wrapped and self.packing != "none"


class PipelineSection(UserRecord, frozen=True):
    """The pipeline: how layers are split and microbatches ordered.

    ``eager-1f1b`` is 1F1B that sends as many microbatches ahead as the measured links between nodes
    need; on one node it is 1F1B. ``in_flight`` sets that by hand, one number per stage.
    ``stages_per_rank`` is 2 for ``zbv`` and ``dualpipev``, 2 or more (default 2) for the other
    schedules with several stages per rank, and otherwise 1. ``split`` is the number of layers of
    each stage.
    """

    schedule: ScheduleName = "eager-1f1b"
    microbatches: Annotated[int, Meta(ge=1, le=65536)] = 8
    stages_per_rank: Annotated[int, Meta(ge=1, le=64)] | None = None
    split: Literal["even"] | tuple[Annotated[int, Meta(ge=1, le=1000)], ...] = "even"
    in_flight: Literal["auto"] | tuple[Annotated[int, Meta(ge=1, le=65536)], ...] = "auto"


class DataParallelSection(UserRecord, frozen=True):
    """Data parallelism: ``replicas`` x ``shards`` pipelines, each on its own part of every batch.

    Ranks of a node get the same stage first, so that gradients are summed within a node and only
    activations cross the network. ``replicas`` hold the same weights. ``shards`` ranks of one node
    shard weights and optimizer state (FSDP2), and gather the weights to compute.
    """

    replicas: Annotated[int, Meta(ge=1, le=1024)] = 1
    shards: Annotated[int, Meta(ge=1, le=1024)] = 1

    @property
    def width(self) -> int:
        """Number of pipelines."""
        return self.replicas * self.shards


class OptimizerSection(UserRecord, frozen=True):
    """The optimizer, with linear warm-up, then a cosine down to ``min_ratio`` of the learning rate.

    ``warmup_steps`` defaults to a tenth of all steps, at most 100. ``clip_norm`` 0 disables
    clipping. ``adafactor`` ignores ``betas`` and ``epsilon``, and its learning rate is relative to
    the size of a weight. ``precision`` applies to bfloat16 weights; ``auto`` is ``float32-master``.
    """

    kind: OptimizerKind = "adamw"
    precision: Literal["auto"] | Precision = "auto"
    learning_rate: Annotated[float, Meta(gt=0.0, le=10.0)] = 1e-3
    betas: tuple[_Beta, _Beta] = (0.9, 0.95)
    epsilon: Annotated[float, Meta(gt=0.0, le=1.0)] = 1e-8
    weight_decay: Annotated[float, Meta(ge=0.0, le=10.0)] = 0.1
    warmup_steps: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    clip_norm: Annotated[float, Meta(ge=0.0, le=1e9)] = 1.0
    min_ratio: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.1


class MemorySection(UserRecord, frozen=True):
    """Memory savings.

    ``checkpointing`` ``full`` keeps only each layer's input and recomputes the rest in the backward
    pass; ``selective`` also keeps matrix products and attention. ``offload_activations`` moves
    stored activations from the GPU to the host. ``loss`` ``chunked`` holds the logits of
    ``chunk_tokens`` tokens at a time; ``auto`` is ``liger`` if it is installed and there is CUDA,
    else ``chunked`` if the logits of a microbatch exceed 128 MiB, else ``plain``. ``compile``
    compiles each layer. ``fused_backward`` updates each weight as soon as its gradient is complete,
    and frees the gradient.
    """

    checkpointing: Literal["none", "full", "selective"] = "none"
    offload_activations: bool = False
    loss: Literal["auto"] | LossKind = "auto"
    chunk_tokens: _Count = 1024
    compile: bool = False
    fused_backward: bool = False


class TrainSection(UserRecord, frozen=True):
    """Duration and device. ``batch_size`` is sequences per optimizer step, over all pipelines.

    ``timeout_s`` is how long a rank waits for a silent peer before it fails. With ``on_nan``
    "stop", a loss or gradient that is NaN or infinite ends the job on all ranks, before the next
    checkpoint is saved; "report" goes on. ``--on-nan`` at launch overrides it.
    """

    steps: Annotated[int, Meta(ge=1, le=MOST_STEPS)] = 100
    batch_size: _Count = 32
    accumulation: Annotated[int, Meta(ge=1, le=65536)] = 1
    seed: _Seed = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    timeout_s: Annotated[float, Meta(ge=10.0, le=86400.0)] = 600.0
    log_interval: _Count = 10
    on_nan: Literal["stop", "report"] = "stop"


class CheckpointSection(UserRecord, frozen=True):
    """Checkpoints, from which an interrupted run resumes: weights, optimizer, position in the data.

    ``directory`` may be shared by all nodes or local to each; each run gets its own folder in it.
    By default, checkpoints are stored beside the jobs on each node, and stay.
    ``interval_steps`` 0 saves at the end only. ``keep`` is the number of checkpoints to keep. With
    ``copies`` 2, each shard also goes to the next node, so that a node may be lost with its disk;
    in a shared directory nothing is sent.
    """

    directory: Annotated[str, Meta(min_length=1)] | None = None
    interval_steps: Annotated[int, Meta(ge=0, le=MOST_STEPS)] = 100
    at_end: bool = True
    keep: Annotated[int, Meta(ge=1, le=1000)] = 2
    copies: Annotated[int, Meta(ge=1, le=2)] = 1


class OutputSection(UserRecord, frozen=True):
    """The trained model, as a Hugging Face directory that transformers, vLLM and others can load.

    ``directory`` defaults to a folder ``model`` beside the checkpoints. A directory that is not
    empty is refused unless ``replace`` is true, or the same run wrote it. If it is local to each
    node, the head's gets the whole model; with ``gather`` false, each node keeps its own part.
    ``shard_gb`` is the largest size of a file.
    """

    at_end: bool = True
    directory: Annotated[str, Meta(min_length=1)] | None = None
    replace: bool = False
    gather: bool = True
    shard_gb: Annotated[float, Meta(gt=0.0, le=1000.0)] = 5.0


class EvaluationSection(UserRecord, frozen=True):
    """Evaluation: the loss on held-out text, before the first step, between steps, and at the end.

    ``interval_steps`` 0 disables it. The last ``share`` of the text is held out, of which at most
    ``sequences`` are used.

    ``prompts`` are texts that the model continues at each evaluation, greedily and with at most
    ``prompt_tokens`` new tokens; for chat, each is the user's turn. Each token takes a pass through
    the pipeline.
    """

    interval_steps: Annotated[int, Meta(ge=0, le=MOST_STEPS)] = 0
    share: Annotated[float, Meta(gt=0.0, le=0.5)] = 0.05
    sequences: _Count = 64
    prompts: tuple[str, ...] = ()
    prompt_tokens: Annotated[int, Meta(ge=1, le=4096)] = 40


ReportKind = Literal["tensorboard", "wandb", "trackio", "prometheus"]


class ReportSection(UserRecord, frozen=True):
    """Reports that rank 0 sends elsewhere: a list in ``to``, ``[]`` for none.

    It defaults to ``["tensorboard"]`` if that is installed: event files in the folder
    ``tensorboard`` beside the checkpoints. ``project`` and ``run_name`` name the run in W&B,
    Trackio and Prometheus; they default to ``mntrain`` and the run's id. Prometheus scrapes
    ``/metrics`` at ``prometheus_address`` on the node of rank 0.
    """

    to: tuple[ReportKind, ...] | None = None
    project: Annotated[str, Meta(min_length=1)] | None = None
    run_name: Annotated[str, Meta(min_length=1)] | None = None
    prometheus_port: Annotated[int, Meta(ge=1, le=LAST_PORT)] = 9400
    prometheus_address: Annotated[str, Meta(min_length=1)] = "127.0.0.1"


class Recipe(UserRecord, frozen=True):
    """A recipe: all settings of the default trainer, as read from TOML."""

    model: ModelSection = ModelSection()
    data: DataSection = DataSection()
    pipeline: PipelineSection = PipelineSection()
    data_parallel: DataParallelSection = DataParallelSection()
    optimizer: OptimizerSection = OptimizerSection()
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
    def microbatch_size(self) -> int:
        """Sequences per microbatch."""
        return self.train.batch_size // self.microbatches_per_step

    @property
    def microbatches_per_step(self) -> int:
        """Microbatches per optimizer step, over all pipelines."""
        return self.data_parallel.width * self.train.accumulation * self.pipeline.microbatches

    @property
    def warmup_steps(self) -> int:
        given = self.optimizer.warmup_steps
        return min(100, self.train.steps // 10) if given is None else given

    @property
    def precision(self) -> Precision:
        """How weights are stored between steps; resolves ``auto``."""
        given = self.optimizer.precision
        if given != "auto":
            return given
        return "plain" if self.model.dtype == "float32" else "float32-master"

    @property
    def stages_per_rank(self) -> int:
        given = self.pipeline.stages_per_rank
        if given is not None:
            return given
        return KINDS[self.pipeline.schedule].stages_per_rank

    def pipeline_ranks(self, world_size: int) -> int:
        """Ranks per pipeline."""
        return world_size // self.data_parallel.width

    def stages(self, world_size: int) -> int:
        """Stages per pipeline; a single rank is one stage."""
        ranks = self.pipeline_ranks(world_size)
        return 1 if ranks == 1 else ranks * self.stages_per_rank
