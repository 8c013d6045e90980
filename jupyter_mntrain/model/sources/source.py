"""Source of nodes: requests them from a scheduler, reports their state, and returns them.

Command line, panel and page draw a source's options from its records: no word of a scheduler stands
outside of its own room.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from jupyter_mntrain.model._record import Record, UserRecord
from jupyter_mntrain.model.errors import SpecError, shortened
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.text.spelling import use_nearest

OptionKind = Literal["text", "lines", "choice"]
"""``lines``: any number of values, in their order. ``choice``: one of the option's choices."""

Values = dict[str, tuple[str, ...]]
"""Values by name of the option; most have one."""


class SourceOption(Record, frozen=True):
    """One option of a source.

    Args:
        name: ``partition`` for ``--partition``.
        help: what it is for, without a full stop.
        example: a value, as it is written.
    """

    name: str
    help: str
    kind: OptionKind = "text"
    example: str = ""
    choices: tuple[str, ...] = ()

    @property
    def flag(self) -> str:
        return f"--{self.name}"


def checked_values(
    source: str, options: Sequence[SourceOption], given: Mapping[str, Iterable[str]]
) -> Values:
    """Check and convert the values of options; options without a value are left out.

    Raises:
        SpecError: the source has no such option, or not such a value of it.
    """
    by_name = {option.name: option for option in options}
    values: Values = {}
    for name, texts in given.items():
        if name not in by_name:
            fix = use_nearest(name, by_name, f"use one of {', '.join(by_name)}")
            raise SpecError(f"{source} has no option {shortened(name)!r}", fix=fix)
        if told := tuple(text for text in texts if text.strip()):
            _check(by_name[name], told)
            values[name] = told
    return values


def _check(option: SourceOption, values: Sequence[str]) -> None:
    if option.kind != "lines" and len(values) > 1:
        raise SpecError(f"{option.flag} is given {len(values)} times", fix="give it once")
    for value in values:
        if not value.isprintable():
            cause = f"{option.flag}: {shortened(value)!r} has a character that cannot be printed"
            raise SpecError(cause, fix="write it on one line, without such characters")
        if option.kind == "choice" and value not in option.choices:
            fix = f"use one of {', '.join(option.choices)}"
            raise SpecError(f"{option.flag}: there is no {shortened(value)!r}", fix=fix)


class NodesRequest(UserRecord, frozen=True):
    """A request for nodes with resources for some time. All are granted together, or none.

    Args:
        source: name of the source.
        nodes: each is one slot.
        gpus: per node, in the form that the source takes: a number, or with a type; empty = none.
        time_s: longest time for which they are wanted; ``None`` = as long as the source gives.
        name: what the scheduler's lists show.
        options: of the source, as it declares them.
    """

    source: str
    nodes: Annotated[int, Meta(ge=1)]
    gpus: str = ""
    time_s: Annotated[float, Meta(gt=0)] | None = None
    name: str = "mntrain"
    options: Values = {}

    def option(self, name: str) -> str:
        """Return the value of an option that takes one; empty if it has none."""
        return " ".join(self.options.get(name, ()))

    @property
    def slots(self) -> tuple[str, ...]:
        return tuple(slot_name(self.source, index) for index in range(self.nodes))


SLOT, SECRETS, STATE, PYTHON = "{slot}", "{secrets}", "{state}", "{python}"
"""Stand in a slot's command for its name, the folder of its secrets, that of its state, and the
interpreter that has this package there."""


class SlotCommand(UserRecord, frozen=True):
    """The command that starts an agent in every slot. Its words hold :data:`SLOT` and the like.

    Args:
        words: the program and its arguments.
        secrets: files that only this user can read, by name: tokens. The source gives them to
            every slot, never by the command line or the environment, and removes them at the end.
        environment: variables of it; nothing secret.
    """

    words: tuple[str, ...]
    secrets: dict[str, str] = {}
    environment: dict[str, str] = {}

    def filled(
        self, facts: Mapping[str, str], quoted: Callable[[str], str] = str
    ) -> tuple[str, ...]:
        """Return the words, with :data:`SLOT` and the like replaced.

        Args:
            quoted: applied to everything else: what a shell must not read as its own.
        """
        return tuple(_filled(word, facts, quoted) or quoted("") for word in self.words)


def slot_name(source: str, index: int) -> str:
    """Return a slot's name, like ``slurm-0``, which names its node in the cluster."""
    return f"{source}-{index}"


