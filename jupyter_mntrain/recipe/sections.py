"""Recipe sections: every field with its type, range and default."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from jupyter_mntrain.model._record import UserRecord
from jupyter_mntrain.model.api import LAST_PORT
from jupyter_mntrain.recipe.schedules import KINDS, ScheduleName

PYTHON_LIBRARY = "python-library"

OptimizerKind = Literal["adamw", "adafactor", "adamw-8bit", "adamw-4bit"]
LossKind = Literal["plain", "chunked", "liger"]
Precision = Literal["float32-master", "stochastic-rounding", "plain"]

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
    attention: Literal["sdpa", "eager", "flex_attention", "flash_attention_2"] = "sdpa"
    layers: Annotated[int, Meta(ge=1, le=1000)] | None = None
    hidden_size: Annotated[int, Meta(ge=8, le=65536)] | None = None
    intermediate_size: Annotated[int, Meta(ge=8, le=262144)] | None = None
    heads: Annotated[int, Meta(ge=1, le=1024)] | None = None
    key_value_heads: Annotated[int, Meta(ge=1, le=1024)] | None = None
    tie_embeddings: bool | None = None


class DataSection(UserRecord, frozen=True):
    """What it is trained on. Every node reads its own copy; the trainer compares them.

    ``source`` is ``python-library`` or a path: a .txt, .md, .jsonl, .json or .parquet file, a
    folder of them, or a dataset saved by Hugging Face datasets, of which ``split`` is taken.

    ``format`` ``chat`` reads conversations (``messages``, ``conversations``, or ``prompt`` and
    ``completion``) and writes them with the model's own chat template, ``chat_template`` (a .jinja
    file), or ChatML. With ``answers_only`` the loss counts on what the assistant says alone.

    ``packing`` ``wrapped`` cuts one long text into sequences; ``best-fit`` fills each sequence with
    whole documents, none of which sees another; ``none`` gives each a sequence of its own. ``auto``
    is ``wrapped`` for text, ``best-fit`` for chat. Documents longer than a sequence are cut.

    ``tokenizer`` ``auto`` takes the model directory's own, or trains one of ``vocabulary_size`` on
    the source.
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


class PipelineSection(UserRecord, frozen=True):
    """How the layers are cut and the microbatches ordered.

    ``eager-1f1b`` is 1F1B that sends as many microbatches ahead as the links between nodes need,
    which it measures; on one node it is 1F1B. ``in_flight`` says that by hand, one number per
    stage. ``stages_per_rank`` is 1, 2 for ``zbv`` and ``dualpipev``, and 2 or more for the other
    schedules with several (default 2). ``split`` is the number of layers of each stage.
    """

    schedule: ScheduleName = "eager-1f1b"
    microbatches: Annotated[int, Meta(ge=1, le=65536)] = 8
    stages_per_rank: Annotated[int, Meta(ge=1, le=64)] | None = None
    split: Literal["even"] | tuple[Annotated[int, Meta(ge=1, le=1000)], ...] = "even"
    in_flight: Literal["auto"] | tuple[Annotated[int, Meta(ge=1, le=65536)], ...] = "auto"


class DataParallelSection(UserRecord, frozen=True):
    """How many pipelines train side by side, each on its own part of every batch: ``replicas`` x
    ``shards``.

    The ranks of a node get the same stage first, so that gradients are added up inside a node, and
    activations alone cross the network. ``replicas`` hold the same weights. ``shards`` ranks, of
    one node, split weights and optimizer among themselves (FSDP2), and gather the weights to
    compute.
    """

    replicas: Annotated[int, Meta(ge=1, le=1024)] = 1
    shards: Annotated[int, Meta(ge=1, le=1024)] = 1

    @property
    def width(self) -> int:
        """Pipelines."""
        return self.replicas * self.shards


