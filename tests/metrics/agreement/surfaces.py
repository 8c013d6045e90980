"""Surfaces: reads figures back from terminal, picture, saved notebook and JSON.

``python -m tests.metrics.agreement.surfaces`` prints what the terminal says of every recording, as
JSON: the browser tests hold the page against it.
"""

from __future__ import annotations

import io
import json
import re
from typing import Any

import msgspec
from matplotlib.figure import Figure
from rich.console import Console

from jupyter_mntrain.notebook.liveview import LiveView
from jupyter_mntrain.show import formats
from jupyter_mntrain.show.picture import Picture
from jupyter_mntrain.show.tables.job import status_view
from tests.metrics.agreement.recordings import NAMES, load
from tests.notebook.test_liveview import Page
from tests.standin.job_handle import StandInJob
from tests.standin.screen import StillClock
from tests.standin.training import Sample

LABELS = ("tok/s", "job MFU", "step time", "bubble", "busiest link", "loss")
RANK_FIGURES = {"tok/s": "tokens_per_s", "pace": "pace_tokens_per_s", "MFU": "mfu"}
RANK_FIGURES |= {"computing": "compute", "memory": "memory_bytes"}
MARK = " ◀ slowest"

Rows = list[dict[str, str]]


def printed(sample: Sample) -> str:
    """In a terminal that is wide enough for all columns, with a row for each rank."""
    console = Console(file=io.StringIO(), width=180, record=True)
    console.print(status_view(sample.summary, sample.history.view, every_rank=True))
    return console.export_text()


def saved(sample: Sample) -> tuple[str, Figure]:
    """What a live view leaves in a notebook: its text, and the figure of its picture."""
    view, page = LiveView(StandInJob(sample), StillClock()), Page()
    view.attach(page)
    view.frame()
    assert "image/png" in page.last
    assert view._output._picture is not None
    return str(page.last["text/plain"]), view._output._picture.painter.figure


def drawn(sample: Sample) -> Figure:
    """matplotlib's figure, as it is when it is saved."""
    picture = Picture(program="x")
    picture.draw(sample.series, sample.history.view, now_s=sample.now_s)
    return picture.painter.figure


def _cells(line: str) -> list[str]:
    return re.split(r"\s{2,}", line.strip())


def headline(text: str) -> dict[str, str]:
    """Headline figures of a printed job, by label."""
    lines = text.splitlines()
    head = next(i for i, line in enumerate(lines) if "job MFU" in line)
    return dict(zip(_cells(lines[head]), _cells(lines[head + 2]), strict=True))


def rows(text: str, first: str) -> Rows:
    """Rows of the printed table whose first column is so called."""
    lines = text.splitlines()
    heads = [i for i, line in enumerate(lines) if line.split()[:1] == [first]]
    if not heads:
        return []
    head = heads[0]
    body = iter(lines[head + 2 :])
    names = _cells(lines[head])
    found = []
    while (line := next(body, "")).strip():
        cells = _cells(line)
        if len(cells) == len(names):  # else a long name goes on
            found.append(dict(zip(names, cells, strict=True)))
    return found


def rank_figures(text: str) -> dict[str, dict[str, str]]:
    """Figures of every rank that are on all surfaces."""
    return {
        row["rank"]: {name: row[name].removesuffix(MARK) for name in RANK_FIGURES}
        for row in rows(text, "rank")
    }


def pictured(figure: Figure) -> dict[str, str]:
    """Headline figures of a picture, by label."""
    words = [text.get_text() for text in figure.texts]
    shown = (*LABELS, "evaluation") if "evaluation" in words[: words.index("Loss")] else LABELS
    return {label: words[words.index(label) + 1] for label in shown}


def time_left(text: str) -> str | None:
    """What is said of how long the job still takes."""
    told = re.search(r"done at \d\d:\d\d, in ((?:about )?[\d.]+(?: to [\d.]+)?\xa0\w+)", text)
    return told and told[1]


def chart_labels(figure: Figure, title: str) -> dict[str, str]:
    """Names and values next to a chart's lines; nothing where the chart says why it is empty."""
    words = [text.get_text() for text in figure.texts]
    begin = words.index(title) + 3
    titles = ("MFU", "Links", "Link ", "Busiest", "Computing", "Loss")
    end = next((i for i in range(begin, len(words)) if words[i].startswith(titles)), len(words))
    labels = words[begin : end - (end - begin) % 2]
    return dict(zip(labels[::2], labels[1::2], strict=True))


def encoded(sample: Sample) -> dict[str, Any]:
    """What ``--json`` says, as any program reads it."""
    told: dict[str, Any] = json.loads(
        json.dumps(msgspec.to_builtins(sample.summary), allow_nan=False)
    )
    return told


def spelled_headline(told: dict[str, Any]) -> dict[str, str]:
    used = told.get("busiest_link")
    shown = {
        "tok/s": formats.rate(told.get("tokens_per_s")),
        "job MFU": formats.percent(told.get("mfu")),
        "step time": formats.seconds(told.get("step_s")),
        "bubble": formats.percent(told.get("bubble")),
        "busiest link": formats.percent(used)
        if used is not None
        else formats.bit_rate(told.get("busiest_bytes_per_s")),
        "loss": formats.loss(told.get("loss")),
    }
    evaluation = told.get("evaluation_loss")
    return shown if evaluation is None else shown | {"evaluation": formats.loss(evaluation)}


def spelled_ranks(told: dict[str, Any]) -> dict[str, dict[str, str]]:
    spell = {"MFU": formats.percent, "computing": formats.percent, "memory": formats.memory}
    return {
        f"r{rank['rank']}": {
            name: spell.get(name, formats.rate)(rank.get(field))
            for name, field in RANK_FIGURES.items()
        }
        for rank in told["ranks"]
    }


def main() -> None:
    told = {}
    for name in NAMES:
        sample = load(name).sample
        text, figure = printed(sample), drawn(sample)
        told[name] = {
            "job": sample.history.view.job_id,
            "json": encoded(sample),
            "headline": headline(text),
            "ranks": rank_figures(text),
            "links": rows(text, "link"),
            "missing": sample.summary.missing,
            "notFinite": formats.not_finite(sample.summary),
            "labels": {
                title: chart_labels(figure, title)
                for title in ("Throughput, tok/s", "MFU", "Computing")
            },
        }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
