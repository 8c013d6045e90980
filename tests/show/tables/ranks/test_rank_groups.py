"""128 ranks, 16 nodes of 8, as a terminal of 80 columns shows them."""

from __future__ import annotations

import io
from typing import Any

import msgspec
import pytest
from rich.console import Console

from jupyter_mntrain.metrics.summary import JobSummary, LinkSummary, RankSummary
from jupyter_mntrain.model.ids import JobId, Rank
from jupyter_mntrain.show.formats import percent
from jupyter_mntrain.show.tables.job import status_view
from tests.standin.training import sample_job
from tests.wording import says

NODES = [f"gpu{number:02}" for number in range(16)]
SLOW, BROKEN = 77, 21


def rank(number: int, **fields: Any) -> RankSummary:
    basis: dict[str, Any] = {
        "state": "running",
        "step": 412,
        "tokens_per_s": 63_400.0,
        "pace_tokens_per_s": 70_000.0 + number,
        "mfu": 0.41,
        "compute": 0.9,
        "memory_bytes": 71 << 30,
        "pid": 4000 + number,
    }
    basis |= fields
    return RankSummary(rank=Rank(number), node=NODES[number // 8], local_rank=number % 8, **basis)


@pytest.fixture
def summary() -> JobSummary:
    """One rank is slower than all others, and one has failed."""
    changes: dict[int, dict[str, Any]] = {
        SLOW: {"pace_tokens_per_s": 50_000.0},
        BROKEN: {"state": "failed"},
    }
    links = tuple(
        LinkSummary(node, "eth0", "sent", "interface", bytes_per_s=1e9, utilization=number / 32)
        for number, node in enumerate(NODES * 2)
    )
    return JobSummary(
        job_id=JobId("j-00000001"),
        name="llama",
        state="running",
        step=412,
        ranks=tuple(rank(number, **changes.get(number, {})) for number in range(128)),
        slowest_rank=Rank(SLOW),
        links=links,
    )


def shown(summary: JobSummary, **options: Any) -> list[str]:
    console = Console(file=io.StringIO(), width=80, highlight=False)
    console.print(status_view(summary, now_s=0.0, **options))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().replace("\N{NO-BREAK SPACE}", " ").splitlines()


def test_many_ranks_are_a_row_a_node_the_worst_first(summary: JobSummary) -> None:
    lines = shown(summary)
    rows = [line.split()[0] for line in lines if line.startswith("gpu") and "eth0" not in line]
    assert sorted(rows) == NODES
    assert rows[:3] == [NODES[BROKEN // 8], NODES[SLOW // 8], NODES[0]]
    assert len(lines) < 60
    assert max(map(len, lines)) <= 80
    (broken,) = (line for line in lines if "16–23" in line)
    assert "1 failed" in broken


def test_only_what_stands_out_has_a_row_of_its_own(summary: JobSummary) -> None:
    alone = [line for line in shown(summary) if line.startswith("r") and line[1].isdigit()]
    assert [line.split()[0] for line in alone] == [f"r{BROKEN}", f"r{SLOW}"]
    assert alone[0].split()[2:4] == ["✕", "failed"]
    assert "▶ running" in alone[1]
    assert "◀" in alone[1]


def test_the_fullest_links_are_shown_and_how_full_the_others_are(summary: JobSummary) -> None:
    lines = shown(summary)
    links = [line for line in lines if "eth0" in line]
    assert links[0].startswith(NODES[15])
    assert len(links) == 8
    assert any(says("24 more directions", line) for line in lines)


def test_links_of_unknown_use_are_counted_and_not_taken_for_idle_ones(
    summary: JobSummary,
) -> None:
    unknown = [
        msgspec.structs.replace(link, utilization=None) if number < 20 else link
        for number, link in enumerate(summary.links)
    ]
    few = msgspec.structs.replace(summary, links=tuple(unknown))
    lines = shown(few)
    assert any(percent(23 / 32) in line and says("; of 20 it", line) for line in lines)
    none = [msgspec.structs.replace(link, utilization=None) for link in summary.links]
    lines = shown(msgspec.structs.replace(summary, links=tuple(none)))
    assert any(says("more directions: of 24 it is not known", line) for line in lines)


def test_how_many_stand_out_is_said_where_they_are_too_many(summary: JobSummary) -> None:
    ranks = [rank(number, state="failed" if number < 20 else "running") for number in range(128)]
    lines = shown(msgspec.structs.replace(summary, ranks=tuple(ranks)))
    alone = [line for line in lines if line.startswith("r") and line[1].isdigit()]
    assert len(alone) == 8
    assert alone[-1].startswith(f"r{SLOW} ")
    assert any(says("and 13 ranks more: 13 failed", line) for line in lines)


def test_each_rank_has_a_row_where_that_is_wanted(summary: JobSummary) -> None:
    lines = shown(summary, every_rank=True)
    assert [line.split()[0] for line in lines if line.startswith("r") and "gpu" in line] == [
        f"r{number}" for number in range(128)
    ]
    assert sum("eth0" in line for line in lines) == 32


def test_few_ranks_are_as_they_were(summary: JobSummary) -> None:
    few = msgspec.structs.replace(summary, ranks=summary.ranks[:16], links=())
    assert shown(few) == shown(few, every_rank=True)


def test_a_job_of_128_ranks_fits_as_its_nodes_tell_of_it() -> None:
    sample = sample_job(dict.fromkeys(NODES, 8), steps=4)
    lines = shown(sample.summary)
    assert len([line for line in lines if " running" in line and line.startswith("gpu")]) == 16
    assert len(lines) < 60
    assert max(map(len, lines)) <= 80
