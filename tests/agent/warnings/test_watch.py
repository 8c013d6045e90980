"""WarningWatch: jobs of real ranks that succeed, and yet their numbers are worth nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.lifecycle.rollup import roll_up
from jupyter_mntrain.model.records.job import TERMINAL, TRAINER, JobView
from tests.agent.live import LiveAgent, launch, two_agents
from tests.train.test_command import write_text
from tests.train.test_finite import OVERFLOWS
from tests.waiting import until
from tests.wording import says

pytestmark = pytest.mark.slow

LONE = """
import time, traceback
import torch
from jupyter_mntrain import Recorder
with Recorder() as recorder:
    for loss in (2.0, float("nan"), 1.9, 1.8):
        recorder.step(loss=torch.tensor(loss))
        time.sleep(0.3)
    try:
        torch.ones(2) @ torch.ones(3)
    except RuntimeError:
        traceback.print_exc()
"""
"""Everything that can be wrong with a script that exits with code 0."""

STAY = "for _ in range(60): time.sleep(0.05)"
"""Three seconds; more where processes wait for a core, as then the agent looks less often, too."""

MEET = f"""
import time
import torch.distributed as dist
dist.init_process_group("gloo")
{STAY}
dist.destroy_process_group()
"""

ALONE = f"import time\n{STAY}\n"

FORGETS = """
import os, time
from jupyter_mntrain import Recorder
with Recorder() as recorder:
    for step in range(1, 5):
        recorder.step(step=step)
        recorder.saved(step)
        time.sleep(0.1)
if os.environ["MNTRAIN_ATTEMPT"] == "1":
    raise SystemExit(1)
"""

EAGER = {
    "MNTRAIN_FAILURE_CONNECT_INTERVAL_S": "0.2",
    "MNTRAIN_FAILURE_CONNECT_LOOKS": "3",
}


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[LiveAgent]]:
    state = tmp_path_factory.mktemp("doubts")
    with two_agents("127.97.0", state, "test", EAGER) as both:
        yield both


def ended(agents: list[LiveAgent], job_id: JobId) -> JobView:
    def view() -> JobView:
        return roll_up([agent.record(job_id) for agent in agents])

    until(lambda: view().state in TERMINAL, "the end")
    return view()


def kinds(problems: tuple[Problem, ...]) -> set[Kind]:
    return {one.kind for one in problems}


def environment(agent: LiveAgent, job_id: JobId, attempt: int) -> dict[str, str]:
    """Of the ranks, as the agent starts them."""
    path = agent.state / "jobs" / job_id / f"attempt-{attempt}" / "command.json"
    told: dict[str, str] = json.loads(path.read_text())["environment"]
    return told


def test_a_job_that_succeeds_says_what_makes_it_worthless(agents: list[LiveAgent]) -> None:
    view = ended(agents, launch(agents, LONE))
    assert view.state == "succeeded"
    assert kinds(view.warnings) == {Kind.RANKS_NEVER_MET, Kind.LOSS_NAN, Kind.TRACEBACK}
    by_kind = {one.kind: one for one in view.warnings}
    assert (by_kind[Kind.LOSS_NAN].rank, by_kind[Kind.LOSS_NAN].step) == (0, 2)
    assert by_kind[Kind.TRACEBACK].node == "node1"
    assert says("(script.py, line 10)", by_kind[Kind.TRACEBACK].cause)

    # The same, launched to end at the first NaN: that cannot be mended by starting it again.
    view = ended(agents, launch(agents, LONE, on_nan="stop", max_restarts=3))
    assert (view.state, view.attempt.number) == ("failed", 1)
    assert view.problem is not None
    assert (view.problem.kind, view.problem.step) == (Kind.LOSS_NAN, 2)
    assert view.problem.node in ("node1", "node2")
    assert Kind.LOSS_NAN not in kinds(view.warnings)


def test_ranks_that_report_nothing_are_known_by_their_connections(agents: list[LiveAgent]) -> None:
    jobs = [launch(agents, script) for script in (MEET, ALONE)]
    met, alone = (ended(agents, job_id) for job_id in jobs)
    assert (met.state, met.warnings) == ("succeeded", ())
    assert [rank.group_size for part in met.parts for rank in part.ranks] == [2, 2]
    assert (alone.state, kinds(alone.warnings)) == ("succeeded", {Kind.RANKS_NEVER_MET})


def test_a_script_that_begins_again_is_told_how_far_it_was(agents: list[LiveAgent]) -> None:
    job_id = launch(agents, FORGETS, max_restarts=1)
    view = ended(agents, job_id)
    assert (view.state, view.attempt.number) == ("succeeded", 2)
    # Its ranks need no group: on a slow machine there is time to see that they never meet.
    warnings = [one for one in view.warnings if one.kind is not Kind.RANKS_NEVER_MET]
    assert [(one.kind, one.step) for one in warnings] == [(Kind.BEGAN_AGAIN, 1)]
    told = environment(agents[1], job_id, 2)
    assert told["MNTRAIN_FIRST_WORLD_SIZE"] == "2"
    assert told["MNTRAIN_SAVED_STEP"] == "4"


def test_the_trainer_fails_with_one_verdict_on_all_ranks(
    agents: list[LiveAgent], tmp_path: Path
) -> None:
    settings = [
        *("model.preset=llama-tiny", f"data.source={write_text(tmp_path / 'text')}"),
        *("data.vocabulary_size=300", "data.sequence_length=16", "pipeline.microbatches=2"),
        *("train.device=cpu", "train.batch_size=4", "report.to=[]", *OVERFLOWS),
    ]
    entry = ("-m", TRAINER, "script.py", *(word for one in settings for word in ("--set", one)))
    job_id = launch(agents, "", entry=entry, max_restarts=3)
    view = ended(agents, job_id)
    assert (view.state, view.attempt.number) == ("failed", 1)
    assert view.problem is not None
    assert view.problem.kind is Kind.LOSS_NAN
    ends = {
        (rank.exit_code, rank.problem and (rank.problem.kind, rank.problem.step, rank.problem.node))
        for part in view.parts
        for rank in part.ranks
        if rank.exit_code is not None
    }
    assert ends == {(7, (Kind.LOSS_NAN, view.problem.step, view.problem.node))}
    for agent in agents:
        kept = sorted((agent.state / "runs" / job_id / "checkpoints").glob("step-*"))
        assert kept
        assert int(kept[-1].name.removeprefix("step-")) < (view.problem.step or 0)
