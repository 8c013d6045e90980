"""Case: one drawn fault, or two, with what is true of it by construction."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Stratum = Literal["network", "node", "rank", "script", "disk", "trust"]
STRATA: tuple[Stratum, ...] = ("network", "node", "rank", "script", "disk", "trust")

Moment = Literal["launch", "before step 1", "steps", "save", "restart", "end"]
"""When it happens. ``launch`` and ``before step 1`` are in place when the job is launched;
``restart`` is in place when its second attempt starts; ``end`` is after the last step."""

EARLY: frozenset[Moment] = frozenset({"launch", "before step 1", "restart", "end"})
"""What is prepared before the job is launched."""

Opening = Literal["a command", "a killed kernel", "a restarted server"]
"""How a job begins: by a command that does; or by a kernel or a Jupyter server that is killed
meanwhile."""

Channel = Literal["launch", "command", "cause", "stall", "other", "node"]
"""Where something is said: a refusal or a warning of ``launch``; another command's error; a job's
failure, its stall, any other problem of its; or a node's own line."""

CHANNELS: tuple[Channel, ...] = ("launch", "command", "cause", "stall", "other", "node")
"""What a person reads first comes first."""

Channels = frozenset[Channel]

ABOUT_JOB: Channels = frozenset({"launch", "command", "cause", "stall", "other"})


class Layout(msgspec.Struct, frozen=True):
    """Hosts of a job and their ranks, in the order of ranks."""

    hosts: tuple[tuple[str, int], ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.hosts)

    @property
    def world_size(self) -> int:
        return sum(count for _, count in self.hosts)

    def ranks(self, host: str) -> tuple[int, ...]:
        first = 0
        for name, count in self.hosts:
            if name == host:
                return tuple(range(first, first + count))
            first += count
        raise KeyError(host)

    @property
    def members(self) -> tuple[str, ...]:
        return tuple(word for name, count in self.hosts for word in ("--member", f"{name}:{count}"))


class Accept(msgspec.Struct, frozen=True):
    """Statements that would be true.

    Args:
        kinds: kinds of problems that name it.
        vague: kinds that are true of it but too general to act upon.
        nodes: nodes that may be named; empty = any, also none.
        ranks: ranks that may be named; empty = any, also none.
        channels: where it may be said.
    """

    kinds: frozenset[str]
    vague: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()
    ranks: frozenset[int] = frozenset()
    channels: Channels = ABOUT_JOB


class Truth(msgspec.Struct, frozen=True):
    """What is true of a case.

    Args:
        accepts: statements of which one must be made; none = nothing needs to be said.
        is_harmless: the job goes on: whatever is said to be wrong with it is a false alarm.
        may: statements that are true as well, and neither needed nor false.
        states: states that the job may be in at the end; empty = any.
        enough: states that need no word: the job ended as it was asked to.
        exit_code: that must be known of the guilty rank.
        evidence: words that the rank's own stacks hold; empty = none are needed.
        within_s: time in which it must be said, on a quiet machine.
    """

    accepts: tuple[Accept, ...] = ()
    is_harmless: bool = False
    may: tuple[Accept, ...] = ()
    states: frozenset[str] = frozenset()
    enough: frozenset[str] = frozenset()
    exit_code: int | None = None
    evidence: str = ""
    within_s: float = 15.0


class Statement(msgspec.Struct, frozen=True):
    """Something that the program says, as data; its sentence only for people to read.

    Args:
        has_fix: there is one, and it is the same wherever this problem is shown.
        detail: the evidence that is shown with it: foreign text, not the program's own.
    """

    channel: Channel
    kind: str
    node: str | None = None
    rank: int | None = None
    has_fix: bool = False
    exit_code: int | None = None
    text: str = ""
    detail: str = ""


class Case(msgspec.Struct, frozen=True):
    """One draw.

    Args:
        mechanisms: names; of two the first is a distraction, the last one is to blame.
        parameters: of each mechanism.
        guilty: the host and, where one is to blame, the rank.
        marks: what else is special: ``exit 0``.
        unforeseeable: why nobody can know of it before a launch, though it is in place then.
    """

    seed: int
    stratum: Stratum
    mechanisms: tuple[str, ...]
    layout: Layout
    moment: Moment
    guilty: str
    rank: int
    parameters: tuple[dict[str, Any], ...]
    truth: Truth
    marks: frozenset[str] = frozenset()
    unforeseeable: str = ""

    @property
    def other(self) -> str:
        """The other host of the job."""
        return next(name for name in self.layout.names if name != self.guilty)

    @property
    def is_hard(self) -> bool:
        """Two faults, an exit code 0, or another moment than between two steps."""
        return len(self.mechanisms) > 1 or "exit 0" in self.marks or self.moment != "steps"

    @property
    def title(self) -> str:
        hosts = "+".join(f"{name}:{count}" for name, count in self.layout.hosts)
        what = " then ".join(self.mechanisms)
        return f"{what} at {self.moment}, on {self.guilty} (rank {self.rank}) of {hosts}"


class Sequence(msgspec.Struct, frozen=True):
    """Faults of one job, one after the other: each is asked about, then mended.

    Args:
        opening: how the job begins.
        cases: each with its own truth; the job goes on after all but the last.
        pauses_s: how long the job has gone on after each but the last when it is asked about.
    """

    seed: int
    opening: Opening
    cases: tuple[Case, ...]
    pauses_s: tuple[float, ...]

    @property
    def title(self) -> str:
        begun = () if self.opening == "a command" else (self.opening,)
        told = "; then ".join((*begun, *(one.title for one in self.cases)))
        return f"{len(self.cases)} faults: {told}"
