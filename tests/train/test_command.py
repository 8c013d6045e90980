"""``python -m jupyter_mntrain.train``, started by hand and by torchrun."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jupyter_mntrain.model.records.metrics import (
    RankEnd,
    RankGroup,
    RankProgress,
    RankStart,
    RankStep,
    RankTrace,
    Sample,
    sample_decoder,
)
from jupyter_mntrain.recipe.parse import parse_recipe
from jupyter_mntrain.telemetry.formulas import mfu
from tests.train.ranks import TIMEOUT_S, Ended, run_alone, run_command, run_ranks
from tests.wording import says

pytestmark = pytest.mark.slow

STEPS = 6
RECIPE = f"""
[model]
preset = "llama-tiny"
tie_embeddings = true
[data]
source = "text"
sequence_length = 16
vocabulary_size = 300
[pipeline]
microbatches = 4
[train]
steps = {STEPS}
batch_size = 8
device = "cpu"
timeout_s = 60
log_interval = 2
[optimizer]
warmup_steps = 0
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE)
    return path


@pytest.fixture
def text(tmp_path: Path) -> Path:
    return write_text(tmp_path / "text")


def write_text(folder: Path, word: str = "bubble") -> Path:
    folder.mkdir(parents=True)
    lines = (f"{word} {n} schedule {n * n} microbatch\n" for n in range(600))
    (folder / "a.txt").write_text("".join(lines))
    return folder


def read(directory: Path, rank: int) -> list[Sample]:
    lines = (directory / f"rank-{rank}.ndjson").read_bytes().splitlines()
    return [sample_decoder.decode(line) for line in lines]


def losses(samples: list[Sample]) -> list[float]:
    return [s.loss for s in samples if isinstance(s, RankStep) and s.loss is not None]


def test_one_process_and_two_ranks_learn_the_same(recipe: Path, text: Path, tmp_path: Path) -> None:
    source = f"data.source={text}"
    alone = run_alone(
        recipe, "--set", source, environment={"MNTRAIN_METRICS_DIR": str(tmp_path / "one")}
    )
    assert alone.exit_code == 0, alone.err
    ranks = run_ranks(recipe, ["n1", "n2"], "--set", source, metrics=tmp_path / "two")
    assert [r.exit_code for r in ranks] == [0, 0], ranks[0].err + ranks[1].err

    one = losses(read(tmp_path / "one", 0))
    assert len(one) == STEPS
    assert one[-1] < one[0]
    for rank in (0, 1):
        assert losses(read(tmp_path / "two", rank)) == pytest.approx(one, rel=1e-5)


def test_a_log_whose_disk_is_full_costs_lines_and_not_the_job(
    recipe: Path, text: Path, tmp_path: Path
) -> None:
    metrics = tmp_path / "metrics"
    metrics.mkdir()
    command = [sys.executable, "-m", "jupyter_mntrain.train", str(recipe)]
    with open("/dev/full", "wb") as full:  # noqa: PTH123 - a device
        done = subprocess.run(
            [*command, "--set", f"data.source={text}"],
            env=os.environ | {"MNTRAIN_METRICS_DIR": str(metrics)},
            stdout=full,
            stderr=full,
            timeout=TIMEOUT_S,
            check=False,
        )
    assert done.returncode == 0
    assert len([one for one in read(metrics, 0) if isinstance(one, RankStep)]) == STEPS


def test_what_is_recorded(recipe: Path, text: Path, tmp_path: Path) -> None:
    metrics = tmp_path / "metrics"
    ranks = run_ranks(recipe, ["n1", "n2", "n2"], "--set", f"data.source={text}", metrics=metrics)
    assert [r.exit_code for r in ranks] == [0, 0, 0], "".join(r.err for r in ranks)
    starts: list[RankStart] = []
    for rank in range(3):
        samples = read(metrics, rank)
        said = [sample for sample in samples if isinstance(sample, RankProgress)]
        (group,) = (sample for sample in samples if isinstance(sample, RankGroup))
        assert (group.rank, group.size) == (rank, 3)
        start, *steps, end = (
            one
            for one in samples
            if one not in said and one is not group and not isinstance(one, RankTrace)
        )
        done = {one.what for one in said if one.is_over}
        assert done == {one.what for one in said}, "what is begun is ended"
        assert done >= {
            "waiting for the other ranks",
            "reading the text",
            "making the weights",
            "connecting to the other ranks",
            "measuring the device",
        }
        assert samples.index(said[-1]) < samples.index(steps[0]), "and none of it takes step time"
        assert isinstance(start, RankStart)
        starts.append(start)
        assert start.peak_flops_per_s is not None
        assert (start.peak_source or "").startswith("measured GEMM, float32, 1 thread")
        assert start.tokens_per_step == 128
        assert start.total_steps == STEPS
        assert isinstance(end, RankEnd)
        assert end.ok
        for number, step in enumerate(steps, start=1):
            assert isinstance(step, RankStep)
            assert step.step == number
            assert step.tokens == 128
            assert step.compute_s is not None
            assert step.wait_s is not None
            assert step.optimizer_s is not None
            assert 0 < step.compute_s < step.step_s
            # Nothing is counted twice: the parts fit into the whole.
            assert step.compute_s + step.wait_s + step.optimizer_s <= step.step_s
            assert step.memory_bytes is not None
            assert set(step.sent_bytes) == set(step.received_bytes) == set(start.neighbors)
            share = mfu((step.flops or 0.0) / step.step_s, start.peak_flops_per_s)
            assert share is not None
            assert 0 < share < 1
    assert [s.host for s in starts] == ["n1", "n2", "n2"]
    assert [s.layers for s in starts] == [(0, 1), (2,), (3,)]
    assert [s.neighbors for s in starts] == [(1, 2), (0, 2), (0, 1)]  # 0 and 2 share a tied weight


