"""``trace``: a recorded step for people, programs and Perfetto, and what it refuses."""

from __future__ import annotations

import json

import pytest

from jupyter_mntrain.model.errors import SpecError
from tests.standin.cluster import StandInCluster
from tests.standin.job_handle import StandInJob
from tests.standin.plans import plan_of
from tests.standin.screen import Paper
from tests.standin.training import sample_job
from tests.wording import says


@pytest.fixture
def traced() -> StandInCluster:
    return StandInCluster([], [StandInJob(sample_job({"wopr": 1, "muthur": 1}, traced=(3, 50)))])


def test_the_newest_recorded_step_is_shown_rank_by_rank(do, traced, text):
    shown = text(do("trace", on=traced).renderable, width=100)
    assert says("step 50", shown)
    first, second = (line for line in shown.splitlines() if line.startswith(("r0", "r1")))
    assert first.startswith("r0 wopr")
    assert second.startswith("r1 muthur")
    assert "█" in first
    assert "·" in second.split("█")[0], "it waits for the first microbatch"
    assert says("recorded steps: 3, 50", shown)


def test_programs_get_its_spans(do, traced, as_json):
    data = as_json(do("trace", "--step", "3", "--json", on=traced))
    assert (data["recorded"]["step"], data["recorded_steps"]) == (3, [3, 50])
    kinds = [[span["kind"] for span in rank] for rank in data["recorded"]["ranks"]]
    assert [one.count("F") for one in kinds] == [4, 4]
    assert [one.count("send") for one in kinds] == [4, 4]


def test_a_notebook_gets_a_picture(do, traced):
    outcome = do("trace", on=traced, screen=Paper(in_background=True))
    assert outcome.picture is not None
    assert outcome.picture.startswith(b"\x89PNG")
    assert do("trace", on=traced).picture is None


def test_it_is_written_for_perfetto_or_as_a_picture(do, traced, tmp_path, text):
    said = text(do("trace", "--output", "s.json", on=traced, directory=tmp_path).renderable)
    assert says("ui.perfetto.dev", said)
    written = json.loads((tmp_path / "s.json").read_text())
    names = {one["args"]["name"] for one in written["traceEvents"] if one["name"] == "process_name"}
    assert names == {"r0 wopr, step 50", "r1 muthur, step 50"}
    do("trace", "--output", "s.png", on=traced, directory=tmp_path)
    assert (tmp_path / "s.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("verb", ["plot", "trace", "bench"])
def test_a_file_that_is_there_stays_unless_it_is_to_be_overwritten(do, traced, tmp_path, verb):
    place = tmp_path / "s.png"
    place.write_text("mine")
    where = {"directory": tmp_path} if verb == "bench" else {"directory": tmp_path, "on": traced}
    with pytest.raises(SpecError) as caught:
        do(verb, "-o", "s.png", **where)
    assert says("already exists", caught.value.cause)
    assert says("overwrite it with --force", caught.value.fix)
    assert place.read_text() == "mine"
    do(verb, "-o", "s.png", "--force", **where)
    assert place.read_bytes().startswith(b"\x89PNG")


def test_a_step_that_is_not_recorded_is_refused_with_those_that_are(do, traced):
    with pytest.raises(SpecError) as caught:
        do("trace", "--step", "4", on=traced)
    assert says("step 4 of j-7f3a9c21 is not recorded, or not kept", str(caught.value))
    assert says("use one of 3, 50", str(caught.value))


def test_it_stands_below_what_the_plan_predicted(do, text, as_json, tmp_path):
    # A plan for the recipe that the stand-in carries, which has all defaults.
    sample = sample_job({"wopr": 1, "muthur": 1}, traced=(3,), plan=plan_of())
    planned = StandInCluster([], [StandInJob(sample)])
    shown = text(do("trace", on=planned).renderable, width=100)
    first, second = (line for line in shown.splitlines() if line.startswith("One step"))
    assert says("predicted", first)
    assert says("step 3", second)
    data = as_json(do("trace", "--json", on=planned))
    assert len(data["predicted"]["ranks"]) == 2
    assert "step" not in data["predicted"]
    do("trace", "--output", "s.json", on=planned, directory=tmp_path)
    written = json.loads((tmp_path / "s.json").read_text())["traceEvents"]
    names = [one["args"]["name"] for one in written if one["name"] == "process_name"]
    assert names == [
        "r0 wopr, predicted",
        "r1 muthur, predicted",
        "r0 wopr, step 3",
        "r1 muthur, step 3",
    ]
