from __future__ import annotations

import io
import json
from typing import Any

import pytest
from rich.console import Console

from jupyter_mntrain.verbs.verb import Outcome
from tests.standin.cluster import StandInCluster, node, silent
from tests.standin.job_handle import StandInJob
from tests.standin.screen import make_context, run_words
from tests.standin.training import LOST_LINK, sample_job


@pytest.fixture
def cluster() -> StandInCluster:
    return StandInCluster(
        nodes=[
            node("muthur", 2),
            node("wopr", 1),
            node("hal", 3),
            silent("10.0.0.9:8765", "10.0.0.9:8765: connection refused. Fix: start its agent."),
        ],
        jobs=[
            StandInJob(sample_job({"wopr": 1, "muthur": 1}), ends_as="succeeded"),
        ],
    )


@pytest.fixture
def failed_cluster() -> StandInCluster:
    sample = sample_job({"wopr": 2, "muthur": 1}, state="failed", problem=LOST_LINK)
    return StandInCluster(nodes=[node("wopr", 1)], jobs=[StandInJob(sample)])


@pytest.fixture
def do(cluster):
    def run(*words: str, on: StandInCluster | None = None, **changes: Any) -> Outcome:
        return run_words(words, make_context(on or cluster, **changes))

    return run


@pytest.fixture
def text():
    """What a person reads, at a given width."""

    def render(renderable: Any, width: int = 140) -> str:
        console = Console(
            file=io.StringIO(), width=width, highlight=False, markup=False, emoji=False
        )
        console.print(renderable, soft_wrap=True)
        return console.file.getvalue()

    return render


@pytest.fixture
def as_json():
    """Through JSON and back: whatever ``--json`` prints must survive it."""

    def through(outcome: Outcome) -> Any:
        return json.loads(json.dumps(outcome.data))

    return through


@pytest.fixture
def recipe(tmp_path):
    """A directory with the recipe ``r.toml``."""
    (tmp_path / "r.toml").write_text('[model]\npreset = "llama-tiny"\n')
    return tmp_path