def _filled(word: str, facts: Mapping[str, str], quoted: Callable[[str], str]) -> str:
    for mark, value in facts.items():
        before, found, after = word.partition(mark)
        if found:
            return _filled(before, facts, quoted) + value + _filled(after, facts, quoted)
    return quoted(word) if word else ""


AllocationState = Literal["pending", "running", "ending", "ended", "unknown"]
"""``pending``: holds nothing, also once its nodes were taken and it waits for others. ``running``:
all nodes are granted. ``unknown``: the source does not answer or knows it no more; never terminal.
"""

SlotState = Literal["waiting", "up", "down", "gone"]
"""``down``: the source holds the node for us, and says that it does not work. ``gone``: it has
taken the node back."""

Outcome = Literal["done", "failed", "canceled"]

LONGEST_EXPECTED_S = 7 * 86_400.0
"""An expected start that is further away is no forecast: schedulers assume a year for jobs without
a time limit."""


class Slot(Record, frozen=True):
    """One node of an allocation, whose name stays the same if its machine is replaced.

    Args:
        name: of its node in the cluster: ``slurm-0``.
        host: the machine, by its name in the scheduler; empty as long as there is none.
        problem: why it is down or gone.
    """

    name: str
    state: SlotState = "waiting"
    host: str = ""
    problem: Problem | None = None


class Waiting(Record, frozen=True):
    """Why an allocation is pending.

    Args:
        word: the scheduler's own, for those who know it: ``Resources``.
        reason: in ours; its kind says whether waiting can help, its fix what does.
        expected_start_s: Unix time, as the scheduler reckons now; ``None`` = it does not.
    """

    word: str
    reason: Problem
    expected_start_s: float | None = None

    @property
    def can_end(self) -> bool:
        """Whether waiting may help."""
        return self.reason.kind is not Kind.NEVER_GRANTED

    def forecast_s(self, now_s: float) -> float | None:
        """Return the seconds until the expected start; ``None`` if unknown, past, or implausibly
        far.
        """
        if self.expected_start_s is None:
            return None
        ahead_s = self.expected_start_s - now_s
        return ahead_s if 0 < ahead_s <= LONGEST_EXPECTED_S else None


class Allocation(Record, frozen=True):
    """The requested nodes, as the scheduler describes them now.

    Args:
        id: the source's own: the scheduler's number of it.
        slots: always as many as were asked for, in their order.
        waiting: while it is pending.
        started_s, ends_s: Unix times of the current grant; ``ends_s`` is that of its time limit.
        grants: how often nodes were granted; above 1, others had been taken away before.
        outcome: once it has ended, or while it ends, if that is known then.
        problem: why, unless it was done or somebody canceled it.
    """

    id: str
    source: str
    state: AllocationState
    slots: tuple[Slot, ...]
    waiting: Waiting | None = None
    submitted_s: float | None = None
    started_s: float | None = None
    ends_s: float | None = None
    grants: int = 0
    outcome: Outcome | None = None
    problem: Problem | None = None

    @property
    def is_over(self) -> bool:
        return self.state == "ended"


ChangeKind = Literal["waits", "granted", "taken", "slot-down", "slot-up", "slot-gone", "ended"]
"""``waits``: for another reason than before. ``taken``: its nodes, and it waits again."""

_OF_A_SLOT: dict[SlotState, ChangeKind] = {"down": "slot-down", "gone": "slot-gone"}


class AllocationChange(Record, frozen=True):
    """A change of an allocation.

    Args:
        slot: that it concerns, by name; empty = all.
        problem: why.
    """

    kind: ChangeKind
    slot: str = ""
    problem: Problem | None = None


def changes(before: Allocation | None, now: Allocation) -> tuple[AllocationChange, ...]:
    """Return what has changed since ``before``, in order; nothing while the state is unknown."""
    if now.state == "unknown" or (before is not None and before.is_over):
        return ()
    return tuple(_changes(before, now))


def _changes(before: Allocation | None, now: Allocation) -> Iterator[AllocationChange]:
    earlier = before.grants if before is not None else 0
    is_held = now.state in ("running", "ending")
    # Between two looks nodes may have been taken, and others granted.
    if earlier and (now.grants > earlier or now.state == "pending") and _held(before):
        yield AllocationChange("taken", problem=now.problem)
    if now.grants > earlier:
        yield AllocationChange("granted")
    if is_held:
        yield from _of_slots(before if now.grants == earlier else None, now)
    if now.waiting is not None and now.waiting.word != _word(before):
        yield AllocationChange("waits", problem=now.waiting.reason)
    if now.is_over:
        yield AllocationChange("ended", problem=now.problem)


