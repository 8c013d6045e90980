from __future__ import annotations

import json
import signal
import time
from array import array

import msgspec
import pytest

from jupyter_mntrain.agent.attempt.processes import metrics_of
from jupyter_mntrain.agent.attempt.supervisor import times_of
from jupyter_mntrain.agent.failure.cause import rank_ends
from jupyter_mntrain.agent.failure.printed import TRACEBACK
from jupyter_mntrain.agent.failure.rank_end import of_exception, of_signal
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.telemetry.problem_file import hand_over, handed_over
from jupyter_mntrain.telemetry.startup.exit_record import ExitRecord, ProcessExit, Raised
from jupyter_mntrain.telemetry.startup.mntrain_rank_hooks import EXIT_FILE, EXITS_FILE
from tests.agent.failure.explained import explained
from tests.hostile import LONG
from tests.wording import says

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
    downs, cause = explained(directory, RANKS, 1, now_s=5.0)
    assert [(d.rank, d.exit_code) for d in downs] == [(3, 1)]
    assert cause.cause == "RuntimeError: CUDA out of memory (train.py, line 41)"
    assert (cause.kind, cause.rank) == (Kind.GPU_OUT_OF_MEMORY, 3)
    assert cause.time_s == 1_700_000_000
    assert cause.detail == stack


def test_a_rank_that_leaves_with_exit_code_0_by_any_way_has_ended_normally(attempt):
    """os._exit(0): its own hooks cannot tell, and torchrun does not log it."""
    metrics = metrics_of(attempt(""))
    metrics.mkdir()
    for rank in RANKS:
        began = ExitRecord(pid=70 + rank, monotonic_s=time.monotonic(), is_over=False)
        (metrics / EXIT_FILE.format(rank)).write_bytes(msgspec.json.encode(began))
    seen = ProcessExit(pid=73, status=0, monotonic_s=time.monotonic())
    (metrics / EXITS_FILE).write_bytes(msgspec.json.encode(seen) + b"\n")
    (down,) = rank_ends(metrics.parent, RANKS, now_s=5.0)
    assert (down.rank, down.exit_code, down.problem) == (3, 0, None)
    assert abs(down.time_s - time.time()) < 60


def test_a_program_ended_when_it_said_so_not_when_torchrun_noticed(attempt):
    metrics = metrics_of(attempt(""))
    metrics.mkdir()
    now_s = time.monotonic()
    ended = ExitRecord(pid=72, monotonic_s=now_s - 9.0, is_over=True)
    (metrics / EXIT_FILE.format(2)).write_bytes(msgspec.json.encode(ended))
    seen = ProcessExit(pid=72, status=0, monotonic_s=now_s)
    (metrics / EXITS_FILE).write_bytes(msgspec.json.encode(seen) + b"\n")
    (down,) = rank_ends(metrics.parent, RANKS, now_s=5.0)
    assert down.time_s < time.time() - 8.0


def test_a_crash_after_the_programs_end_is_told_with_the_time_of_that_end(attempt):
    directory = attempt(FAILED.format(code=-6, local=0))
    metrics_of(directory).mkdir()
    ended = ExitRecord(pid=72, monotonic_s=time.monotonic(), is_over=True)
    (metrics_of(directory) / EXIT_FILE.format(2)).write_bytes(msgspec.json.encode(ended))
    (down,) = rank_ends(directory, RANKS, now_s=5.0)
    assert (down.exit_code, down.problem.kind) == (-6, Kind.CRASHED_AT_END)
    assert abs(down.time_s - time.time()) < 60


@pytest.mark.parametrize(
    ("has_run_out", "kind"),
    [(None, Kind.KILLED), (True, Kind.OUT_OF_MEMORY), (False, Kind.KILLED)],
)
def test_a_rank_that_was_killed_says_by_whom_if_that_is_known(attempt, has_run_out, kind):
    directory = attempt(FAILED.format(code=-9, local=0))
    _, cause = explained(directory, RANKS, 1, now_s=5.0, has_run_out=has_run_out)
    assert (cause.kind, cause.rank) == (kind, 2)
    assert "SIGKILL" in cause.cause
    assert cause.fix


