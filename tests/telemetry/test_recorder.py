from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_mntrain.launch.torchrun import METRICS_VARIABLE as LAUNCHED_WITH
from jupyter_mntrain.launch.torchrun import NODE_VARIABLE as LAUNCHED_ON
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.metrics import (
    RankEnd,
    RankEvaluation,
    RankGroup,
    RankSaved,
    RankStart,
    RankStep,
    Sample,
    sample_decoder,
)
from jupyter_mntrain.telemetry import Recorder
from jupyter_mntrain.telemetry.recorder import METRICS_VARIABLE, NODE_VARIABLE


def read(directory: Path, rank: int = 0) -> list[Sample]:
    lines = (directory / f"rank-{rank}.ndjson").read_bytes().splitlines()
    return [sample_decoder.decode(line) for line in lines]


class Ticks:
    """A clock that goes on by a second each time it is read."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    environment = {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", NODE_VARIABLE: "node2"}
    return Recorder(
        tmp_path,
        clock=lambda: 1e9,
        stopwatch=Ticks(),
        environment=environment,
        group=lambda: None,
    )


def test_variables_are_those_the_launcher_sets() -> None:
    assert (METRICS_VARIABLE, NODE_VARIABLE) == (LAUNCHED_WITH, LAUNCHED_ON)


def test_flops_are_those_of_the_tokens_unless_the_script_counts_its_own(
    recorder: Recorder, tmp_path: Path
) -> None:
    with recorder:
        recorder.start(flops_per_token=6e3)
        recorder.step(tokens=64)
        recorder.step(tokens=64, flops=5.0)
        recorder.step()
    steps = [one for one in read(tmp_path, rank=3) if isinstance(one, RankStep)]
    assert [one.flops for one in steps] == [64 * 6e3, 5.0, None]


def test_three_lines_fill_in_who_and_when(recorder: Recorder, tmp_path: Path) -> None:
    with recorder:
        for loss in (2.0, 1.0):
            recorder.step(tokens=64, loss=loss)
    start, first, second, end = read(tmp_path, rank=3)
    assert isinstance(start, RankStart)
    assert (start.rank, start.local_rank, start.world_size, start.host) == (3, 1, 4, "node2")
    assert start.pid == os.getpid()
    assert isinstance(first, RankStep)
    assert isinstance(second, RankStep)
    assert (first.step, first.tokens, first.loss, first.time_s) == (1, 64, 2.0, 1e9)
    assert (second.step, second.step_s) == (2, 1.0)
    assert first.step_s > 0
    assert end == RankEnd(time_s=1e9, rank=Rank(3), ok=True)


def test_whole_records_and_fields_are_the_same(recorder: Recorder, tmp_path: Path) -> None:
    recorder.start(device="cpu", stages=(0, 2), neighbors=(1,), peak_flops_per_s=1e9)
    step = RankStep(time_s=1.0, rank=Rank(3), step=7, step_s=0.5, sent_bytes={1: 10})
    recorder.step(step)
    recorder.step(sent_bytes={1: 10}, compute_s=0.1)
    start, first, second = read(tmp_path, rank=3)
    assert isinstance(start, RankStart)
    assert (start.stages, start.neighbors, start.peak_flops_per_s) == ((0, 2), (1,), 1e9)
    assert first == step
    assert isinstance(second, RankStep)
    assert (second.step, second.sent_bytes, second.compute_s) == (8, {1: 10}, 0.1)


def test_evaluating_before_the_first_step_is_no_part_of_it(
    recorder: Recorder, tmp_path: Path
) -> None:
    recorder.start()
    recorder.evaluated(0, 5.5)
    recorder.step()
    _, evaluation, step = read(tmp_path, rank=3)
    assert evaluation == RankEvaluation(time_s=1e9, rank=Rank(3), step=0, loss=5.5)
    assert isinstance(step, RankStep)
    assert step.step_s == 1.0


def test_start_counts_once(recorder: Recorder, tmp_path: Path) -> None:
    recorder.start(device="cpu")
    recorder.start(device="cuda")
    assert len(read(tmp_path, rank=3)) == 1


def test_an_error_is_the_last_line(recorder: Recorder, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="diverged"), recorder:
        raise ValueError("diverged")
    end = read(tmp_path, rank=3)[-1]
    assert end == RankEnd(time_s=1e9, rank=Rank(3), ok=False, message="ValueError: diverged")


def test_leaving_by_exit_zero_is_success(recorder: Recorder, tmp_path: Path) -> None:
    with pytest.raises(SystemExit), recorder:
        sys.exit(0)
    end = read(tmp_path, rank=3)[-1]
    assert isinstance(end, RankEnd)
    assert end.ok


def test_closing_twice_writes_one_end(recorder: Recorder, tmp_path: Path) -> None:
    recorder.close()
    recorder.close(ok=False)
    recorder.step(tokens=1)
    assert len(read(tmp_path, rank=3)) == 1


def test_without_the_variable_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(METRICS_VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    with Recorder() as recorder:
        recorder.start(device="cpu")
        recorder.step(tokens=1, loss=1.0)
    assert list(tmp_path.iterdir()) == []


def test_the_variable_names_a_directory_that_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(METRICS_VARIABLE, str(tmp_path / "a" / "metrics"))
    with Recorder() as recorder:
        recorder.step(tokens=1)
    assert len(read(tmp_path / "a" / "metrics")) == 3


def test_goes_on_after_a_line_that_was_cut_off(tmp_path: Path) -> None:
    file = tmp_path / "rank-0.ndjson"
    file.write_bytes(b'{"kind":"step","time_s"')
    Recorder(tmp_path, environment={}).step(tokens=5)
    torn, *whole = file.read_bytes().splitlines()
    assert torn == b'{"kind":"step","time_s"'
    assert [type(sample_decoder.decode(line)) for line in whole] == [RankStart, RankStep]


def test_a_loss_may_be_anything_float_takes_and_nan_is_told_by_name(
    recorder: Recorder, tmp_path: Path
) -> None:
    class Scalar:
        def __float__(self) -> float:
            return 2.5

    recorder.step(loss=Scalar())
    recorder.step(loss=float("nan"))
    losses = [s.loss for s in read(tmp_path, rank=3) if isinstance(s, RankStep)]
    assert losses == [2.5, "NaN"], "told by name: JSON has no number for it"


def test_a_full_disk_costs_steps_until_there_is_room_again(
    recorder: Recorder, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    recorder.step(tokens=1)
    disk, recorder._file = recorder._file, os.open("/dev/full", os.O_WRONLY)
    recorder.step(tokens=1)
    recorder.saved(2)
    recorder.step(tokens=1)
    os.close(recorder._file)
    recorder._file = disk
    recorder.step(tokens=1)
    recorder.close()
    assert capfd.readouterr().err.count("metrics of rank 3") == 2, "once each"
    told = [one.step for one in read(tmp_path, rank=3) if isinstance(one, RankStep | RankSaved)]
    assert told == [1, 2, 4], "steps 2 and 3 are lost, and what was saved is not"


def test_a_directory_that_cannot_be_made_costs_steps_only(tmp_path: Path) -> None:
    (tmp_path / "metrics").write_text("in the way")
    environment = {METRICS_VARIABLE: str(tmp_path / "metrics"), "RANK": "3", "WORLD_SIZE": "4"}
    with Recorder(environment=environment, group=lambda: None) as recorder:
        recorder.step(tokens=1)
        (tmp_path / "metrics").unlink()
        recorder.step(tokens=1)
    kinds = [type(one) for one in read(tmp_path / "metrics", rank=3)]
    assert kinds == [RankStart, RankStep, RankEnd]


def test_a_forked_child_writes_nothing(recorder: Recorder, tmp_path: Path) -> None:
    recorder.step(tokens=1)
    recorder._pid += 1  # what a fork looks like from inside
    recorder.step(tokens=1)
    assert len(read(tmp_path, rank=3)) == 2


def test_a_killed_rank_leaves_whole_lines_and_no_end(tmp_path: Path) -> None:
    code = (
        "from jupyter_mntrain.telemetry import Recorder\n"
        "with Recorder() as recorder:\n"
        "    for _ in range(50): recorder.step(tokens=1)\n"
        "    print('ready', flush=True)\n"
        "    input()\n"
    )
    environment = {**os.environ, METRICS_VARIABLE: str(tmp_path)}
    command = [sys.executable, "-c", code]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        child.send_signal(signal.SIGKILL)
    samples = read(tmp_path)
    assert len(samples) == 51
    assert not any(isinstance(sample, RankEnd) for sample in samples)


def test_torch_is_not_imported() -> None:
    code = "import sys, jupyter_mntrain.telemetry; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_loss_that_is_part_of_a_graph_is_taken_out_of_it(tmp_path: Path) -> None:
    class Tensor:
        def __init__(self, is_free: bool) -> None:
            self.is_free = is_free

        def detach(self) -> Tensor:
            return Tensor(is_free=True)

        def __float__(self) -> float:
            assert self.is_free
            return 2.5

    with Recorder(tmp_path) as recorder:
        recorder.step(loss=Tensor(is_free=False))
    assert b'"loss":2.5' in (tmp_path / "rank-0.ndjson").read_bytes()


def test_the_process_group_is_told_once_as_large_as_it_was_in_the_first_steps(
    tmp_path: Path,
) -> None:
    sizes = iter([1, 4, 1])  # made in the second step, gone after it
    environment = {"RANK": "0", "WORLD_SIZE": "4"}
    with Recorder(tmp_path, environment=environment, group=lambda: next(sizes)) as recorder:
        for _ in range(5):
            recorder.step()
    told = [one for one in read(tmp_path) if isinstance(one, RankGroup)]
    assert [(one.rank, one.size) for one in told] == [(0, 4)]


def test_the_process_group_of_a_short_run_is_told_at_its_end(tmp_path: Path) -> None:
    environment = {"RANK": "0", "WORLD_SIZE": "2"}
    with Recorder(tmp_path, environment=environment, group=lambda: 1) as recorder:
        recorder.step()
    assert [type(one) for one in read(tmp_path)] == [RankStart, RankStep, RankGroup, RankEnd]


def test_a_rank_alone_has_no_group_to_tell_of(tmp_path: Path) -> None:
    with Recorder(tmp_path, environment={}, group=lambda: 1) as recorder:
        recorder.step()
    assert not [one for one in read(tmp_path) if isinstance(one, RankGroup)]


def test_only_a_first_step_that_the_recorder_counted_says_so(tmp_path: Path) -> None:
    for number, given in enumerate((None, 1, 301)):
        directory = tmp_path / str(number)
        with Recorder(directory, environment={}) as recorder:
            recorder.step(step=given)
            recorder.step()
        steps = [one for one in read(directory) if isinstance(one, RankStep)]
        assert [one.is_counted for one in steps] == [given is None, False]


def test_text_that_cannot_be_encoded_does_not_hide_the_scripts_own_error(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, environment={})
    recorder.wrote(1, "\udc80", "\udc80")
    recorder.progress("\udc80", 1)
    with pytest.raises(FileNotFoundError), recorder:
        raise FileNotFoundError("shard-\udc80")
    assert read(tmp_path)[-1].message == "FileNotFoundError: shard-?"
