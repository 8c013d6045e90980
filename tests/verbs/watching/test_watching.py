"""``jobs``, ``status``, ``attach``, ``logs``, ``stacks``: text and data."""

from __future__ import annotations

import time

import pytest

from jupyter_mntrain.model.errors import NodeError, SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.job import RankStack
from jupyter_mntrain.show.terminal import QuietScreen
from tests.standin.cluster import StandInCluster, node
from tests.standin.job_handle import StandInJob
from tests.standin.plans import plan_of
from tests.standin.screen import Paper
from tests.standin.training import sample_job
from tests.wording import says, wording


def test_a_job_that_hangs_says_whom_it_waits_for(text):
    from jupyter_mntrain.cluster import JobSummary
    from jupyter_mntrain.model.ids import JobId, Rank
    from jupyter_mntrain.show.tables.job import progress_line, status_view

    stall = Problem(
        kind=Kind.BUSY,
        cause="busy in load (data.py:12), and the other ranks wait",
        fix="look there",
        time_s=1000.0,
        node="hal",
        rank=Rank(1),
    )
    summary = JobSummary(job_id=JobId("j-00000001"), name="x", state="running", step=3, stall=stall)
    shown = text(status_view(summary, now_s=1075.0)).replace("\N{NO-BREAK SPACE}", " ")
    assert says("⚠ stalled for 1 min 15 s: hal: rank 1: busy in load (data.py:12)", shown)
    assert says("Fix: look there.", shown)
    assert says("stalled: hal: rank 1: busy", progress_line(summary, 1075.0))


def test_a_job_that_succeeded_says_first_why_its_numbers_are_doubtful(text):
    from jupyter_mntrain.cluster import JobSummary
    from jupyter_mntrain.model.ids import JobId, Rank
    from jupyter_mntrain.show.tables.job import progress_line, status_view

    warnings = (
        Problem(kind=Kind.RANKS_NEVER_MET, cause="the ranks never met", fix="have them meet"),
        Problem(kind=Kind.TRACEBACK, cause="printed a traceback", node="hal", rank=Rank(1)),
    )
    summary = JobSummary(
        job_id=JobId("j-00000001"), name="x", state="succeeded", step=3, warnings=warnings
    )
    first, second, *others = text(status_view(summary, now_s=0.0)).splitlines()
    assert says("⚠ the ranks never met. Fix: have them meet.", first)
    assert says("⚠ hal: rank 1: printed a traceback.", second)
    assert "✓ succeeded" in "\n".join(others)
    assert says("⚠ the ranks never met", progress_line(summary, 0.0))


def test_stacks_say_where_each_rank_is_and_which_node_is_silent(do, cluster, text, as_json):
    (job, *_) = cluster._jobs.values()
    job.at = {
        "wopr": [
            RankStack(rank=0, doing="busy", where="load (data.py:12)", text="Thread 1\n\nmain"),
            RankStack(rank=1, doing="stopped"),
        ],
        "muthur": NodeError("connection refused", node="muthur"),
    }
    shown = text(do("stacks", job.id).renderable)
    assert says("rank 0 on wopr: in its own code, load (data.py:12)", shown), "as the verdict"
    assert "Thread 1" not in shown
    assert "rank 1 on wopr: stopped" in shown
    assert "⚠ muthur: connection refused" in shown
    shown = text(do("stacks", job.id, "--rank", "0").renderable)
    assert "Thread 1" in shown
    assert "rank 1" not in shown
    with pytest.raises(SpecError) as caught:
        do("stacks", job.id, "--rank", "9")
    assert caught.value.kind is Kind.BAD_SPEC
    assert says("has no rank 9. Fix: use one from 0 to 1", str(caught.value))
    assert [one["rank"] for one in as_json(do("stacks", job.id))] == [0, 1]


def test_stacks_of_a_job_that_has_ended_say_so(do, cluster, text, as_json):
    (job, *_) = cluster._jobs.values()
    shown = text(do("stacks").renderable)
    assert "j-7f3a9c21" in shown
    assert says("no rank of j-7f3a9c21 runs on a reachable node", shown)
    job.become("succeeded")
    outcome = do("stacks", job.id)
    assert says("j-7f3a9c21 has ended", text(outcome.renderable))
    assert "log: mntrain logs j-7f3a9c21" in text(outcome.renderable)
    assert as_json(outcome) == []


def test_jobs_and_status(do, text, as_json):
    assert "j-7f3a9c21" in text(do("jobs").renderable)
    assert as_json(do("jobs"))[0]["nodes"] == ["wopr", "muthur"]
    shown = text(do("status").renderable)
    assert "▶ running" in shown
    assert "samantha-7b" in shown
    for word in ("r0", "r1", "wopr", "muthur", "MFU", "→ sent", "941\u00a0Mbit/s, measured"):
        assert word in shown
    data = as_json(do("status", "j-7f3a"))
    assert data["step_s"] > 0
    assert data["state"] == "running"
    assert len(data["ranks"]) == 2
    assert {link["direction"] for link in data["links"]} == {"sent", "received"}


def test_status_says_what_was_evaluated_last(do, text, as_json):
    sample = sample_job({"wopr": 1, "muthur": 1}, evaluated=20)
    last = next(iter(sample.history.ranks.values())).evaluations[-1].loss
    on = StandInCluster(nodes=[node("wopr", 1)], jobs=[StandInJob(sample)])
    shown = text(do("status", on=on).renderable)
    assert "evaluation" in shown
    assert f"{last:.3f}" in shown
    assert as_json(do("status", on=on))["evaluation_loss"] == last
    assert "evaluation" not in text(do("status").renderable)