@pytest.mark.parametrize(
    ("code", "kind"),
    [("raise KeyboardInterrupt", Kind.EXCEPTION), ("time.sleep(1)", Kind.TERMINATED)],
)
def test_an_interrupt_that_a_script_raises_is_no_signal(attempt, code, kind):
    directory = attempt(FAILED.format(code=-2, local=0))
    metrics_of(directory).mkdir()
    stack = (
        "Traceback (most recent call last):\n"
        '  File "/jobs/work/train.py", line 8, in <module>\n'
        f"    {code}\n    ^^^^^\nKeyboardInterrupt\n"
    )
    raised = Raised(
        kind="KeyboardInterrupt",
        module="builtins",
        message="",
        monotonic_s=time.monotonic(),
        frames=(("/jobs/work/train.py", 8, "<module>"),),
        traceback=stack,
    )
    over = ExitRecord(pid=72, monotonic_s=time.monotonic(), is_over=True, escaped=raised)
    (metrics_of(directory) / EXIT_FILE.format(2)).write_bytes(msgspec.json.encode(over))
    downs, _ = explained(directory, RANKS, 1, now_s=5.0)
    assert [(down.rank, down.problem.kind) for down in downs] == [(2, kind)]
    assert ("SIGINT" in downs[0].problem.cause) is (kind is Kind.TERMINATED)


RAISED = (
    "Traceback (most recent call last):\n"
    '  File "/jobs/work/train.py", line 8, in main\n'
    '    raise ValueError("no such lr")\n'
    "ValueError: no such lr\n"
)
OF_HYDRA = "\nSet the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.\n"


@pytest.mark.parametrize(
    ("printed", "cause"),
    [
        (
            f"Error executing job with overrides: ['lr=1']\n{RAISED}{OF_HYDRA}",
            "ValueError: no such lr (train.py, line 8)",
        ),
        (
            f"Error executing job with overrides: []\n{RAISED}{OF_HYDRA}step 1\nstep 2\n",
            "ValueError: no such lr (train.py, line 8)",
        ),
        (
            f"step 1\nCould not override 'lr'.\nTo append use +lr=1\n    full_key: lr\n{OF_HYDRA}",
            "Could not override 'lr'. To append use +lr=1",
        ),
        (
            f"Error executing job with overrides: []\nMissing mandatory value: lr\n{OF_HYDRA}",
            "Missing mandatory value: lr",
        ),
    ],
)
def test_an_exception_that_hydra_has_caught_is_the_cause(attempt, printed, cause):
    tagged = "".join(f"[node2 rank 2] {line}\n" for line in printed.splitlines())
    directory = attempt(tagged + FAILED.format(code=1, local=0))
    metrics_of(directory).mkdir()
    over = ExitRecord(pid=72, monotonic_s=time.monotonic(), is_over=True)
    (metrics_of(directory) / EXIT_FILE.format(2)).write_bytes(msgspec.json.encode(over))
    downs, _ = explained(directory, RANKS, 1, now_s=5.0)
    assert [(down.rank, down.problem.cause) for down in downs] == [(2, cause)]
    assert "HYDRA" not in downs[0].problem.fix


def test_a_traceback_above_what_waited_in_a_buffer_is_told(attempt):
    tagged = "".join(f"[node2 rank 2] {line}\n" for line in [*RAISED.splitlines(), "step 1"])
    _, cause = explained(attempt(tagged + FAILED.format(code=1, local=0)), RANKS, 1, now_s=5.0)
    assert says("its last line: step 1", cause.cause)
    assert "ValueError: no such lr (train.py, line 8)" in cause.cause


