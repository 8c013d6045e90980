"""Start trial: a short program that the doctor runs on the ranks in place of a script.

They import the modules that it imports, meet, and add one number, over the network and with the
backend of its first collective. Standard library and torch only: it is sent to an interpreter that
need not have this package. Modules to import are its arguments.
"""

from __future__ import annotations

import datetime as dt
import importlib
import json
import os
import sys
import time

MARK = "mntrain doctor: "
"""Prefix of the line with the result; the same as ``LINE_MARK`` in the record of a trial."""

TIMEOUT_S = float(os.environ.get("MNTRAIN_COLLECTIVE_TIMEOUT_S") or 60.0)


def main(modules: list[str]) -> None:
    """Import the modules, join the process group and add a number; print how long adding took."""
    for name in modules:
        importlib.import_module(name)

    import torch
    import torch.distributed as dist

    is_on_gpu = torch.cuda.is_available()
    device = torch.device("cpu")
    if is_on_gpu:
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    timeout = dt.timedelta(seconds=TIMEOUT_S)
    dist.init_process_group("nccl" if is_on_gpu else "gloo", timeout=timeout)
    begun_s = time.perf_counter()
    one = torch.ones(1, device=device)
    dist.all_reduce(one)
    found, ranks = int(one.item()), dist.get_world_size()
    seconds = time.perf_counter() - begun_s
    if found != ranks:
        raise RuntimeError(f"{ranks} ranks added 1 each, and got {found}")
    print(MARK + json.dumps({"rank": dist.get_rank(), "seconds": seconds}), flush=True)  # noqa: T201
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1:])
