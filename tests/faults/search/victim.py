"""Training that a drawn fault befalls: ranks that need each other at every step, and save.

A file ``fault-RANK-PHASE-ATTEMPT.py`` in the home directory of its host is run by that rank, once,
when it comes to that phase: import, join, step, save or end.
"""

# ruff: noqa: E402 - a fault may come before torch is imported
import argparse
import os
import random
import time
from datetime import timedelta
from pathlib import Path

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
ATTEMPT = os.environ.get("MNTRAIN_ATTEMPT", "1")


def meet(phase: str) -> None:
    """Run what is to happen now."""
    path = Path.home() / f"fault-{RANK}-{phase}-{ATTEMPT}.py"
    if path.exists():
        code = path.read_text()
        path.unlink()
        exec(compile(code, "own_code.py", "exec"), globals())


meet("import")

import torch
import torch.distributed as dist

from jupyter_mntrain import Recorder

parser = argparse.ArgumentParser()
parser.add_argument("--style", default="ring")
parser.add_argument("--steps", type=int, default=100_000)
options = parser.parse_args()

STEP_S = 0.05
SAVE_EVERY = 20
KEPT = Path(os.environ.get("KEPT") or os.environ["MNTRAIN_CHECKPOINT_DIR"])
extra_s = 0.0
reported: dict[str, float] = {}  # what a fault reports instead of plausible figures
payload = torch.zeros(250_000)  # a megabyte: more than one packet
last_save = b"0" * 65_536


def exchange() -> None:
    if options.style == "reduce":
        dist.all_reduce(payload)
        return
    after, before = (RANK + 1) % WORLD, (RANK - 1) % WORLD
    if RANK == 0:
        dist.send(payload, after)
        dist.recv(payload, before)
    else:
        dist.recv(payload, before)
        dist.send(payload, after)


def save(step: int) -> None:
    with (KEPT / f"rank-{RANK}").open("wb") as file:
        file.write(str(step).encode())
        meet("save")
        file.write(last_save)
        file.flush()
        os.fsync(file.fileno())


with Recorder() as recorder:
    recorder.progress("waiting for the other ranks", 0)
    meet("join")
    # Gloo's own default: what says nothing for half an hour is what this is about.
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    if not os.environ.get("KEPT"):
        KEPT.mkdir(parents=True, exist_ok=True)
    recorder.start()
    for step in range(1, options.steps + 1):
        time.sleep(STEP_S + extra_s)
        meet("step")
        exchange()
        figures = {"loss": 2 / step**0.5 + random.random() / 9, "grad_norm": 1 + random.random()}
        recorder.step(tokens=1, **(figures | reported))
        print("step of rank", RANK, flush=True)
        if step % SAVE_EVERY == 0:
            save(step)
    meet("end")