@pytest.mark.parametrize(("after_s", "kind"), [(1.0, Kind.NO_ROUTE), (8.0, Kind.EXIT_CODE)])
def test_what_a_rank_went_on_from_is_not_why_it_ended(attempt, after_s, kind):
    """A thread's exception, or one that the script has handled, long before another end."""
    raised = f'{TRACEBACK}\n  File "/own.py", line 4, in f\nOSError: shard: no route to host'
    thread = "".join(f"[node2 rank 2] {line}\n" for line in raised.splitlines())
    steps = "[node2 rank 2] step\n" * 9
    directory = attempt(thread + steps + FAILED.format(code=7, local=0))
    marks = [len(thread), 100.0, len(thread + steps), 100.0 + after_s]
    times_of(directory / "log").write_bytes(array("d", marks).tobytes())
    metrics_of(directory).mkdir()
    over = ExitRecord(pid=72, monotonic_s=time.monotonic(), is_over=True)
    (metrics_of(directory) / EXIT_FILE.format(2)).write_bytes(msgspec.json.encode(over))
    _, cause = explained(directory, RANKS, 7, now_s=100.0 + after_s)
    assert (cause.kind, "no route" in cause.cause) == (kind, kind is Kind.NO_ROUTE)


def test_a_script_without_error_files_is_explained_by_what_its_rank_printed(attempt):
    log = (
        "[node2 rank 2] Traceback (most recent call last):\n"
        '[node2 rank 2]   File "/jobs/work/train.py", line 3, in <module>\n'
        "[node2 rank 2]     import foo\n"
        "[node2 rank 2] ModuleNotFoundError: No module named 'foo'\n"
        "[node2 rank 3] unrelated Error-free line\n"
    ) + FAILED.format(code=1, local=0)
    downs, cause = explained(attempt(log), RANKS, 1, now_s=5.0)
    assert cause.cause == "ModuleNotFoundError: No module named 'foo' (train.py, line 3)"
    assert (cause.kind, cause.rank) == (Kind.NO_MODULE, 2)
    assert downs[0].problem == cause


def test_what_a_rank_handed_over_is_taken_as_it_is(attempt):
    log = "[n rank 2] mntrain: anything at all. Fix: nothing.\n" + FAILED.format(code=2, local=0)
    stack = {"py_callstack": "  File x", "timestamp": "1"}
    message = {"message": "RecipeError: anything at all", "extraInfo": stack}
    directory = attempt(log, {0: {"message": message}})
    told = Problem(kind=Kind.BAD_RECIPE, cause="no such directory", node="n7", rank=Rank(5))
    folder = directory / "ranks" / "none_x" / "attempt_0" / "0"
    hand_over(told, {"TORCHELASTIC_ERROR_FILE": str(folder / "error.json")})
    downs, cause = explained(directory, RANKS, 2, now_s=5.0)
    assert (cause.kind, cause.node, cause.rank) == (Kind.BAD_RECIPE, "n7", 5)
    assert (cause.cause, cause.detail) == (told.cause, "")
    assert cause.time_s is not None
    assert downs[0].problem == cause


def test_a_broken_hand_over_is_left_aside(attempt):
    directory = attempt(FAILED.format(code=2, local=0), {0: {"message": "ValueError: no"}})
    folder = directory / "ranks" / "none_x" / "attempt_0" / "0"
    (folder / "problem.json").write_text('{"kind": 7}')
    assert explained(directory, RANKS, 2, now_s=5.0)[1].cause == "ValueError: no"


def test_a_newer_kind_is_read_as_an_error(attempt):
    directory = attempt(FAILED.format(code=2, local=0), {0: {"message": "ValueError: no"}})
    folder = directory / "ranks" / "none_x" / "attempt_0" / "0"
    (folder / "problem.json").write_text('{"kind": "of-tomorrow", "cause": "new"}')
    found = explained(directory, RANKS, 2, now_s=5.0)[1]
    assert (found.kind, found.cause) == (Kind.ERROR, "new")


def test_one_clean_line_of_a_script_is_the_cause(attempt):
    log = "[n rank 2] train.py: error: unrecognized arguments: --lrr\n"
    _, cause = explained(attempt(log + FAILED.format(code=2, local=0)), RANKS, 1, now_s=5.0)
    assert cause.cause == "train.py: error: unrecognized arguments: --lrr"
    assert cause.kind is Kind.EXIT_CODE


