from __future__ import annotations

import json

import pytest

from jupyter_mntrain.agent.failure.cause import explain
from jupyter_mntrain.model.ids import Rank

RANKS = [Rank(2), Rank(3)]
FAILED = (
    "E1120 19:59:57.269000 5243 torch/distributed/elastic/multiprocessing/api.py:1002] "
    "failed (exitcode: {code}) local_rank: {local} (pid: 77) of binary: /usr/bin/python\n"
)


@pytest.fixture
def attempt(tmp_path):
    def write(log: str, errors: dict[int, dict] | None = None):
        (tmp_path / "log").write_text(log)
        for local, content in (errors or {}).items():
            folder = tmp_path / "ranks" / "none_x" / "attempt_0" / str(local)
            folder.mkdir(parents=True)
            (folder / "error.json").write_text(json.dumps(content))
        return tmp_path

    return write


def test_an_error_file_gives_message_place_and_time(attempt):
    stack = (
        "Traceback (most recent call last):\n"
        '  File "/usr/lib/python3.11/site-packages/torch/x.py", line 9, in f\n'
        '  File "/home/u/train.py", line 41, in main\n'
        "RuntimeError: CUDA out of memory"
    )
    extra = {"py_callstack": stack, "timestamp": "1700000000"}
    content = {"message": {"message": "RuntimeError: CUDA out of memory", "extraInfo": extra}}
    directory = attempt(FAILED.format(code=1, local=1), {1: content})
    downs, cause = explain(directory, RANKS, 1, now_s=5.0)
    assert [(d.rank, d.exit_code) for d in downs] == [(3, 1)]
    assert cause.summary == "rank 3: RuntimeError: CUDA out of memory (train.py, line 41)"
    assert cause.time_s == 1_700_000_000
    assert cause.detail == stack


@pytest.mark.parametrize(
    ("has_run_out", "says"),
    [
        (None, "by a person, a program, or the kernel's OOM killer"),
        (True, "by the kernel: the machine ran out of memory"),
        (False, "the kernel's OOM killer was not involved"),
    ],
)
def test_a_rank_that_was_killed_says_by_whom_if_that_is_known(attempt, has_run_out, says):
    directory = attempt(FAILED.format(code=-9, local=0))
    _, cause = explain(directory, RANKS, 1, now_s=5.0, has_run_out=has_run_out)
    assert cause.summary == f"rank 2: killed by SIGKILL, {says}"


def test_a_script_without_error_files_is_explained_by_what_its_rank_printed(attempt):
    log = (
        "[node2 rank 2] Traceback (most recent call last):\n"
        '[node2 rank 2]   File "/jobs/work/train.py", line 3, in <module>\n'
        "[node2 rank 2]     import foo\n"
        "[node2 rank 2] ModuleNotFoundError: No module named 'foo'\n"
        "[node2 rank 3] unrelated Error-free line\n"
    ) + FAILED.format(code=1, local=0)
    downs, cause = explain(attempt(log), RANKS, 1, now_s=5.0)
    assert cause.summary == (
        "rank 2: ModuleNotFoundError: No module named 'foo' (train.py, line 3)"
    )
    assert downs[0].error == "ModuleNotFoundError: No module named 'foo' (train.py, line 3)"


def test_one_clean_line_of_our_trainer_is_the_cause(attempt):
    log = "[n rank 2] model.path = '/x': there is no such directory. Fix: check it.\n"
    _, cause = explain(attempt(log + FAILED.format(code=2, local=0)), RANKS, 1, now_s=5.0)
    assert cause.summary == "rank 2: model.path = '/x': there is no such directory. Fix: check it."


def test_our_own_message_is_not_dressed_up_as_a_python_error(attempt):
    stack = '  File "/x/train/world.py", line 92, in agree\nRecipeError: n: bad. Fix: mend it.'
    content = {"message": {"message": "RecipeError: n: bad. Fix: mend it.",
                           "extraInfo": {"py_callstack": stack, "timestamp": "1"}}}  # fmt: skip
    downs, cause = explain(attempt(FAILED.format(code=2, local=0), {0: content}), RANKS, 2, 5.0)
    assert (downs[0].error, cause.detail) == ("n: bad. Fix: mend it.", "")
    assert cause.summary == "rank 2: n: bad. Fix: mend it."


def test_a_signal_is_named_and_a_closed_connection_is_only_a_symptom(attempt):
    log = (
        "[n rank 2] RuntimeError: [../gloo/pair.cc:553] Connection closed by peer [10.0.0.2]\n"
        + FAILED.format(code=1, local=0)
        + FAILED.format(code=-9, local=1)
    )
    downs, cause = explain(attempt(log), RANKS, 1, now_s=5.0)
    assert {d.rank for d in downs} == {2, 3}
    assert cause.rank == 3
    assert "SIGKILL" in cause.summary
    assert not cause.is_symptom


def test_only_symptoms_are_marked_so_that_another_node_is_blamed(attempt):
    log = "[n rank 2] RuntimeError: Connection reset by peer\n" + FAILED.format(code=1, local=0)
    _, cause = explain(attempt(log), RANKS, 1, now_s=5.0)
    assert cause.is_symptom


def test_torchrun_s_own_end_is_told_when_no_rank_failed(attempt):
    log = (
        "Traceback (most recent call last):\n"
        "torch.distributed.DistStoreError: Timed out after 61 seconds waiting for clients. "
        "1/2 clients joined.\n"
    )
    downs, cause = explain(attempt(log), RANKS, 1, now_s=5.0)
    assert downs == []
    assert "1/2 clients joined" in cause.summary
    assert "SIGTERM" in explain(attempt(""), RANKS, -15, now_s=5.0)[1].summary
    heading = "[mntrain] job j-00000001 attempt 1: rank 0 on node1 (lo 127.0.0.1)\n"
    assert explain(attempt(heading), RANKS, 1, now_s=5.0)[1].summary == (
        "torchrun ended with exit code 1"
    )
