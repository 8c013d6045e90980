"""Downsampled samples: what an agent sends of a job's samples on its node.

Neighboring steps of a rank are one *block*: a row of 64-bit floats, little endian, in the order of
:data:`BLOCK` (or :data:`LINK_BLOCK`). The least of them, :data:`UNKNOWN`, stands for what is not
known; NaN is a value.
"""

from __future__ import annotations

import sys
from typing import Final

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.metrics import (
    LinkSample,
    RankEnd,
    RankEvaluation,
    RankProgress,
    RankStart,
    RankStep,
    RankText,
    RankTrace,
)

# Newest texts of the model that a notebook stores.
MOST_TEXTS: Final = 50
"""Number of the model's newest texts that are kept."""

# Recorded steps that are kept of each rank where its samples are downsampled: the newest.
MOST_TRACES: Final = 3
"""Number of a rank's newest recorded steps that are kept."""

UNKNOWN: Final = -sys.float_info.max
"""An unknown value. NaN is a known one: a loss can be NaN."""

EXTREMES: Final = (
    "step_s", "tokens_per_s", "pace_tokens_per_s", "flops_per_s", "compute", "loss",
)  # fmt: skip
"""Figures of a step whose lowest and highest finite values each block keeps."""

LAST: Final = ("time_s", "step", "position")
"""Figures of a block's last step; ``position`` is the offset after its line in the journal."""

MEANS: Final = (
    "step_s", "tokens", "loss", "compute_s", "optimizer_s", "coding_s", "flops",
    "sent_bytes", "received_bytes",
)  # fmt: skip
"""Means over the steps that report them; bytes are those to and from all peers."""

MOST: Final = ("memory_bytes", "busy_flops_per_s")
"""The highest; the latter per second of computing: see
:func:`metrics.downsampled.blocks.busy_rate`."""

FIRST: Final = ("first_loss", "first_not_finite_step")
"""The first known value."""

PAUSES: Final = ("data_s", "evaluation_s", "sampling_s", "saving_s")
"""Seconds that a step waited for its batch, and that stood between it and the one before."""

SUMS: Final = ("not_finite", *PAUSES)
"""Steps with a loss or a gradient norm that is NaN or infinite; and seconds."""

LOWS: Final = tuple(f"low_{name}" for name in EXTREMES)
HIGHS: Final = tuple(f"high_{name}" for name in EXTREMES)
BLOCK: Final = (*LAST, *MEANS, *MOST, *FIRST, *SUMS, *LOWS, *HIGHS)

LINK_BLOCK: Final = ("time_s", "interval_s", "sent_bytes", "received_bytes")
"""Figures of an interface: the last time, and sums."""


class Blocks(Record, frozen=True):
    """Rows of blocks, ``size`` steps each.

    The first block begins with step number ``begin`` of the rank's steps in the attempt, counted
    from 0. ``width`` is the number of figures per row.
    """

    size: int = 1
    begin: int = 0
    data: bytes = b""
    width: int = 0


class RankSamples(Record, frozen=True):
    """The samples of one rank: its blocks, and every step after them.

    Args:
        steps: how many it has made in the attempt.
        rest: steps after the blocks, one by one.
        sent_bytes: per step, by peer, over the whole attempt; ``received_bytes`` likewise.
    """

    rank: Rank
    steps: int = 0
    start: RankStart | None = None
    end: RankEnd | None = None
    progress: RankProgress | None = None
    evaluations: tuple[RankEvaluation, ...] = ()
    texts: tuple[RankText, ...] = ()
    traces: tuple[RankTrace, ...] = ()
    blocks: Blocks = Blocks()
    rest: tuple[RankStep, ...] = ()
    sent_bytes: dict[int, float] = {}
    received_bytes: dict[int, float] = {}


class EarlierAttempt(Record, frozen=True):
    """What is kept of the ranks of an earlier attempt: fewer and coarser blocks."""

    attempt: int
    ranks: tuple[RankSamples, ...] = ()


class NodeSamples(Record, frozen=True):
    """The samples of a node's newest attempt, up to line ``seq`` of its journal.

    Args:
        earlier: attempts before it, oldest first.
        links: of the interface, the newest in finer blocks than the older ones.
        link: the interface's newest sample, with the measurements that hold now.
        is_whole: ``False`` = the node has not downsampled this job's samples; read its journal.
    """

    attempt: int
    seq: int
    ranks: tuple[RankSamples, ...] = ()
    links: Blocks = Blocks()
    link: LinkSample | None = None
    is_whole: bool = True
    earlier: tuple[EarlierAttempt, ...] = ()