def test_a_rejected_argument_is_the_cause_with_what_explains_it_below(attempt):
    said = ("usage: x [-h]", "           name", 'error: Parser key "a":', "  no int", "  Value: b")
    log = "".join(f"[n rank 2] {line}\n" for line in said)
    _, cause = explained(attempt(log + FAILED.format(code=2, local=0)), RANKS, 1, now_s=5.0)
    assert cause.cause == 'error: Parser key "a": no int Value: b'
    assert cause.kind is Kind.EXIT_CODE


def test_a_signal_is_named_and_a_closed_connection_is_only_a_symptom(attempt):
    log = (
        "[n rank 2] RuntimeError: [../gloo/pair.cc:553] Connection closed by peer [10.0.0.2]\n"
        + FAILED.format(code=1, local=0)
        + FAILED.format(code=-9, local=1)
    )
    downs, cause = explained(attempt(log), RANKS, 1, now_s=5.0)
    assert {d.rank for d in downs} == {2, 3}
    assert cause.rank == 3
    assert (cause.kind, cause.is_symptom) == (Kind.KILLED, False)


def test_only_symptoms_are_marked_so_that_another_node_is_blamed(attempt):
    log = "[n rank 2] RuntimeError: Connection reset by peer\n" + FAILED.format(code=1, local=0)
    _, cause = explained(attempt(log), RANKS, 1, now_s=5.0)
    assert (cause.kind, cause.is_symptom) == (Kind.CONNECTION_LOST, True)


def test_torchrun_s_own_end_is_told_when_no_rank_failed(attempt):
    log = (
        "Traceback (most recent call last):\n"
        "torch.distributed.DistStoreError: Timed out after 61 seconds waiting for clients. "
        "1/2 clients joined.\n"
    )
    downs, cause = explained(attempt(log), RANKS, 1, now_s=5.0)
    assert downs == []
    assert "1/2 clients joined" in cause.cause
    assert cause.kind is Kind.TIMED_OUT
    assert explained(attempt(""), RANKS, -15, now_s=5.0)[1].kind is Kind.TERMINATED
    heading = "[mntrain] job j-00000001 attempt 1: rank 0 on node1 (lo 127.0.0.1)\n"
    assert explained(attempt(heading), RANKS, 1, now_s=5.0)[1].kind is Kind.EXIT_CODE


def test_an_error_with_half_a_surrogate_pair_can_be_stored(attempt):
    """JSON can hold it; a record could not be written with it."""
    content = {"message": {"message": "bad \ud83d\x1b[2J", "extraInfo": {}}}
    directory = attempt(FAILED.format(code=1, local=0), {0: content})
    _, problem = explained(directory, RANKS, 1, now_s=2e9)
    assert "bad \\ud83d\\x1b[2J" in problem.cause
    msgspec.json.encode(problem)


def test_what_a_rank_hands_over_is_cut(tmp_path):
    long = Problem(kind=Kind.ERROR, cause=LONG, fix=LONG, node=LONG, detail=LONG)
    hand_over(long, {"TORCHELASTIC_ERROR_FILE": str(tmp_path / "error.json")})
    told = handed_over(tmp_path)
    assert told is not None
    assert len(msgspec.json.encode(told)) < 60_000


def test_a_lost_connection_that_was_printed_is_not_why_a_rank_crashed() -> None:
    lines = ["RuntimeError: Connection closed by peer [10.0.0.2]:1234"]
    problem = of_signal(-signal.SIGFPE, lines)
    assert (problem.kind, problem.is_symptom) == (Kind.CRASHED, False)
    handled = of_signal(-signal.SIGABRT, [*lines, "trying again"])
    assert handled.kind is Kind.CRASHED
    watchdog = ["terminate called after an exception", "  what():  NCCL timeout", "then stacks"]
    assert of_signal(-signal.SIGABRT, watchdog).kind is Kind.TIMED_OUT


