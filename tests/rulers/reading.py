"""Reading: the same job at the same moment from every surface, as figures.

The lines that ranks wrote go through their agents' journals and archives. One driver has read them
all as they came, the other one arrives now and is told what the agents have downsampled. The
trainer's own count goes to Prometheus, and is scraped."""

from __future__ import annotations

import io
import json
import re
import socket
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec
from msgspec.structs import replace
from rich.console import Console

from jupyter_mntrain.agent.jobs.samples.archive import SamplesAnswer
from jupyter_mntrain.agent.jobs.samples.samples import Samples
from jupyter_mntrain.metrics.entry_builder import job_entry, listed_entry
from jupyter_mntrain.metrics.history import HistoryBuilder, JobHistory
from jupyter_mntrain.metrics.series import JobSeries
from jupyter_mntrain.metrics.series_builder import SeriesBuilder
from jupyter_mntrain.model.ids import NodeId
from jupyter_mntrain.model.lifecycle.clock import HeardClock
from jupyter_mntrain.model.records.job import Earlier, JobView
from jupyter_mntrain.model.records.metrics import LinkSample, journal_decoder, sample_decoder
from jupyter_mntrain.model.records.node import Capacity
from jupyter_mntrain.show.tables.comparison import figure_table
from jupyter_mntrain.show.tables.job import status_view
from jupyter_mntrain.train.pipeline.steps import TokenCount
from jupyter_mntrain.train.reports import Reports
from jupyter_mntrain.train.reports.prometheus import Prometheus
from tests.rulers.plays import BEGIN_S, RANKS, Play, Played
from tests.standin.jobs import JOB, TWO, measured_links, record, roll_up
from tests.train.reports.reported import run_of
from tests.train.reports.test_prometheus import scraped

NODES = ("node1", "node2")
SAMPLE_S, MOST_SAMPLES = 1.0, 200
"""Agents look at their interfaces so often, and of a long play less often."""

LATE_S = 0.02
"""What an agent writes arrives so much later."""

Figures = dict[str, float | None]


