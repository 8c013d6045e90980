"""File of results: it grows, survives a cut, and is told per stratum."""

from __future__ import annotations

import pytest

from tests.faults.search import results
from tests.faults.search.play import Result


def made(seed, stratum, score, **more):
    return Result(
        seed, stratum, "", more.pop("is_hard", False), "", (), "", score, None, 1.0, **more
    )


def test_results_are_read_back_without_a_line_that_was_cut_off(tmp_path):
    path = tmp_path / "results.ndjson"
    assert results.read(path) == []
    for seed in (1, 2):
        results.append(path, made(seed, "disk", "right"))
    with path.open("ab") as file:
        file.write(b'{"seed": 3, "stra')
    assert [one.seed for one in results.read(path)] == [1, 2]


def test_shares_are_of_the_cases_that_were_played():
    all_four = [
        made(1, "disk", "right"),
        made(2, "disk", "wrong", is_hard=True),
        made(3, "rank", "silent"),
        made(4, "rank", "silent", trouble="the lab broke"),
    ]
    named = {row.name: row for row in results.rows(all_four)}
    assert named["disk"].cells == ["disk", "2", "50 %", "0 %", "0 %", "0 %", "50 %", "0 %"]
    assert named["all"].cases == 3
    assert named["hard"].cases == 1
    assert "network" not in named


def test_the_section_is_made_of_results_alone():
    with pytest.raises(ValueError, match="no case"):
        results.section([made(1, "disk", "silent", trouble="the lab broke")])
    text = results.section([made(7, "disk", "right"), made(9, "rank", "wrong")])
    assert "Seeds 7 to 9; 1 could not be played" in text
    assert "| all | 2 | 50 % | 0 % | 0 % | 0 % | 50 % | 0 % |" in text


def test_the_section_of_sequences_says_which_seeds_were_played():
    asked = {"parameters": ({"asks": ["right", "wrong"]},)}
    found = [made(seed, "disk", "right", **asked) for seed in (3, 4, 8)]
    text = results.sequences([*found, made(5, "disk", "silent", trouble="the lab broke")])
    assert "Seeds 3 to 4, 8 to 8:" in text
    assert "| all | 3 | 3 (100 %) | 3 of 6 |" in text


@pytest.mark.parametrize("count", [1, 3])
def test_the_table_has_a_line_for_each(count):
    lines = results.table([made(1, "trust", "right")] * count).splitlines()
    assert lines[2].startswith(f"| trust | {count} | 100 % |")