@pytest.mark.parametrize(
    ("code", "downs"), [(-9, [(2, -9, Kind.KILLED)]), (0, [(2, 0, None)]), (-15, []), (None, [])]
)
def test_a_rank_that_a_stopped_torchrun_did_not_see_end(attempt, code, downs):
    found = rank_ends(attempt(""), RANKS, now_s=9.0, gone={Rank(2): (5.0, code)})
    told = [(one.rank, one.exit_code, one.problem and one.problem.kind) for one in found]
    assert told == downs
    assert all((one.time_s or one.problem.time_s) == 5.0 for one in found)


@pytest.mark.parametrize(("swept_s", "is_told"), [(6.0, True), (4.0, False)])
def test_a_rank_that_the_agent_killed_is_no_cause(attempt, swept_s, is_told):
    gone = {Rank(2): (5.0, -9)}
    assert bool(rank_ends(attempt(""), RANKS, now_s=9.0, gone=gone, swept_s=swept_s)) == is_told


@pytest.mark.parametrize(
    ("frames", "kind"),
    [
        (["train.py", "/x/torch/utils/data/dataloader.py", "/x/multiprocessing/connection.py"], 1),
        (["train.py", "/x/multiprocessing/connection.py"], 0),
        (["train.py", "/x/torch/utils/data/dataloader.py", "/x/data.py"], 0),
    ],
)
@pytest.mark.parametrize("name", ["ConnectionResetError", "EOFError", "FileNotFoundError"])
def test_a_data_loaders_worker_that_was_killed_is_not_taken_for_a_lost_rank(
    frames: list[str], kind: int, name: str
) -> None:
    """What it had sent is fetched from it, which fails in words of the network."""
    told = Raised(
        kind=name,
        module="builtins",
        message="[Errno 104] Connection reset by peer",
        monotonic_s=1.0,
        frames=tuple((file, 1, "f") for file in frames),
    )
    assert (of_exception(told).kind is Kind.WORKER_DIED) == bool(kind)


def test_a_rank_that_cannot_write_down_its_end_has_a_full_disk(attempt) -> None:
    """Its record is still that of its start: it did not leave by os._exit."""
    directory = attempt(FAILED.format(code=1, local=0))
    metrics = metrics_of(directory)
    metrics.mkdir()
    began = ExitRecord(pid=72, monotonic_s=1.0, is_over=False)
    (metrics / EXIT_FILE.format(2)).write_bytes(msgspec.json.encode(began))
    (down,) = rank_ends(directory, RANKS, now_s=5.0)
    assert down.problem.kind is Kind.EXIT_CODE
    (metrics / f"{EXIT_FILE.format(2)}.72.new").touch()
    (down,) = rank_ends(directory, RANKS, now_s=5.0)
    assert down.problem.kind is Kind.DISK_FULL


def test_a_limit_of_memory_is_told_where_the_machine_has_more(attempt) -> None:
    metrics = metrics_of(attempt(""))
    metrics.mkdir()
    told = Raised(kind="MemoryError", module="builtins", message="", monotonic_s=1.0)
    for limit in (None, 4 << 30):
        record = ExitRecord(
            pid=72, monotonic_s=1.0, is_over=True, escaped=told, address_bytes=limit
        )
        (metrics / EXIT_FILE.format(2)).write_bytes(msgspec.json.encode(record))
        seen = ProcessExit(pid=72, status=256, monotonic_s=2.0)
        (metrics / EXITS_FILE).write_bytes(msgspec.json.encode(seen) + b"\n")
        (down,) = rank_ends(metrics.parent, RANKS, now_s=5.0)
        assert down.problem.kind is Kind.OUT_OF_MEMORY
        if limit is not None:
            assert says("4.3 GB of memory (ulimit -v)", down.problem.cause)
            assert says("LimitAS=infinity", down.problem.fix)
        else:
            assert "ulimit" not in f"{down.problem}"
