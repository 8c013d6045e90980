"""Progress reports before and between steps: enough to follow, and rate-limited."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.metrics import (
    RankEnd,
    RankProgress,
    RankStep,
    Sample,
    sample_decoder,
)
from jupyter_mntrain.telemetry import Recorder
from jupyter_mntrain.telemetry.progress import EVERY_S, Pace, Tally, unwatched


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def recorder(tmp_path: Path, clock: Clock) -> Recorder:
    return Recorder(tmp_path, clock=lambda: 1e9, stopwatch=clock, environment={"RANK": "3"})


def read(directory: Path) -> list[Sample]:
    lines = (directory / "rank-3.ndjson").read_bytes().splitlines()
    return [sample_decoder.decode(line) for line in lines]


def said(directory: Path) -> list[tuple[str, float, float | None]]:
    lines = read(directory)
    return [(one.what, one.done, one.total) for one in lines if isinstance(one, RankProgress)]


def test_progress_is_a_line_with_who_and_when(recorder: Recorder, tmp_path: Path) -> None:
    recorder.progress("loading the model", 3, 7, "B")
    assert read(tmp_path) == [
        RankProgress(
            time_s=1e9, rank=Rank(3), what="loading the model", done=3.0, total=7.0, unit="B"
        )
    ]


def test_the_first_and_the_last_are_written_and_about_five_a_second_between(
    recorder: Recorder, clock: Clock, tmp_path: Path
) -> None:
    for done in range(2001):  # two seconds
        recorder.progress("reading", done, 2000)
        clock.now_s += 0.001
    lines = said(tmp_path)
    assert lines[0] == ("reading", 0, 2000)
    assert lines[-1] == ("reading", 2000, 2000)
    assert 9 <= len(lines) <= 12


def test_each_thing_has_a_pace_of_its_own(recorder: Recorder, tmp_path: Path) -> None:
    recorder.progress("reading", 0, 9)
    recorder.progress("reading", 1, 9)
    recorder.progress("loading", 0)
    assert said(tmp_path) == [("reading", 0, 9), ("loading", 0, None)]


def test_a_total_that_grows_with_what_is_done_is_no_flood(
    recorder: Recorder, tmp_path: Path
) -> None:
    for done in range(100):
        recorder.progress("reading", done, done)
    assert said(tmp_path) == [("reading", 0, 0)]


def test_what_was_said_long_ago_is_not_remembered(clock: Clock) -> None:
    pace = Pace(clock)
    for number in range(50):
        assert pace.allows(f"file {number}", is_over=False)
        clock.now_s += 2 * EVERY_S
    assert len(pace._said) == 1


def test_numbers_that_are_none(recorder: Recorder, tmp_path: Path) -> None:
    class Scalar:
        def __float__(self) -> float:
            return 2.5

    recorder.progress("a", float("nan"), 3)
    recorder.progress("b", 1, float("inf"))
    recorder.progress("c", Scalar(), Scalar())
    assert said(tmp_path) == [("b", 1, None), ("c", 2.5, 2.5)]


def test_a_novel_is_cut_to_a_line(recorder: Recorder, tmp_path: Path) -> None:
    recorder.progress("x" * 5000, 1)
    assert len(said(tmp_path)[0][0]) == 200


def test_after_the_end_nothing_is_said(recorder: Recorder, tmp_path: Path) -> None:
    recorder.close()
    recorder.progress("reading", 1)
    assert [type(one) for one in read(tmp_path)] == [RankEnd]


def test_loading_is_no_part_of_the_first_step_and_saving_is_part_of_a_later_one(
    recorder: Recorder, clock: Clock, tmp_path: Path
) -> None:
    clock.now_s += 60.0
    recorder.progress("loading", 1, 1)
    clock.now_s += 2.0
    recorder.step()
    clock.now_s += 1.0
    recorder.progress("saving", 1, 1)
    clock.now_s += 1.0
    recorder.step()
    assert [one.step_s for one in read(tmp_path) if isinstance(one, RankStep)] == [2.0, 2.0]


def test_track_counts_what_it_hands_out(recorder: Recorder, clock: Clock, tmp_path: Path) -> None:
    for _ in recorder.track(["a", "b", "c"], "reading shards", unit="shards"):
        clock.now_s += 2 * EVERY_S
    assert said(tmp_path) == [("reading shards", done, 3) for done in range(4)]
    assert {one.unit for one in read(tmp_path) if isinstance(one, RankProgress)} == {"shards"}


def test_track_of_an_unknown_number_ends_with_what_there_was(
    recorder: Recorder, clock: Clock, tmp_path: Path
) -> None:
    def three() -> Iterator[int]:
        for number in range(3):
            clock.now_s += 2 * EVERY_S
            yield number

    assert list(recorder.track(three(), "reading")) == [0, 1, 2]
    assert said(tmp_path) == [
        ("reading", 0, None),
        ("reading", 1, None),
        ("reading", 2, None),
        ("reading", 3, None),
        ("reading", 3, 3),
    ]


def test_track_that_is_left_early_is_over(recorder: Recorder, tmp_path: Path) -> None:
    for _ in recorder.track(range(9), "searching"):
        break
    assert said(tmp_path) == [("searching", 0, 9), ("searching", 0, 0)]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_track_draws_a_bar_on_a_terminal_and_nothing_in_a_log(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for stderr, words in ((Terminal(), "reading shards"), (io.StringIO(), "")):
        monkeypatch.setattr(sys, "stderr", stderr)
        assert list(recorder.track(range(3), "reading shards", unit="shards")) == [0, 1, 2]
        assert words in stderr.getvalue()
        assert bool(stderr.getvalue()) is bool(words)


def test_without_a_file_track_only_hands_out(clock: Clock) -> None:
    items = [1, 2, 3]
    assert Recorder(environment={}, stopwatch=clock).track(items, "reading") is items


def test_a_tally_says_every_sum() -> None:
    heard = []

    def hear(what: str, done: float, total: float | None = None, unit: str = "") -> None:
        heard.append((what, done, total, unit))

    tally = Tally(hear, "reading", 10, "B")
    tally.add(4)
    tally.add(3)
    tally.end()
    assert heard == [
        ("reading", 0, 10, "B"),
        ("reading", 4, 10, "B"),
        ("reading", 7, 10, "B"),
        ("reading", 7, 7, "B"),
    ]
    unwatched("reading", 1, 2, "B")
