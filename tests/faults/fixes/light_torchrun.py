"""Stands in for torchrun on one node, without importing torch: sixty starts of the real one take
minutes. It starts ranks as torchrun does, ends them all when one has failed, and labels what they
print. How the real one ends is proved by ``tests/agent/gang/test_verdicts.py`` and others.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

LOOK_S = 0.02
GRACE_S = 3.0


def main(words: list[str]) -> int:
    options = dict(word.removeprefix("--").split("=", 1) for word in words if "=" in word[:24])
    first = next(at for at, word in enumerate(words) if not word.startswith("--"))
    ranks = [
        _start(words[first:], rank, int(options["nproc-per-node"]), options)
        for rank in range(int(options["nproc-per-node"]))
    ]
    while any(rank.poll() is None for rank in ranks):
        if any(rank.poll() for rank in ranks):
            _end(ranks)
        time.sleep(LOOK_S)
    return 1 if any(rank.returncode for rank in ranks) else 0


def _start(
    entry: list[str], rank: int, count: int, options: dict[str, str]
) -> subprocess.Popen[Any]:
    environment = {
        **os.environ,
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": options["master-addr"],
        "MASTER_PORT": options["master-port"],
    }
    started = subprocess.Popen(
        [sys.executable, "-u", *entry],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    label = os.environ["TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"].replace("${rank}", str(rank))
    threading.Thread(target=_relay, args=(started, label)).start()
    return started


def _relay(rank: subprocess.Popen[Any], label: str) -> None:
    assert rank.stdout is not None
    for line in rank.stdout:
        sys.stdout.write(f"{label}{line}")
        sys.stdout.flush()


def _end(ranks: list[subprocess.Popen[Any]]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        for rank in ranks:
            if rank.poll() is None:
                rank.send_signal(number)
        until_s = time.monotonic() + GRACE_S
        while time.monotonic() < until_s and any(rank.poll() is None for rank in ranks):
            time.sleep(LOOK_S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
