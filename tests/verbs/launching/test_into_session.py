"""Launching into a session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from jupyter_mntrain.model.errors import RefusedError, SpecError
from jupyter_mntrain.model.records.job import SESSION, JobSpec, Participant
from tests.standin.job_handle import StandInJob
from tests.verbs.launching.test_running_already import change


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text("import torch")
    return tmp_path


@pytest.fixture
def launch(do: Any, script: Path) -> Any:
    def run(*words: str) -> Any:
        return do("launch", "train.py", *words, directory=script)

    return run


@pytest.fixture
def session(cluster: Any) -> StandInJob:
    """The cluster's running job is one, of one node."""
    job = cluster.job(cluster.jobs()[0].job_id)
    spec = JobSpec(
        entry=("-m", SESSION),
        participants=(Participant(node="wopr"),),
        python="/opt/env/bin/python",
        environment={"HF_HOME": "/models", "SCALE": "1"},
    )
    change(job, spec=spec)
    return job


@pytest.mark.parametrize("named", ["auto", "it"])
def test_it_has_the_nodes_interpreter_and_variables_of_the_session(
    launch: Any, cluster: Any, session: StandInJob, named: str
) -> None:
    launch("--session", session.id if named == "it" else named, "--env", "SCALE=2")
    (spec,) = cluster.launches
    places = session.view().attempt.placements
    assert spec.session == session.id
    assert [(one.node, one.nproc, one.gpus) for one in spec.participants] == [
        (one.node, one.nproc, one.gpus) for one in places
    ]
    assert all(one.shares_gpus == bool(one.gpus) for one in spec.participants)
    assert spec.python == "/opt/env/bin/python"
    assert spec.environment == {"HF_HOME": "/models", "SCALE": "2"}


def test_auto_starts_as_usual_where_none_fits(
    launch: Any, cluster: Any, session: StandInJob
) -> None:
    launch("--session", "auto", "--member", "wopr:1")
    launch("--session", "auto", "--member", "wopr:1", "--python", "conda:other")
    session.become("succeeded")
    launch("--session", "auto", "--member", "wopr:1")
    assert [spec.session for spec in cluster.launches] == [None] * 3


@pytest.mark.parametrize(
    "words", [("--member", "wopr:1"), ("--head", "wopr"), ("--python", "conda:other")]
)
def test_what_the_session_decides_is_not_chosen_again(
    launch: Any, session: StandInJob, words: tuple[str, str]
) -> None:
    with pytest.raises(SpecError, match=words[0]):
        launch("--session", session.id, *words)


def test_a_session_that_still_waits_for_its_nodes_takes_no_job(
    launch: Any, cluster: Any, session: StandInJob
) -> None:
    waiting = msgspec.structs.replace(session.view().attempt, number=0, placements=())
    change(session, attempt=waiting)
    with pytest.raises(RefusedError):
        launch("--session", session.id)
    launch("--session", "auto", "--member", "wopr:1")
    (spec,) = cluster.launches
    assert spec.session is None


def test_a_job_that_is_no_session_or_is_over_is_refused(
    launch: Any, cluster: Any, session: StandInJob
) -> None:
    session.become("succeeded")
    with pytest.raises(RefusedError):
        launch("--session", session.id)
    view = session.view()
    change(session, spec=msgspec.structs.replace(view.spec, entry=("train.py",)))
    with pytest.raises(SpecError):
        launch("--session", session.id)
    assert not cluster.launches
