"""Sixteen nodes as a terminal of 80 columns shows them."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from jupyter_mntrain.cluster import NodeView
from jupyter_mntrain.show.tables.node_list import Surroundings, node_table
from tests.standin.cluster import node
from tests.standin.training import BEGIN_S


@pytest.fixture
def nodes() -> list[NodeView]:
    """The tenth is lost, and the last has other cards."""
    made = [node(f"gpu{number:02}", number + 1, gpus=8) for number in range(15)]
    made[9] = node("gpu09", 10, gpus=8, liveness="lost", reason="no answer")
    return [*made, node("gpu15", 16, gpus=4)]


def shown(nodes: list[NodeView], *, every: bool = False) -> list[str]:
    table = node_table(
        nodes,
        cluster="lab",
        now_s=BEGIN_S + 60,
        program="mntrain",
        around=Surroundings(),
        every=every,
    )
    console = Console(file=io.StringIO(), width=80, highlight=False)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().replace("\N{NO-BREAK SPACE}", " ").splitlines()


def test_many_nodes_have_a_line_each_the_worst_first(nodes: list[NodeView]) -> None:
    lines = shown(nodes)
    rows = [line for line in lines if "eno1 10.0.0." in line]
    assert [row.split()[0] for row in rows][:2] == ["gpu09", "gpu00"]
    assert len(rows) == 16
    assert len(lines) < 40
    assert max(map(len, lines)) <= 80


def test_what_they_have_alike_is_said_once_and_the_odd_one_is_named(nodes: list[NodeView]) -> None:
    lines = shown(nodes)
    (usual,) = (line for line in lines if "8 × RTX 3090" in line)
    assert usual.startswith("15 nodes: ")
    (odd,) = (line for line in lines if "4 × RTX 3090" in line)
    assert odd.startswith("gpu15: ")


def test_all_of_them_is_shown_where_that_is_wanted(nodes: list[NodeView]) -> None:
    assert sum("RTX 3090" in line for line in shown(nodes, every=True)) == 16
    assert shown(nodes[:8]) != shown(nodes[:8], every=True)
    assert sum("RTX 3090" in line for line in shown(nodes[:8])) == 8
