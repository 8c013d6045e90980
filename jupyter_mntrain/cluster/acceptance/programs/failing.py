"""Trains a single number, and fails in each attempt in the way that its arguments name.

``frozen``: the last rank stops itself. ``torchrun``: it kills the torchrun that started it. Later
attempts make their steps and end.
"""

from __future__ import annotations

import os
import signal
import sys
import time

from jupyter_mntrain.model.environment import ATTEMPT_VARIABLE
from jupyter_mntrain.telemetry import Recorder

STEPS = 30
FAILS_AT = 10
STEP_S = 0.1


def main(faults: list[str]) -> None:
    # Here: a driver imports this module for its text, and needs no torch.
    import torch
    from torch import distributed

    distributed.init_process_group("gloo")
    attempt = int(os.environ[ATTEMPT_VARIABLE])
    fault = faults[attempt - 1] if attempt <= len(faults) else ""
    is_last = distributed.get_rank() == distributed.get_world_size() - 1
    with Recorder() as recorder:
        for step in range(1, STEPS + 1):
            number = torch.full((1,), float(step))
            distributed.all_reduce(number)
            time.sleep(STEP_S)
            recorder.step(tokens=1, loss=1.0 / step)
            if step == FAILS_AT and is_last:
                fail(fault)
    distributed.destroy_process_group()


def fail(fault: str) -> None:
    if fault == "frozen":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif fault == "torchrun":
        os.kill(os.getppid(), signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1:])
