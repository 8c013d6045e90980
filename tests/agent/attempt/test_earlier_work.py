"""Earlier work: a restarted script goes on in what it left."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jupyter_mntrain.agent.attempt.supervisor import earlier_attempt, take_over


def attempt(root: Path, number: int, *, started: bool = True, **files: str) -> Path:
    path = root / f"attempt-{number}"
    for folder in ("work", "ranks"):
        (path / folder).mkdir(parents=True)
    if started:
        (path / "ranks" / "none_x").mkdir()
    for name, text in files.items():
        place = path / "work" / name.replace("__", "/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        if text == "sent":
            os.utime(place, (1, 1))
    (path / "command.json").touch()
    os.utime(path / "command.json", (2, 2))
    return path


def content(path: Path) -> dict[str, str]:
    work = path / "work"
    return {str(one.relative_to(work)): one.read_text() for one in work.rglob("*") if one.is_file()}


def test_what_an_attempt_wrote_is_there_for_the_next(tmp_path: Path):
    first = attempt(tmp_path, 1, train="sent", snapshot="step 7", out__a="1", pkg__made="x")
    second = attempt(tmp_path, 2, train="sent", pkg__init="sent")
    take_over(second)
    written = {"train": "sent", "snapshot": "step 7", "out/a": "1"}
    assert content(second) == {**written, "pkg/init": "sent", "pkg/made": "x"}
    assert (first / "work" / "snapshot").read_text() == "step 7", "it is still found there"
    third = attempt(tmp_path, 3)
    take_over(third)
    assert content(third)["snapshot"] == "step 7"
    assert (first / "work" / "snapshot").exists()


def test_a_file_that_a_script_writes_again_wins_over_what_was_sent(tmp_path: Path):
    attempt(tmp_path, 1, state="step 7")
    (tmp_path / "attempt-1" / "work" / "script").write_text("as it was")
    os.utime(tmp_path / "attempt-1" / "work" / "script", (1, 1))
    second = attempt(tmp_path, 2, state="step 0", script="another")
    take_over(second)
    assert content(second) == {"state": "step 7", "script": "another"}


def test_what_may_be_torn_is_not_taken_over(tmp_path: Path):
    first = attempt(tmp_path, 1, snapshot="step 7")
    attempt(tmp_path, 2, started=False, train="to")
    third = attempt(tmp_path, 3)
    assert earlier_attempt(third) == first
    take_over(third)
    assert content(third) == {"snapshot": "step 7"}


def test_one_in_between_that_started_no_rank_hands_it_on(tmp_path: Path):
    first = attempt(tmp_path, 1, snapshot="step 7")
    take_over(attempt(tmp_path, 2, started=False))
    third = attempt(tmp_path, 3)
    take_over(third)
    assert content(third) == {"snapshot": "step 7"}
    assert (first / "work" / "snapshot").exists()


@pytest.mark.parametrize("number", [1, 3])
def test_a_node_without_an_earlier_attempt_has_nothing(tmp_path: Path, number: int):
    own = attempt(tmp_path, number, train="sent")
    assert earlier_attempt(own) is None
    take_over(own)
    assert content(own) == {"train": "sent"}


def test_links_are_moved_and_not_followed(tmp_path: Path):
    first = attempt(tmp_path, 1, kept="x")
    (first / "work" / "outside").symlink_to(tmp_path)
    second = attempt(tmp_path, 2)
    take_over(second)
    assert (second / "work" / "outside").is_symlink()
