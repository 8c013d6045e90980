"""Nodes of a scheduler that somebody uses, or keeps, without a launch."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.sources.allocation_book import AllocationBook, AllocationNote
from jupyter_mntrain.verbs.nodes.accept import AcceptVerb
from jupyter_mntrain.verbs.verb import Outcome
from tests.standin.cluster import StandInCluster
from tests.standin.screen import make_context, run_words
from tests.standin.slurm_tools import SlurmTools

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
