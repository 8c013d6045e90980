"""Trials of fixes of doubtful numbers, and of jobs that wait."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from pathlib import Path

from jupyter_mntrain.cluster import Job
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from tests.faults.fixes.ends import edit
from tests.faults.fixes.ground import Ground, Run, Trial
from tests.waiting import until

DESCENDS = """
import sys
from jupyter_mntrain import Recorder
rate, weight = float(sys.argv[1]), 3.0
with Recorder() as recorder:
    for step in range(400):
        recorder.step(step=step + 1, loss=1.0 + weight * weight + {noise})
        weight -= (0.01 if step < {calm} else rate) * 2 * weight
        weight = max(-{most}, min({most}, weight))
"""
NOISY = "0.01 * (step % 7)"


def _descends(kind: Kind, rate: str, words: str, *, calm: int, most: str, noise: str) -> Trial:
    """Gradient descent, whose learning rate is the argument."""
    run = Run(script=DESCENDS.format(noise=noise, calm=calm, most=most), arguments=(rate,))

    def other_rate(_: Ground, launched: Run, __: Problem) -> Run:
        return launched.with_(arguments=("0.001",))

    return Trial(kind, lambda _: run, words, other_rate)


MASKS = """
from jupyter_mntrain import Recorder
masked = True
with Recorder() as recorder:
    for step in range(20):
        recorder.step(step=step + 1, loss=1 / (step + 1), grad_norm=0.0 if masked else 0.5)
"""

NEVER_MEET = """
import torch, torch.distributed
from jupyter_mntrain import Recorder
# here
with Recorder() as recorder:
    for step in range(5):
        recorder.step(step=step + 1, loss=1 / (step + 1))
"""

SWALLOWS = """
import traceback
try:
    int("x")
except ValueError:
    traceback.print_exc()
    # here
"""

FORGETS = """
import os, sys, time
from pathlib import Path
from jupyter_mntrain import Recorder
begin, saved = 0, Path(os.environ["MNTRAIN_CHECKPOINT_DIR"]) / "step"
saved.parent.mkdir(exist_ok=True)
# here
with Recorder() as recorder:
    for step in range(begin + 1, 7):
        recorder.step(step=step)
        saved.write_text(str(step))
        time.sleep(0.2)
        if step == 4 and os.environ["MNTRAIN_ATTEMPT"] == "1":
            sys.exit(1)
"""
LOADS = "begin = int(saved.read_text()) if saved.exists() else 0"

STEPS = """
import os, sys, time
from jupyter_mntrain import Recorder
def load_shard():
    while sys.argv[1:] and not os.path.exists(sys.argv[1]):
        pass
with Recorder() as recorder:
    for step in range(30):
        recorder.step(step=step + 1)
        time.sleep(0.05)
        if step == 10:
            load_shard()
"""


def _stop_the_rank(_: Ground, job: Job) -> None:
    def pid() -> int | None:
        (rank,) = job.view().parts[0].ranks
        return rank.pid if rank.step else None

    until(pid, "its first step")
    os.kill(pid() or 0, signal.SIGSTOP)


def _type_it(_: Ground, __: Run, problem: Problem) -> None:
    """Do exactly what is printed behind the node's name."""
    node, _, command = problem.fix.partition(": ")
    assert node == "on node1"
    subprocess.run(shlex.split(command), check=True)


def _see_its_stack(_: Ground, run: Run, problem: Problem) -> None:
    assert "load_shard" in problem.cause
    Path(run.arguments[0]).touch()


BOTH_RECEIVE = """
import torch, torch.distributed as dist
from jupyter_mntrain import Recorder
dist.init_process_group("gloo")
rank, other = dist.get_rank(), 1 - dist.get_rank()
with Recorder() as recorder:
    for step in range(5):
        recorder.step(step=step + 1)
        if step == 3:
            dist.recv(torch.zeros(1), other)
"""

DOUBTS = (
    _descends(
        Kind.LOSS_NAN, "1e200", "lower the learning rate", calm=0, most="float('inf')", noise=NOISY
    ),
    _descends(
        Kind.LOSS_DIVERGED, "1.2", "lower the learning rate", calm=200, most="20.0", noise=NOISY
    ),
    _descends(
        Kind.LOSS_CONSTANT,
        "0.0",
        "that the learning rate is not 0",
        calm=0,
        most="20.0",
        noise="0",
    ),
    edit(Run(script=MASKS), "not every label is masked", "= True", "= False", Kind.ZERO_GRADIENTS),
    edit(
        Run(script=NEVER_MEET, ranks=2),
        "call torch.distributed.init_process_group()",
        "# here",
        "torch.distributed.init_process_group()",
        Kind.RANKS_NEVER_MET,
    ),
    edit(Run(script=SWALLOWS), "must raise it again", "# here", "raise", Kind.TRACEBACK)._replace(
        ends="failed"
    ),
    edit(
        Run(script=FORGETS, restarts=1),
        "load the newest one at the start",
        "# here",
        LOADS,
        Kind.BEGAN_AGAIN,
    ),
)

STALLS = (
    Trial(
        Kind.STOPPED, lambda _: Run(script=STEPS, meanwhile=_stop_the_rank), "kill -CONT", _type_it
    ),
    Trial(
        Kind.BUSY,
        lambda ground: Run(script=STEPS, arguments=(ground.path("go-on"),)),
        "check that rank's stack",
        _see_its_stack,
    ),
    edit(
        Run(script=BOTH_RECEIVE, ranks=2),
        "have one of the two ranks send while the other receives",
        "dist.recv(torch.zeros(1), other)",
        "(dist.send if rank else dist.recv)(torch.zeros(1), other)",
        Kind.ALL_WAIT,
    ),
)
