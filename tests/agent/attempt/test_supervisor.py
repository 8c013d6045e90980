"""Supervisor, with hostile programs instead of torchrun: nothing is left, and the end is
recorded."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import msgspec
import pytest

from jupyter_mntrain.agent.attempt.directory import AttemptDirectory
from jupyter_mntrain.agent.attempt.processes import (
    kill_all,
    marked,
    processes_of,
    signal_all,
    start_time,
)
from jupyter_mntrain.agent.attempt.supervisor import marks_between
from jupyter_mntrain.agent.failure.stacks import last_line
from jupyter_mntrain.launch import NodeCommand
from jupyter_mntrain.model.environment import METRICS_VARIABLE
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.ids import JobId, Rank
from jupyter_mntrain.model.records.job import JobSpec
from tests.waiting import until
from tests.wording import wording

PROGRAMS = Path(__file__).parents[1] / "programs"
PATIENCE_S = 20.0
SPEC = JobSpec(entry=("x.py",), participants=())
SHOWS_SIGNALS = """
import signal as s
is_default = s.getsignal(s.SIGHUP) is s.SIG_DFL, s.getsignal(s.SIGINT) is s.default_int_handler
print("ready", *("default" if yes else "changed" for yes in is_default))
"""


@pytest.fixture
def start(tmp_path):
    """Start a program under a supervisor; every process of it is ended afterwards."""
    attempts: list[AttemptDirectory] = []

    def start(*argv: str, wait_for: str = "ready", **more: str) -> AttemptDirectory:
        path = tmp_path / f"attempt-{len(attempts) + 1}"
        attempt = AttemptDirectory(path, JobId("j-00000001"), len(attempts) + 1)
        environment = {METRICS_VARIABLE: str(path / "metrics"), "PYTHONUNBUFFERED": "1"}
        environment |= {"NCCL_DEBUG_FILE": str(path / "nccl" / "%h.%p.log")} | more
        command = NodeCommand(
            node="node1", argv=argv, environment=environment, directory=str(path / "work")
        )
        attempt.prepare(SPEC, command)
        attempt.spawn()
        attempts.append(attempt)
        log = path / "log"
        until(lambda: log.exists() and wait_for in log.read_text(errors="replace"), "the program")
        return attempt

    yield start
    for attempt in attempts:
        kill_all(partial(marked, attempt.path))
        attempt.supervisor.kill()
        attempt.supervisor.wait()


def program(name: str) -> tuple[str, str]:
    return sys.executable, str(PROGRAMS / f"{name}.py")


def ended(attempt: AttemptDirectory):
    until(lambda: attempt.status() is not None, "status.json")
    attempt.supervisor.wait(PATIENCE_S)
    return attempt.status()


def test_the_exit_code_is_kept(start):
    attempt = start(sys.executable, "-c", "print('ready'); raise SystemExit(7)")
    assert ended(attempt).exit_code == 7
    assert not attempt.supervisor_is_alive()


WARNS = """
import os, time
path = os.environ["NCCL_DEBUG_FILE"].replace("%h", "hal").replace("%p", str(os.getpid()))
with open(path, "w") as file:
    file.write("hal:11:11 [0] NCCL INFO Using network Socket\\n")
    file.write("\\n[2026-05-05 06:17:02] hal:11:40 [0] misc/socket.cc:880 NCCL WARN no route\\n")
