"""Job status: what hurts most now stands first, wherever a job is told of."""

from __future__ import annotations

from itertools import product

import msgspec
import pytest
from rich.console import Console

from jupyter_mntrain.metrics.entry_builder import job_entry
from jupyter_mntrain.metrics.summary import JobSummary, RankSummary
from jupyter_mntrain.model.failure.headline import headline_of, what_hurts
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import JobId, NodeId, Rank
from jupyter_mntrain.model.records.job import (
    TERMINAL,
    TRAINER,
    Attempt,
    JobSpec,
    JobState,
    JobView,
    Participant,
    Placement,
    Restart,
)
from jupyter_mntrain.model.records.metrics import ComparedTransfer
from jupyter_mntrain.show.formats import clock, percent
from jupyter_mntrain.show.picture.header import make_header
from jupyter_mntrain.show.tables.job import compared_line, progress_line, status_view
from jupyter_mntrain.show.tables.job_list import job_table
from tests.wording import says

STATES: tuple[JobState, ...] = (
    "pending",
    "starting",
    "running",
    "stopping",
    "succeeded",
    "failed",
    "canceled",
    "unknown",
)
FAILURE = Problem(
    kind=Kind.EXCEPTION, cause="cause-of-failure", node="n0", rank=Rank(0), time_s=4.0
)
STALL = Problem(kind=Kind.STOPPED, cause="cause-of-stall", node="n1", time_s=5.0, seen_s=7.0)
WARNINGS = (
    Problem(kind=Kind.SLOW_RANK, cause="slower-than-before", node="n1", time_s=2.0, seen_s=6.0),
    Problem(kind=Kind.LOSS_NAN, cause="loss-is-nan", node="n1", time_s=3.0),
)
PLACE = Placement(NodeId("0" * 32), "n0", 0, Rank(0), 1, (), "eth0", "10.0.0.1", ())


def printed(view: object) -> list[str]:
    console = Console(width=200, record=True, file=None)
    with console.capture() as capture:
        console.print(view)
    return [line for line in capture.get().splitlines() if line.strip()]


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(
    ("problem", "stall", "warnings", "restarts"),
    [*product((None, FAILURE), (None, STALL), ((), WARNINGS), (False, True))],
)
def test_what_hurts_most_now_is_told_first_everywhere(
    state: JobState,
    problem: Problem | None,
    stall: Problem | None,
    warnings: tuple[Problem, ...],
    *,
    restarts: bool,
) -> None:
    restart = Restart(number=2, at_s=9.0) if restarts else None
    spec = JobSpec(entry=("a.py",), participants=(Participant("n0"),), name="my-job")
    attempt = Attempt(1, (PLACE,), "10.0.0.1", 1, 0.0)
    found = {"problem": problem, "stall": stall, "warnings": warnings, "restart": restart}
    view = JobView(JobId("j"), spec, attempt, state, (), **found)
    summary = JobSummary(job_id=JobId("j"), name="my-job", state=state, step=None, **found)

    live = None if state in TERMINAL else stall
    order = [*filter(None, (problem, live)), *warnings]
    assert [one.problem for one in what_hurts(view)] == order
    first = headline_of(view)
    assert (first and first.problem) == (order[0] if order else None)

    lines = printed(status_view(summary, view, now_s=10.0))
    causes = [one.cause for one in order]
    at = [next(n for n, line in enumerate(lines) if cause in line) for cause in causes]
    state_at = next(n for n, line in enumerate(lines) if "my-job" in line)
    assert [*at, state_at] == sorted([*at, state_at])
    assert (at or [state_at])[0] == 0

    for place, one in zip(at, order, strict=True):
        assert clock(one.seen_s or one.time_s or 0.0) in lines[place + 1]

    line = progress_line(summary, 10.0)
    assert all(clock(one.seen_s or one.time_s or 0.0) in line for one in order)
    for bad in filter(None, (problem, live)):
        assert line.index(bad.cause) < line.index(state)
    assert all(warning.cause in line for warning in warnings)

    header = make_header(summary, view, now_s=10.0, program="mntrain", has_steps=False)
    told = [*filter(None, [header.cause]), *header.warnings]
    seen = [*filter(None, [header.hint]), *header.warnings]
    assert all(
        clock(one.seen_s or one.time_s or 0.0) in text
        for one, text in zip(order, seen, strict=True)
    )
    assert all(cause in text for cause, text in zip(causes, told, strict=True))

    entry = job_entry(view)
    assert entry.hurt == (first and first.hurt)
    assert entry.warnings == warnings
    rows = printed(job_table([view], now_s=10.0, program="mntrain"))
    row = next(one for one in rows if "my-job" in one)
    if live is not None and problem is None:
        assert says("stalled", row)
    else:
        assert "stalled" not in row


def test_a_stall_is_no_warning_as_well() -> None:
    traceback = Problem(kind=Kind.TRACEBACK, cause="printed", node="n0")
    summary = JobSummary(
        job_id=JobId("j"),
        name="my-job",
        state="running",
        step=None,
        stall=msgspec.structs.replace(traceback, time_s=1.0),
        warnings=(traceback, *WARNINGS),
    )
    assert [one.hurt for one in what_hurts(summary)] == ["stalled", "warned", "warned"]


@pytest.mark.parametrize(
    ("entry", "state", "step", "is_told"),
    [
        (("a.py",), "running", None, True),
        (("a.py",), "succeeded", None, True),
        (("a.py",), "starting", None, False),
        (("a.py",), "running", 3, False),
        (("-m", TRAINER, "r.toml"), "running", None, False),
    ],
)
def test_a_script_that_reports_nothing_is_told_the_three_lines(
    entry: tuple[str, ...], state: JobState, step: int | None, *, is_told: bool
) -> None:
    spec = JobSpec(entry=entry, participants=(Participant("n0"),), name="my-job")
    attempt = Attempt(1, (PLACE,), "10.0.0.1", 1, 0.0)
    view = JobView(JobId("j"), spec, attempt, state, ())
    ranks = (RankSummary(rank=Rank(0), node="n0", state=state, step=step),)
    summary = JobSummary(job_id=JobId("j"), name="my-job", state=state, step=step, ranks=ranks)
    text = "\n".join(printed(status_view(summary, view, now_s=10.0)))
    assert ("from jupyter_mntrain import Recorder" in text) == is_told
    assert ("n/a" not in text) == (step is None)


@pytest.mark.wording
def test_what_is_sent_in_fewer_bits_is_one_line() -> None:
    def told(*compared: ComparedTransfer) -> str | None:
        one = RankSummary(Rank(0), "n0", "running", coding=0.021, compared_transfers=compared)
        other = RankSummary(Rank(1), "n1", "running", coding=0.012)
        ranks = (one, other)
        return compared_line(
            JobSummary(job_id=JobId("j"), name="my-job", state="running", step=3, ranks=ranks)
        )

    assert told() is None
    forth = [ComparedTransfer(number, ratio_db=42.3 - number) for number in range(3)]
    back = ComparedTransfer(1, is_gradient=True, ratio_db=17.0)
    assert told(back, *forth) == (
        "signal to noise in fewer bits: activations 40 to 42 dB (least: stage 2 to 3), "
        f"gradients 17 dB; encoding takes up to {percent(0.021)} of a step"
    )