class OptimizerSection(UserRecord, frozen=True):
    """What updates the weights: linear warm-up, then a cosine down to ``min_ratio`` of the rate.

    ``warmup_steps`` left out is a tenth of all steps, at most 100. ``clip_norm`` 0 never clips.
    ``adafactor`` has rates of its own: ``betas`` and ``epsilon`` are not for it, and the learning
    rate is relative to the size of a weight. ``precision`` is about bfloat16 weights, and ``auto``
    for those is ``float32-master``.
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
    """What memory is saved, and what for.

    ``checkpointing`` ``full`` keeps of each layer what goes into it and computes the rest again in
    the backward pass; ``selective`` also keeps matrix products and attention.
    ``offload_activations`` moves what is kept from a GPU to the host. ``loss`` ``chunked`` holds
    the logits of ``chunk_tokens`` tokens at once; ``auto`` is ``liger`` where it is installed and
    there is CUDA, and ``chunked`` where the logits of a microbatch are more than 128 MiB.
    ``compile`` compiles each layer. ``fused_backward`` updates a weight as soon as its gradient is
    there, and forgets that.
    """

    checkpointing: Literal["none", "full", "selective"] = "none"
    offload_activations: bool = False
    loss: Literal["auto"] | LossKind = "auto"
    chunk_tokens: _Count = 1024
    compile: bool = False
    fused_backward: bool = False


class TrainSection(UserRecord, frozen=True):
    """How long and where. ``batch_size`` is sequences per optimizer step, of all pipelines.

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
    ``interval_steps`` 0 saves at the end only. ``keep`` is how many stay. With ``copies`` 2 each
    shard also goes to the next node, so that a node may be lost with its disk; in a directory that
    they share nothing is sent.
    """

    directory: Annotated[str, Meta(min_length=1)] | None = None
    interval_steps: Annotated[int, Meta(ge=0, le=100_000_000)] = 100
    at_end: bool = True
    keep: Annotated[int, Meta(ge=1, le=1000)] = 2
    copies: Annotated[int, Meta(ge=1, le=2)] = 1


class OutputSection(UserRecord, frozen=True):
    """The trained model, as a Hugging Face directory: transformers, vLLM and others load it.

    Left out, ``directory`` is a folder ``model`` beside the checkpoints. One of the user's that
    holds something already is refused, unless it may be replaced. Where each node has a directory
    of its own, the head's gets the whole model; with ``gather`` false each keeps its own part.
    ``shard_gb`` is the most that one file holds.
    """

    at_end: bool = True
    directory: Annotated[str, Meta(min_length=1)] | None = None
    replace: bool = False
    gather: bool = True
    shard_gb: Annotated[float, Meta(gt=0.0, le=1000.0)] = 5.0


class EvaluationSection(UserRecord, frozen=True):
    """The loss on text that is not trained on: before the first step, between steps, at the end.

    ``interval_steps`` 0 never does it. ``share`` of the text, its end, is kept for it, and of that
    at most ``sequences`` are taken.

    ``prompts`` are texts that the model goes on from each time, with at most ``prompt_tokens`` new
    tokens, always the likeliest; for chat each is the user's turn. Each token takes a pass through
    the pipeline.
    """

    interval_steps: Annotated[int, Meta(ge=0, le=100_000_000)] = 0
    share: Annotated[float, Meta(gt=0.0, le=0.5)] = 0.05
    sequences: _Count = 64
    prompts: tuple[str, ...] = ()
    prompt_tokens: Annotated[int, Meta(ge=1, le=4096)] = 40


ReportKind = Literal["tensorboard", "wandb", "trackio", "prometheus"]


class ReportSection(UserRecord, frozen=True):
    """Who else is told how training goes, by rank 0: a list in ``to``, ``[]`` for nobody.

    Left out it is ``["tensorboard"]``, where that is installed: event files in the folder
    ``tensorboard`` beside the checkpoints. ``project`` and ``run_name`` are what W&B, Trackio and
    Prometheus call the run: left out, ``mntrain`` and the job's id. Prometheus finds ``/metrics``
    at ``prometheus_address`` on the node of rank 0.
    """

    to: tuple[ReportKind, ...] | None = None
    project: Annotated[str, Meta(min_length=1)] | None = None
    run_name: Annotated[str, Meta(min_length=1)] | None = None
    prometheus_port: Annotated[int, Meta(ge=1, le=LAST_PORT)] = 9400
    prometheus_address: Annotated[str, Meta(min_length=1)] = "127.0.0.1"


class Recipe(UserRecord, frozen=True):
    """Everything the default trainer needs to know, as read from TOML."""

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
        """Sequences in one microbatch."""
        return self.train.batch_size // self.microbatches_per_step

    @property
    def microbatches_per_step(self) -> int:
        """Of all pipelines together."""
        return self.data_parallel.width * self.train.accumulation * self.pipeline.microbatches

    @property
    def warmup_steps(self) -> int:
        given = self.optimizer.warmup_steps
        return min(100, self.train.steps // 10) if given is None else given

    @property
    def precision(self) -> Precision:
        """How weights are kept between steps; float32 ones as they are."""
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
        """Ranks in each pipeline, of ``world_size`` in all."""
        return world_size // self.data_parallel.width

    def stages(self, world_size: int) -> int:
        """Stages of each pipeline on ``world_size`` ranks in all; a single rank is one stage."""
        ranks = self.pipeline_ranks(world_size)
        return 1 if ranks == 1 else ranks * self.stages_per_rank
