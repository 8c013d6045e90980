"""Slow causes: finds what changed at a rank or link that has become slower, and the fix. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from jupyter_mntrain.model.failure.fixes import fix_of
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.quantities import rough_bit_rate
from jupyter_mntrain.model.records.pressure import LinkPressure, Measure, Pressure, RankPressure

SHARE_GREW = 0.12
"""A share of time that grew by this much tells what changed: starved, throttled, stopped, disk."""
OF_THE_LOSS = 0.5
"""… and if that is this much of the time that steps take longer."""
CLOCK_FELL = 0.2
"""The clock of the CPU tells if it fell by this share."""
FAULTS_PER_S = 200
"""Pages of its own that a rank reads back per second while it is being swapped."""
RESENT = 0.02
"""… or if this much more of its segments are sent again …"""
RTT_TIMES = 3.0
"""… or if its round trips take this many times longer."""
CROWDED = 0.5
"""Share of the time in which some process of a machine waits for a core, above which many small
programs together are what takes CPU from a rank."""
COMPETING_CORES = 0.3
"""Cores that another process must use to be named as what takes CPU from a rank."""
OTHERS_SHARE = 0.2
"""Other traffic tells if it grew by this share of what the link carried."""


class Change(NamedTuple):
    """A change that explains a slowdown.

    Args:
        evidence: the counter that says so.
        kind: of the problem, if this decides it.
        is_outer: whether it comes from outside of the job's own code.
    """

    evidence: str
    cause: str
    fix: str
    kind: Kind | None = None
    is_outer: bool = True


def change_of_rank(rank: RankPressure, node: Pressure) -> Change:
    """Return the largest change at a rank; if there is none, its own computing."""
    for look in _RANK_CHANGES:
        if (found := look(rank, node)) is not None:
            return found
    if rank.where and rank.busy:
        return Change(
            "stacks",
            f"it is in {rank.where} while the others wait",
            fix_of(Kind.SLOW_RANK, "line"),
            is_outer=False,
        )
    longer = f"{rank.own_s.times:.1f}x longer" if rank.own_s is not None else "longer"
    return Change(
        "stacks",
        f"it computes {longer}, and nothing that was measured on its machine explains it",
        fix_of(Kind.SLOW_RANK),
        is_outer=False,
    )


def change_of_loader(rank: RankPressure) -> Change:
    """Return the change at a rank that neither computes nor waits for others longer: its loader."""
    where = f", in {rank.where}" if rank.where else ""
    cause = f"it waits longer for its next batch{where}"
    return Change("loader", cause, fix_of(Kind.SLOW_LOADER), is_outer=False)


def _explains(rank: RankPressure, share: Measure) -> bool:
    """Whether a share of the time grew by enough to explain most of the lost time."""
    if share.grew < SHARE_GREW or rank.unit_s is None:
        return False
    longer_s = share.now * rank.unit_s.now - share.before * rank.unit_s.before
    return longer_s >= OF_THE_LOSS * rank.unit_s.grew


def _throttled(rank: RankPressure, _node: Pressure) -> Change | None:
    if not _explains(rank, rank.throttled):
        return None
    return Change(
        "throttled",
        f"the CPU limit of its control group throttles it {rank.throttled.now:.0%} of the time",
        fix_of(Kind.SLOW_RANK, "throttled"),
    )


def _stopped(rank: RankPressure, _node: Pressure) -> Change | None:
    if not _explains(rank, rank.stopped):
        return None
    return Change(
        "stopped",
        f"signals stop it {rank.stopped.now:.0%} of the time (SIGSTOP)",
        fix_of(Kind.SLOW_RANK, "stopped"),
    )


def _disk(rank: RankPressure, _node: Pressure) -> Change | None:
    if not _explains(rank, rank.disk):
        return None
    in_line = f", in {rank.where}" if rank.where else ""
    return Change(
        "disk",
        f"it waits in the kernel {rank.disk.now:.0%} of the time{in_line}",
        fix_of(Kind.SLOW_DISK),
        kind=Kind.SLOW_DISK,
    )


def _swapped(rank: RankPressure, _node: Pressure) -> Change | None:
    if rank.faults.grew < FAULTS_PER_S:
        return None
    return Change(
        "swapped",
        f"the machine reads back {rank.faults.now:.0f} pages of its memory per second from disk",
        fix_of(Kind.SLOW_RANK, "swapped"),
    )


def _starved(rank: RankPressure, node: Pressure) -> Change | None:
    where = f", in {rank.where}" if rank.where else ""
    waits = f"it is ready but has no core {rank.starved.now:.0%} of the time{where}"
    has_competitor = node.competitor_cores >= COMPETING_CORES
    is_crowded = node.others_cores.grew >= COMPETING_CORES
    if not _explains(rank, rank.starved):
        # Its cores may be shared with others in a way that the kernel does not count as waiting.
        is_felt = node.cpu.grew >= SHARE_GREW if has_competitor else node.cpu.now >= CROWDED
        if not (is_felt and (has_competitor or is_crowded)):
            return None
        waits = f"processes there wait for a core {node.cpu.now:.0%} of the time"
    if not has_competitor and is_crowded:
        cores = node.others_cores
        return Change(
            "starved",
            f"other programs use {cores.now:.1f} cores there, and {cores.before:.1f} before, and "
            f"{waits}",
            fix_of(Kind.SLOW_RANK, "crowded"),
        )
    if not has_competitor:
        return Change(
            "starved",
            f"{waits}, though no other process that is seen here uses much CPU",
            fix_of(Kind.SLOW_RANK, "starved"),
        )
    return Change(
        "starved",
        f"another process uses {node.competitor_cores:.0%} of a CPU ({node.competitor}), and "
        f"{waits}",
        fix_of(Kind.SLOW_RANK, "competitor"),
    )


def _clock(_rank: RankPressure, node: Pressure) -> Change | None:
    clock = node.clock_hz
    if clock.before <= 0 or clock.now > (1 - CLOCK_FELL) * clock.before:
        return None
    return Change(
        "clock",
        f"the CPU's clock fell from {clock.before / 1e9:.1f} to {clock.now / 1e9:.1f} GHz",
        fix_of(Kind.SLOW_RANK, "clock"),
    )


def _gpu(_rank: RankPressure, node: Pressure) -> Change | None:
    if not node.slowed_gpus:
        return None
    return Change(
        "gpu",
        f"the clocks of its GPU are lowered ({node.slowed_gpus})",
        fix_of(Kind.SLOW_RANK, "gpu"),
    )


def _io(rank: RankPressure, node: Pressure) -> Change | None:
    """Find disk waits; those of other processes count only if the rank has unexplained time."""
    has_rest = rank.rest_s is not None and rank.own_s is not None
    if not has_rest or node.io.grew < SHARE_GREW or rank.rest_s is None or rank.own_s is None:
        return None
    if rank.rest_s.grew < rank.own_s.grew:
        return None
    return Change(
        "disk",
        f"processes of that machine wait for a disk {node.io.now:.0%} of the time",
        fix_of(Kind.SLOW_DISK),
        kind=Kind.SLOW_DISK,
    )


_RANK_CHANGES: tuple[Callable[[RankPressure, Pressure], Change | None], ...] = (
    _stopped,
    _throttled,
    _disk,
    _io,
    _swapped,
    _gpu,
    _clock,
    _starved,
)
"""The more specific ones first: a rank that is throttled also waits for a core."""


def change_of_link(node: str, link: LinkPressure, nodes: Mapping[str, Pressure]) -> Change:
    """Return the largest change at a link."""
    if link.resent.grew >= RESENT:
        return Change(
            "resent",
            f"{link.resent.now:.0%} of its packets are sent again",
            fix_of(Kind.LINK_SLOW, "resent"),
        )
    if (end := end_with_other_traffic(node, link, nodes)) is not None:
        interface, rate = nodes[end].interface, rough_bit_rate(nodes[end].other_traffic.now)
        return Change(
            "traffic",
            f"other traffic on {interface} of {end} takes {rate}",
            fix_of(Kind.LINK_SLOW, "traffic", node=end, interface=interface),
        )
    rates = (
        f"it carries {rough_bit_rate(link.rate.now)} while it sends, "
        f"and {rough_bit_rate(link.rate.before)} before"
    )
    if link.rtt_s.times > RTT_TIMES:
        rates += (
            f"; a round trip takes {link.rtt_s.now * 1e3:.1f} ms, and took "
            f"{link.rtt_s.before * 1e3:.1f}"
        )
    return Change(
        "rate",
        rates,
        fix_of(Kind.LINK_SLOW),
    )


def end_with_other_traffic(
    node: str, link: LinkPressure, nodes: Mapping[str, Pressure]
) -> str | None:
    """Return the end of a link whose interface carries more traffic of others than
    before, if any.
    """
    least = OTHERS_SHARE * max(link.rate.before, 1.0)
    ends = (one for one in (node, link.peer) if one in nodes)
    return next((one for one in ends if nodes[one].other_traffic.grew > least), None)
