"""Sections of a recipe: every field with its type, range and default. Pure; imports no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from jupyter_mntrain.model._record import UserRecord
from jupyter_mntrain.model.api import LAST_PORT
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.records.checkpoint import MOST_STEPS
from jupyter_mntrain.model.text.spelling import use_nearest
from jupyter_mntrain.recipe.schedules import KINDS, ScheduleName
from jupyter_mntrain.recipe.transfers import Transfer

# The data section of a recipe, and what files hold data.


PYTHON_LIBRARY = "python-library"
ANSWERS: Final = "assistant"
Role = Literal["system", "user", "assistant", "tool"]
"""Who speaks, as chat templates take it."""

TooLong = Literal["cut", "truncate", "drop", "split"]
Seed = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class DataSource(UserRecord, frozen=True):
    """One of several sources of data.

    Args:
        weight: its share of the sequences that are trained on, next to the weights of the others.
    """

    path: Annotated[str, Meta(min_length=1)]
    weight: Annotated[float, Meta(gt=0.0, le=1e6)] = 1.0


_Names = tuple[Annotated[str, Meta(min_length=1)], ...]


class RoleNames(UserRecord, frozen=True):
    """Names that rows have for who speaks, in addition to the usual ones and before them."""

    system: _Names = ()
    user: _Names = ()
    assistant: _Names = ()
    tool: _Names = ()

    def by_name(self) -> dict[str, Role]:
        roles: tuple[Role, ...] = ("system", "user", "assistant", "tool")
        return {name: role for role in roles for name in getattr(self, role)}


class DataSection(UserRecord, frozen=True):
    """The training data. Every node reads its own copy; the trainer compares them.

    ``source`` is ``python-library`` or a path: a text, .jsonl, .json, .csv or .parquet file, a
    folder of them, or a dataset saved by Hugging Face datasets, of which ``split`` is used. All but
    .parquet may be compressed as .gz or .zst.

    ``sources`` are several in its place, each with a ``path`` and a ``weight``: what share of the
    sequences is from each is its weight divided by the sum of all. ``evaluation_path`` is text to
    evaluate on in place of a held-out share.

    ``format`` ``chat`` reads conversations (``messages``, ``conversations``, or ``prompt`` and
    ``completion``) and renders them with ``chat_template`` (a .jinja file), the model's own chat
    template, or ChatML. With ``answers_only``, the loss counts only the assistant's turns.
    ``roles`` says who speaks in turns of other names than the usual ones.

    ``packing`` ``wrapped`` cuts one long text into sequences; ``best-fit`` fills each sequence with
    whole documents that do not attend to each other; ``none`` gives each document its own sequence.
    ``auto`` is ``wrapped`` for text, ``best-fit`` for chat. Whole documents longer than a sequence
    become several, with ``too_long`` ``cut``; ``truncate`` keeps their first tokens, ``drop`` none,
    and ``split`` makes several conversations, between turns.

    With ``split_special_tokens``, special tokens such as ``</s>`` are text where people wrote them,
    in documents and messages; else they are the control tokens that only templates and the trainer
    should write.

    ``on_bad_rows`` ``refuse`` names all rows that cannot be trained on; ``skip`` leaves them out,
    and refuses if they are more than the share ``bad_rows_limit`` of all rows.

    ``tokenizer`` ``auto`` uses the model directory's, or trains one of ``vocabulary_size`` on the
    source.
    """

    source: Annotated[str, Meta(min_length=1)] = PYTHON_LIBRARY
    sources: tuple[DataSource, ...] = ()
    evaluation_path: Annotated[str, Meta(min_length=1)] | None = None
    format: Literal["text", "chat"] = "text"
    text_field: Annotated[str, Meta(min_length=1)] = "text"
    split: Annotated[str, Meta(min_length=1)] = "train"
    roles: RoleNames = RoleNames()
    chat_template: Annotated[str, Meta(min_length=1)] | None = None
    answers_only: bool = False
    split_special_tokens: bool = True
    on_bad_rows: Literal["refuse", "skip"] = "refuse"
    bad_rows_limit: Annotated[float, Meta(gt=0.0, lt=1.0)] = 0.05
    packing: Literal["auto", "wrapped", "best-fit", "none"] = "auto"
    too_long: TooLong = "cut"
    sequence_length: Annotated[int, Meta(ge=8, le=131072)] = 256
    tokenizer: Literal["auto", "train"] = "auto"
    vocabulary_size: Annotated[int, Meta(ge=257, le=262144)] = 2048
    seed: Seed = 0

    @property
    def paths(self) -> tuple[str, ...]:
        """All paths that are read, for training and evaluation."""
        trained = tuple(one.path for one in self.sources) or (self.source,)
        return trained if self.evaluation_path is None else (*trained, self.evaluation_path)

    def of_path(self, path: str) -> DataSection:
        """Return the section with a single other source."""
        return msgspec.structs.replace(self, source=path, sources=())

    @property
    def is_wrapped(self) -> bool:
        """Whether sequences are cut from one long text, across documents."""
        return self.packing == "wrapped" or (self.packing == "auto" and self.format == "text")

    @property
    def is_packed(self) -> bool:
        """Whether a sequence has several documents that must not attend to each other."""
        return not self.is_wrapped and self.packing != "none"


# The section of adapters, and which linear layers of a model have one. Pure; imports no torch.


End = Literal["embedding", "head"]
"""An end of the model: its token embedding, or its output projection."""
LinearShape = tuple[int, int]
"""The numbers of outputs and inputs of a linear layer."""

NF4_BLOCK = 64
"""Values that share a scale, as in the paper of QLoRA."""
NF4_SCALE_BLOCK = 256
"""Most scales that share a second-level scale; from the same paper."""
NF4_VALUES = 16
"""Number of values that four bits can represent."""

_INDEX_BYTES, _COPIES = 8, 3
"""For each value, while torchao gives back a whole weight: of what it is looked up by, an int64 for
each in two tensors of half as many; and how often it is there itself."""


class AdaptersSection(UserRecord, frozen=True):
    """LoRA adapters (arXiv 2106.09685), by peft: small matrices alongside frozen linear layers.

    ``rank`` 0 has none, and trains all weights. A layer's output gets ``alpha`` / ``rank`` times
    that of its adapter; ``alpha`` defaults to twice the rank. ``dropout`` applies to the adapters'
    inputs. ``modules`` is a list of linear layers like ``["q_proj", "v_proj"]``, or
    ``"all-linear"``: all but the output projection. ``quantize_base = "nf4"`` keeps the frozen
    weights of these layers in 4 bits (QLoRA, arXiv 2305.14314), by torchao. ``train_whole`` lists
    what is trained in full next to adapters, as with peft's ``modules_to_save``: ``embedding`` and
    ``head``, of which a tied model has one for both.
    """

    rank: Annotated[int, Meta(ge=0, le=65536)] = 0
    alpha: Annotated[float, Meta(gt=0.0, le=1e6)] | None = None
    dropout: Annotated[float, Meta(ge=0.0, lt=1.0)] = 0.0
    modules: Literal["all-linear"] | tuple[Annotated[str, Meta(min_length=1)], ...] = "all-linear"
    quantize_base: Literal["none", "nf4"] = "none"
    train_whole: tuple[End, ...] = ()

    @property
    def chosen_alpha(self) -> float:
        return 2.0 * self.rank if self.alpha is None else self.alpha

    @property
    def scale(self) -> float:
        """The factor of an adapter's output."""
        return self.chosen_alpha / self.rank

    @property
    def quantizes(self) -> bool:
        """Whether the weights that adapters apply to are kept in 4 bits."""
        return self.quantize_base != "none"

    def trains(self, end: End, *, is_tied: bool) -> bool:
        """Whether the embedding or the head has gradients."""
        return not self.rank or (bool(self.train_whole) if is_tied else end in self.train_whole)


