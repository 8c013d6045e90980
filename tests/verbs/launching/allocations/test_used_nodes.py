"""Nodes of a scheduler that somebody uses, or keeps, without a launch; and how one ends them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from jupyter_mntrain.model.errors import JobNotFoundError, NodeError, RefusedError, SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.sources.allocation_book import AllocationBook, AllocationNote
from jupyter_mntrain.verbs.controlling.stop import StopVerb
from jupyter_mntrain.verbs.nodes.accept import AcceptVerb
from jupyter_mntrain.verbs.verb import Outcome
from tests.standin.cluster import StandInCluster
from tests.standin.job_handle import StandInJob
from tests.standin.screen import make_context, run_words
from tests.standin.slurm_tools import SlurmTools
from tests.standin.training import sample_job

LAUNCH = ("launch", "train.py", "--on", "slurm", "--nodes", "2")


def test_nodes_that_are_kept_after_a_wrong_job_wait_for_no_launch(
    slurm: SlurmTools, cluster: StandInCluster, tmp_path: Path
) -> None:
    slurm.state = "RUNNING"
    cluster.refuses = RefusedError("no", kind=Kind.PORT_TAKEN)
    with pytest.raises(RefusedError):
        run_words([*LAUNCH, "--idle", "1h"], make_context(cluster, directory=tmp_path))
    note = AllocationBook().of_last_launch()
    assert note is not None
    assert note.is_used


def test_nodes_of_an_acceptance_run_wait_for_no_launch(
    slurm: SlurmTools, cluster: StandInCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[AllocationNote | None] = []

    def accept(*_: object) -> Outcome:
        found.append(AllocationBook().of_last_launch())
        return Outcome()

    monkeypatch.setattr(AcceptVerb, "_accept", accept)
    slurm.state = "RUNNING"
    words = ("accept", "--on", "slurm", "--nodes", "2", "--keep")
    run_words(words, make_context(cluster, directory=tmp_path))
    assert [note is not None and note.is_used for note in found] == [True]


def test_nodes_are_given_back_after_a_job_ran_on_them_only_if_that_is_asked_for(
    slurm: SlurmTools, cluster: StandInCluster, waits: Callable[[], None], left: list[str]
) -> None:
    context = make_context(cluster)
    slurm.state = "RUNNING"
    waits()
    run_words(["stop", left[0]], context)
    assert slurm.state == "RUNNING"
    told = run_words(["stop", left[0], "--give-back"], context).data
    assert (told["job_id"], told["given_back"]) == (cluster.to_launch.id, True)
    assert slurm.state == "CANCELLED"
    assert not run_words(["stop", left[0], "--give-back"], context).data["given_back"]


def test_nodes_that_do_not_answer_are_given_back_and_that_is_told(
    slurm: SlurmTools,
    cluster: StandInCluster,
    waits: Callable[[], None],
    left: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def silent(*_: object, **__: object) -> None:
        raise NodeError("node slurm-0 does not answer", fix="start it")

    context = make_context(cluster)
    slurm.state = "RUNNING"
    waits()
    monkeypatch.setattr(type(cluster.to_launch), "stop", silent)
    outcome = run_words(["stop", left[0], "--give-back"], context)
    assert (outcome.exit_code, outcome.data["given_back"]) == (1, True)
    assert slurm.state == "CANCELLED"


def test_nodes_are_not_given_back_before_the_job_is_saved(
    slurm: SlurmTools,
    cluster: StandInCluster,
    waits: Callable[[], None],
    left: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    context = make_context(cluster)
    slurm.state = "RUNNING"
    waits()
    still_saving = Outcome(data={"state": "running"}, exit_code=1)
    monkeypatch.setattr(StopVerb, "_ended", lambda *_: still_saving)
    outcome = run_words(["stop", left[0], "--save", "--give-back"], context)
    assert (outcome.exit_code, outcome.data["given_back"]) == (1, False)
    assert slurm.state == "RUNNING"


def test_a_misspelled_job_gives_back_no_nodes_and_one_that_they_forgot_does(
    slurm: SlurmTools, cluster: StandInCluster, waits: Callable[[], None], left: list[str]
) -> None:
    context = make_context(cluster)
    slurm.state = "RUNNING"
    waits()
    cluster._jobs = {}
    with pytest.raises(JobNotFoundError):
        run_words(["stop", "j-typo", "--cluster", left[0], "--give-back"], context)
    assert slurm.state == "RUNNING"
    outcome = run_words(["stop", left[0], "--give-back"], context)
    assert (outcome.exit_code, slurm.state) == (1, "CANCELLED")


def test_other_jobs_on_the_nodes_end_within_the_same_grace(
    slurm: SlurmTools, cluster: StandInCluster, waits: Callable[[], None], left: list[str]
) -> None:
    slurm.state = "RUNNING"
    waits()
    other = StandInJob(sample_job({"slurm-0": 1}), ends_as="canceled")
    other.change_view(msgspec.structs.replace(other.view(), job_id=JobId("j-0000000f")))
    other.id = other.view().job_id
    other.become("running")
    cluster._jobs = {**cluster._jobs, other.id: other}
    words = ["stop", left[0], "--give-back", "--grace", "7", "--reason", "enough"]
    run_words(words, make_context(cluster))
    assert ("stop", ("enough, with its nodes", 7.0)) in other.calls
    assert (other.state, slurm.state) == ("canceled", "CANCELLED")


def test_nodes_of_no_scheduler_are_not_given_back(
    slurm: SlurmTools, cluster: StandInCluster
) -> None:
    job = cluster.to_launch
    cluster._jobs = {job.id: job}
    context = make_context(cluster)
    for words in ([job.id], []):
        with pytest.raises(SpecError):
            run_words(["stop", *words, "--give-back"], context)
