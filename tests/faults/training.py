"""Training for the fault tests: two ranks that need each other at every step.

A file ``fault.py`` in the home directory of its host is run by the rank there, once.
"""

import os
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from jupyter_mntrain import Recorder

STEP_S = 0.05
FAULT = Path.home() / "fault.py"
SIZE = 250_000  # more than one packet


with Recorder() as recorder:
    recorder.progress("waiting for the other ranks", 0)
    # Gloo's own default: what says nothing for half an hour is what this is about.
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    rank, payload = dist.get_rank(), torch.zeros(SIZE)
    peer = 1 - rank
    recorder.start()
    for _ in range(100_000):
        time.sleep(STEP_S)
        if FAULT.exists():
            code = FAULT.read_text()
            FAULT.unlink()
            exec(code)
        if rank == 0:
            dist.send(payload, peer)
            dist.recv(payload, peer)
        else:
            dist.recv(payload, peer)
            dist.send(payload, peer)
        recorder.step(tokens=1)
        print("step of rank", os.environ["RANK"], flush=True)
