"""Metrics records: one JSON object per line, tagged by ``kind``, written by ranks.

Times are seconds since the Unix epoch (``time_s``) or durations (``…_s``).
"""

from __future__ import annotations

from math import isfinite
from typing import get_args

import msgspec

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.job import PartStatus
from jupyter_mntrain.model.records.node import Capacity
from jupyter_mntrain.model.records.number import Number, carried


class RankStart(Record, frozen=True, tag_field="kind", tag="start"):
    """Written once, before the first step: who this rank is and what a step is worth.

    ``peak_flops_per_s`` is ``None`` when nobody knows it: then there is no MFU, never a wrong one.
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
    """Indices of the decoder layers this rank holds."""
    parameters: int | None = None
    flops_per_token: float | None = None
    """Model FLOPs per token of this rank's own stages, forward and backward."""
    tokens_per_step: int | None = None
    total_steps: int | None = None
    schedule: str | None = None
    microbatches: int | None = None
    neighbors: tuple[int, ...] = ()
    """Ranks this one exchanges activations and gradients with."""
    saves: bool = False
    """Whether it saves a checkpoint when it is asked to."""


class RankStep(Record, frozen=True, tag_field="kind", tag="step"):
    """One optimizer step of one rank.

    ``compute_s`` is time inside forward and backward of this rank's stages; what is left of
    ``step_s`` is waiting, sending, the optimizer and the bubble. ``sent_bytes`` and
    ``received_bytes`` are payload per peer rank, counted from the tensors' own sizes; empty if
    nobody counts. ``loss`` and ``grad_norm`` may be NaN or infinite, and are then carried by name.
    """

    time_s: float
    rank: Rank
    step: int
    step_s: float
    tokens: int | None = None
    loss: Number | None = None
    compute_s: float | None = None
    wait_s: float | None = None
    optimizer_s: float | None = None
    flops: float | None = None
    """Model FLOPs this rank did in this step."""
    sent_bytes: dict[int, int] = {}
    received_bytes: dict[int, int] = {}
    memory_bytes: int | None = None
    grad_norm: Number | None = None
    learning_rate: float | None = None

    def __post_init__(self) -> None:
        _carry(self, "loss", self.loss)
        _carry(self, "grad_norm", self.grad_norm)


class RankEvaluation(Record, frozen=True, tag_field="kind", tag="evaluation"):
    """The loss on text that is not trained on, after ``step`` steps; 0 = before the first one."""

    time_s: float
    rank: Rank
    step: int
    loss: Number

    def __post_init__(self) -> None:
        _carry(self, "loss", self.loss)


class RankText(Record, frozen=True, tag_field="kind", tag="text"):
    """What the model writes after so many steps, when it is asked to go on from ``prompt``."""

    time_s: float
    rank: Rank
    step: int
    prompt: str
    text: str


class RankProgress(Record, frozen=True, tag_field="kind", tag="progress"):
    """How far a rank is with something that is not a step: loading, reading, measuring.

    ``what`` is for people: "loading the model". ``done`` and ``total`` are in ``unit``, "B" for
    bytes; ``done`` equal to ``total`` ends it. Without a ``total`` nobody knows how much it is.
    """

    time_s: float
    rank: Rank
    what: str
    done: float
    total: float | None = None
    unit: str = ""

    @property
    def is_over(self) -> bool:
        """Whether this is the last that will be heard of it."""
        return self.total is not None and self.done >= self.total


class RankSaved(Record, frozen=True, tag_field="kind", tag="saved"):
    """A checkpoint that all ranks agreed is whole: ``step`` steps will not be lost any more."""

    time_s: float
    rank: Rank
    step: int


class RankEnd(Record, frozen=True, tag_field="kind", tag="end"):
    """Written when the recorder closes; its absence after exit means the rank was killed."""

    time_s: float
    rank: Rank
    ok: bool
    message: str = ""


class LinkSample(Record, frozen=True, tag_field="kind", tag="link"):
    """Counters of the interface a job trains over, once a second, both directions apart."""

    time_s: float
    interface: str
    interval_s: float
    sent_bytes: int
    received_bytes: int
    """Bytes in ``interval_s``, not totals."""
    capacity: Capacity | None = None


class PartChange(Record, frozen=True, tag_field="kind", tag="part"):
    """This node's part of the job changed state, or a rank did."""

    time_s: float
    part: PartStatus


def _carry(record: Record, name: str, value: Number | None) -> None:
    """JSON has no NaN: msgspec would write ``null``, which means not known."""
    if isinstance(value, float) and not isfinite(value):
        msgspec.structs.force_setattr(record, name, carried(value))


RankSample = RankStart | RankStep | RankEvaluation | RankText | RankProgress | RankSaved | RankEnd
"""What a rank may say. The rest of a journal is ours to say."""

Sample = RankSample | LinkSample | PartChange


class JournalLine(Record, frozen=True):
    """A sample as the agent keeps it: numbered per job and node, so that readers can resume.

    ``source`` and ``offset`` say up to which byte of which rank file the journal has read: a
    restarted agent goes on from there.
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
    """A line of an agent's journal; ``None`` for a kind of sample that only newer agents know.

    Raises:
        msgspec.DecodeError: it is no such line, or one of a kind known here with wrong fields.
    """
    try:
        return journal_decoder.decode(line)
    except msgspec.ValidationError:
        if _any_line_decoder.decode(line).body.kind in _kinds:
            raise
        return None
