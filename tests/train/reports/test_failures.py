"""Reports that fail: training never stops."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.train.loop import Trainer
from jupyter_mntrain.train.reports import Reports
from jupyter_mntrain.train.reports.background import MOST_WAITING, Background
from tests.train.reports.reported import STEP, result
from tests.train.reports.test_tensorboard import curve, read
from tests.wording import wording


def test_what_was_asked_for_and_is_not_there_is_refused(
    text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = r"node.*report.to = .*: trackio is not installed. Fix: pip install trackio, or"
    monkeypatch.setitem(sys.modules, "trackio", None)
    monkeypatch.setenv("MNTRAIN_NODE", "node1")
    with pytest.raises(RecipeError, match=wording(refused)):
        result(text, 'report.to=["trackio"]')


class Kept:
    """Keeps what it is told, once it may."""

    def __init__(self, may: threading.Event | None = None, fails_at: int | None = None) -> None:
        self.told: list[tuple[int, Mapping[str, float]]] = []
        self._may, self._fails_at = may, fails_at

    def log(self, step: int, values: Mapping[str, float]) -> None:
        if self._may is not None:
            self._may.wait()
        if step == self._fails_at:
            raise ConnectionError("the network\nis gone")
        self.told.append((step, values))

    def close(self) -> None: ...


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    gate = threading.Event()
    yield gate
    gate.set()


def test_an_error_is_said_once_and_ends_only_that_report(said: list[str]) -> None:
    broken, sound = Kept(fails_at=2), Kept()
    with Reports(
        [Background("x", lambda: broken, said.append), Background("y", lambda: sound, said.append)]
    ) as reports:
        for step in range(1, 5):
            reports.step(step, STEP, tokens=64, tokens_per_s=128.0)
    assert said == ["report: x stopped: ConnectionError: the network is gone. Training continues"]
    assert [step for step, _ in broken.told] == [1]
    assert [step for step, _ in sound.told] == [1, 2, 3, 4]
    assert sound.told[3][1] == {
        "train/loss": 2.5,
        "train/grad_norm": 0.75,
        "train/learning_rate": 1e-3,
        "train/tokens_per_s": 128.0,
        "train/step_s": 0.5,
        "train/tokens": 256.0,
    }


@pytest.mark.parametrize(("first", "seen"), [(1, [60, 124, 186]), (5, [300, 364, 426])])
def test_tokens_are_summed_as_they_were_and_earlier_steps_count_like_the_first(
    said: list[str], first: int, seen: list[int]
) -> None:
    kept = Kept()
    with Reports([Background("x", lambda: kept, said.append)]) as reports:
        for step, tokens in enumerate((60, 64, 62), first):
            reports.step(step, STEP, tokens=tokens, tokens_per_s=128.0)
    assert [values["train/tokens"] for _, values in kept.told] == seen


def test_a_report_that_hangs_neither_stops_a_step_nor_the_end(
    said: list[str], gate: threading.Event
) -> None:
    report = Background("x", lambda: Kept(may=gate, fails_at=0), said.append)
    for step in range(MOST_WAITING + 10):
        report.log(step, {"train/loss": 1.0})
    report.stop()
    report.join(0.05)
    assert len(said) == 2
    assert "x is too slow: steps from 1000" in said[0]
    assert said[1] == "report: x did not finish; its last steps may be missing"
    gate.set()
    report.join(10.0)
    assert len(said) == 2, "nobody waits any more for what it says"


def test_a_run_that_fails_keeps_what_it_told(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Trainer.begin

    def step(self: Trainer, number: int) -> Any:
        if number == 3:
            raise RuntimeError("lost")
        return whole(self, number)

    monkeypatch.setattr(Trainer, "begin", step)
    with pytest.raises(RuntimeError, match="lost"):
        result(text, f"checkpoint.directory={tmp_path}/kept")
    assert sorted(curve(read(tmp_path / "kept/tensorboard"), "train/loss")) == [1, 2, 3]
