"""Log lines: which are the last ones."""

from __future__ import annotations

from jupyter_mntrain.cluster import LogLine
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.show.log_lines import LAUNCHER_LINES, last_lines


def of_rank(count: int) -> list[LogLine]:
    return [LogLine(node="node1", rank=Rank(0), text=f"step {n}") for n in range(count)]


def of_torchrun(node: str, count: int) -> list[LogLine]:
    return [LogLine(node=node, rank=None, text=f"failed {n}") for n in range(count)]


def test_the_report_of_a_failure_does_not_push_out_what_the_ranks_said() -> None:
    torchruns = [of_torchrun(node, 60) for node in ("node1", "node2")]
    first, second = torchruns
    found = last_lines([*first[:5], *of_rank(80), *first[5:], *second], 50)
    ends = [line for own in torchruns for line in own[-LAUNCHER_LINES:]]
    assert found == [*of_rank(80)[-50:], *ends]


def test_where_the_ranks_said_little_torchrun_has_their_room() -> None:
    assert last_lines([*of_torchrun("node1", 60), *of_rank(2)], 50) == [
        *of_rank(2),
        *of_torchrun("node1", 60)[-48:],
    ]
    assert last_lines(of_torchrun("node1", 60), 3) == of_torchrun("node1", 60)[-3:]
    assert last_lines(of_rank(3), 0) == []
