"""Reading: the same job at the same moment from every surface, as figures.

The lines that ranks wrote go through an agent's journal and archive. One driver has read them all
as they came, the other one arrives now and is told what the agent has thinned.
"""

from __future__ import annotations

import io
import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from jupyter_mntrain.agent.jobs.samples.archive import SamplesAnswer
from jupyter_mntrain.agent.jobs.samples.samples import Samples
from jupyter_mntrain.metrics.entry_builder import job_entry
from jupyter_mntrain.metrics.history import HistoryBuilder
from jupyter_mntrain.metrics.series import JobSeries
from jupyter_mntrain.metrics.series_builder import SeriesBuilder
from jupyter_mntrain.model.ids import NodeId
from jupyter_mntrain.model.records.job import JobView
from jupyter_mntrain.model.records.metrics import journal_decoder, sample_decoder
from jupyter_mntrain.show.tables.comparison import figure_table
from jupyter_mntrain.show.tables.job import status_view
from tests.rulers.plays import Played
from tests.standin.jobs import JOB, place, record, roll_up

NODE = NodeId("id-of-node1")
ONE_NODE = (place("node1", 0, 0, nproc=2),)

Figures = dict[str, float | None]


class Agent:
    """Keeps what the ranks of a play wrote, as a node's agent does."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._samples = Samples(directory)
        self._taken = 0
        self._watching = HistoryBuilder()
        self._series = SeriesBuilder(JOB, "watching")

    def take(self, played: Played) -> None:
        lines = list(played.lines())
        for attempt, _, line in lines[self._taken :]:
            self._samples.append(sample_decoder.decode(line), attempt=attempt)
        self._taken = len(lines)

    def watched(self, view: JobView, now_s: float) -> JobSeries:
        """To a driver that has read every line as it came."""
        for block, _ in self._samples.journal.read(0):
            for line in block.splitlines():
                self._watching.add(NODE, "node1", journal_decoder.decode(line))
        self._series.extend(self._watching.snapshot(view, is_complete=False), now_s)
        return self._series.whole()

    def late(self, view: JobView, now_s: float) -> JobSeries:
        """To a driver that arrives now."""
        archive, builder = self._samples.archive, HistoryBuilder()
        assert archive is not None
        answer = SamplesAnswer(archive, self._samples.journal, ranks=archive.ranks, points=600)
        builder.load(NODE, "node1", answer.read())
        made = SeriesBuilder(JOB, "late")
        made.extend(builder.snapshot(view, is_complete=False), now_s)
        return made.whole()


def view_of(played: Played, *, is_over: bool) -> JobView:
    """The job as its only node tells it."""
    state = "succeeded" if is_over else "running"
    number = played.done[-1].attempt if played.done else 1
    ended = {"ended_s": played.now_s} if is_over else {}
    return roll_up(
        [record(0, state, places=ONE_NODE, number=number, started_s=played.now_s, **ended)]
    )


def read_all(agent: Agent, played: Played, *, is_over: bool) -> dict[str, Figures]:
    """Figures by surface."""
    view = view_of(played, is_over=is_over)
    series, late = agent.watched(view, played.now_s), agent.late(view, played.now_s)
    summary = series.summary
    entry = json.loads(msgspec.json.encode(job_entry(view, numbers=summary.numbers)))
    return {
        "--json": _of_json(json.loads(msgspec.json.encode(summary))),
        "status": of_text(_printed(status_view(summary, view, now_s=played.now_s))),
        "page": _of_json(entry["numbers"]),
        "compare": of_text(_printed(figure_table([summary, summary]))),
        "page, arriving now": _of_json(json.loads(msgspec.json.encode(late.summary.numbers))),
        "page's rows": _of_rows(late),
    }


def _printed(shown: Any) -> str:
    console = Console(file=io.StringIO(), width=200, record=True)
    console.print(shown)
    return console.export_text()


def _of_json(told: dict[str, Any]) -> Figures:
    window, whole = told.get("window") or {}, told.get("whole") or {}
    found: Figures = {
        "tok/s": told.get("tokens_per_s"),
        "tok/s, whole job": whole.get("tokens_per_s"),
        "step time": told.get("step_s"),
        "time left": told.get("remaining_s"),
        "tokens": whole.get("tokens"),
        "lost steps": float(told.get("lost_steps", 0)),
        "loss": told.get("loss"),
    }
    if window:
        found["parts, sum"] = sum(window["parts_s"].values()) / window["seconds"]
        for part in ("evaluation", "saving"):
            found[part] = window["parts_s"].get(part, 0.0)
    if ranks := told.get("ranks"):
        found |= {f"tok/s, rank {one['rank']}": one.get("tokens_per_s") for one in ranks}
    return found


def _number(text: str) -> float | None:
    match = re.match(r"(-?[\d,.]+(?:e[+-]?\d+)?)\s*(ms|µs|s|min|h|k|M)?", text.strip())
    if match is None:
        return None
    scale = {"ms": 1e-3, "µs": 1e-6, "min": 60.0, "h": 3600.0, "k": 1e3, "M": 1e6}
    return float(match[1].replace(",", "")) * scale.get(match[2] or "", 1.0)


def of_text(text: str) -> Figures:
    """Figures of a printed job; of several, of the first."""
    lines = [line.replace("\u00a0", " ").replace("\u202f", " ") for line in text.splitlines()]
    found: Figures = {}
    for number, line in enumerate(lines):
        cells = re.split(r"\s{2,}", line.strip())
        if "job MFU" in cells and "tok/s" in cells:
            values = re.split(r"\s{2,}", lines[number + 2].strip())
            told = dict(zip(cells, values, strict=True))
            found |= {name: _number(told[name]) for name in ("tok/s", "step time", "loss")}
        if len(cells) > 1 and cells[0] in {"tok/s", "step time", "loss"} and "job MFU" not in cells:
            found[cells[0]] = _number(cells[1])
    return found


def _of_rows(series: JobSeries) -> Figures:
    """What a page's charts add up to: rate times wall seconds, over the seconds."""
    job = series.job
    rows = [
        (float(time_s), float(rate))
        for time_s, rate in zip(job.time_s, job.tokens_per_s, strict=False)
        if time_s is not None and rate is not None and not isinstance(rate, str)
    ]
    if len(rows) < 2 or series.summary.lost_steps:
        return {}
    spans = [after[0] - before[0] for before, after in pairwise(rows)]
    made = sum(span * row[1] for span, row in zip(spans, rows[1:], strict=True))
    return {"tok/s, chart": made / sum(spans)} if sum(spans) > 0 else {}