def test_every_log_says_where_it_runs(recipe: Path, text: Path) -> None:
    ranks = run_ranks(recipe, ["n1", "n2", "n2"], "--set", f"data.source={text}")
    assert ranks[0].out.splitlines()[0] == "topology: n1 [0], n2 [1, 2]"
    for rank, (ended, host) in enumerate(zip(ranks, ["n1", "n2", "n2"], strict=True)):
        assert ended.out.count(f"rank {rank} host={host} ") == 1
    steps = [line.split()[1] for line in ranks[0].out.splitlines() if line.startswith("step ")]
    assert steps == [f"{n}/{STEPS}" for n in (1, 2, 4, 6)]
    assert "step" not in ranks[1].out


def one_line(ended: Ended) -> str:
    assert ended.exit_code == 2, ended.err
    lines = ended.err.splitlines()
    assert len(lines) == 1, ended.err
    assert lines[0].startswith("mntrain: ")
    return lines[0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("train.stps=3", "train.stps: no such field. Fix: use steps."),
        ("model.path=/nowhere/model", "no such directory"),
        ("data.source=/nowhere/text", "no such file or folder"),
        ("pipeline.microbatches=3", "train.batch_size = 8 is not a multiple of 3"),
        ("train.device=cuda", "torch finds no CUDA device"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_two(recipe: Path, change: str, words: str) -> None:
    arguments = ["--set", change]
    if change.startswith("model.path"):
        recipe.write_text(RECIPE.replace('preset = "llama-tiny"\ntie_embeddings = true', ""))
    environment = {"CUDA_VISIBLE_DEVICES": ""}
    line = one_line(run_alone(recipe, *arguments, environment=environment))
    assert says(words, line)


def test_a_missing_recipe_is_one_line(tmp_path: Path) -> None:
    line = one_line(run_command(tmp_path / "gone.toml"))
    assert "gone.toml" in line
    assert says("gone.toml cannot be read", line)


def test_texts_that_differ_are_refused_on_every_node_by_name(recipe: Path, tmp_path: Path) -> None:
    metrics = tmp_path / "metrics"
    homes = [tmp_path / name for name in ("n1", "n2", "n3")]
    for home, word in zip(homes, ("same", "other", "same"), strict=True):
        write_text(home / "text", word)
    ranks = run_ranks(recipe, ["n1", "n2", "n3"], metrics=metrics, directories=homes)
    for rank, ended in enumerate(ranks):
        line = one_line(ended)
        assert says("the corpus on n2 (", line)
        assert says("differs from that on n1, n3 (", line)
        assert says("Fix: ", line)
        assert all(word in line for word in ("n2", "n1, n3"))
        end = read(metrics, rank)[-1]
        assert isinstance(end, RankEnd)
        assert not end.ok
        error = json.loads((metrics / f"error-{rank}.json").read_text())["message"]
        assert says("the corpus on n2", error["message"])
        assert "Traceback" in error["extraInfo"]["py_callstack"]


def test_data_missing_on_one_node_ends_all_of_them(recipe: Path, tmp_path: Path) -> None:
    homes = [tmp_path / "n1", tmp_path / "n2"]
    write_text(homes[0] / "text")
    homes[1].mkdir()
    lines = {one_line(ended) for ended in run_ranks(recipe, ["n1", "n2"], directories=homes)}
    (line,) = lines
    assert "n2: " in line
    assert says("n2: rank 1: data.source = text: no such file or folder", line)


def test_it_imports_no_torchao_and_a_signal_dumps_every_stack_while_training_goes_on(
    recipe: Path, text: Path, tmp_path: Path
) -> None:
    environment = os.environ | {"PYTHONPROFILEIMPORTTIME": "1"}
    command = [sys.executable, "-m", "jupyter_mntrain.train", str(recipe)]
    command += ["--set", f"data.source={text}", "--set", "train.steps=1000000"]
    with (
        (tmp_path / "err").open("w") as errors,
        subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as child,
    ):
        assert child.stdout is not None
        try:
            wait_for_step(child, "step 1/")
            child.send_signal(signal.SIGUSR1)
            deadline = time.monotonic() + TIMEOUT_S
            while "most recent call first" not in (tmp_path / "err").read_text():
                assert time.monotonic() < deadline
                time.sleep(0.05)
            wait_for_step(child, "step ")
        finally:
            child.kill()
    told = (tmp_path / "err").read_text()
    assert "loop.py" in told
    assert " transformers\n" in told
    assert " torchao\n" not in told, "where the recipe does not need it"


def wait_for_step(child: subprocess.Popen[str], begins: str) -> None:
    assert child.stdout is not None
    for line in child.stdout:
        if line.startswith(begins):
            return
    pytest.fail("the trainer ended")


def test_the_recipe_of_these_tests_is_valid() -> None:
    assert parse_recipe(RECIPE).train.steps == STEPS
