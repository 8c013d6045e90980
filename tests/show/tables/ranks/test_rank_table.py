"""The table of ranks: what stands below it, because a column would not fit into 80."""

from __future__ import annotations

import io

import msgspec
from rich.console import Console

from jupyter_mntrain.metrics.summary import JobSummary, RankSummary
from jupyter_mntrain.model.ids import JobId, Rank
from jupyter_mntrain.show.tables.ranks.rank_table import RankTable


def test_reserved_memory_stands_below_where_it_is_known() -> None:
    rank = RankSummary(rank=Rank(0), node="hal", state="running", memory_bytes=17 << 30)
    held = msgspec.structs.replace(rank, rank=Rank(1), reserved_bytes=19 << 30)
    summary = JobSummary(
        job_id=JobId("j-00000001"), name="x", state="running", step=3, ranks=(rank, held)
    )
    console = Console(file=io.StringIO(), width=80, highlight=False)
    console.print(RankTable(summary))
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue().replace("\N{NO-BREAK SPACE}", " ")
    assert "17.0 GiB" in shown
    assert shown.splitlines()[-1].rstrip() == "reserved by torch's allocator: r1 19.0 GiB"
