"""Metrics records: one JSON object per line, tagged by ``kind``, written by ranks.

Times are seconds since the Unix epoch (``time_s``) or durations (``…_s``).
"""

from __future__ import annotations

from math import isfinite
from typing import Literal, get_args

import msgspec

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.job import PartStatus, RunningChange
from jupyter_mntrain.model.records.node import Capacity, LinkMeasurement
from jupyter_mntrain.model.records.number import Number, carried
from jupyter_mntrain.model.records.sequences import DataPreview

MOST_PROMPTS = 8
"""Prompts that a model answers during training: more would be too many samples to read."""


class RankStart(Record, frozen=True, tag_field="kind", tag="start"):
    """A rank's first line: its identity, its share of the model, and its device.

    Without a known ``peak_flops_per_s`` there is no MFU.
    """

    time_s: float
    rank: Rank
    local_rank: int
    world_size: int
    pid: int
    host: str
    device: str = "cpu"
    peak_flops_per_s: float | None = None
    peak_source: str | None = None
    stages: tuple[int, ...] = ()
    layers: tuple[int, ...] = ()
    """Indices of this rank's decoder layers."""
    parameters: int | None = None
    flops_per_token: float | None = None
    """Model FLOPs per token of this rank's stages, forward and backward."""
    tokens_per_step: int | None = None
    total_steps: int | None = None
    schedule: str | None = None
    microbatches: int | None = None
    neighbors: tuple[int, ...] = ()
    """Ranks that this one exchanges activations and gradients with."""
    saves: bool = False
    """Whether it saves a checkpoint on request."""
    resumed_step: int | None = None
    """Finished steps of the checkpoint that it has loaded; ``None`` = it begins at step 1."""
    meets_every: int | None = None
    """Steps between two syncs of replicas that train apart, after which a step takes longer;
    ``None`` = gradients are summed in every step."""
    data: DataPreview | None = None
    """What it trains on; of rank 0."""
    counts_padding: bool | None = None
    """Whether padding is among the tokens that it reports; ``None`` = the script counts."""


class ComparedTransfer(Record, frozen=True):
    """What a rank sent of a microbatch in fewer bits, compared with what is received of it.

    Args:
        boundary: index of the stage before it.
        is_gradient: else activations.
        ratio_db: signal to noise in decibels: ten times the decimal logarithm of the sums of
            squares of what was sent and of what was lost.
    """

    boundary: int
    is_gradient: bool = False
    ratio_db: float = 0.0


class RankStep(Record, frozen=True, tag_field="kind", tag="step"):
    """One optimizer step of one rank.

    ``compute_s`` is time inside forward and backward of this rank's stages; the rest of ``step_s``
    is waiting, sending, the optimizer and the bubble. What stood between the step before and this
    one (``evaluation_s``, ``sampling_s``, ``saving_s``) is not part of ``step_s``; ``data_s``, the
    wait for its batch, is. ``sent_bytes`` and ``received_bytes`` are
    payload per peer rank, from the tensors' sizes; empty if not counted. ``loss`` and ``grad_norm``
    may be NaN or infinite, which JSON carries as strings.
    """

    time_s: float
    rank: Rank
    step: int
    step_s: float
    tokens: int | None = None
    """Of its pipeline: replicas and shards have tokens of their own."""
    loss: Number | None = None
    compute_s: float | None = None
    wait_s: float | None = None
    optimizer_s: float | None = None
    coding_s: float | None = None
    """Encoding and decoding what is sent in fewer bits; ``None`` = nothing is."""
    compared_transfers: tuple[ComparedTransfer, ...] = ()
    """In some steps, of what this rank sends in fewer bits."""
    data_s: float = 0.0
    evaluation_s: float = 0.0
    sampling_s: float = 0.0
    saving_s: float = 0.0
    flops: float | None = None
    """Model FLOPs of this rank in this step."""
    sent_bytes: dict[int, int] = {}
    received_bytes: dict[int, int] = {}
    memory_bytes: int | None = None
    reserved_bytes: int | None = None
    """Of a GPU, what torch's allocator holds for this: ``memory_bytes``, and gaps."""
    grad_norm: Number | None = None
    learning_rate: float | None = None
    is_counted: bool = False
    """It is step 1 because the recorder began to count: the script may have gone on from another.
    """
    skipped: int | None = None
    """Steps of the run so far that were not applied to the weights; ``None`` = none."""
    skipped_step: int | None = None
    """The last one of them."""

    @property
    def is_skipped(self) -> bool:
        """Whether the step was not applied, so that non-finite values in it do no harm."""
        return self.skipped_step == self.step

    def __post_init__(self) -> None:
        _carry(self, "loss", self.loss)
        _carry(self, "grad_norm", self.grad_norm)


class RankGroup(Record, frozen=True, tag_field="kind", tag="group"):
    """The process group that a rank has joined, after its first steps.

    ``size`` is its number of ranks; 1 also if there is no process group.
    """

    time_s: float
    rank: Rank
    size: int


class RankEvaluation(Record, frozen=True, tag_field="kind", tag="evaluation"):
    """Loss on held-out text after ``step`` steps; 0 = before the first step."""

    time_s: float
    rank: Rank
    step: int
    loss: Number

    def __post_init__(self) -> None:
        _carry(self, "loss", self.loss)


class RankText(Record, frozen=True, tag_field="kind", tag="text"):
    """The model's continuation of ``prompt`` after ``step`` steps."""

    time_s: float
    rank: Rank
    step: int
    prompt: str
    text: str


