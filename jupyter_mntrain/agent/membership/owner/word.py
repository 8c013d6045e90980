"""Owner's word: what is lent, kept in the node's state directory, and what it refuses now.

Only the machine's user changes it, on the machine: ``mntrain agent drain`` and the like write the
file, and the running agent reads it again when it has changed. No request can.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from jupyter_mntrain.agent.membership.owner.hours import Hours, clock_text, minute_of_week
from jupyter_mntrain.model.errors import RefusedError, SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.quantities import agreeing, numbered
from jupyter_mntrain.model.records.lending import Drain, Lending
from jupyter_mntrain.trust.shared_file import SharedFile

FILE = "lending.json"
OWNER = "a user of this machine"
"""For the audit log: who may change it."""

DAY_S = 86_400.0
WAIT = "leave it out, or queue the job with --queue: it starts when the node takes jobs again"


def lending_file(state: Path) -> SharedFile[Lending]:
    return SharedFile(state / FILE, Lending, what="what this machine lends")


def read_lending(file: SharedFile[Lending]) -> Lending:
    """Read what is lent.

    Raises:
        SpecError: the file is damaged, or cannot be read.
    """
    try:
        lending = file.read()
        if lending.hours:
            Hours(lending.hours)
    except SpecError as error:
        fix = "correct the file on that machine, or lend everything again: mntrain agent lend --all"
        raise SpecError(error.cause, fix=fix) from error
    return lending


class OwnersWord:
    """What the owner lends, as of the last :meth:`look`.

    Args:
        state: the node's state directory.
        clock: Unix time.
    """

    def __init__(self, state: Path, clock: Callable[[], float] = time.time) -> None:
        self._file = lending_file(state)
        self._clock = clock
        self._seen: tuple[int, ...] | None = None
        self._damage: Problem | None = None
        self._said = Lending()
        self.hours: Hours | None = None
        self.look()

    def look(self) -> None:
        """Read the file again, if it has changed."""
        try:
            found = self._file.path.stat()
            seen: tuple[int, ...] = (found.st_mtime_ns, found.st_ino, found.st_size)
        except OSError:  # it is read below: one that may not be read is an error, none is not
            seen = ()
        if seen and seen == self._seen:
            return
        self._seen = seen
        try:
            self._said = read_lending(self._file)
            self.hours = Hours(self._said.hours) if self._said.hours else None
            self._damage = None
        except SpecError as error:
            # It may have held less than everything, so nothing is lent until it can be read.
            self._damage = msgspec.structs.replace(error.problem, kind=Kind.NOT_LENT)

    @property
    def lending(self) -> Lending:
        """What is lent; a drain that is over is left out."""
        return current(self._said, self._clock())

    @property
    def refusal(self) -> Problem | None:
        """Why the node takes no new job now."""
        drain, now_s = self.lending.drain, self._clock()
        if self._damage is not None:
            return self._damage
        if drain is not None:
            return Problem(kind=Kind.DRAINED, cause=drained(drain, now_s), fix=WAIT)
        if self.hours is not None and not self.hours.is_open(now_s):
            now = clock_text(minute_of_week(time.localtime(now_s)))
            cause = f"its owner lends it from {self.hours.opens_at(now_s)}; it is {now} there"
            return Problem(kind=Kind.OUT_OF_HOURS, cause=cause, fix=WAIT)
        return None

    def refuse_gpus(self, gpus: Sequence[int], node: str) -> None:
        """Refuse GPUs that are not lent.

        Raises:
            RefusedError: one of them is not.
        """
        lending = self._said
        kept = [index for index in gpus if not lending.lends_gpu(index)]
        if kept:
            lent = numbered("GPU", lending.gpus) if lending.gpus else "none"
            raise RefusedError(
                f"{numbered('GPU', kept)} {agreeing(kept, 'is', 'are')} not lent by its owner "
                f"(lent: {lent})",
                kind=Kind.NOT_LENT,
                fix="choose from the GPUs that 'nodes' lists as lent",
                node=node,
            )


def current(lending: Lending, now_s: float) -> Lending:
    """What is lent at a time: a drain may be over by then."""
    drain = lending.drain
    if drain is None or drain.until_s is None or now_s < drain.until_s:
        return lending
    return msgspec.structs.replace(lending, drain=None)


def drained(drain: Drain, now_s: float) -> str:
    """Say that, until when and why a node is drained, without the node."""
    until = "" if drain.until_s is None else f" until {moment_text(drain.until_s, now_s)}"
    reason = f": {drain.reason}" if drain.reason else ""
    return f"its owner drained it{until}{reason}"


def moment_text(at_s: float, now_s: float) -> str:
    """A time by this machine's clock: ``18:00``, with the date if it is a day or more ahead."""
    form = "%H:%M" if at_s - now_s < DAY_S else "%Y-%m-%d %H:%M"
    return time.strftime(form, time.localtime(at_s))
