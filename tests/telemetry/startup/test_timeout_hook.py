"""Time-out hook: a script that gives no time-out has that of its launch."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_mntrain.telemetry.startup import STARTUP_DIRECTORY

DEFAULTS = """
import datetime, torch, torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
print(c10d._get_default_timeout(dist.Backend("gloo")).total_seconds())
def timeout(group):
    return group._get_backend(torch.device("cpu")).options._timeout.total_seconds()
own = datetime.timedelta(seconds=20)
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1, timeout=own)
print(timeout(dist.group.WORLD), timeout(dist.new_group(timeout=2 * own)))
"""

SILENT = """
import time, torch, torch.distributed as dist
dist.init_process_group("gloo")
if dist.get_rank() == 1:
    time.sleep(600)
try:
    dist.all_reduce(torch.zeros(1))
except RuntimeError:
    print("waited")
"""


def begin(directory: Path, script: str, rank: int, **more: str) -> subprocess.Popen[str]:
    variables = {
        **os.environ,
        "PYTHONPATH": str(STARTUP_DIRECTORY),
        "MNTRAIN_METRICS_DIR": str(directory),
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        **more,
    }
    command = [sys.executable, "-c", script]
    return subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, text=True)


def test_the_default_of_new_groups_is_that_of_the_launch_and_a_script_s_own_wins(
    tmp_path: Path,
) -> None:
    with begin(tmp_path, DEFAULTS, 0, MNTRAIN_COLLECTIVE_TIMEOUT_S="90") as given:
        assert given.communicate(timeout=60)[0] == "90.0\n20.0 40.0\n"
    with begin(tmp_path, DEFAULTS, 0) as plain:
        assert plain.communicate(timeout=60)[0] == "1800.0\n20.0 40.0\n"


@pytest.mark.slow
def test_a_silent_rank_ends_the_wait_of_the_others(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    # Ranks also join in this time: a busy machine must manage that.
    limit = "20"
    ranks = [
        begin(
            tmp_path,
            SILENT,
            rank,
            MNTRAIN_COLLECTIVE_TIMEOUT_S=limit,
            GLOO_SOCKET_IFNAME="lo",
            **group,
        )
        for rank in range(2)
    ]
    try:
        said = ranks[0].communicate(timeout=200)[0]
    finally:
        for one in ranks:
            one.kill()
            one.communicate()
    assert said == "waited\n", "not in torch's half an hour"
