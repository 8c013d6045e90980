"""Link matrix: every pair at its place, in 80 columns, and slow links in red."""

from __future__ import annotations

import io
from itertools import permutations

import msgspec
import pytest
from rich.console import Console

from jupyter_mntrain.model.records.node import Capacity, Latency, LinkMeasurement
from jupyter_mntrain.show.tables.link_matrix import link_list, link_matrix

NODES = ("wopr", "hal", "deep-thought", "skynet", "marvin", "eddie", *(f"n{i}" for i in range(9)))


def links(count: int) -> list[LinkMeasurement]:
    """Every pair of the first nodes; what the first one sends is slowest."""
    return [
        LinkMeasurement(
            sender=sender,
            receiver=receiver,
            interface="enp5s0f0",
            address="192.168.100.100",
            capacity=Capacity(
                bytes_per_s=(94e6 if sender == "wopr" else 941e6) / 8,
                source="measured",
                condition="beside a job",
            ),
            latency=None if receiver == "hal" else Latency(median_s=4e-4, p99_s=1e-3, count=200),
        )
        for sender, receiver in permutations(NODES[:count], 2)
    ]


def printed(shown: object, **options: object) -> str:
    paper = io.StringIO()
    Console(file=paper, width=80, **options).print(shown)  # type: ignore[arg-type]
    return paper.getvalue().replace("\u00a0", " ")


@pytest.mark.parametrize("count", [3, 5])
def test_every_pair_stands_at_its_place_within_80_columns(count: int) -> None:
    text = printed(link_matrix(links(count)))
    lines = [line for line in text.splitlines() if "bit/s" in line]
    assert [line.split()[0] for line in lines] == list(NODES[:count])
    assert all(line.count("bit/s") == count - 1 for line in lines)
    assert text.count("0.4 ms") == (count - 1) ** 2, "an older agent timed none"
    assert "…" not in text


def test_a_slow_link_is_red_and_a_fast_one_green() -> None:
    shown = printed(link_matrix(links(3)), force_terminal=True, color_system="standard")
    assert shown.count("\x1b[31m") == 2
    assert shown.count("\x1b[32m") == 4


@pytest.mark.parametrize("count", [6, 10])
def test_more_nodes_have_numbers_and_still_fit_into_80_columns(count: int) -> None:
    lines = printed(link_matrix(links(count))).splitlines()
    rows = [line.split() for line in lines if line[:2].strip().isdigit()]
    assert [row[0] for row in rows] == [str(at) for at in range(1, count + 1)]
    assert rows[0][1:] == ["wopr", "—", *["▼94M"] * (count - 1)]
    assert rows[1][2:] == ["941M", "—", *["941M"] * (count - 2)]
    assert rows[2][1] == "deep-thou…"


def test_a_slow_link_is_marked_without_color_too() -> None:
    found = links(3)
    text = printed(link_matrix(found))
    assert text.count("▼") == 2 + 1, "and in the legend"
    fair = msgspec.structs.replace(found[0].capacity, bytes_per_s=0.7 * 941e6 / 8)
    found = [msgspec.structs.replace(one, capacity=fair) for one in found[:2]] + found[2:]
    assert printed(link_matrix(found)).count("▽") == 2 + 1
    same = [msgspec.structs.replace(one, capacity=fair) for one in found]
    assert "▽" not in printed(link_matrix(same)), "no legend without a mark"


def test_of_two_networks_the_matrix_shows_the_faster_one() -> None:
    found = links(3)
    slower = [
        msgspec.structs.replace(
            one, capacity=msgspec.structs.replace(one.capacity, bytes_per_s=1e6), interface="eno1"
        )
        for one in found
    ]
    assert printed(link_matrix([*found, *slower])) == printed(link_matrix(found))


@pytest.mark.parametrize("count", [2, 11])
def test_two_nodes_and_too_many_are_only_listed(count: int) -> None:
    assert link_matrix(links(count)) is None


def test_of_many_links_the_slowest_are_listed() -> None:
    text = printed(link_list(links(6)))
    lines = [line for line in text.splitlines() if "bit/s" in line]
    assert len(lines) == 10
    assert all("wopr" in line for line in lines[:5])
    assert "30" in text.splitlines()[0]


def test_the_list_says_how_many_connections_there_were() -> None:
    found = [msgspec.structs.replace(one, streams=4) for one in links(2)]
    assert "connections" in printed(link_list(found))
    assert "connections" not in printed(link_list(links(2)))


def test_the_list_says_what_disturbed_a_measurement() -> None:
    text = printed(link_list(links(2)))
    assert "beside a job" in " ".join(text.split())
    assert "0.4 ms" in text
    assert "n/a" in text
