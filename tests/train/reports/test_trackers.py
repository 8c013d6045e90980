"""Weights & Biases and Trackio reports."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from jupyter_mntrain.train.reports.trackio import Trackio
from tests.train.reports.reported import STEPS, result, run_of


@pytest.mark.slow
def test_wandb_offline_keeps_the_run_beside_the_checkpoints(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("MNTRAIN_JOB", "j-00000002")
    monkeypatch.setenv("MNTRAIN_RUN", "j-00000001")
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
    ours.log(1, {"train/loss": 2.5})
    ours.close()
    assert theirs.settings["config"]["train.steps"] == 100
    assert (theirs.settings["project"], theirs.settings["name"]) == ("llamas", "j-00000001")
    assert theirs.settings["resume"] == "allow"
    assert theirs.told == [(1, {"train/loss": 2.5})]
    assert theirs.is_finished
