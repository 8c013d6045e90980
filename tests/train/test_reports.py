"""Reports read back with their own readers, and what goes wrong in them never stops training."""

from __future__ import annotations

import json
import re
import socket
import struct
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.train import TrainResult, parse_recipe, train
from jupyter_mntrain.train.loop import Trainer
from jupyter_mntrain.train.reports import Reports, open_reports
from jupyter_mntrain.train.reports.background import MOST_WAITING, Background
from jupyter_mntrain.train.reports.base import NUMBERS, Run
from jupyter_mntrain.train.reports.prometheus import Prometheus
from jupyter_mntrain.train.reports.tensorboard import TensorBoard
from jupyter_mntrain.train.reports.trackio import Trackio
from jupyter_mntrain.train.world import World

STEPS = 6
RANK_0 = World(rank=0, local_rank=0, size=1, host="node1", device=torch.device("cpu"))
STEP = {"loss": 2.5, "grad_norm": 0.75, "tokens": 64}


def recipe_of(text: Path, *overrides: str) -> Recipe:
    changes = [
        *("model.preset=llama-tiny", f"data.source={text}", "data.vocabulary_size=300"),
        *("data.sequence_length=16", "pipeline.microbatches=2", "train.device=cpu"),
        *(f"train.steps={STEPS}", "train.batch_size=4", "optimizer.warmup_steps=0"),
        *("evaluation.interval_steps=2", "evaluation.share=0.2", "evaluation.sequences=2"),
    ]
    return parse_recipe("", [*changes, *overrides])


def result(text: Path, *overrides: str) -> TrainResult:
    return train(recipe_of(text, *overrides))


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "a.txt"
    path.write_text("".join(f"bubble {n} schedule {n * n} microbatch\n" for n in range(400)))
    return path


@pytest.fixture
def said() -> list[str]:
    return []


def run_of(directory: Path | None = None, job: str | None = "j-00000001", **report: Any) -> Run:
    recipe = parse_recipe("", [f"report.{name}={value}" for name, value in report.items()])
    return Run(recipe, job, directory, first_step=0)


def read(directory: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(directory), {"scalars": 0, "tensors": 0})
    events.Reload()
    return events


def curve(events: Any, name: str) -> dict[int, float]:
    points = [(one.step, one.value) for one in events.Scalars(name)]
    assert len(dict(points)) == len(points), f"{name} has a step twice: {points}"
    return dict(points)


# TensorBoard


@pytest.mark.slow
def test_tensorboard_is_beside_the_checkpoints_without_being_asked_for(
    text: Path, tmp_path: Path
) -> None:
    run = result(text, f"checkpoint.directory={tmp_path}/kept")
    events = read(tmp_path / "kept" / "tensorboard")
    assert set(events.Tags()["scalars"]) == set(NUMBERS)
    steps = range(1, STEPS + 1)
    assert curve(events, "train/loss") == pytest.approx(dict(zip(steps, run.losses, strict=True)))
    norms = dict(zip(steps, run.gradient_norms, strict=True))
    assert curve(events, "train/grad_norm") == pytest.approx(norms)
    seconds = dict(zip(steps, run.step_s, strict=True))
    assert curve(events, "train/step_s") == pytest.approx(seconds)
    rates = {step: 64 / one for step, one in seconds.items()}
    assert curve(events, "train/tokens_per_s") == pytest.approx(rates)
    assert curve(events, "train/tokens") == {step: 64.0 * step for step in steps}
    assert curve(events, "evaluation/loss") == pytest.approx(run.evaluations)
    assert curve(events, "train/learning_rate")[1] == pytest.approx(1e-3)


def test_tensorboard_has_the_recipe_as_text_and_as_hyperparameters(tmp_path: Path) -> None:
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    run = run_of(tmp_path, run_name="first")
    writer = TensorBoard(run, tmp_path)
    writer.begin()
    writer.close()
    events = read(tmp_path / "tensorboard")
    [recipe] = events.Tensors("recipe/text_summary")
    shown = recipe.tensor_proto.string_val[0].decode()
    assert "    [pipeline]\n" in shown
    assert '    run_name = "first"' in shown
    content = events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    hparams = HParamsPluginData.FromString(content).session_start_info.hparams
    assert hparams["train.steps"].number_value == 100
    assert hparams["model.dtype"].string_value == "float32"


