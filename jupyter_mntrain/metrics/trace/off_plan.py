"""Off plan: why a step takes longer or shorter than its plan predicted. Pure.

Compared are the very figures that the plan is made of: what each rank computes in a step, how long
a message takes on each link, and whether the link is the job's alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from jupyter_mntrain.metrics.history import JobHistory
from jupyter_mntrain.metrics.summary import JobEvent, OffPlan, OffPlanCause
from jupyter_mntrain.metrics.trace.sent_messages import Pair, SentMessages
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.plan import Plan, PlannedLink

TOLERANCE = 0.1
"""A step this much off is explained, and so is what is this much off in it."""

WORTH_NAMING = 0.1
"""Share of the difference that a cause must account for: a link that takes five times as long is
none if its messages are short."""

RECENT_STEPS = 16


class Measured(NamedTuple):
    """What was measured of a job, by rank of its first pipeline, in the units of a plan.

    Args:
        step_s: seconds of a step.
        computing_s: of each rank in a step.
        messages: of each direction, from the newest recorded steps.
        traffic: most that others use of a node's link now, 0..1.
    """

    step_s: float
    computing_s: Mapping[int, float] = {}
    messages: Mapping[Pair, SentMessages] = {}
    traffic: Mapping[str, float] = {}


def off_plan(plan: Plan, measured: Measured) -> OffPlan | None:
    """Compare a step with its plan; ``None`` if it is within :data:`TOLERANCE`.

    Returns:
        The causes, the longest first; none if ranks wait although everything takes as long as
        planned.
    """
    if plan.step_s <= 0:
        return None
    ratio = measured.step_s / plan.step_s
    if abs(ratio - 1) <= TOLERANCE:
        return None
    is_slower = ratio > 1
    more_s = measured.step_s - plan.step_s
    named = [
        (seconds / more_s, one)
        for seconds, one in (*_computing(plan, measured), *_links(plan, measured))
        if abs(one.ratio - 1) > TOLERANCE and seconds / more_s >= WORTH_NAMING
    ]
    named.sort(key=lambda one: one[0], reverse=True)
    found = [one for _, one in named]
    if is_slower:
        nodes = {rank.node for rank in plan.ranks}
        found += [
            OffPlanCause("traffic", share, node=node)
            for node, share in measured.traffic.items()
            if node in nodes
        ]
    return OffPlan(ratio, tuple(found))


def _computing(plan: Plan, measured: Measured) -> Iterator[tuple[float, OffPlanCause]]:
    """Yield causes in computing, with the seconds that they add to a step."""
    for number, rank in enumerate(plan.ranks):
        took = measured.computing_s.get(number)
        if took is not None and rank.computing_s > 0:
            ratio = took / rank.computing_s
            guessed = not rank.speed.is_measured
            cause = OffPlanCause("computing", ratio, rank=Rank(number), is_guessed=guessed)
            yield took - rank.computing_s, cause


class MessageTime(NamedTuple):
    """How long one message on a link takes.

    Args:
        link: as planned.
        sent: what recorded steps show of its messages.
        planned_s: on an otherwise idle link.
        took_s: as far as it can be told from processes that are late.
    """

    link: PlannedLink
    sent: SentMessages
    planned_s: float
    took_s: float

    @property
    def more_s(self) -> float:
        return self.took_s - self.planned_s


def message_times(plan: Plan, measured: Measured) -> tuple[MessageTime, ...]:
    """Return how long a message takes on each planned link that the recorded steps cover.

    What one direction takes longer and the other one less may be two clocks that differ, so it is
    neither.
    """
    found: dict[Pair, MessageTime] = {}
    for link in plan.links:
        pair = (link.sender, link.receiver)
        sent = measured.messages.get(pair)
        planned_s = 0.0 if sent is None else _message_s(link, sent.number)
        if sent is not None and planned_s > 0:
            found[pair] = MessageTime(link, sent, planned_s, sent.took_s(planned_s))
    told = []
    for (sender, receiver), one in found.items():
        back = found.get((receiver, sender))
        more_s = one.more_s
        if back is not None and more_s * back.more_s < 0:
            both_s = more_s + back.more_s
            more_s = max(0.0, both_s) if more_s > 0 else min(0.0, both_s)
        told.append(one._replace(took_s=one.planned_s + more_s))
    return tuple(told)


def _links(plan: Plan, measured: Measured) -> Iterator[tuple[float, OffPlanCause]]:
    for one in message_times(plan, measured):
        link = one.link
        cause = OffPlanCause(
            "link",
            one.took_s / one.planned_s,
            rank=link.sender,
            peer=link.receiver,
            is_guessed=not link.speed.is_measured,
            took_s=one.took_s,
            planned_s=one.planned_s,
        )
        if one.more_s < 0:
            yield one.more_s * one.sent.number, cause
        else:
            waited_s = sum(min(one.more_s, each) for each in one.sent.waits_s)
            yield min(waited_s, _idles_more_s(plan, measured, link.receiver)), cause


def _idles_more_s(plan: Plan, measured: Measured, rank: Rank) -> float:
    """Return the seconds per step that a rank idles beyond what was planned."""
    planned = plan.ranks[rank].computing_s
    computing_s = measured.computing_s.get(rank, planned)
    return (measured.step_s - computing_s) - (plan.step_s - planned)


def _message_s(link: PlannedLink, number: int) -> float:
    return link.speed.latency_s + link.sent_bytes / number / link.speed.bytes_per_s


def measured_of(
    history: JobHistory,
    plan: Plan,
    step_s: float,
    messages: Mapping[Pair, SentMessages],
    traffic: Sequence[JobEvent],
) -> Measured:
    """Collect what was measured of a job.

    Args:
        messages: of recorded steps, by ranks of the job.
        traffic: of others on the links.
    """
    first = first_pipeline(history, plan)
    places = {rank: Rank(number) for number, rank in enumerate(first)}
    computing: dict[int, float] = {}
    for rank, number in places.items():
        series = history.ranks.get(rank)
        newest = series.steps[-RECENT_STEPS:] if series else ()
        told = [one.compute_s for one in newest if one.compute_s is not None]
        if told:
            computing[number] = median(told)
    return Measured(
        step_s,
        computing,
        {
            (places[sender], places[receiver]): one
            for (sender, receiver), one in messages.items()
            if sender in places and receiver in places
        },
        {one.node: one.share for one in traffic if one.node and one.share and one.end_s is None},
    )


def first_pipeline(history: JobHistory, plan: Plan) -> tuple[Rank, ...]:
    """Return the ranks of the first pipeline, in order.

    Of ranks that report the same stages, the first is taken. Until all have reported, ranks with
    the same stages are assumed to be adjacent.
    """
    found: dict[tuple[int, ...], Rank] = {}
    for rank, series in sorted(history.ranks.items()):
        if series.start and series.start.stages:
            found.setdefault(series.start.stages, rank)
    if len(found) == len(plan.ranks):
        return tuple(sorted(found.values()))
    width = max(1, history.view.attempt.world_size // max(1, len(plan.ranks)))
    return tuple(Rank(number * width) for number in range(len(plan.ranks)))