def _held(before: Allocation | None) -> bool:
    return before is not None and before.state != "pending"


def _word(before: Allocation | None) -> str:
    return before.waiting.word if before is not None and before.waiting is not None else ""


def _of_slots(before: Allocation | None, now: Allocation) -> Iterator[AllocationChange]:
    known = {slot.name: slot.state for slot in before.slots} if before is not None else {}
    for slot in now.slots:
        change = _of(known.get(slot.name, "up"), slot)
        if change is not None:
            yield AllocationChange(change, slot.name, slot.problem)


def _of(before: SlotState, slot: Slot) -> ChangeKind | None:
    if slot.state == before:
        return None
    if slot.state == "up":
        return "slot-up" if before in _OF_A_SLOT else None
    return _OF_A_SLOT.get(slot.state)


class NodeSource(ABC):
    """The adapter of an existing scheduler, which queues, places and isolates.

    What it gives are slots: ``NAME-0`` to ``NAME-(N-1)``. In each runs the command of the request,
    an agent, whose node in the cluster has the slot's name. A source keeps no state of its own:
    any process that knows an allocation's id and request can look at it, and give it back.

    Args of every method that takes an id: the id of an allocation, and the request for it.
    """

    name: str
    """As in ``--on NAME``, and the first part of the slots' names."""
    title: str
    """As it is written in sentences: SLURM."""
    agent_port: int | None = None
    """On which every slot's agent listens; ``None`` = any free one, as machines are shared."""

    @abstractmethod
    def options(self) -> tuple[SourceOption, ...]:
        """Return the options in addition to nodes, GPUs and time. Does not contact the
        scheduler.
        """

    async def usual_nodes(self, request: NodesRequest) -> int:  # noqa: ARG002 - most take one
        """Return the number of nodes of a request that does not give one.

        Raises:
            As :meth:`check`.
        """
        return 1

    @abstractmethod
    async def check(self, request: NodesRequest) -> None:
        """Check that the scheduler would accept the request; nothing is queued.

        Raises:
            SpecError: an option, or the form of the GPUs, cannot be meant.
            RefusedError: ``no-scheduler``: there is none here. ``scheduler-refused``: it says why;
                the fix names what to change, or what to ask its administrators for.
        """

    @abstractmethod
    def render(self, request: NodesRequest, command: SlotCommand) -> str:
        """Return what would be submitted, for people, without secrets. Does not contact the
        scheduler.
        """

    @abstractmethod
    async def submit(self, request: NodesRequest, command: SlotCommand) -> Allocation:
        """Queue the request: all nodes, or none. Returns as soon as the scheduler has it.

        Raises:
            As :meth:`check`. Nothing is queued then, and no secret is left.
        """

    @abstractmethod
    async def look(self, allocation_id: str, request: NodesRequest) -> Allocation:
        """Return an allocation's current state, by one query that is cheap enough for every few
        seconds.

        An allocation that the scheduler knows no more, or cannot be asked about, is ``unknown``,
        with the reason as its problem.
        """

    async def directory(self, allocation_id: str, request: NodesRequest) -> Path | None:  # noqa: ARG002 - a source without files needs neither
        """Return the directory of the slots' files; ``None`` if this process cannot reach it."""
        return None

    async def addresses(self, allocation_id: str, request: NodesRequest) -> dict[str, str]:  # noqa: ARG002 - a source whose agents tell it in files needs neither
        """Return the ``host:port`` at which this process reaches agents, by slot, if files do not
        say.
        """
        return {}

    async def hindrance(self, allocation_id: str, request: NodesRequest) -> Problem | None:  # noqa: ARG002 - most know of none
        """Return what keeps agents in granted slots from working together; ``None`` if nothing is
        known.
        """
        return None

    @abstractmethod
    async def save(self, allocation_id: str, request: NodesRequest) -> None:
        """Signal its programs to save and end, as the scheduler does before a time limit."""

    @abstractmethod
    async def give_back(self, allocation_id: str, request: NodesRequest) -> None:
        """End an allocation, pending or not, and everything that runs in it. Idempotent.

        Secrets are removed. Records and logs stay.

        Raises:
            RefusedError: the scheduler does not let this user end it.
        """

    async def close(self) -> None:  # noqa: B027 - most hold nothing
        """Close the connections that this process holds to agents. Allocations stay as they are."""
