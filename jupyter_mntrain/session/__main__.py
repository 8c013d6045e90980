"""``python -m jupyter_mntrain.session``: a rank that runs cells until its job is stopped."""

from __future__ import annotations

import argparse
import faulthandler
import os
import signal
import threading
import time
from pathlib import Path
from typing import Final

from jupyter_mntrain.model.environment import METRICS_VARIABLE, NODE_VARIABLE
from jupyter_mntrain.model.lazy import heavy_imports

with heavy_imports():
    import torch
    import torch.distributed as dist
    from torch.distributed.elastic.multiprocessing.errors import record

    from jupyter_mntrain.model.records.job import SHOWS_VIEWERS
    from jupyter_mntrain.model.records.session import IDLE_S
    from jupyter_mntrain.session.endpoint import Endpoint
    from jupyter_mntrain.session.forking.offer import offer_forks
    from jupyter_mntrain.session.groups import SessionGroup
    from jupyter_mntrain.session.shell import SessionShell
    from jupyter_mntrain.telemetry.recorder import Recorder
    from jupyter_mntrain.telemetry.session_socket import socket_of

TELL_EVERY_S: Final = 20.0
"""How often a session says that it is there: before a rank without a step is looked at."""
SETTLE_S: Final = 0.5
"""Cells that take less are not worth a word."""


@record
def main(argv: list[str] | None = None) -> None:
    """Run cells until the job is stopped, or nobody has run one for long."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--idle-s", type=float, default=IDLE_S, help="0 = until stopped")
    parser.add_argument(SHOWS_VIEWERS, action="store_true", help="the agent's: who reads the log")
    arguments = parser.parse_args(argv)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    local_rank = int(os.environ["LOCAL_RANK"])
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", local_rank)
        torch.cuda.set_device(device)
    group = SessionGroup(device)
    rank, size = dist.get_rank(), dist.get_world_size()
    names = {
        "rank": rank,
        "world_size": size,
        "local_rank": local_rank,
        "node": os.environ.get(NODE_VARIABLE, ""),
        "device": device,
        "dist": dist,
        "torch": torch,
    }
    metrics = Path(os.environ[METRICS_VARIABLE])
    shell = SessionShell(rank, group, names, str(device))
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    with Recorder() as recorder:
        Endpoint(shell, socket_of(metrics, local_rank))

        def tell() -> None:
            # Kept: it ends with its standard input. Not earlier: its imports take a core.
            _forks = offer_forks(metrics) if local_rank == 0 else None
            while True:
                is_idle = shell.idle_s > 0
                recorder.progress("ready for cells" if is_idle else "running a cell", 0)
                # A rank without a cell stays while others run one.
                idle_s = group.least_idle_s(shell.idle_s)
                if arguments.idle_s and idle_s > arguments.idle_s:
                    print(f"no cell has run for {idle_s:.0f} s: the session ends", flush=True)  # noqa: T201
                    shell.end()
                shell.has_news.wait(min(TELL_EVERY_S, arguments.idle_s or TELL_EVERY_S))
                shell.has_news.clear()
                time.sleep(SETTLE_S)

        threading.Thread(target=tell, name="session-idle", daemon=True).start()
        shell.run()


if __name__ == "__main__":
    main()
