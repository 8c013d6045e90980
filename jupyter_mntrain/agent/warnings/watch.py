"""Warning watch: finds why the numbers of a running attempt may be worthless, on one node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from jupyter_mntrain.agent.warnings.connecting import ConnectionWatch
from jupyter_mntrain.agent.warnings.nccl_network import NcclNetwork
from jupyter_mntrain.agent.warnings.numbers import NumberWatch
from jupyter_mntrain.agent.warnings.quiet_end import QuietEnd
from jupyter_mntrain.model.failure.fixes import fix_of
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.lifecycle.events import RankJoined, Warned, WarningOver
from jupyter_mntrain.model.lifecycle.restarts import before_attempt
from jupyter_mntrain.model.records.job import Attempt, Earlier, JobSpec, PartStatus, Placement
from jupyter_mntrain.model.records.metrics import RankEnd, RankGroup, RankSample, RankStep

# Began again: whether a restarted script started from the beginning. Pure.


FIRST_STEP = 1


def _before(earlier: Earlier) -> str:
    return "an earlier job of this run" if earlier.attempt is None else f"attempt {earlier.attempt}"


def began_again(
    step: RankStep, earlier: Earlier | None, spec: JobSpec, *, has_checkpoints: bool = False
) -> Problem | None:
    """Warn if a rank starts at step 1 although an earlier attempt got further.

    A script that does not say its steps may have gone on from a checkpoint: it is warned only if
    there is none.

    Args:
        earlier: the earlier attempts; ``None`` in the first one.
        has_checkpoints: anything is in the job's checkpoint directory on this node.
    """
    reached = earlier.step if earlier else None
    if earlier is None or reached is None or reached <= FIRST_STEP or step.step != FIRST_STEP:
        return None
    if step.is_counted and (has_checkpoints or earlier.saved_step is not None):
        return None
    fix = fix_of(Kind.BEGAN_AGAIN)
    if spec.runs_trainer:
        fix = fix_of(Kind.BEGAN_AGAIN, "trainer")
    elif earlier.saved_step is not None:
        fix = fix_of(Kind.BEGAN_AGAIN, "saved", step=earlier.saved_step)
    return Problem(
        kind=Kind.BEGAN_AGAIN,
        cause=f"began at step 1 again: {_before(earlier)} had reached step {reached}",
        fix=fix,
        rank=step.rank,
        step=FIRST_STEP,
        time_s=step.time_s,
    )


JobWarning = Warned | WarningOver | RankJoined


class WarningWatch:
    """Watches what the ranks of an attempt report, print and connect to.

    Args:
        own: this node's placement.
        log: in the attempt's directory, with the output of all its ranks.
        checkpoints: the run's directory of checkpoints on this node.
    """

    def __init__(
        self, spec: JobSpec, attempt: Attempt, own: Placement, log: Path, checkpoints: Path
    ) -> None:
        self._spec = spec
        self._earlier = before_attempt(spec, attempt)
        self._numbers = NumberWatch()
        self._connections = ConnectionWatch(attempt, own, log)
        self._quiet_end = QuietEnd(log)
        self._network = NcclNetwork(log.parent, own)
        self._checkpoints = checkpoints

    def see(self, samples: Iterable[RankSample], part: PartStatus) -> Iterator[JobWarning]:
        """Process what the ranks have reported since the last call, even if that is nothing."""
        stepped = set()
        for sample in samples:
            match sample:
                case RankStep(rank=rank):
                    stepped.add(rank)
                    yield from self._judge(sample, part)
                case RankGroup(rank=rank, size=size):
                    yield RankJoined(rank=rank, size=size)
                case RankEnd(ok=False, rank=rank, message=message):
                    self._quiet_end.failed(rank, message)
        self._quiet_end.look(stepped)
        if part.state == "running":
            alive = [one.rank for one in part.ranks if one.state == "running"]
            yield from self._quiet_end.living(alive, stepped)
        for problem in self._network.look():
            yield Warned(problem=problem)
        yield from self._connections.look(part.ranks)

    def at_good_end(self, part: PartStatus) -> Iterator[JobWarning]:
        """Check once more after every rank has exited with code 0."""
        yield from self._connections.end(part.ranks)
        for problem in self._quiet_end.warnings(rank.rank for rank in part.ranks):
            yield Warned(problem=problem)

    def reason_to_end(self, doubt: JobWarning) -> Problem | None:
        """Return the problem that ends the job, if it was launched to end at the first NaN.

        The trainer stops all of its ranks itself, before it saves.
        """
        if self._spec.on_nan != "stop" or self._spec.runs_trainer:
            return None
        is_nan = isinstance(doubt, Warned) and doubt.problem.kind is Kind.LOSS_NAN
        return doubt.problem if isinstance(doubt, Warned) and is_nan else None

    def _judge(self, step: RankStep, part: PartStatus) -> Iterator[JobWarning]:
        has_checkpoints = step.is_counted and _has_files(self._checkpoints)
        if again := began_again(step, self._earlier, self._spec, has_checkpoints=has_checkpoints):
            yield Warned(problem=again)
        saved = part.saved_step or (self._earlier.saved_step if self._earlier else None)
        yield from self._numbers.see(step, saved)


def _has_files(directory: Path) -> bool:
    try:
        return any(directory.iterdir())
    except OSError:
        return False
