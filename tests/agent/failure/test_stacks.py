"""Stacks: those of real processes, and what is read from them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_mntrain.agent.failure.stacks import (
    StackRequest,
    answers_to,
    judge,
    main_thread,
    own_line,
)
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.telemetry.startup.mntrain_rank_hooks import STACK_SIGNAL
from tests.agent.live import launch
from tests.waiting import until

ZERO = Rank(0)

DUMP = """Thread 0x00007f01 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 331 in wait

Current thread 0x00007f02 (most recent call first):
  File "/x/site-packages/torch/distributed/distributed_c10d.py", line 2311 in recv
  File "/home/kim/train.py", line 12 in step
  File "/home/kim/train.py", line 40 in <module>
"""


def test_stacks_are_read_for_who_waits_and_where() -> None:
    frames = main_thread(DUMP)
    assert [name for _, _, name in frames] == ["recv", "step", "<module>"]
    assert judge("S", frames, "receive") == "waiting for others"
    assert own_line(frames) == "step (train.py:12)"
    assert judge("S", frames[1:], None) == "busy"
    assert judge("R", [], None) == "not known"
    assert judge("T", frames, "receive") == "stopped"
    assert judge("D", frames, "receive") == "in the kernel"
    assert own_line([]) == ""


@pytest.mark.parametrize("text", ["", "garbage\n", "Thread x\n  File broken", "\0\xff" * 50])
def test_what_anybody_may_have_written_into_the_file_is_no_error(text: str) -> None:
    assert main_thread(text) == []


RANK = """
import sys, threading, time
from jupyter_mntrain.telemetry.startup.mntrain_rank_hooks import answer_with_stacks

def deep(levels):
    if levels:
        deep(levels - 1)
    else:
        time.sleep(600)

def busy_in_here():
    print("ready", flush=True)
    time.sleep(600)

for _ in range(int(sys.argv[2])):
    threading.Thread(target=deep, args=(90,), daemon=True).start()
if sys.argv[1]:
    answer_with_stacks(sys.argv[1], "3")
busy_in_here()
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[object]:
    started: list[subprocess.Popen[str]] = []

    def begin(directory: str, threads: int = 0) -> int:
        process = subprocess.Popen(
            [sys.executable, "-c", RANK, directory, str(threads)], stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process.pid

    yield begin
    for one in started:
        one.kill()
        one.communicate()


def test_a_rank_that_is_armed_tells_and_goes_on(tmp_path: Path, start) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "metrics").mkdir()
    pid = start(str(tmp_path / "metrics"))
    assert answers_to(pid, STACK_SIGNAL)
    for _ in range(2):
        request = StackRequest(tmp_path, Rank(3), pid)
        until(lambda request=request: request.is_answered, "the stacks")
        found = request.result()
        assert (found.rank, found.pid, found.doing) == (3, pid, "busy")
        assert found.where.startswith("busy_in_here (")
        assert "busy_in_here" in found.text
    os.kill(pid, signal.SIGSTOP)
    until(lambda: StackRequest(tmp_path, Rank(3), pid).result().doing == "stopped", "it to stop")
    os.kill(pid, signal.SIGCONT)


def test_an_answer_is_waited_for_to_its_end(tmp_path: Path, start) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "metrics").mkdir()
    pid = start(str(tmp_path / "metrics"), threads=60)
    for _ in range(20):
        request = StackRequest(tmp_path, Rank(3), pid)
        assert any(request.is_answered for _ in range(100_000))
        assert request.result().where.startswith("busy_in_here (")


def test_one_that_is_not_would_be_killed_and_is_not_asked(tmp_path: Path, start) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "metrics").mkdir()
    pid = start("")
    assert not answers_to(pid, STACK_SIGNAL)
    assert StackRequest(tmp_path, Rank(3), pid).result().doing == "not known"
    assert answers_to(pid, STACK_SIGNAL) is False
    assert os.path.exists(f"/proc/{pid}")  # noqa: PTH110


def test_one_that_is_gone_is_no_error(tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as gone:
        pass
    assert StackRequest(tmp_path, Rank(3), gone.pid).result().doing == "not known"


STUCK = """
import os, sys, time
import torch
import torch.distributed as dist
from jupyter_mntrain import Recorder

def shuffle_shards():
    while not os.path.exists("go"):
        time.sleep(0.1)

dist.init_process_group("gloo")
rank, payload = dist.get_rank(), torch.zeros(10)
with Recorder() as recorder:
    for step in range(1, 40):
        if step == 6 and rank == 1:
            shuffle_shards()
        dist.recv(payload, 1) if rank == 0 else dist.send(payload, 0)
        recorder.step(tokens=1)
        time.sleep(0.02)
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_a_job_that_hangs_says_which_rank_and_where_and_when_it_goes_on(new_agent) -> None:  # type: ignore[no-untyped-def]
    agents = [new_agent() for _ in range(2)]
    job_id = launch(agents, STUCK)

    def stalls() -> list[object]:
        return [agent.record(job_id).part.stall for agent in agents]

    until(lambda: all(stalls()), "both parts to be called stalled")
    zero, one = (agent.record(job_id).part.stall.stacks[0] for agent in agents)
    assert (zero.doing, one.doing) == ("waiting for others", "busy")
    assert one.where.startswith("shuffle_shards (script.py:")
    assert "recv" in zero.text
    said = agents[1].send("POST", f"/v1/jobs/{job_id}/stacks", {}).json()
    assert [(stack["rank"], stack["doing"]) for stack in said] == [(1, "busy")]
    assert "shuffle_shards" in said[0]["text"]
    work = agents[1].state / "jobs" / job_id / "attempt-1" / "work"
    (work / "go").touch()
    for agent in agents:
        assert agent.ended(job_id).part.state == "succeeded"
        assert agent.record(job_id).part.stall is None
    assert agents[1].send("POST", f"/v1/jobs/{job_id}/stacks", {}).json() == []
