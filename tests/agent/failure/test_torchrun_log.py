"""Causes of failed jobs, from logs that torchrun 2.13 wrote."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest

from jupyter_mntrain.agent.failure.torchrun_log import rank_failures
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import Rank
from tests.agent.failure.explained import explained
from tests.wording import says

LOGS = Path(__file__).parents[1] / "logs"
RANKS = [Rank(0), Rank(1)]


@pytest.fixture
def recorded(tmp_path):
    def recorded(name: str):
        shutil.copy(LOGS / f"{name}.log", tmp_path / "log")
        return explained(tmp_path, RANKS, 1, now_s=5.0)

    return recorded


@pytest.mark.parametrize(
    ("name", "kind", "rank", "cause"),
    [
        (
            "import_error",
            Kind.NO_MODULE,
            0,
            "ModuleNotFoundError: No module named 'foo_missing' (imp.py, line 3)",
        ),
        ("killed_rank", Kind.KILLED, 1, "killed by SIGKILL"),
        ("user_error", Kind.EXIT_CODE, 0, "recipe.toml: no field 'lrr'"),
        ("closed_connection", Kind.EXCEPTION, 1, "RuntimeError: boom in rank 1 (dist.py, line 5)"),
        ("abort", Kind.CRASHED, 0, "SIGABRT"),
        ("no_script", Kind.NO_FILE, 0, "nothere.py"),
    ],
)
def test_the_problem_names_the_rank_and_the_reason(recorded, name, kind, rank, cause):
    _, problem = recorded(name)
    assert (problem.kind, problem.rank, problem.is_symptom) == (kind, rank, False)
    assert says(cause, problem.cause)


def test_ranks_that_torchrun_ended_because_of_another_are_not_blamed(recorded):
    downs, cause = recorded("killed_rank")
    assert [(down.rank, down.exit_code) for down in downs] == [(1, -9)]
    assert cause.rank == 1


def test_the_first_failure_comes_first():
    failures = rank_failures((LOGS / "import_error.log").read_text())
    assert [(one.local_rank, one.exit_code) for one in failures] == [(0, 1), (1, 1)]


def test_times_of_another_time_zone_are_not_believed(tmp_path):
    log = (LOGS / "killed_rank.log").read_text()
    [guilty] = [one for one in rank_failures(log) if not one.was_ended]
    assert time.localtime(guilty.time_s)[3:6] == (20, 41, 38)
    assert guilty.time_before(guilty.time_s + 3) == guilty.time_s
    assert guilty.time_before(guilty.time_s + 3600) == guilty.time_s + 3600
    assert guilty.time_before(guilty.time_s - 3600) == guilty.time_s - 3600


def test_a_spoilt_error_file_does_not_keep_a_job_from_ending(tmp_path):
    folder = tmp_path / "ranks" / "none_x" / "attempt_0" / "1"
    folder.mkdir(parents=True)
    for content in (
        b"{",
        b"[]",
        b'{"message": {}}',
        b"\xff",
        json.dumps({"message": None}).encode(),
    ):
        (folder / "error.json").write_bytes(content)
        shutil.copy(LOGS / "killed_rank.log", tmp_path / "log")
        assert explained(tmp_path, RANKS, 1, now_s=5.0)[1].rank == 1


def test_the_first_line_of_a_long_message_is_the_cause(tmp_path):
    folder = tmp_path / "ranks" / "none_x" / "attempt_0" / "1"
    folder.mkdir(parents=True)
    message = {"message": "ValueError: bad\nmuch more", "extraInfo": {"py_callstack": "ValueError"}}
    (folder / "error.json").write_text(json.dumps({"message": message}))
    shutil.copy(LOGS / "killed_rank.log", tmp_path / "log")
    assert explained(tmp_path, RANKS, 1, now_s=5.0)[1].cause == "ValueError: bad"


def test_c_plus_plus_tells_why_it_aborted(tmp_path):
    log = (LOGS / "abort.log").read_text()
    log = log.replace("about to abort", "  what():  CUDA error: an illegal access", 1)
    (tmp_path / "log").write_text(log)
    downs, _ = explained(tmp_path, RANKS, 1, now_s=5.0)
    assert {down.rank: down.problem.kind for down in downs} == {0: Kind.CRASHED, 1: Kind.GPU_ERROR}
    assert not downs[0].problem.cause.endswith("access")
    assert downs[1].problem.cause.endswith(": CUDA error: an illegal access")


def test_a_torchrun_that_somebody_ended_blames_nobody_else(tmp_path):
    (tmp_path / "log").write_text(
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 7 got signal: 15\n"
    )
    _, cause = explained(tmp_path, RANKS, 1, now_s=5.0)
    assert (cause.kind, cause.rank, cause.is_symptom) == (Kind.TERMINATED, None, False)