def check_adapters(section: AdaptersSection) -> None:
    """Refuse adapter fields if there are no adapters.

    Raises:
        RecipeError: naming the field and what to change.
    """
    usual = AdaptersSection()
    for field in ("alpha", "dropout", "modules", "quantize_base", "train_whole"):
        if not section.rank and getattr(section, field) != getattr(usual, field):
            cause = f"adapters.{field}: there are no adapters, because adapters.rank is 0"
            raise RecipeError(cause, fix=f"set a rank, for example 16, or leave {field} out")
    if not section.modules:
        cause = "adapters.modules = []: no layer would have an adapter"
        raise RecipeError(cause, fix='use "all-linear", or name layers: ["q_proj", "v_proj"]')


def check_base(section: AdaptersSection, model_type: str, *, transposed: bool) -> None:
    """Refuse to quantize weights that torchao cannot multiply with.

    Args:
        transposed: whether linear layers of the model hold their weights as (in, out).

    Raises:
        RecipeError: they are transposed.
    """
    if section.quantizes and transposed:
        cause = f'adapters.quantize_base = "{section.quantize_base}": {model_type} holds its '
        cause += "weights transposed, which torchao does not compute with in 4 bits"
        raise RecipeError(cause, fix="leave quantize_base out, or use a model of another family")


