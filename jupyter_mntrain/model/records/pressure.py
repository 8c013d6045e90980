"""Pressure: how fast a part of a job is now and was before, and what slows it down."""

from __future__ import annotations

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.ids import Rank


class Measure(Record, frozen=True):
    """A quantity now, and as it was in normal times of the same attempt."""

    now: float
    before: float

    @property
    def grew(self) -> float:
        """The difference between now and before."""
        return self.now - self.before

    @property
    def times(self) -> float:
        """The ratio of now to before."""
        return self.now / max(self.before, 1e-9)


NOTHING = Measure(now=0.0, before=0.0)


class RankPressure(Record, frozen=True):
    """The pressure on one rank.

    Args:
        unit_s: seconds per step; or, if ``is_counted``, per as many bytes sent or CPU seconds used
            as before in a second.
        since_s: Unix time since which it is slower than before; ``None`` if it is not.
        own_s: part of ``unit_s`` in which it did not wait for other ranks: as the rank reports, or
            as the kernel accounts for its main thread.
        rest_s: part of ``unit_s`` in which it neither computed nor waited: reading data, saving;
            ``None`` if the rank does not report it.
        starved: share of the time in which its main thread was ready and had no core.
        throttled: share of the time in which its control group's CPU limit held it.
        disk: share of the time in an uninterruptible wait of the kernel.
        stopped: share of the time stopped by a signal.
        faults: pages per second that it read back from disk.
        looks: how many times its stack was looked at since it is slower; ``busy`` is the share of
            these in which it did not wait for other ranks, ``where`` the line it was in most.
    """

    rank: Rank
    unit_s: Measure | None = None
    since_s: float | None = None
    is_counted: bool = False
    own_s: Measure | None = None
    is_reported: bool = False
    rest_s: Measure | None = None
    starved: Measure = NOTHING
    throttled: Measure = NOTHING
    disk: Measure = NOTHING
    stopped: Measure = NOTHING
    faults: Measure = NOTHING
    looks: int = 0
    busy: float = 0.0
    where: str = ""


class LinkPressure(Record, frozen=True):
    """The traffic of this node's ranks to another node.

    Args:
        rate: bytes per second while there was something to send that the receiver had room for.
        busy: share of the time in which there was.
        resent: share of the segments that were sent again.
        rtt_s: smoothed round-trip time.
    """

    peer: str
    rate: Measure
    busy: Measure
    resent: Measure = NOTHING
    rtt_s: Measure = NOTHING


class Pressure(Record, frozen=True):
    """What a node measured about its part of a job.

    Args:
        interface: the ranks'.
        other_traffic: bytes per second of others on it, in the busier direction.
        clock_hz: mean clock of the processors; 0 if unknown.
        own_traffic: bytes per second that its ranks send to other nodes and receive, if known.
        io: share of the time in which some process waited for a disk (PSI); ``cpu``: for a core.
        others_cores: that other programs than the ranks use together.
        competitor: the process that uses most CPU besides the job's, if any is starved:
            ``ffmpeg, pid 4711``; ``competitor_cores`` is how many cores it uses.
        slowed_gpus: what lowers the clocks of the job's GPUs; empty if nothing does.
    """

    interface: str
    ranks: tuple[RankPressure, ...] = ()
    links: tuple[LinkPressure, ...] = ()
    other_traffic: Measure = NOTHING
    own_traffic: tuple[float, float] | None = None
    clock_hz: Measure = NOTHING
    io: Measure = NOTHING
    cpu: Measure = NOTHING
    others_cores: Measure = NOTHING
    competitor: str = ""
    competitor_cores: float = 0.0
    slowed_gpus: str = ""
