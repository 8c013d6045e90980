"""``tensorboard``: what TensorBoard's own reader finds in the files."""

from __future__ import annotations

import sys
from math import isnan
from pathlib import Path

import msgspec
import pytest

from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.show.exports.event_files import EventFiles
from jupyter_mntrain.verbs.watching import tensorboard
from tests.standin.cluster import StandInCluster, node
from tests.standin.job_handle import StandInJob
from tests.standin.training import sample_job
from tests.wording import says

pytest.importorskip("tensorboard")


def read(folder: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    reader = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    reader.Reload()
    return {
        tag: [(one.step, one.value) for one in reader.Scalars(tag)]
        for tag in reader.Tags()["scalars"]
    }


@pytest.fixture
def job() -> StandInJob:
    sample = sample_job({"wopr": 1, "muthur": 1}, evaluated=20)
    return StandInJob(sample, ends_as="succeeded")


@pytest.fixture
def on(job) -> StandInCluster:
    return StandInCluster(nodes=[node("wopr", 1), node("muthur", 1)], jobs=[job])


def test_its_reader_finds_every_number_that_the_live_view_has(do, on, job, tmp_path):
    outcome = do("tensorboard", job.id, "--no-server", "--output", str(tmp_path), on=on)
    (folder,) = [Path(one) for one in outcome.data["paths"]]
    series = job.series(10_000)
    found = read(folder)
    told = [
        (int(step), value)
        for step, value in zip(series.job.step, series.job.loss, strict=True)
        if value is not None
    ]
    assert [step for step, _ in found["train/loss"]] == [step for step, _ in told]
    assert [value for _, value in found["train/loss"]] == pytest.approx([v for _, v in told])
    assert len(found["evaluation/loss"]) == len(series.evaluation.loss) > 0
    assert {"train/tokens_per_s", "train/step_s", "train/mfu", "train/bubble"} <= set(found)
    for rank in series.ranks:
        seen = read(folder / f"rank {rank.rank}")
        steps = [step for step, _ in seen["rank/compute_share"]]
        assert steps == [int(step) for step in rank.step]
    for link in series.links:
        assert len(read(folder / f"node {link.node}")["link/sent_bytes_per_s"]) == len(link.sent)
    assert outcome.data["numbers"] > len(told)


def test_written_again_nothing_is_there_twice_and_what_others_wrote_stays(do, on, job, tmp_path):
    words = ("tensorboard", job.id, "--no-server", "--output", str(tmp_path))
    (folder,) = [Path(one) for one in do(*words, on=on).data["paths"]]
    before = read(folder)
    other = folder / "events.out.tfevents.1.somebody"
    other.write_bytes(b"")
    do(*words, on=on)
    assert read(folder) == before
    assert other.exists()


def test_a_loss_that_is_not_a_number_is_written_as_such(tmp_path):
    series = sample_job({"wopr": 1}).series
    lost = msgspec.structs.replace(series.job, loss=("NaN",) * len(series.job.step))
    files = EventFiles(tmp_path, series)
    files.write(msgspec.structs.replace(series, job=lost))
    files.close()
    losses = read(files.directory)["train/loss"]
    assert len(losses) == len(series.job.step)
    assert all(isnan(value) for _, value in losses)


def test_of_a_running_job_only_what_is_new_is_written(tmp_path):
    early, late = (sample_job({"wopr": 1}, steps=steps).series for steps in (20, 30))
    files = EventFiles(tmp_path, early)
    files.write(early)
    assert files.write(early) == 0
    assert files.write(late) > 0
    files.close()
    assert [step for step, _ in read(files.directory)["train/loss"]] == list(range(1, 31))


def test_without_tensorboard_it_says_what_to_install(do, on, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    monkeypatch.setattr(tensorboard, "is_installed", lambda: False)
    with pytest.raises(SpecError) as caught:
        do("tensorboard", "--output", str(tmp_path), on=on)
    assert says("pip install tensorboard", caught.value.fix)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_an_error_of_its_own(do, on, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(SpecError) as caught:
        do("tensorboard", "--no-server", "--output", str(blocked), on=on)
    assert str(blocked) in str(caught.value)
