"""A launch whose nodes nobody waits for here: how it is seen, and how it ends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_mntrain import awaited_job
from jupyter_mntrain.model.environment import CLUSTER_VARIABLE
from jupyter_mntrain.model.errors import RefusedError, SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.sources.source import Allocation
from jupyter_mntrain.show import formats
from jupyter_mntrain.show.bundles import plain_text
from jupyter_mntrain.sources.allocation_book import AllocationBook
from jupyter_mntrain.sources.awaited_launch import launch_log, lock_file
from jupyter_mntrain.verbs.launching.allocations.no_wait import TAKES_OVER
from jupyter_mntrain.verbs.launching.allocations.words import asked_line
from jupyter_mntrain.verbs.verb import Clusters
from tests.standin.cluster import StandInCluster, node
from tests.standin.screen import Paper, StillClock, make_context, run_words
from tests.standin.slurm_tools import SlurmTools
from tests.verbs.launching.allocations.conftest import LAUNCH
from tests.wording import says


def test_what_waits_is_seen_and_canceled(
    slurm: SlurmTools, cluster: StandInCluster, tmp_path: Path, left: list[str]
) -> None:
    context = make_context(cluster, directory=tmp_path)
    told = run_words(LAUNCH, context)
    assert told.data == {"allocation_id": "7", "cluster": left[0], "log": "its.log"}
    assert run_words(["status"], context).data["state"] == "pending"
    assert run_words(["stop", left[0]], context).data["state"] == "canceled"
    assert slurm.state == "CANCELLED"
    assert AllocationBook().of_last_launch() is None


def test_the_process_that_takes_over_launches_on_what_was_asked_for(
    slurm: SlurmTools, cluster: StandInCluster, tmp_path: Path, left: list[str]
) -> None:
    run_words(LAUNCH, make_context(cluster, directory=tmp_path))
    slurm.state, cluster.name = "RUNNING", left[0]
    words = [word for word in LAUNCH if word != "--no-wait"]
    takes_over = make_context(
        cluster, directory=tmp_path, environment={TAKES_OVER: left[0], CLUSTER_VARIABLE: ""}
    )
    job = run_words([*words, "--detach"], takes_over).job
    assert job is cluster.to_launch
    note = AllocationBook().of_last_launch()
    assert note is not None
    assert (note.cluster, note.jobs) == (left[0], (job.id,))
    # Queued again by SLURM: what stops the job takes it from the queue, too.
    slurm.state, cluster._jobs = "PENDING", {job.id: cluster.to_launch}
    run_words(["stop", job.id], make_context(cluster, directory=tmp_path))
    assert slurm.state == "CANCELLED"
    AllocationBook().forget(left[0])
    with pytest.raises(RefusedError):
        run_words([*words, "--detach"], takes_over)


class InTurn:
    """Sleeps, and has one thing happen each time, as long as there are any.

    Args:
        clock: that passes meanwhile.
    """

    def __init__(self, *events: Callable[[], object]) -> None:
        self._events = [*events]
        self.clock = StillClock()

    def __call__(self, seconds: float) -> None:
        self.clock.sleep(seconds)
        if self._events:
            self._events.pop(0)()


def test_who_attaches_is_told_why_it_waits_then_follows_the_job(
    slurm: SlurmTools, cluster: StandInCluster, waits: Callable[[], None], left: list[str]
) -> None:
    happens = InTurn(bool, lambda: setattr(slurm, "state", "RUNNING"), waits)
    context = make_context(cluster, sleep=happens, clock=happens.clock)
    outcome = run_words(["attach", left[0]], context)
    assert isinstance(context.screen, Paper)
    assert context.screen.followed == [cluster.to_launch]
    assert outcome.exit_code == 0
    waiting, granted = map(plain_text, context.screen.said)
    assert "(Resources)" in waiting
    assert says("expected to start in", waiting)
    assert "node2, node3" in granted
    assert cluster.followed
    # From now on the name stands for the job.
    assert run_words(["status", left[0]], context).job is cluster.to_launch


def test_a_notebook_shows_why_it_waits_and_is_not_kept_waiting(
    slurm: SlurmTools, cluster: StandInCluster, waits: Callable[[], None], left: list[str]
) -> None:
    context = make_context(cluster, screen=Paper(in_background=True))
    with pytest.raises(SpecError):
        run_words(["attach", "-o", "job"], context)
    assert run_words(["attach"], context).job is None
    ((first, look),) = context.screen.awaited
    assert "(Resources)" in plain_text(first.said)
    assert plain_text(look().said) == plain_text(first.said)
    slurm.state = "RUNNING"
    assert look().job is None
    waits()
    assert look().job is cluster.to_launch
    assert cluster.followed


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("options", "event", "code"), [([], interrupt, 130), (["--timeout", "3"], bool, 124)]
)
def test_who_no_longer_watches_leaves_it_waiting(
    slurm: SlurmTools,
    cluster: StandInCluster,
    waits: Callable[[], None],
    left: list[str],
    options: list[str],
    event: Callable[[], object],
    code: int,
) -> None:
    happens = InTurn(event)
    context = make_context(cluster, sleep=happens, clock=happens.clock)
    assert run_words(["attach", left[0], *options], context).exit_code == code
    assert slurm.state == "PENDING"
    assert AllocationBook().of_cluster(left[0]) is not None


def test_what_is_left_of_the_timeout_is_waited_and_all_of_it_is_said(
    slurm: SlurmTools, cluster: StandInCluster, waits: Callable[[], None], left: list[str]
) -> None:
    happens = InTurn(waits)
    cluster.to_launch._ends_as = None
    context = make_context(cluster, sleep=happens, clock=happens.clock)
    outcome = run_words(["attach", left[0], "--timeout", "3"], context)
    assert outcome.exit_code == 124
    assert formats.duration(3) in plain_text(outcome.renderable)


def test_a_launch_whose_process_was_killed_is_told_as_such_and_ended(
    slurm: SlurmTools, cluster: StandInCluster, waits: Callable[[], None], left: list[str]
) -> None:
    context = make_context(cluster, sleep=InTurn())
    assert run_words(["status"], context).data["problem"] is None
    lock = lock_file(left[0])
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.touch()
    status = run_words(["status"], context)
    assert status.data["problem"]["kind"] == Kind.NOT_STARTED
    told = f"give them back with mntrain stop {left[0]}, and launch again"
    assert says(told, " ".join(plain_text(status.renderable).split()))
    with pytest.raises(RefusedError) as raised:
        run_words(["attach", left[0]], context)
    assert raised.value.problem.kind is Kind.NOT_STARTED
    run_words(["stop", left[0]], context)
    assert slurm.state == "CANCELLED"
    assert AllocationBook().notes() == ()
    assert not lock.exists()


def test_a_launch_that_fails_says_why_to_who_watches(
    slurm: SlurmTools, cluster: StandInCluster, waits: Callable[[], None], left: list[str]
) -> None:
    log = launch_log(left[0])
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("granted: node2\nerror: no space is left on node2\n")
    happens = InTurn(lambda: AllocationBook().forget(left[0]))
    context = make_context(cluster, sleep=happens, clock=happens.clock)
    with pytest.raises(RefusedError) as raised:
        run_words(["attach", left[0]], context)
    assert "no space is left on node2" in raised.value.problem.cause
    assert str(log) in raised.value.problem.fix


def test_what_was_canceled_is_no_longer_watched(
    slurm: SlurmTools, cluster: StandInCluster, waits: Callable[[], None], left: list[str]
) -> None:
    happens = InTurn(lambda: setattr(slurm, "state", "CANCELLED"))
    context = make_context(cluster, sleep=happens, clock=happens.clock)
    with pytest.raises(RefusedError):
        run_words(["attach", left[0]], context)


def test_a_program_waits_for_the_job_in_the_same_way(
    slurm: SlurmTools, cluster: StandInCluster, waits: Callable[[], None], left: list[str]
) -> None:
    cluster.name = left[0]
    seen: list[Allocation] = []
    there: Any = cluster
    assert awaited_job(there, seen.append, InTurn(waits)) is cluster.to_launch
    assert seen[0].waiting is not None
    assert seen[0].waiting.word == "Resources"
    assert cluster.followed
    cluster.name = "lab"
    with pytest.raises(RefusedError):
        awaited_job(there)


def test_what_asks_for_the_job_later_finds_its_nodes_in_the_same_kernel(
    slurm: SlurmTools, cluster: StandInCluster, tmp_path: Path, left: list[str]
) -> None:
    def opened(name: str, _: object) -> Any:
        cluster.name = name
        return cluster

    run_words(LAUNCH, make_context(cluster, directory=tmp_path, clusters=Clusters(opened)))
    assert cluster.name == left[0]
    assert cluster.followed


def test_what_the_scheduler_has_forgotten_is_no_longer_watched(
    slurm: SlurmTools, cluster: StandInCluster, waits: Callable[[], None], left: list[str]
) -> None:
    happens = InTurn(lambda: setattr(slurm, "state", "FORGOTTEN"), pytest.fail)
    context = make_context(cluster, sleep=happens, clock=happens.clock)
    with pytest.raises(RefusedError) as raised:
        run_words(["attach", left[0]], context)
    assert raised.value.kind is Kind.SCHEDULER_REFUSED
    assert isinstance(context.screen, Paper)
    assert len(context.screen.said) == 1, "the error says it"
    cluster.name = left[0]
    there: Any = cluster
    with pytest.raises(RefusedError):
        awaited_job(there, sleep=InTurn(pytest.fail))


def test_a_launch_that_waits_ends_once_the_scheduler_has_forgotten_it(
    slurm: SlurmTools, tmp_path: Path
) -> None:
    happens = InTurn(lambda: setattr(slurm, "state", "FORGOTTEN"), pytest.fail)
    nobody = StandInCluster([node("wopr", 1)])
    context = make_context(nobody, directory=tmp_path, sleep=happens, clock=happens.clock)
    with pytest.raises(RefusedError) as raised:
        run_words([word for word in LAUNCH if word != "--no-wait"], context)
    assert raised.value.kind is Kind.SCHEDULER_REFUSED
    assert AllocationBook().of_last_launch() is None


def test_a_scheduler_that_does_not_answer_is_said_once_and_waited_for(
    slurm: SlurmTools, cluster: StandInCluster, waits: Callable[[], None], left: list[str]
) -> None:
    def becomes(state: str) -> Callable[[], None]:
        return lambda: setattr(slurm, "state", state)

    happens = InTurn(becomes("SILENT"), bool, becomes("PENDING"), becomes("RUNNING"), waits)
    context = make_context(cluster, sleep=happens, clock=happens.clock)
    assert run_words(["attach", left[0]], context).exit_code == 0
    assert isinstance(context.screen, Paper)
    before, silence, again, granted = map(plain_text, context.screen.said)
    assert "(Resources)" in before
    assert "Unable to contact slurm controller" in silence
    assert "(Resources)" in again
    assert "node2, node3" in granted


def test_no_wait_contradicts_wait_and_a_cell(
    slurm: SlurmTools, cluster: StandInCluster, tmp_path: Path
) -> None:
    with pytest.raises(SpecError):
        run_words([*LAUNCH, "--wait"], make_context(cluster, directory=tmp_path))
    cell = make_context(cluster, directory=tmp_path, cell="print(1)")
    with pytest.raises(SpecError):
        run_words([word for word in LAUNCH if word != "train.py"], cell)
    assert AllocationBook().of_last_launch() is None


def test_who_cancels_is_told_of_a_scheduler_that_does_not_answer(
    slurm: SlurmTools, cluster: StandInCluster, waits: Callable[[], None], left: list[str]
) -> None:
    slurm.state = "SILENT"
    with pytest.raises(RefusedError) as raised:
        run_words(["stop", left[0]], make_context(cluster))
    assert raised.value.kind is Kind.NO_SCHEDULER
    # A job on its nodes is stopped all the same.
    waits()
    assert run_words(["stop", cluster.to_launch.id], make_context(cluster)).job is not None


def test_an_acceptance_run_says_how_many_nodes_it_wants(
    slurm: SlurmTools, cluster: StandInCluster, tmp_path: Path
) -> None:
    context = make_context(cluster, directory=tmp_path)
    for words in (["--on", "slurm"], ["--on", "slurm", "--nodes", "2", "wopr"]):
        with pytest.raises(SpecError):
            run_words(["accept", *words], context)
    assert slurm.state == "PENDING"
    assert AllocationBook().of_last_launch() is None


@pytest.mark.parametrize(
    ("number", "words"), [("4711", "job 4711"), ("4711/train-0a1b2c3d", "step in job 4711")]
)
def test_what_was_asked_for_is_called_by_its_number(number: str, words: str) -> None:
    asked = Allocation(number, "slurm", "pending", slots=())
    assert says(f": {words}; ", asked_line("SLURM", asked).plain)
