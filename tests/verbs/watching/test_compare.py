"""``compare``: figures and differing settings, for people and for programs."""

from __future__ import annotations

import re

import msgspec
import pytest

from jupyter_mntrain.cluster import JobHistory
from jupyter_mntrain.model.errors import JobNotFoundError, SpecError
from jupyter_mntrain.model.ids import JobId
from tests.standin.cluster import StandInCluster, node
from tests.standin.job_handle import StandInJob
from tests.standin.training import Sample, sample_job

FIRST, SECOND, THIRD = "j-7f3a9c21", "j-00000002", "j-00000003"


def job(job_id: str, priority: int, steps: int = 60) -> StandInJob:
    sample = sample_job({"wopr": 1, "muthur": 1}, steps=steps, state="succeeded")
    view = sample.history.view
    spec = msgspec.structs.replace(view.spec, priority=priority, name=f"job of {priority}")
    history = JobHistory(
        view=msgspec.structs.replace(view, job_id=JobId(job_id), spec=spec),
        ranks=sample.history.ranks,
        links=sample.history.links,
        is_complete=True,
    )
    return StandInJob(Sample(history, sample.now_s))


@pytest.fixture
def three() -> StandInCluster:
    jobs = [job(FIRST, 0), job(SECOND, 7, steps=40), job(THIRD, 0)]
    return StandInCluster(nodes=[node("wopr", 1), node("muthur", 1)], jobs=jobs)


def test_jobs_stand_beside_each_other_with_what_differs(do, three, text) -> None:
    shown = text(do("compare", FIRST, SECOND, THIRD, on=three).renderable)
    lines = (re.split(r"  +", line.strip()) for line in shown.splitlines() if line.strip())
    rows = {cells[0]: cells for cells in lines}
    assert rows["launch.priority"] == ["launch.priority", "0", "7", "0"]
    assert rows["setting"] == ["setting", FIRST, SECOND, THIRD]
    assert rows["step"] == ["step", "60", "40", "60"]
    assert "launch.restarts" not in shown
    assert "other settings are the same" in shown


def test_programs_get_every_figure_and_where_settings_came_from(do, three) -> None:
    data = do("compare", FIRST, SECOND, on=three).data
    assert [one["job_id"] for one in data["jobs"]] == [FIRST, SECOND]
    assert [one["step"] for one in data["jobs"]] == [60, 40]
    (differing,) = data["differing"]
    assert differing["name"] == "launch.priority"
    assert [one["origin"] for one in differing["values"]] == ["default", "option"]
    assert "launch.restarts" in data["same"]


def test_equal_jobs_say_so(do, three, text) -> None:
    assert "All settings are the same" in text(do("compare", FIRST, THIRD, on=three).renderable)


@pytest.mark.parametrize(
    ("words", "error"),
    [([FIRST], SpecError), ([FIRST, FIRST], SpecError), ([FIRST, "j-nope"], JobNotFoundError)],
)
def test_bad_input_is_one_line_with_a_fix(do, three, words, error) -> None:
    with pytest.raises(error) as caught:
        do("compare", *words, on=three)
    assert len(str(caught.value).splitlines()) == 1
    assert caught.value.fix
