"""Program of recorded jobs that are not trainings: steps of sleep, recorded by a real Recorder.

``$CASE`` says which; see ``record.py``.
"""

import os
import time
from math import inf, nan
from pathlib import Path

from jupyter_mntrain import Recorder

CASE = os.environ["CASE"]
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
STAGES = 2
STEPS = {"slowed": 52, "diverged": 12, "shrunk": 200, "many": 20}.get(CASE, 16)
CRASHED = Path.home() / "crashed"


def step_s(step: int) -> float:
    return 1.0 if CASE == "slowed" and step > 40 else 0.1


def before(step: int) -> None:
    if CASE == "restarted" and RANK == 1 and step == 6 and not CRASHED.exists():
        CRASHED.touch()
        raise ValueError("the label is no number")
    if CASE == "stalled" and step == 10:
        time.sleep(600)


with Recorder() as recorder:
    recorder.start(
        stages=(RANK * STAGES // WORLD,),
        device="a processor",
        peak_flops_per_s=1e9,
        peak_source="as stated",
        schedule="gpipe",
        microbatches=4,
        total_steps=STEPS,
    )
    for number in range(1, STEPS + 1):
        before(number)
        seconds = step_s(number)
        time.sleep(seconds)
        has_loss = RANK * STAGES // WORLD == STAGES - 1
        is_bad = CASE == "diverged" and number >= 8
        recorder.step(
            tokens=1000 + 10 * (RANK % (WORLD // STAGES or 1)),
            loss=None if not has_loss else nan if is_bad else 5.0 / number,
            grad_norm=inf if is_bad else 1.0,
            compute_s=seconds * (0.5 + 0.03 * RANK),
            optimizer_s=seconds * 0.05,
            flops=seconds * 2e8,
            memory_bytes=(100 + RANK) << 20,
        )
