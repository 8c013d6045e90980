"""The figures that people see of a job agree digit for digit, and are honest."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from math import nan
from typing import get_args

import msgspec
import pytest
from rich.console import Console

from jupyter_mntrain.metrics.history import JobHistory
from jupyter_mntrain.model.records.metrics import RankStep, encoder, sample_decoder
from jupyter_mntrain.notebook.liveview import LiveView
from jupyter_mntrain.recipe.schedules import ScheduleName
from jupyter_mntrain.show import formats
from jupyter_mntrain.show.picture import Picture
from jupyter_mntrain.show.tables.job import status_view
from jupyter_mntrain.telemetry import formulas
from tests.notebook.test_liveview import Page
from tests.standin.cluster import StandInJob
from tests.standin.screen import StillClock
from tests.standin.training import SCENES, Sample, sample_job

SCHEDULES = get_args(ScheduleName)

LABELS = ("tok/s", "job MFU", "step time", "bubble", "busiest link", "loss")


def changed(sample: Sample, start: dict | None = None, step=lambda one: one) -> Sample:
    """With other starts and steps."""
    history = sample.history
    ranks = {
        rank: replace(
            one,
            start=msgspec.structs.replace(one.start, **(start or {})),
            steps=[step(each) for each in one.steps],
        )
        for rank, one in history.ranks.items()
    }
    return Sample(JobHistory(history.view, ranks, history.links, history.is_complete), sample.now_s)


def table(text: str) -> dict[str, str]:
    """Headline figures by label, read back from what was printed."""
    lines = text.splitlines()
    head = next(i for i, line in enumerate(lines) if "job MFU" in line)
    values = [cell.strip() for cell in lines[head + 2].split("  ") if cell.strip()]
    return dict(zip(LABELS, values, strict=False))


def printed(sample: Sample) -> str:
    console = Console(file=io.StringIO(), width=160, record=True)
    console.print(status_view(sample.summary, sample.history.view))
    return console.export_text()


def saved(sample: Sample) -> tuple[str, dict[str, str]]:
    """What a live view leaves in the notebook: its text, and the figures on its picture."""
    view, page = LiveView(StandInJob(sample), StillClock()), Page()
    view.attach(page)
    view.frame()
    assert "image/png" in page.last
    assert view._picture is not None
    words = [text.get_text() for text in view._picture.painter.figure.texts]
    pictured = {label: words[words.index(label) + 1] for label in LABELS}
    return str(page.last["text/plain"]), pictured


def encoded(sample: Sample) -> dict[str, str]:
    told = json.loads(json.dumps(msgspec.to_builtins(sample.summary), allow_nan=False))
    used = told.get("busiest_link")
    return {
        "tok/s": formats.rate(told.get("tokens_per_s")),
        "job MFU": formats.percent(told.get("mfu")),
        "step time": formats.seconds(told.get("step_s")),
        "bubble": formats.percent(told.get("bubble")),
        "busiest link": formats.percent(used)
        if used is not None
        else formats.bit_rate(told.get("busiest_bytes_per_s")),
        "loss": formats.loss(told.get("loss")),
    }


def nan_at_the_end(step: RankStep) -> RankStep:
    return msgspec.structs.replace(step, loss=nan) if step.step >= 58 else step


CASES = {
    **{name: SCENES[name] for name in ("two", "three", "six", "many", "failed", "no-capacity")},
    **{
        f"schedule {name}": lambda name=name: changed(
            sample_job({"wopr": 1, "muthur": 1}), {"schedule": name}
        )
        for name in SCHEDULES
    },
    "NaN": lambda: changed(sample_job({"wopr": 1, "muthur": 1}), step=nan_at_the_end),
    "one step": lambda: sample_job({"wopr": 1, "muthur": 1}, steps=1),
}


@pytest.mark.parametrize("name", list(CASES))
def test_stdout_picture_notebook_and_json_say_the_same(name: str) -> None:
    sample = CASES[name]()
    said = table(printed(sample))
    assert set(said) == set(LABELS)
    text, pictured = saved(sample)
    assert pictured == said
    assert table(text) == said
    assert encoded(sample) == said


@pytest.mark.parametrize("schedule", ["zbv", "dualpipev", "interleaved-zero-bubble"])
def test_the_schedules_own_bubble_is_that_of_the_jobs_schedule(schedule: str) -> None:
    sample = changed(sample_job({"wopr": 1, "muthur": 1}), {"schedule": schedule})
    own = formulas.ideal_bubble(2, 8, 1, schedule=schedule)
    assert sample.summary.schedule_bubble == pytest.approx(own, rel=1e-6)


def test_nan_is_carried_shown_in_red_and_counted() -> None:
    sample = CASES["NaN"]()
    assert (sample.summary.loss, sample.summary.not_finite) == ("NaN", 3)
    assert sample.summary.first_not_finite_step == 58
    assert table(printed(sample))["loss"] == "NaN"
    line = encoder.encode(next(iter(sample.history.ranks.values())).steps[-1])
    assert sample_decoder.decode(line).loss == "NaN"
    picture = Picture(program="x")
    picture.draw(sample.series, sample.history.view, now_s=sample.now_s)
    red = [t for t in picture.painter.figure.texts if t.get_text() == "NaN"]
    assert {text.get_color() for text in red} == {"#d83a3a"}


def test_mfu_is_never_over_100_percent_and_says_what_peak_it_is_of() -> None:
    sample = changed(sample_job({"wopr": 1, "muthur": 1}), {"peak_flops_per_s": 1e12})
    assert 0 < sample.summary.mfu <= 1
    assert all(value <= 1 for rank in sample.series.ranks for value in rank.mfu[2:])
    assert all("under load" in rank.peak_source for rank in sample.summary.ranks)


def test_a_loopback_job_that_reports_no_payload_has_no_rate_and_says_why() -> None:
    def silent(step: RankStep) -> RankStep:
        return msgspec.structs.replace(step, sent_bytes={}, received_bytes={})

    sample = changed(sample_job({"wopr": 1, "muthur": 1}, loopback=True), step=silent)
    assert {link.bytes_per_s for link in sample.summary.links} == {None}
    assert all("do not report" in link.missing for link in sample.summary.links)
    assert table(printed(sample))["busiest link"] == "n/a"
