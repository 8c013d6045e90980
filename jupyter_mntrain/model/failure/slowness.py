"""Slowness: finds the rank, link or disk that makes a job slower than before. Pure.

When one rank is slow, all of them are: they wait for it. So the culprit is not who is slow, but
whose own time, or whose link's, grew by about as much as the steps did. Each hypothesis says how
much of the lost time it explains; the best one is told, if it explains enough.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from statistics import median
from typing import NamedTuple

from jupyter_mntrain.model.failure.causes.slowdowns import (
    RESENT,
    RTT_TIMES,
    SHARE_GREW,
    Change,
    change_of_link,
    change_of_loader,
    change_of_rank,
    end_with_other_traffic,
)
from jupyter_mntrain.model.failure.fixes import fix_of
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.pressure import LinkPressure, Measure, Pressure, RankPressure

EXPLAINED = 0.4
"""Share of the lost time that a rank or a link must explain to be named."""
RATE_FELL = 1.4
"""A link is slower if it sends this many times less in the time in which it has something to
send …"""
LINK_BUSY = 0.25
"""Share of the time that a link must be sending to be what the ranks wait for."""
LEAST_LOOKS = 8
"""A rank is what the others wait for if its stacks were looked at this often, and showed it
waiting less often than every other one: by more than this over the root of the number of looks,
which is about two standard deviations."""
LOOKS_NOISE = 1.3


class SlowPart(NamedTuple):
    """An explanation of why a job is slow.

    Args:
        explains: how much of the lost time, 0..1.
        times: how many times longer a step takes than before.
        evidence: the counter that says so.
        where: the line that a rank is in, if that is the evidence.
        speaks_for: what was measured, as sentences without a full stop.
    """

    problem: Problem
    label: str
    explains: float
    times: float
    evidence: str = ""
    where: str = ""
    speaks_for: tuple[str, ...] = ()


class _Place(NamedTuple):
    node: str
    rank: RankPressure
    pressure: Pressure

    @property
    def lost_s(self) -> float:
        """The seconds by which steps are longer than before."""
        return self.rank.unit_s.grew if self.rank.unit_s else 0.0


def judge_slowness(pressures: Mapping[str, Pressure]) -> SlowPart | None:
    """Find out why a job is slower than before; ``None`` if it is not, or not for long enough.

    Args:
        pressures: of every participant that answers, by its name.
    """
    places = [_Place(node, rank, one) for node, one in pressures.items() for rank in one.ranks]
    slow = [place for place in places if place.rank.since_s is not None and place.lost_s > 0]
    if not slow:
        return None
    worst = max(slow, key=lambda place: place.rank.unit_s.times if place.rank.unit_s else 0.0)
    found = [*_ranks(places, worst), *_links(pressures, worst)]
    best = max(found, key=lambda one: one.explains, default=None)
    if best is not None and best.explains >= EXPLAINED:
        return best
    if worst.rank.is_counted:
        return None  # counters alone do not say that it should be faster
    return _unknown(places, worst)


def _ranks(places: list[_Place], worst: _Place) -> Iterator[SlowPart]:
    """Yield the ranks for which the others wait longer than before."""
    for place in places:
        change = change_of_rank(place.rank, place.pressure)
        own, rest = _own(place, places, worst), _rest(place, worst)
        looked = _looked(place, places, worst)
        explains = max(own, rest, looked)
        if worst.rank.is_counted and not change.is_outer:
            continue
        kind = Kind.SLOW_RANK
        if change.kind is not None:
            kind = change.kind
        elif rest > max(own, 0.0):
            kind = Kind.SLOW_LOADER
            if not change.is_outer:
                change = change_of_loader(place.rank)
        yield _of_rank(place, worst, kind, change, explains)


def _own(place: _Place, places: list[_Place], worst: _Place) -> float:
    """Return the share of the lost time in which a rank computed, or wanted to."""
    own = place.rank.own_s
    if own is None or worst.lost_s <= 0:
        return 0.0
    share = own.grew / worst.lost_s
    if not place.rank.is_reported:
        # What the kernel accounts for includes ranks that wait in a loop.
        others = [
            one.rank.own_s.grew / worst.lost_s
            for one in places
            if one is not place and one.rank.own_s is not None
        ]
        share = min(share, share - median(others)) if others else share
    return min(1.0, share)


def _rest(place: _Place, worst: _Place) -> float:
    rest = place.rank.rest_s
    return min(1.0, rest.grew / worst.lost_s) if rest is not None and worst.lost_s > 0 else 0.0


def _looked(place: _Place, places: list[_Place], worst: _Place) -> float:
    """Return the share of the lost time in which only this rank did not wait, by its stacks.

    The gap to the next rank must be larger than chance makes it in so few looks.
    """
    rank, unit_s = place.rank, worst.rank.unit_s
    if rank.is_reported or rank.looks < LEAST_LOOKS or unit_s is None:
        return 0.0
    others = [one.rank for one in places if one is not place]
    if any(one.looks < LEAST_LOOKS for one in others):
        return 0.0
    gap = rank.busy - max((one.busy for one in others), default=0.0)
    if gap < LOOKS_NOISE / math.sqrt(rank.looks):
        return 0.0
    return min(1.0, gap * unit_s.now / max(worst.lost_s, 1e-9))


def _of_rank(place: _Place, worst: _Place, kind: Kind, change: Change, explains: float) -> SlowPart:
    times = _times(worst)
    problem = Problem(
        kind=kind,
        cause=f"{_slows(worst)}: {change.cause}",
        fix=change.fix,
        node=place.node,
        rank=place.rank.rank,
        time_s=worst.rank.since_s,
    )
    label = f"{place.node} r{place.rank.rank} {times:.1f}x slower"
    where = "" if change.is_outer else place.rank.where
    return SlowPart(problem, label, explains, times, change.evidence, where, (change.cause,))


def _links(pressures: Mapping[str, Pressure], worst: _Place) -> Iterator[SlowPart]:
    """Yield the links that carry less than before."""
    unit_s = worst.rank.unit_s
    if unit_s is None:
        return
    worse = [
        (node, one, _link_share(one, unit_s))
        for node, pressure in pressures.items()
        for one in pressure.links
        if _is_worse(one, pressures, node)
    ]
    for node, link, share in worse:
        change = change_of_link(node, link, pressures)
        # Of all links of one node, its own end is at fault, not each of its peers.
        own = sum(1 for one, other, _ in worse if node in (one, other.peer))
        far = sum(1 for one, other, _ in worse if link.peer in (one, other.peer))
        guilty = link.peer if far > own else node
        times = _times(worst)
        slower = max(link.rate.before / max(link.rate.now, 1.0), 1.0)
        which = f"to {link.peer}" if guilty == node else f"from {node}"
        problem = Problem(
            kind=Kind.LINK_SLOW,
            cause=f"the link {which} ({pressures[node].interface}) {_slows(worst)}: {change.cause}",
            fix=change.fix,
            node=guilty,
            time_s=worst.rank.since_s,
        )
        label = f"link {node} -> {link.peer} {slower:.1f}x slower"
        yield SlowPart(problem, label, share, times, change.evidence, speaks_for=(change.cause,))


def _is_worse(link: LinkPressure, pressures: Mapping[str, Pressure], node: str) -> bool:
    """Whether a link is busy and worse than before.

    On machines whose cores are busy with other work, packets wait for a core, too: then only
    packets that are sent again speak against the link, and other traffic.
    """
    if link.busy.now < LINK_BUSY:
        return False
    if link.resent.grew >= RESENT or end_with_other_traffic(node, link, pressures):
        return True
    ends = [pressures[one] for one in (node, link.peer) if one in pressures]
    if any(rank.starved.grew >= SHARE_GREW for end in ends for rank in end.ranks):
        return False
    rate_fell = link.rate.before > RATE_FELL * link.rate.now and link.rate.now > 0
    return rate_fell or link.rtt_s.times > RTT_TIMES


def _link_share(link: LinkPressure, unit_s: Measure) -> float:
    """Return the share of the lost time in which the link had something to send."""
    longer_s = link.busy.now * unit_s.now - link.busy.before * unit_s.before
    return min(1.0, longer_s / max(unit_s.grew, 1e-9))


def _unknown(places: Iterable[_Place], worst: _Place) -> SlowPart:
    """Return the finding that nothing that was measured explains the slowdown."""
    times = _times(worst)
    grown = [
        one.rank.own_s.times
        for one in places
        if one.rank.own_s is not None and one.rank.is_reported
    ]
    why = "no rank, link or disk that was measured explains it"
    if grown and min(grown) > 1.0 + (times - 1.0) / 2:
        why = "every rank computes longer, as with larger batches"
    problem = Problem(
        kind=Kind.SLOW_JOB,
        cause=f"steps take {times:.1f}x longer than before: {why}",
        fix=fix_of(Kind.SLOW_JOB),
        time_s=worst.rank.since_s,
    )
    return SlowPart(problem, f"{times:.1f}x slower", 0.0, times, speaks_for=(why,))


def _times(worst: _Place) -> float:
    return worst.rank.unit_s.times if worst.rank.unit_s else 1.0


def _slows(worst: _Place) -> str:
    return f"slows the job down {_times(worst):.1f}x"