class Watched:
    """A play, as its agents keep it and a driver reads it.

    Args:
        directory: of the agents; there may be nothing yet.
    """

    def __init__(self, play: Play, directory: Path) -> None:
        self._play = play
        self._samples = []
        for node in NODES:
            (directory / node).mkdir(parents=True, exist_ok=True)
            self._samples.append(Samples(directory / node))
        self._taken, self._sampled_s = 0, BEGIN_S
        self._watching = HistoryBuilder()
        self._clock = HeardClock()
        self._series = SeriesBuilder(JOB, "watching")

    def take(self, played: Played) -> None:
        """Take what has been written since the last time."""
        lines = list(played.lines())
        for attempt, rank, line in lines[self._taken :]:
            self._samples[rank].append(sample_decoder.decode(line), attempt=attempt)
        self._taken = len(lines)
        every_s = max(SAMPLE_S, (played.now_s - self._sampled_s) // MOST_SAMPLES)
        while self._sampled_s + every_s <= played.now_s:
            self._sampled_s += every_s
            self._look_at_links(every_s, max(played.begun))

    def _look_at_links(self, interval_s: float, attempt: int) -> None:
        link, now_s = self._play.link, self._sampled_s
        size = round(link.carries * interval_s)
        capacity = Capacity(bytes_per_s=link.capacity, source="measured", time_s=BEGIN_S)
        for node, samples in zip(NODES, self._samples, strict=True):
            told = measured_links(node, NODES, capacity)
            sample = LinkSample(
                time_s=now_s,
                interface="eth1",
                interval_s=interval_s,
                sent_bytes=size,
                received_bytes=size,
                links=told,
            )
            samples.append(sample, attempt=attempt)
        self._clock.hear(now_s, now_s + LATE_S)

    def _snapshot(self, builder: HistoryBuilder, view: JobView, now_s: float) -> JobHistory:
        ahead_s = self._clock.ahead_s(now_s + self._play.driver_ahead_s, now_s)
        return builder.snapshot(view, is_complete=False, clock_ahead_s=ahead_s)

    def watched(self, view: JobView, now_s: float) -> JobSeries:
        """To a driver that has read every line as it came.

        Args:
            now_s: by the job's clock.
        """
        for place, node in enumerate(NODES):
            for block, _ in self._samples[place].journal.read(0):
                for line in block.splitlines():
                    told = journal_decoder.decode(line)
                    self._watching.add(NodeId(f"id-of-{node}"), node, told)
        history = self._snapshot(self._watching, view, now_s)
        self._series.extend(history, now_s + self._play.driver_ahead_s)
        return self._series.whole()

    def late(self, view: JobView, now_s: float) -> JobSeries:
        """To a driver that arrives now."""
        builder = HistoryBuilder()
        for node, samples in zip(NODES, self._samples, strict=True):
            archive = samples.archive
            assert archive is not None
            answer = SamplesAnswer(archive, samples.journal, ranks=archive.ranks, points=600)
            builder.load(NodeId(f"id-of-{node}"), node, answer.read())
        made = SeriesBuilder(JOB, "late")
        history = self._snapshot(builder, view, now_s)
        made.extend(history, now_s + self._play.driver_ahead_s)
        return made.whole()


class Scraped:
    """The trainer's own count of an attempt, on its way to Prometheus and back."""

    def __init__(self, played: Played) -> None:
        self._played = played
        turns = map(played.play.turn, range(1, played.play.total + 1))
        self.has_counts = all(one.counted > 0 for one in turns)
        """Whether all ranks count all steps, as the trainer's always do."""
        self._attempt = 0
        self._told: dict[str, float] = {}

    def take(self) -> None:
        """Count the step that has just ended."""
        if not self.has_counts:
            return
        done, play = self._played.done[-1], self._played.play
        if done.attempt != self._attempt:
            self._attempt, self._now_s = done.attempt, done.begun_s
            self._count, self._reports = TokenCount(lambda: self._now_s), Reports([self])
        self._now_s = done.ended_s
        turn, each = play.turn(done.step), 1 if play.stages[0] == play.stages[1] else RANKS
        told = {"loss": fmean(turn.loss), "step_s": turn.seconds}
        sample = {**told, "grad_norm": 1.0, "learning_rate": 0.1}
        tokens = round(turn.counted / each)
        self._count.add(tokens)
        rate = self._count.recent_per_s or 0.0
        self._reports.step(done.step, sample, tokens=tokens, tokens_per_s=rate)

    def log(self, _: int, values: Mapping[str, float]) -> None:
        """Take what the trainer tells all reports."""
        self._told = dict(values)

    def figures(self) -> Figures:
        """As a Prometheus server finds them."""
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            port: int = one.getsockname()[1]
        server = Prometheus(run_of(prometheus_port=port))
        try:
            server.log(1, self._told)
            page = scraped(port)
        finally:
            server.close()
        told = dict(re.findall(r"^mntrain_train_(\w+)\{.*?\} (\S+)$", page, re.MULTILINE))
        names = {"tok/s": "tokens_per_second", "loss": "loss", "tokens": "tokens"}
        return {figure: float(told[name]) for figure, name in names.items()}


def view_of(played: Played, *, is_over: bool) -> JobView:
    """The job as its nodes tell it."""
    state = "succeeded" if is_over else "running"
    number = max(played.begun)
    ended = {"ended_s": played.now_s} if is_over else {}
    begun_s = played.begun[number]
    before = Earlier(world_size=RANKS, begun_s=BEGIN_S) if number > 1 else None
    step = played.done[-1].step
    records = []
    for rank in range(RANKS):
        one = record(rank, state, places=TWO, number=number, started_s=begun_s, **ended)
        ranks = tuple(replace(status, step=step) for status in one.part.ranks)
        attempt = replace(one.attempt, earlier=before)
        records.append(replace(one, part=replace(one.part, ranks=ranks), attempt=attempt))
    return roll_up(records)


def read_all(
    watched: Watched, told: Scraped, played: Played, *, is_over: bool
) -> dict[str, Figures]:
    """Figures by surface."""
    view = view_of(played, is_over=is_over)
    series, late = watched.watched(view, played.now_s), watched.late(view, played.now_s)
    summary = series.summary
    entry = json.loads(msgspec.json.encode(job_entry(view, numbers=summary.numbers)))
    now_s = played.now_s + played.play.driver_ahead_s
    found = {
        "--json": _of_json(json.loads(msgspec.json.encode(summary))),
        "status": of_text(_printed(status_view(summary, view, now_s=now_s))),
        "page": _of_json(entry["numbers"]),
        "compare": of_text(_printed(figure_table([summary, summary]))),
        "page, arriving now": _of_json(json.loads(msgspec.json.encode(late.summary.numbers))),
        "page's rows, CSV": _of_rows(late),
        "runs table, CSV": _of_run(json.loads(msgspec.json.encode(listed_entry(view)))),
    }
    if told.has_counts:
        found["Prometheus"] = told.figures()
    return found


def _of_run(told: dict[str, Any]) -> Figures:
    """Of a run whose journals the server has not read."""
    numbers = told["numbers"]
    found: Figures = {"step": numbers["step"]}
    if told["state"] == "succeeded":
        found["elapsed"] = numbers["elapsed_s"]
    return found


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
        "elapsed": told.get("elapsed_s"),
        "busiest link": told.get("busiest_link"),
        "loss": told.get("loss"),
    }
    if window:
        found["parts, sum"] = sum(window["parts_s"].values()) / window["seconds"]
        for part in ("evaluation", "saving", "stall"):
            found[part] = window["parts_s"].get(part, 0.0)
    if ranks := told.get("ranks"):
        found |= {f"tok/s, rank {one['rank']}": one.get("tokens_per_s") for one in ranks}
    return found


def _number(text: str) -> float | None:
    match = re.match(r"(-?[\d,.]+(?:e[+-]?\d+)?)\s*(ms|µs|s|min|h|k|M|%)?", text.strip())
    if match is None:
        return None
    scale = {"ms": 1e-3, "µs": 1e-6, "min": 60.0, "h": 3600.0, "k": 1e3, "M": 1e6, "%": 0.01}
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
            names = ("tok/s", "step time", "loss", "busiest link")
            found |= {name: _number(told[name]) for name in names}
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