def adapted(section: AdaptersSection, linears: Mapping[str, LinearShape]) -> list[str]:
    """Return the names of the linear layers that have an adapter.

    Args:
        linears: the shapes of those that may have one, by name, like ``self_attn.q_proj``.

    Raises:
        RecipeError: a module that is asked for is not there, is smaller than the rank, or cannot
            be quantized.
    """
    found = list(linears)
    if section.modules != "all-linear":
        for module in section.modules:
            if not any(_is_named(name, module) for name in linears):
                raise _unknown(module, linears)
        found = [name for name in linears if any(_is_named(name, m) for m in section.modules)]
    for name in found:
        if section.rank > min(linears[name]):
            given, taken = linears[name]
            cause = f"adapters.rank = {section.rank}: {_last(name)} is {given} x {taken}, "
            cause += "and an adapter of a higher rank than its layer adds nothing"
            most = min(min(linears[one]) for one in found)
            raise RecipeError(cause, fix=f"use at most {most}, or other adapters.modules")
        if section.quantizes and math.prod(linears[name]) % NF4_BLOCK:
            given, taken = linears[name]
            cause = f'adapters.quantize_base = "{section.quantize_base}": {_last(name)} is '
            cause += (
                f"{given} x {taken}, which is not a whole number of blocks of {NF4_BLOCK} values"
            )
            raise RecipeError(cause, fix="leave quantize_base out, or use other adapters.modules")
    return found


