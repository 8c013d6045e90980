"""Rank groups: ranks of a large job by node, worst first, and those that stand out. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Final, TypeVar

from rich.text import Text

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.job import JobState
from jupyter_mntrain.show.formats import STATE_ICONS, STATE_STYLES

if TYPE_CHECKING:
    from jupyter_mntrain.metrics.summary import RankSummary

Value = TypeVar("Value", int, float)

MOST_RANKS: Final = 16
"""Rows of single ranks that fit on a screen with what stands above and below them."""
MOST_NODES: Final = 32
MOST_ODD: Final = 8

_WORST_FIRST: Final[tuple[JobState, ...]] = (
    "failed", "unknown", "canceled", "stopping", "pending", "starting", "running", "succeeded",
)  # fmt: skip


class NodeRanks(Record, frozen=True):
    """The ranks of one node, as one row.

    Args:
        states: how many are in each state, the worst first.
        step, pace_tokens_per_s: the lowest, which the others wait for.
        mfu: their mean; ``computing`` the highest share.
        memory_bytes: the most.
    """

    node: str
    ranks: tuple[Rank, ...]
    states: tuple[tuple[JobState, int], ...]
    step: int | None = None
    pace_tokens_per_s: float | None = None
    mfu: float | None = None
    compute: float | None = None
    memory_bytes: int | None = None


def by_node(ranks: Sequence[RankSummary]) -> list[NodeRanks]:
    """Group ranks by node: nodes with the worst states first, then the slowest."""
    nodes: dict[str, list[RankSummary]] = {}
    for rank in ranks:
        nodes.setdefault(rank.node, []).append(rank)
    rows = [_together(node, group) for node, group in nodes.items()]
    return sorted(rows, key=_badness)


def standing_out(
    ranks: Sequence[RankSummary], slowest: Rank | None
) -> tuple[list[RankSummary], list[RankSummary]]:
    """Return the ranks that stand out, and those of them that do not fit on a screen.

    That is ranks in another state than most, worst first, then the slowest one.
    """
    if not ranks:
        return [], []
    ((usual, _),) = Counter(rank.state for rank in ranks).most_common(1)
    odd = [rank for rank in ranks if rank.state != usual]
    odd.sort(key=lambda rank: (_WORST_FIRST.index(rank.state), rank.rank))
    late = [rank for rank in ranks if rank.rank == slowest and rank.state == usual]
    fit = MOST_ODD - len(late)
    return [*odd[:fit], *late], odd[fit:]


def states_text(states: Sequence[tuple[JobState, int]]) -> Text:
    """Return how many ranks are in each state: "✕ 1 failed, 7 running"."""
    worst = states[0][0]
    text = Text(STATE_ICONS[worst], style=STATE_STYLES.get(worst, "dim"))
    words = ", ".join(f"{number} {state}" for state, number in states)
    return text.append(f" {words}", style="default")


def counted(rows: Sequence[NodeRanks]) -> str:
    """Return the states of all ranks of these nodes: "80 running"."""
    total: Counter[JobState] = Counter()
    for row in rows:
        total.update(dict(row.states))
    return states_counted(total)


def states_counted(total: Mapping[JobState, int]) -> str:
    """Return the number of ranks in each state, worst first: "1 failed, 80 running"."""
    return ", ".join(f"{total[state]} {state}" for state in _WORST_FIRST if total.get(state))


def _together(node: str, group: Sequence[RankSummary]) -> NodeRanks:
    states = Counter(rank.state for rank in group)
    mfus = [*_known(group, lambda rank: rank.mfu)]
    return NodeRanks(
        node,
        tuple(rank.rank for rank in group),
        tuple((state, states[state]) for state in _WORST_FIRST if states[state]),
        step=min(_known(group, lambda rank: rank.step), default=None),
        pace_tokens_per_s=min(_known(group, lambda rank: rank.pace_tokens_per_s), default=None),
        mfu=sum(mfus) / len(mfus) if mfus else None,
        compute=max(_known(group, lambda rank: rank.compute), default=None),
        memory_bytes=max(_known(group, lambda rank: rank.memory_bytes), default=None),
    )


def _known(
    group: Sequence[RankSummary], read: Callable[[RankSummary], Value | None]
) -> Iterator[Value]:
    return (value for rank in group if (value := read(rank)) is not None)


def _badness(row: NodeRanks) -> tuple[int, float, Rank]:
    pace = inf if row.pace_tokens_per_s is None else row.pace_tokens_per_s
    return _WORST_FIRST.index(row.states[0][0]), pace, row.ranks[0]
