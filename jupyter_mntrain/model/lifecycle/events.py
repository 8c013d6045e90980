"""Events of one node's part of an attempt, for :func:`model.lifecycle.state.apply`."""

from __future__ import annotations

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.evidence import Evidence, LinkTry
from jupyter_mntrain.model.records.job import Episode, Leftover, RunningChange, Stall


class Launched(Record, frozen=True, tag=True):
    """The supervisor runs, and torchrun is starting."""

    time_s: float


class RankUp(Record, frozen=True, tag=True):
    """A rank's process was seen, or it wrote its first line."""

    rank: Rank
    pid: int
    saves: bool = False
    resumed_step: int | None = None


class RankStepped(Record, frozen=True, tag=True):
    rank: Rank
    step: int


class RankDone(Record, frozen=True, tag=True):
    """A rank reports that it has finished. Its process may still exist."""

    rank: Rank
    time_s: float


class RankKilled(Record, frozen=True, tag=True):
    """A person had this rank killed; it has not ended yet."""

    rank: Rank
    reason: str


class RankJoined(Record, frozen=True, tag=True):
    """A rank has joined a process group of ``size`` ranks; see :class:`RankStatus`."""

    rank: Rank
    size: int
    own_torchrun: str = ""


class Warned(Record, frozen=True, tag=True):
    """Something makes the numbers of a rank doubtful."""

    problem: Problem


class WarningOver(Record, frozen=True, tag=True):
    """A warning about a rank, or about the node if it names none, no longer holds since
    ``time_s``.
    """

    kind: Kind
    rank: Rank | None = None
    time_s: float | None = None


class EpisodesJudged(Record, frozen=True, tag=True):
    """A slowdown or stall of the job has begun, changed or ended; these are all episodes."""

    episodes: tuple[Episode, ...]


class SavedEvent(Record, frozen=True, tag=True):
    """A checkpoint of ``step`` steps is complete since ``time_s``, Unix time, or has failed."""

    step: int
    time_s: float = 0.0
    is_scheduled: bool = False
    problem: Problem | None = None


class SettingsTaken(Record, frozen=True, tag=True):
    """The ranks applied, or refused, other settings after a step."""

    change: RunningChange


class RankDown(Record, frozen=True, tag=True):
    """A rank has ended; ``exit_code`` is negative for a signal.

    Known also of ranks of a part that is being stopped: they may be the cause.

    Args:
        killed_in: where it was when it was killed, as it did not end within a stop's grace.
    """

    rank: Rank
    exit_code: int
    problem: Problem | None = None
    time_s: float | None = None
    killed_in: str | None = None


class RankGone(Record, frozen=True, tag=True):
    """A rank's process has disappeared; its exit code, and why, if that is known."""

    rank: Rank
    time_s: float
    exit_code: int | None = None
    problem: Problem | None = None


class StopAsked(Record, frozen=True, tag=True):
    """A stop was requested by a person, or by the head because another node failed.

    With a ``problem``, the head aborts the attempt, for example after a stall: it has failed.
    """

    reason: str
    problem: Problem | None = None
    time_s: float | None = None
    after_failure: bool = False


class EndWished(Record, frozen=True, tag=True):
    """A stop after one more checkpoint was requested; the ranks do that themselves."""

    reason: str


class Stalled(Record, frozen=True, tag=True):
    """No rank has made progress for too long."""

    stall: Stall


class EvidenceGathered(Record, frozen=True, tag=True):
    """This node has gathered evidence, at a stall or after its part's end."""

    evidence: Evidence


class LinksTried(Record, frozen=True, tag=True):
    """The links to the other participants were tried, which adds to the evidence."""

    links: tuple[LinkTry, ...]


class Resumed(Record, frozen=True, tag=True):
    """A rank made progress again after a stall."""


class EndAwaited(Record, frozen=True, tag=True):
    """The part is stopping, and these processes have not ended yet."""

    processes: tuple[Leftover, ...]


class StateLost(Record, frozen=True, tag=True):
    """The node cannot store the record; with ``None`` it can again."""

    problem: Problem | None


class Exited(Record, frozen=True, tag=True):
    """The supervisor has ended; ``leftovers`` names processes of the part that did not."""

    time_s: float
    exit_code: int | None
    problem: Problem | None = None
    leftovers: tuple[Leftover, ...] = ()


PartEvent = (
    Launched
    | RankUp
    | RankStepped
    | SavedEvent
    | SettingsTaken
    | RankDown
    | RankDone
    | RankJoined
    | Warned
    | WarningOver
    | EpisodesJudged
    | RankGone
    | RankKilled
    | StopAsked
    | EndWished
    | Stalled
    | EvidenceGathered
    | LinksTried
    | Resumed
    | EndAwaited
    | StateLost
    | Exited
)