def nf4_scale_block(linear: LinearShape) -> int:
    """Return how many scales of an NF4 weight share a second-level scale."""
    return math.gcd(math.prod(linear) // NF4_BLOCK, NF4_SCALE_BLOCK)


def nf4_bytes(linear: LinearShape, width: int) -> int:
    """Return the bytes of an NF4 weight.

    Args:
        width: of a value that it is computed with.
    """
    values = math.prod(linear)
    scales = values // NF4_BLOCK
    # Of a byte each, except for the scales of the scales, their mean and the 16 values themselves.
    return values // 2 + scales + width * (scales // nf4_scale_block(linear) + 1 + NF4_VALUES)


def dequantizing_bytes(linear: LinearShape, width: int) -> int:
    """Return the peak bytes while an NF4 weight is dequantized.

    Args:
        width: of each of its values.
    """
    return math.prod(linear) * (_INDEX_BYTES + _COPIES * width)


def adapter_shapes(rank: int, linear: LinearShape) -> tuple[LinearShape, LinearShape]:
    """Return the shapes of an adapter's two matrices for a linear layer."""
    given, taken = linear
    return (rank, taken), (given, rank)


def _is_named(name: str, module: str) -> bool:
    return name == module or name.endswith(f".{module}")


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _unknown(module: str, linears: Mapping[str, LinearShape]) -> RecipeError:
    known = list(dict.fromkeys(map(_last, linears)))
    cause = f'adapters.modules: no layer of the model has a linear layer "{module}"'
    fix = use_nearest(module, known, f'use "all-linear", or some of {", ".join(known)}', most=1)
    return RecipeError(cause, fix=fix)


# Sections of what a run leaves: checkpoints, evaluations, the trained model, reports.


REPORT_PROJECT = "mntrain"
"""The default project of reports."""


class CheckpointSection(UserRecord, frozen=True):
    """Checkpoints, from which an interrupted run resumes: weights, optimizer, position in the data.

    ``directory`` may be shared by all nodes or local to each; each run gets its own folder in it.
    By default, checkpoints are stored next to the jobs on each node, and stay.
    ``interval_steps`` 0 saves at the end only. ``interval_minutes`` above 0 takes its place: a
    checkpoint is saved once as many minutes have passed since the last one. So does
    ``failure_hours``, the mean time between failures: then the interval follows from how long a
    save holds training up (Young 1974). ``keep`` is the number of checkpoints to keep, and
    ``keep_best`` how many of the lowest evaluation losses stay next to them. With ``copies`` 2,
    each shard also goes to the next node, so that a node may be lost with its disk; in a shared
    directory nothing is sent. ``copy_to`` is a directory of durable storage that all nodes share:
    each checkpoint is copied there, into the run's own folder.
    """

    directory: Annotated[str, Meta(min_length=1)] | None = None
    interval_steps: Annotated[int, Meta(ge=0, le=MOST_STEPS)] = 100
    interval_minutes: Annotated[float, Meta(ge=0.0, le=10080.0)] = 0.0
    failure_hours: Annotated[float, Meta(ge=0.0, le=100_000.0)] = 0.0
    at_end: bool = True
    keep: Annotated[int, Meta(ge=1, le=1000)] = 2
    keep_best: Annotated[int, Meta(ge=0, le=1000)] = 0
    copies: Annotated[int, Meta(ge=1, le=2)] = 1
    copy_to: Annotated[str, Meta(min_length=1)] | None = None

    @property
    def counts_time(self) -> bool:
        """Whether checkpoints are scheduled by time instead of steps."""
        return self.interval_minutes > 0 or self.failure_hours > 0


def check_checkpoint(section: CheckpointSection) -> None:
    """Refuse directories that are relative or identical, and two intervals at once.

    Raises:
        RecipeError: naming the field and what to change.
    """
    places = []
    for field in ("directory", "copy_to"):
        given = getattr(section, field)
        if given is not None and not given.startswith(("/", "~")):
            cause = f"checkpoint.{field} = {given!r}: a relative path is not allowed"
            raise RecipeError(cause, fix="use an absolute path, from / or ~")
        places.append(given and PurePath(given))
    if places[0] is not None and places[0] == places[1]:
        cause = "checkpoint.copy_to is checkpoint.directory: a copy there would be the same"
        raise RecipeError(cause, fix="name another directory, or leave copy_to out")
    if section.interval_minutes and section.failure_hours:
        cause = "checkpoint.interval_minutes and checkpoint.failure_hours both say when to save"
        raise RecipeError(cause, fix="set one of them to 0")


class OutputSection(UserRecord, frozen=True):
    """The trained model, as a Hugging Face directory that transformers, vLLM and others can load.

    ``directory`` defaults to a folder ``model`` next to the checkpoints. A directory that is not
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
    ``sequences`` are used. After ``stop_after`` evaluations in a row that are no better than the
    best so far, the run ends as after its last step; 0 never does.

    ``prompts`` are texts that the model continues at each evaluation, greedily and with at most
    ``prompt_tokens`` new tokens; for chat, each is the user's turn. Each token takes a pass through
    the pipeline.
    """

    interval_steps: Annotated[int, Meta(ge=0, le=MOST_STEPS)] = 0
    share: Annotated[float, Meta(gt=0.0, le=0.5)] = 0.05
    sequences: _Count = 64
    stop_after: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    prompts: tuple[str, ...] = ()
    prompt_tokens: Annotated[int, Meta(ge=1, le=4096)] = 40


ReportKind = Literal["tensorboard", "wandb", "trackio", "prometheus"]


class ReportSection(UserRecord, frozen=True):
    """Reports that rank 0 sends elsewhere: a list in ``to``, ``[]`` for none.

    It defaults to ``["tensorboard"]`` if that is installed: event files in the folder
    ``tensorboard`` next to the checkpoints. ``project`` and ``run_name`` name the run in W&B,
    Trackio and Prometheus; they default to ``mntrain`` and the run's id. Prometheus scrapes
    ``/metrics`` at ``prometheus_address`` on the node of rank 0.
    """

    to: tuple[ReportKind, ...] | None = None
    project: Annotated[str, Meta(min_length=1)] | None = None
    run_name: Annotated[str, Meta(min_length=1)] | None = None
    prometheus_port: Annotated[int, Meta(ge=1, le=LAST_PORT)] = 9400
    prometheus_address: Annotated[str, Meta(min_length=1)] = "127.0.0.1"


# The section of data parallelism, and what replicas that sync rarely exclude. Pure.


BLOCK, SCALE_BYTES = 1024, 4
"""Number of int8 values that share a scale, and the scale's bytes."""

SENT_BYTES = {"float32": 4.0, "bfloat16": 2.0, "int8": 1 + SCALE_BYTES / BLOCK}
"""Bytes per value at a sync of replicas."""

OF_SYNCS = (
    *("outer_learning_rate", "outer_momentum", "sync_dtype"),
    *("sync_fragments", "sync_delay"),
)
"""Fields without effect if replicas sum gradients in every step."""


class DataParallelSection(UserRecord, frozen=True):
    """Data parallelism: ``replicas`` x ``shards`` pipelines, each on its own part of every batch.

    Ranks of a node get the same stage first, so that gradients are summed within a node and only
    activations cross the network. ``replicas`` hold the same weights. ``shards`` ranks
    shard weights and optimizer state (FSDP2), and gather the weights to compute: of one node where
    it has enough, else over the network. With ``reshard_after_forward``, each layer's weights are
    gathered for each pass and dropped after it, so that less memory is needed and more is sent.

    With ``sync_every`` above 0, each replica trains alone, and all average what they learned after
    every so many steps, and after the last one (DiLoCo, arXiv 2311.08105): for replicas with a slow
    network between them. The ranks of a replica then follow each other, so that nodes hold whole
    ones. SGD with Nesterov momentum, by ``outer_learning_rate`` and ``outer_momentum``, takes the
    mean of the differences to the weights of the last sync, which are sent in ``sync_dtype``:
    as ``int8``, with a scale for every :data:`BLOCK` of them.

    With ``sync_fragments`` above 1, the weights sync in so many fragments one after another, each
    once in ``sync_every`` steps (arXiv 2501.18512). With ``sync_delay`` above 0, an average is made
    behind computing, and taken so many steps after the differences were.
    """

    replicas: Annotated[int, Meta(ge=1, le=1024)] = 1
    shards: Annotated[int, Meta(ge=1, le=1024)] = 1
    reshard_after_forward: bool = False
    sync_every: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    outer_learning_rate: Annotated[float, Meta(gt=0.0, le=10.0)] = 0.7
    outer_momentum: Annotated[float, Meta(ge=0.0, lt=1.0)] = 0.9
    sync_dtype: Literal["float32", "bfloat16", "int8"] = "float32"
    sync_fragments: Annotated[int, Meta(ge=1, le=1024)] = 1
    sync_delay: Annotated[int, Meta(ge=0, le=1_000_000)] = 0

    @property
    def width(self) -> int:
        """The number of pipelines."""
        return self.replicas * self.shards

    @property
    def syncs_rarely(self) -> bool:
        """Whether replicas train independently between syncs, without summing gradients."""
        return self.sync_every > 0

    @property
    def fragment_steps(self) -> int:
        """The steps between the syncs of one fragment and the next; 0 without rare syncs."""
        return self.sync_every // self.sync_fragments

    def fragment_due(self, step: int) -> int | None:
        """Return the number of the fragment that is synced after ``step`` steps, if any."""
        if not (self.syncs_rarely and step) or step % self.fragment_steps:
            return None
        return (step // self.fragment_steps - 1) % self.sync_fragments

    @property
    def sent_bytes(self) -> float:
        """The bytes per value that replicas average at a sync."""
        return SENT_BYTES[self.sync_dtype]

    @property
    def sums_gradients(self) -> bool:
        """Whether pipelines sum gradients in every step."""
        return self.shards > 1 or (self.replicas > 1 and not self.syncs_rarely)

    @property
    def given(self) -> str:
        """The numbers of replicas and shards, as a recipe writes them."""
        sizes = {"replicas": self.replicas, "shards": self.shards}
        return " x ".join(f"data_parallel.{name} = {n}" for name, n in sizes.items() if n > 1)


def check_syncs(section: DataParallelSection, evaluation: EvaluationSection) -> None:
    """Refuse syncs of one replica, settings of syncs without any, and evaluations between syncs.

    Raises:
        RecipeError: naming the field and what to change.
    """
    every, usual = section.sync_every, DataParallelSection()
    of_syncs = [one for one in OF_SYNCS if getattr(section, one) != getattr(usual, one)]
    given = f"data_parallel.sync_every = {every}"
    if section.replicas == 1 and (section.syncs_rarely or of_syncs):
        fields = (["sync_every"] if section.syncs_rarely else []) + of_syncs
        cause = f"data_parallel.{fields[0]}: a single replica has no other to sync with"
        fix = f"set data_parallel.replicas, for example to 2, or leave {_listed(fields)} out"
        raise RecipeError(cause, fix=fix)
    if not section.syncs_rarely:
        if of_syncs:
            cause = f"data_parallel.{of_syncs[0]}: replicas sum gradients in every step, because "
            cause += "data_parallel.sync_every is 0"
            fix = f"set sync_every, for example to 50, or leave {_listed(of_syncs)} out"
            raise RecipeError(cause, fix=fix)
        return
    _check_fragments(section)
    between = evaluation.interval_steps
    if between % every:
        cause = f"evaluation.interval_steps = {between}: with {given} the replicas have different "
        cause += "weights between syncs"
        nearest = max(1, round(between / every)) * every
        raise RecipeError(cause, fix=f"use a multiple of {every}, for example {nearest}")


def _check_fragments(section: DataParallelSection) -> None:
    """Refuse fragments that do not divide the steps evenly, and too long delays."""
    every, fragments, delay = section.sync_every, section.sync_fragments, section.sync_delay
    given = f"data_parallel.sync_every = {every}"
    if every % fragments:
        cause = f"data_parallel.sync_fragments = {fragments}: {given} is not a multiple of it, and "
        cause += "fragments sync at equal intervals"
        nearest = max(1, round(every / fragments)) * fragments
        fitting = max(one for one in range(1, fragments) if every % one == 0)
        raise RecipeError(cause, fix=f"use {fitting} fragments, or sync_every = {nearest}")
    if delay >= section.fragment_steps:
        cause = f"data_parallel.sync_delay = {delay}: the next fragment syncs "
        cause += f"{section.fragment_steps} step{'s' * (section.fragment_steps > 1)} later, with "
        cause += f"{given} and sync_fragments = {fragments}"
        raise RecipeError(cause, fix=f"use at most {section.fragment_steps - 1}")


def _listed(fields: Sequence[str]) -> str:
    *others, last = fields
    return f"{', '.join(others)} and {last}" if others else last


# Recipe sections: every field with its type, range and default.


OptimizerKind = Literal["adamw", "adafactor", "adamw-8bit", "adamw-4bit"]
LearningRateSchedule = Literal["cosine", "linear", "constant", "wsd", "polynomial"]
AttentionKind = Literal["sdpa", "eager", "varlen", "flex_attention", "flash_attention_2"]
LossKind = Literal["plain", "chunked", "liger"]
Precision = Literal["float32-master", "stochastic-rounding", "plain"]
Dtype = Literal["float32", "bfloat16"]
Checkpointing = Literal["none", "full", "selective"]

MOST_MICROBATCHES = 8
"""The maximum if no plan sets the number."""

MOST_WARMUP_STEPS = 100
"""The maximum of the default."""

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
    torchrun by hand, ``schedule`` is ``eager-1f1b``, ``microbatches`` at most 8, ``split`` ``even``
    and ``transfer`` ``none``.

    ``eager-1f1b`` is 1F1B that sends as many microbatches ahead as the measured links between nodes
    need; on one node it is 1F1B. ``in_flight`` sets that by hand, one number per stage.
    ``eager-zero-bubble`` does so, too, and fills idle time with the gradients of the weights of
    linear layers, which nobody waits for: ``deferred`` is how many microbatches' each stage
    defers at most, 0 for none.
    ``stages_per_rank`` is 2 for ``zbv`` and ``dualpipev``, 2 or more (default 2) for the other
    schedules with several stages per rank, and otherwise 1. ``split`` is the number of layers of
    each stage.

    ``transfer`` is how stages on different nodes send: ``int8`` in 8 bits, ``int4`` in 4, and
    ``int8-int4`` activations in 8 and gradients in 4. A list says it for each boundary between two
    stages, whatever nodes they are on. Evaluations and samples are sent as they are computed.
    """

    schedule: Literal["auto"] | ScheduleName = "auto"
    microbatches: Literal["auto"] | Annotated[int, Meta(ge=1, le=65536)] = "auto"
    stages_per_rank: Annotated[int, Meta(ge=1, le=64)] | None = None
    split: Literal["auto", "even"] | tuple[Annotated[int, Meta(ge=1, le=1000)], ...] = "auto"
    in_flight: Literal["auto"] | tuple[Annotated[int, Meta(ge=1, le=65536)], ...] = "auto"
    deferred: Literal["auto"] | tuple[Annotated[int, Meta(ge=0, le=65536)], ...] = "auto"
    transfer: Literal["auto"] | Transfer | tuple[Transfer, ...] = "auto"


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
        """The number of optimizer steps.

        With epochs, only the ranks know it, after reading the data; where it may be unknown, use
        ``train.steps``.
        """
        assert self.train.steps is not None  # noqa: S101
        return self.train.steps

    @property
    def schedule(self) -> ScheduleName:
        """The pipeline schedule; ``auto`` is eager 1F1B until the job is planned."""
        return "eager-1f1b" if self.pipeline.schedule == "auto" else self.pipeline.schedule

    @property
    def microbatches(self) -> int:
        """The microbatches in one pass over the pipeline; ``auto`` is at most 8 until planned."""
        given = self.pipeline.microbatches
        if given != "auto":
            return given
        share = self.train.batch_size // (self.data_parallel.width * self.train.accumulation)
        return max(one for one in range(1, MOST_MICROBATCHES + 1) if share % one == 0)

    @property
    def split(self) -> Literal["even"] | tuple[int, ...]:
        """The number of layers in each stage; ``auto`` is ``even`` until the job is planned."""
        return "even" if self.pipeline.split == "auto" else self.pipeline.split

    @property
    def transfer(self) -> Transfer | tuple[Transfer, ...]:
        """How stages send to each other; ``auto`` is ``none`` until the job is planned."""
        return "none" if self.pipeline.transfer == "auto" else self.pipeline.transfer

    @property
    def checkpointing(self) -> Checkpointing:
        """What the backward pass recomputes; ``auto`` is nothing until the job is planned."""
        return "none" if self.memory.checkpointing == "auto" else self.memory.checkpointing

    def recomputed(self, layers: int) -> int:
        """Return how many of a stage's layers are recomputed in the backward pass."""
        return 0 if self.checkpointing == "none" else -(-layers // self.memory.checkpointing_every)

    @property
    def microbatch_size(self) -> int:
        """The number of sequences per microbatch."""
        return self.train.batch_size // self.microbatches_per_step

    @property
    def microbatches_per_step(self) -> int:
        """The number of microbatches per optimizer step, over all pipelines."""
        return self.data_parallel.width * self.train.accumulation * self.microbatches

    @property
    def warmup_steps(self) -> int:
        given = self.optimizer.warmup_steps
        return min(MOST_WARMUP_STEPS, self.steps // 10) if given is None else given

    @property
    def decay_steps(self) -> int:
        """The number of steps over which ``wsd`` decays."""
        return max(1, round(self.optimizer.decay_share * self.steps))

    @property
    def dtype(self) -> Dtype:
        """The dtype of the weights; ``auto`` is ``float32`` until the job's GPUs are known."""
        return "float32" if self.model.dtype == "auto" else self.model.dtype

    @property
    def compiles(self) -> bool:
        """Whether layers are compiled; ``auto`` is false until the job's GPUs are known."""
        return self.memory.compile is True

    @property
    def precision(self) -> Precision:
        """How weights are stored between steps, with ``auto`` resolved."""
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
        """Whether adapters are trained, and other weights frozen (but ``adapters.train_whole``)."""
        return self.adapters.rank > 0

    @property
    def trains_tied(self) -> bool:
        """Whether a tied embedding is trained."""
        return self.adapters.trains("embedding", is_tied=True)

    def pipeline_ranks(self, world_size: int) -> int:
        """Return the number of ranks per pipeline."""
        return world_size // self.data_parallel.width

    def stages(self, world_size: int) -> int:
        """Return the number of stages per pipeline; a single rank is one stage."""
        ranks = self.pipeline_ranks(world_size)
        return 1 if ranks == 1 else ranks * self.stages_per_rank


# Changeable: which settings change while a job runs, and why the others do not.


CHANGEABLE: Final = frozenset(
    {
        "train.steps",
        "train.log_interval",
        "optimizer.learning_rate",
        "optimizer.schedule",
        "optimizer.warmup_steps",
        "optimizer.min_ratio",
        "optimizer.decay_share",
        "optimizer.power",
        "optimizer.clip_norm",
        "checkpoint.interval_steps",
        "checkpoint.interval_minutes",
        "checkpoint.failure_hours",
        "checkpoint.keep",
        "checkpoint.keep_best",
        "checkpoint.at_end",
        "evaluation.interval_steps",
        "evaluation.stop_after",
    }
)
"""Settings that every step, save and evaluation reads again, as ``section.field``."""

FIXED: Final = {
    "model": "the model is built before the first step",
    "data": "data is read and divided into batches before the first step",
    "tokens": "the model is built before the first step",
    "pipeline": "stages and microbatches are laid out before the first step",
    "data_parallel": "pipelines and their syncs are set up before the first step",
    "optimizer": "the optimizer is made before the first step",
    "adapters": "the model is built before the first step",
    "memory": "memory is laid out before the first step",
    "train": "ranks, devices and random numbers are set up before the first step",
    "train.epochs": "data is read, and the steps of epochs are counted, before the first step",
    "train.batch_size": "data is read and divided into batches before the first step",
    "train.accumulation": "stages and microbatches are laid out before the first step",
    "checkpoint": "the directory of checkpoints is opened before the first step",
    "evaluation": "what is held out is chosen before the first step",
    "output": "the directory of the model is checked before the first step",
    "report": "reports are opened before the first step",
}
"""Why the other settings cannot change, by section or setting."""


def why_fixed(name: str) -> str:
    """Return why a setting cannot change while a job runs; empty if it can."""
    if name in CHANGEABLE:
        return ""
    return FIXED.get(name) or FIXED[name.partition(".")[0]]


_Count = Annotated[int, Meta(ge=1, le=1_000_000)]