@pytest.mark.slow
def test_a_run_that_goes_on_replaces_the_steps_it_makes_again(text: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    where = [f"checkpoint.directory={kept}", "checkpoint.interval_steps=4"]
    # The first one is lost after step 6, with a checkpoint of step 4.
    first = result(text, *where, "checkpoint.at_end=false")
    again = result(text, *where)
    assert len(again.losses) == 2
    assert len(list((kept / "tensorboard").iterdir())) == 2
    events = read(kept / "tensorboard")
    steps = range(1, STEPS + 1)
    losses = [*first.losses[:4], *again.losses]
    assert curve(events, "train/loss") == pytest.approx(dict(zip(steps, losses, strict=True)))
    seconds = [*first.step_s[:4], *again.step_s]
    assert curve(events, "train/step_s") == pytest.approx(dict(zip(steps, seconds, strict=True)))
    assert sorted(curve(events, "evaluation/loss")) == [0, 2, 4, 6]


def test_what_was_told_is_on_disk_although_the_rank_is_killed(tmp_path: Path) -> None:
    writer = TensorBoard(run_of(tmp_path), tmp_path)
    writer.begin()
    writer.log(1, {"train/loss": 2.5})
    assert curve(read(tmp_path / "tensorboard"), "train/loss") == {1: 2.5}
    writer.close()


@pytest.mark.slow
def test_without_a_directory_there_is_no_tensorboard(
    text: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    result(text)
    assert "report:" not in capfd.readouterr().out
    result(text, 'report.to=["tensorboard"]')
    assert "no tensorboard: this run has no checkpoint.directory" in capfd.readouterr().out
    assert [one.name for one in tmp_path.iterdir()] == ["a.txt"]


def test_tensorboard_that_is_not_there_is_one_line(tmp_path: Path, said: list[str]) -> None:
    settings: dict[str, Any] = {"directory": tmp_path, "first_step": 0, "say": said.append}
    open_reports(Recipe(), RANK_0, has=lambda _: False, **settings)
    assert said == [f"report: pip install tensorboard for curves in {tmp_path / 'tensorboard'}"]
    nobody = parse_recipe("", ["report.to=[]"])
    open_reports(nobody, RANK_0, has=lambda _: False, **settings)
    other = World(rank=1, local_rank=1, size=2, host="node1", device=torch.device("cpu"))
    open_reports(Recipe(), other, **settings)
    assert len(said) == 1
    assert list(tmp_path.iterdir()) == []


def test_what_was_asked_for_and_is_not_there_is_refused(
    text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = r"node.*report.to = .*: trackio is not installed. Fix: pip install trackio, or"
    monkeypatch.setitem(sys.modules, "trackio", None)
    monkeypatch.setenv("MNTRAIN_NODE", "node1")
    with pytest.raises(RecipeError, match=refused):
        result(text, 'report.to=["trackio"]')


# Prometheus


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def scraped(port: int) -> str:
    url = f"http://127.0.0.1:{port}/metrics"
    with urllib.request.urlopen(url, timeout=10) as reply:
        body: bytes = reply.read()
        return body.decode()


def test_prometheus_gets_the_newest_numbers_on_loopback() -> None:
    port = free_port()
    server = Prometheus(run_of(prometheus_port=port))
    server.begin()
    server.log(3, {"train/loss": 2.5, "train/step_s": 0.25})
    server.log(3, {"evaluation/loss": 3.5})
    page = scraped(port)
    labels = '{project="mntrain",run="j-00000001"}'
    for line in (
        f"mntrain_train_loss{labels} 2.5",
        f"mntrain_train_step_seconds{labels} 0.25",
        f"mntrain_train_step{labels} 3.0",
        f"mntrain_evaluation_loss{labels} 3.5",
    ):
        assert line in page
    assert re.search(r'mntrain_recipe_info\{.*train_steps="100"', page)
    assert server._server.server_address[0] == "127.0.0.1"
    server.close()
    with pytest.raises(OSError, match="refused"):
        scraped(port)


def test_a_port_that_is_taken_is_said_once_and_training_goes_on(
    text: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        run = result(text, 'report.to=["prometheus"]', f"report.prometheus_port={port}")
    assert len(run.losses) == STEPS
    lines = [line for line in capfd.readouterr().out.splitlines() if "report:" in line]
    assert len(lines) == 1
    assert "prometheus stopped: OSError:" in lines[0]


# Weights & Biases, Trackio


@pytest.mark.slow
def test_wandb_offline_keeps_the_run_beside_the_checkpoints(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("MNTRAIN_JOB", "j-00000001")
    run = result(text, f"checkpoint.directory={tmp_path}/kept", 'report.to=["wandb"]')
    assert "report:" not in capfd.readouterr().out
    [file] = (tmp_path / "kept" / "j-00000001").glob("wandb/offline-run-*/*.wandb")
    kept = wandb_history(file)
    assert [row["_step"] for row in kept] == list(range(STEPS + 1))
    assert [row["train/loss"] for row in kept[1:]] == pytest.approx(run.losses)
    assert kept[0]["evaluation/loss"] == pytest.approx(run.evaluations[0])
    assert kept[4]["evaluation/loss"] == pytest.approx(run.evaluations[4])


def wandb_history(file: Path) -> list[dict[str, Any]]:
    from wandb.proto.wandb_internal_pb2 import Record

    records = [Record.FromString(data) for data in leveldb_log(file.read_bytes()[7:])]
    return [
        {
            one.key or "/".join(one.nested_key): json.loads(one.value_json)
            for one in record.history.item
        }
        for record in records
        if record.WhichOneof("record_type") == "history"
    ]


def leveldb_log(log: bytes) -> Iterator[bytes]:
    """Its records: a header of checksum, length and type each, none across 32 KiB blocks."""
    at, block, data = 0, 32768, b""
    while at + 7 <= len(log):
        if block - (at + 7) % block < 7:  # the file's own header is 7 bytes long, too
            at += block - (at + 7) % block
            continue
        _, length, kind = struct.unpack_from("<IHB", log, at)
        data += log[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            yield data
            data = b""


class StandInTrackio(ModuleType):
    """What its reference says of ``init`` and of the run that it gives back."""

    def __init__(self) -> None:
        super().__init__("trackio")
        self.settings: dict[str, Any] = {}
        self.told: list[tuple[int | None, Mapping[str, float]]] = []
        self.is_finished = False

    def init(
        self,
        project: str,
        name: str | None = None,
        config: dict[str, Any] | None = None,
        resume: str = "never",
    ) -> StandInTrackio:
        self.settings = {"project": project, "name": name, "config": config, "resume": resume}
        return self

    def log(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.told.append((step, metrics))

    def finish(self) -> None:
        self.is_finished = True


def test_trackio_is_told_as_its_reference_says(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = StandInTrackio()
    monkeypatch.setitem(sys.modules, "trackio", theirs)
    ours = Trackio(run_of(project="llamas"))
    ours.begin()
    ours.log(1, {"train/loss": 2.5})
    ours.close()
    assert theirs.settings["config"]["train.steps"] == 100
    assert (theirs.settings["project"], theirs.settings["name"]) == ("llamas", "j-00000001")
    assert theirs.settings["resume"] == "allow"
    assert theirs.told == [(1, {"train/loss": 2.5})]
    assert theirs.is_finished


# What goes wrong


class Kept:
    """Keeps what it is told, once it may."""

    def __init__(self, may: threading.Event | None = None, fails_at: int | None = None) -> None:
        self.told: list[tuple[int, Mapping[str, float]]] = []
        self._may, self._fails_at = may, fails_at

    def begin(self) -> None: ...

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
        [Background("x", broken, said.append), Background("y", sound, said.append)]
    ) as reports:
        for step in range(1, 5):
            reports.step(step, STEP, learning_rate=1e-3, step_s=0.5)
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


def test_a_report_that_hangs_neither_stops_a_step_nor_the_end(
    said: list[str], gate: threading.Event
) -> None:
    report = Background("x", Kept(may=gate, fails_at=0), said.append)
    begun = time.monotonic()
    for step in range(MOST_WAITING + 10):
        report.log(step, {"train/loss": 1.0})
    report.stop()
    report.join(0.05)
    assert time.monotonic() - begun < 5.0
    assert len(said) == 2
    assert "x is too slow: steps from 1000" in said[0]
    assert said[1] == "report: x did not finish; its last steps may be missing"
    gate.set()
    report.join(10.0)
    assert len(said) == 2, "nobody waits any more for what it says"


def test_a_run_that_fails_keeps_what_it_told(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Trainer.step

    def step(self: Trainer, number: int) -> dict[str, Any]:
        if number == 3:
            raise RuntimeError("lost")
        return whole(self, number)

    monkeypatch.setattr(Trainer, "step", step)
    with pytest.raises(RuntimeError, match="lost"):
        result(text, f"checkpoint.directory={tmp_path}/kept")
    assert sorted(curve(read(tmp_path / "kept/tensorboard"), "train/loss")) == [1, 2, 3]