def test_status_says_in_one_line_what_the_model_wrote_last(do, text):
    wrote = {"Who are you?": "I am\nSamantha, \x1b[31ma helpful assistant. " + "And so on. " * 100}
    sample = sample_job({"wopr": 1, "muthur": 1}, wrote=wrote)
    on = StandInCluster(nodes=[node("wopr", 1)], jobs=[StandInJob(sample)])
    last = text(do("status", on=on).renderable).rstrip().splitlines()[-1]
    assert last.startswith("sample at step 60  Who are you? I am Samantha, \\x1b[31ma helpful")
    assert last.endswith("…")
    assert "sample" not in text(do("status").renderable)


def test_a_failed_job_says_its_cause_first(do, failed_cluster, text):
    lines = text(do("status", on=failed_cluster).renderable).splitlines()
    assert lines[0].startswith("✕ muthur: ")
    assert says("muthur: rank 2: eno1 lost its link", lines[0])
    assert "mntrain logs j-7f3a9c21 --rank 2" in lines[1]
    assert not any("Traceback" in line for line in lines)
    asked = text(do("status", "--traceback", on=failed_cluster).renderable)
    assert "RuntimeError: Connection closed by peer" in asked


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_status_is_readable_at_any_width(do, text, width):
    shown = text(do("status").renderable, width=width)
    assert "r0" in shown
    assert "wopr" in shown
    for line in shown.splitlines():
        assert len(line) <= max(width, 80)


def test_attach_in_a_terminal_stays_until_the_end(do):
    assert do("attach").exit_code == 0


def test_attach_in_a_notebook_returns_at_once(do):
    screen = Paper(in_background=True)
    outcome = do("attach", screen=screen)
    assert screen.shown == [outcome.job]
    assert screen.followed == []


def test_logs_name_node_and_rank(do, text, as_json):
    shown = text(do("logs").renderable)
    assert "wopr r0 │ step 1 loss 7.1" in shown
    assert "wopr torchrun │ torchrun is up" in shown
    assert as_json(do("logs", "--rank", "0")) == [
        {"node": "wopr", "rank": 0, "text": "step 1 loss 7.1"}
    ]


def test_all_lines_are_written_into_a_new_file(do, tmp_path, as_json):
    path = tmp_path / "ranks.log"
    outcome = do("logs", "--output", str(path))
    assert as_json(outcome)["count"] == 3
    assert path.read_text().splitlines()[1] == "[wopr rank 0] step 1 loss 7.1"
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(SpecError, match=wording("already exists")):
        do("logs", "--output", str(path))
    do("logs", "--output", str(path), "--force")
    with pytest.raises(SpecError, match=wording("cannot be used together")):
        do("logs", "--output", str(path), "--follow")


def test_following_logs_prints_each_line_once_and_ends_with_the_job(do, cluster, text):
    (job,) = cluster._jobs.values()
    screen = Paper()

    def sleep(_: float) -> None:
        job.lines.append(type(job.lines[0])(node="wopr", rank=0, text="step 2"))
        job.become("succeeded")

    do("logs", job.id, "--follow", screen=screen, sleep=sleep)
    said = "".join(text(one) for one in screen.said)
    assert said.count("step 1 loss") == 1
    assert said.count("step 2") == 1


def test_no_lines_that_were_asked_for_are_not_said_to_be_missing(do, text, as_json):
    outcome = do("logs", "--tail", "0")
    assert (text(outcome.renderable).strip(), as_json(outcome)) == ("", [])
    assert "step 1" in text(do("logs", "--tail", "1").renderable)


@pytest.mark.parametrize("words", [["attach"], ["attach", "--wait"]])
def test_waiting_ends_after_the_time_that_was_given_and_the_job_goes_on(
    do, cluster, words, as_json
):
    (job, *_) = cluster._jobs.values()
    job._ends_as = None
    outcome = do(*words, "--timeout", "1800")
    assert outcome.exit_code == 124
    assert (as_json(outcome)["detached"], as_json(outcome)["state"]) == (True, "running")


def test_a_terminal_waits_no_longer_than_it_was_told():
    waited = []

    class Endless:
        state = "running"

        def watch(self) -> None:
            pass

        def wait(self, wait_s: float) -> None:
            waited.append(wait_s)
            time.sleep(wait_s)

    began = time.monotonic()
    QuietScreen(Paper()).follow(Endless(), 0.2)
    assert time.monotonic() - began >= 0.2
    assert sum(waited) == pytest.approx(0.2, abs=0.02)


def test_status_has_the_predicted_step_beside_the_measured_one_and_why_it_differs(
    do, text, as_json
):
    def status(step_s, **fields):
        plan = plan_of(step_s, 0.8 * step_s, **fields)
        job = StandInJob(sample_job({"wopr": 1, "muthur": 1}, plan=plan))
        return do("status", on=StandInCluster([], [job]))

    outcome = status(0.8)
    lines = text(outcome.renderable, width=100).splitlines()
    assert max(map(len, lines)) <= 100
    shown = " ".join(map(str.strip, lines)).replace("\N{NO-BREAK SPACE}", " ")
    assert says("predicted: 800 ms per step; it is ", shown)
    assert says(": rank 1 computes 61\u202f% slower than planned; rank 0 computes", shown)
    data = as_json(outcome)
    assert data["predicted_step_s"] == 0.8
    assert data["step_s"] > 1
    guessed = text(status(0.8, is_measured=False).renderable, width=300)
    assert says("(its speed was guessed)", guessed)
    near = status(1.2)
    shown = text(near.renderable, width=100).replace("\N{NO-BREAK SPACE}", " ")
    assert says("predicted: 1.2 s per step", shown)
    assert "off_plan" in data
    assert "off_plan" not in as_json(near)
    assert "predicted" not in text(do("status").renderable)