class RankProgress(Record, frozen=True, tag_field="kind", tag="progress"):
    """A rank's progress with something other than a step, such as loading or measuring.

    ``what`` is for people: "loading the model". ``done`` and ``total`` are in ``unit``, "B" for
    bytes; ``done`` equal to ``total`` ends it. ``total`` is ``None`` if unknown. ``per_s`` is how
    much was done per second until then; readers of a journal derive it.
    """

    time_s: float
    rank: Rank
    what: str
    done: float
    total: float | None = None
    unit: str = ""
    per_s: float | None = None

    @property
    def remaining_s(self) -> float | None:
        """The seconds that the rest takes at this rate."""
        if self.total is None or not self.per_s or self.per_s <= 0:
            return None
        return max(0.0, self.total - self.done) / self.per_s

    @property
    def is_over(self) -> bool:
        """Whether this is the last report of this progress."""
        return self.total is not None and self.done >= self.total


TracedKind = Literal["F", "B", "I", "W", "SEND_F", "SEND_B", "update"]
"""What a rank computes, as in :class:`~jupyter_mntrain.model.records.plan.StepSpan`, or begins to
send: an activation (F) or its gradient (B)."""


class TracedAction(Record, frozen=True, array_like=True):
    """An action of a rank, in JSON a list, as a step has hundreds.

    Args:
        begin_s, end_s: from the step's begin on this rank. A message has no end of its own: it is
            there once its receiver computes with it.
        stage: that computes or sends; -1 for none.
        microbatch: counted over the whole step, also where it accumulates gradients; -1 for none.
        peer: rank that a message goes to; -1 for none.
    """

    kind: TracedKind
    begin_s: float
    end_s: float
    stage: int = -1
    microbatch: int = -1
    peer: int = -1


class RankTrace(Record, frozen=True, tag_field="kind", tag="trace"):
    """One rank's part of a recorded step; every rank records the same steps.

    Args:
        begin_s: Unix time of the step's begin, by the attempt's clock; on a GPU it may be late by
            as much as the host was behind.
        step_s: from the end of the step before.
        actions: in the order of their begin; the first ones of a step that has very many.
    """

    time_s: float
    rank: Rank
    step: int
    begin_s: float
    step_s: float
    actions: tuple[TracedAction, ...] = ()


class RankSaved(Record, frozen=True, tag_field="kind", tag="saved"):
    """A checkpoint of ``step`` steps that is complete on all ranks, or with a ``problem`` could not
    be saved. ``is_scheduled``: nobody had requested it.
    """

    time_s: float
    rank: Rank
    step: int
    is_scheduled: bool = False
    problem: Problem | None = None


class RankSettings(Record, frozen=True, tag_field="kind", tag="settings"):
    """Settings that all ranks applied, or refused, after the same step."""

    time_s: float
    rank: Rank
    change: RunningChange


class RankEnd(Record, frozen=True, tag_field="kind", tag="end"):
    """A rank's last line, written when the recorder closes; missing if the rank was killed."""

    time_s: float
    rank: Rank
    ok: bool
    message: str = ""


class LinkSample(Record, frozen=True, tag_field="kind", tag="link"):
    """Traffic of a job's interface during about a second, by direction."""

    time_s: float
    interface: str
    interval_s: float
    sent_bytes: int
    received_bytes: int
    """Bytes in ``interval_s``, not totals."""
    given: Capacity | None = None
    """Capacity of both directions, given by the user."""
    links: tuple[LinkMeasurement, ...] | None = None
    """Measured when this node sent; ``None``: the same as in the sample before."""


class PartChange(Record, frozen=True, tag_field="kind", tag="part"):
    """A state change of this node's part of the job, or of one of its ranks."""

    time_s: float
    part: PartStatus


def _carry(record: Record, name: str, value: Number | None) -> None:
    """Replace NaN and infinity by their names, as msgspec would write ``null``, which means
    unknown.
    """
    if isinstance(value, float) and not isfinite(value):
        msgspec.structs.force_setattr(record, name, carried(value))


RankSample = (
    RankStart
    | RankStep
    | RankGroup
    | RankEvaluation
    | RankText
    | RankProgress
    | RankSaved
    | RankTrace
    | RankSettings
    | RankEnd
)
"""Lines that ranks write; the agent writes the others."""

Sample = RankSample | LinkSample | PartChange


class JournalLine(Record, frozen=True):
    """A sample in an agent's journal, numbered per job and node, so that readers can resume.

    ``source`` and ``offset`` are the rank file and the byte up to which it was read, so that a
    restarted agent can resume.
    """

    seq: int
    attempt: int
    body: Sample
    source: str | None = None
    offset: int | None = None


class _AnyBody(Record, frozen=True):
    kind: str


class _AnyLine(Record, frozen=True):
    seq: int
    attempt: int
    body: _AnyBody


encoder = msgspec.json.Encoder()
sample_decoder = msgspec.json.Decoder(Sample)
journal_decoder = msgspec.json.Decoder(JournalLine)

_any_line_decoder = msgspec.json.Decoder(_AnyLine)
_kinds = frozenset(one.__struct_config__.tag for one in get_args(Sample))


def read_journal_line(line: bytes) -> JournalLine | None:
    """Decode a line of an agent's journal; ``None`` for a kind of sample from a newer version.

    Raises:
        msgspec.DecodeError: it is not a journal line, or a known kind with wrong fields.
    """
    try:
        return journal_decoder.decode(line)
    except msgspec.ValidationError:
        if _any_line_decoder.decode(line).body.kind in _kinds:
            raise
        return None