print("ready", flush=True)
time.sleep(600)
"""


def test_warnings_in_nccls_own_file_come_into_the_log_with_their_rank(start):
    attempt = start(sys.executable, "-c", WARNS, RANK="3", MNTRAIN_NODE="node1")
    log = attempt.path / "log"
    until(lambda: "NCCL" in log.read_text(), "NCCL's warning")
    warned = [line for line in log.read_text().splitlines() if "NCCL" in line]
    assert warned == [
        "[node1 rank 3] [2026-05-05 06:17:02] hal:11:40 [0] misc/socket.cc:880 NCCL WARN no route"
    ]


def test_a_program_that_cannot_be_started_is_told(start):
    attempt = start("/nowhere/python", wait_for="")
    status = ended(attempt)
    assert status.exit_code == 127
    assert "No such file" in status.error


def test_what_ignores_term_is_killed_after_the_grace(start):
    attempt = start(*program("ignores_term"))
    attempt.stop(grace_s=0.3)
    status = ended(attempt)
    assert status.leftovers == ()
    assert processes_of(attempt.path) == {}


def test_a_rank_that_does_not_end_within_the_grace_tells_where_it_was(start):
    attempt = start(*program("stubborn_rank"))
    attempt.stop(grace_s=0.2)
    assert ended(attempt).killed == (3,)
    assert last_line(attempt.path, Rank(3)).startswith("save (stubborn_rank.py:")


def test_a_grandchild_in_its_own_session_does_not_survive(start):
    attempt = start(*program("leaves_grandchild"))
    assert ended(attempt).exit_code == 0
    assert processes_of(attempt.path) == {}


def test_a_kill_shortens_a_stop_with_a_long_grace(start):
    attempt = start(*program("waits_for_a_stubborn_child"))
    attempt.stop(grace_s=3600.0)
    until(lambda: "asked" in (attempt.path / "log").read_text(), "the stop to arrive")
    assert attempt.status() is None
    attempt.stop(grace_s=0.0)
    assert ended(attempt).exit_code == -signal.SIGKILL
    assert processes_of(attempt.path) == {}


def test_a_torchrun_whose_ranks_are_gone_is_not_waited_for(start):
    attempt = start(*program("ignores_term"))
    attempt.stop(grace_s=3600.0)
    assert ended(attempt).exit_code == -signal.SIGKILL


def test_torchrun_is_asked_first_and_its_ranks_only_when_it_is_gone(start):
    attempt = start(*program("asks_nobody"))
    attempt.stop(grace_s=10.0)
    assert ended(attempt).exit_code == 5
    said = (attempt.path / "log").read_text().split()
    assert said == ["ready", "torchrun", "rank"]


def test_a_descendant_without_environment_and_session_does_not_survive(start):
    attempt = start(*program("hides"))
    hidden = int((attempt.path / "log").read_text().split()[1])
    assert hidden not in processes_of(attempt.path)
    attempt.stop(grace_s=0.2)
    assert ended(attempt).leftovers == ()
    assert start_time(hidden) is None


def test_a_death_by_signal_is_told_as_one(start):
    attempt = start(*program("kills_itself"))
    assert ended(attempt).exit_code == -signal.SIGKILL


def test_torchrun_can_be_interrupted_like_any_program(start):
    # A supervisor that ignored signals would hand that down to every rank.
    attempt = start(sys.executable, "-c", SHOWS_SIGNALS)
    ended(attempt)
    assert (attempt.path / "log").read_text() == "ready default default\n"


def test_innocents_survive_a_stop(start):
    # Named like the job's own program, but not of it.
    decoy = subprocess.Popen([*program("waits")], stdout=subprocess.DEVNULL)
    try:
        attempt = start(*program("waits"))
        attempt.stop(grace_s=1.0)
        ended(attempt)
        assert decoy.poll() is None
    finally:
        decoy.kill()
        decoy.wait()


def test_an_attempt_of_the_same_job_by_another_agent_survives(start):
    one, other = start(*program("waits")), start(*program("waits"))
    one.stop(grace_s=1.0)
    ended(one)
    assert other.supervisor_is_alive()
    assert len(processes_of(other.path)) == 1


def test_the_supervisor_outlives_term_and_hangup_of_its_parent_s_session(start):
    attempt = start(*program("waits"))
    assert os.getsid(attempt.supervisor.pid) == attempt.supervisor.pid
    attempt.supervisor.send_signal(signal.SIGHUP)
    attempt.supervisor.send_signal(signal.SIGINT)
    assert attempt.supervisor_is_alive()


def test_a_killed_supervisor_is_noticed_and_its_processes_can_be_ended(start):
    attempt = start(*program("waits"))
    attempt.supervisor.kill()
    until(lambda: not attempt.supervisor_is_alive(), "the supervisor's end")
    assert attempt.status() is None
    assert marked(attempt.path)
    assert kill_all(partial(marked, attempt.path)) == []
    assert not marked(attempt.path)


def test_another_process_with_the_supervisor_s_pid_is_not_taken_for_it(start):
    attempt = start(*program("waits"))
    adopted = AttemptDirectory(attempt.path, attempt.job_id, attempt.number)
    until((attempt.path / "supervisor.json").exists, "supervisor.json")
    assert adopted.supervisor_is_alive()
    identity = json.loads((attempt.path / "supervisor.json").read_text())
    for lie in ({"start_time": identity["start_time"] + 1}, {"boot_id": "another"}):
        (attempt.path / "supervisor.json").write_text(json.dumps(identity | lie))
        assert not AttemptDirectory(
            attempt.path, attempt.job_id, attempt.number
        ).supervisor_is_alive()


def test_any_bytes_may_be_printed(start):
    attempt = start(*program("prints"), wait_for="x")
    ended(attempt)
    assert (attempt.path / "log").read_bytes() == b"x" * 200_000 + b"\xff\xfe"


def test_files_stay_inside_the_job(tmp_path):
    attempt = AttemptDirectory(tmp_path / "attempt-1", JobId("j-00000001"), 1)
    command = NodeCommand(node="n", argv=(), environment={}, directory=".")
    for name in ("../evil.py", "/etc/evil", "a/../../evil", ""):
        with pytest.raises(SpecError, match=wording("is outside the job's directory")):
            attempt.prepare(msgspec.structs.replace(SPEC, files={name: "x"}), command)
    attempt.prepare(msgspec.structs.replace(SPEC, files={"pkg/inner.py": "x"}), command)
    assert (attempt.path / "work" / "pkg" / "inner.py").read_text() == "x"


def test_a_full_disk_is_not_a_wrong_name(tmp_path, monkeypatch):
    def full(path, _text):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    attempt = AttemptDirectory(tmp_path / "attempt-1", JobId("j-00000001"), 1)
    command = NodeCommand(node="n", argv=(), environment={}, directory=".")
    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space left"):
        attempt.prepare(msgspec.structs.replace(SPEC, files={"train.py": "x"}), command)


def test_signals_to_processes_that_are_gone_are_harmless():
    gone = subprocess.Popen(["true"])
    gone.wait()
    signal_all({gone.pid: 1}, signal.SIGTERM)


def test_a_process_that_took_over_a_pid_is_left_alone():
    innocent = subprocess.Popen([*program("waits")], stdout=subprocess.PIPE)
    innocent.stdout.readline()
    started = start_time(innocent.pid)
    signal_all({innocent.pid: started - 1}, signal.SIGKILL)
    assert innocent.poll() is None
    signal_all({innocent.pid: started}, signal.SIGKILL)
    assert innocent.wait(PATIENCE_S) == -signal.SIGKILL
    innocent.stdout.close()


def test_each_line_of_the_log_has_the_time_at_which_it_was_written(start):
    say = "import time; print('ready'); time.sleep(1.5); print('later')"
    attempt = start(sys.executable, "-c", say, wait_for="later")
    ended_s = ended(attempt).ended_s
    log = attempt.path / "log"
    (first, last) = marks_between(log, 0, log.stat().st_size, ended_s + 100.0)
    assert first[0] == len("ready\n")
    assert last[0] == log.stat().st_size
    assert last[1] - first[1] > 0.5
    assert last[1] <= ended_s
