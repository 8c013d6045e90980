"""Stands in for torchrun without importing torch, which takes 2 s of a processor on every node.

It starts ranks as torchrun does (those of the trainer: ``tests/agent/imported.py``), ends those of
its node when one of them has failed, and labels what they print. It is for tests of what stands
around torchrun: the agents. That agents start, watch and end the real one, and what its ends look
like, is proved by ``tests/agent/attempt/test_attempts.py``, ``tests/agent/gang/test_verdicts.py``,
``tests/cluster/test_real_agents.py``, the demo and the trainer's own tests. With
``MNTRAIN_ALL_CASES`` every test of agents has the real one.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2]))

from tests.agent import imported

LOOK_S = 0.02
GRACE_S = 3.0


def main(words: list[str]) -> int:
    options = dict(word.removeprefix("--").split("=", 1) for word in words if "=" in word[:24])
    first = next(at for at, word in enumerate(words) if not word.startswith("--"))
    ranks = [_start(words[first:], rank, options) for rank in range(int(options["nproc-per-node"]))]
    while any(rank.poll() is None for rank in ranks):
        if any(rank.poll() for rank in ranks):
            _end(ranks)
        time.sleep(LOOK_S)
    return 1 if any(rank.returncode for rank in ranks) else 0


Rank = subprocess.Popen[Any] | imported.Rank


def _start(entry: list[str], local_rank: int, options: dict[str, str]) -> Rank:
    """A rank, with the number that its agent has noted: nodes may have more or fewer ranks."""
    logs = Path(options["log-dir"])
    placements = json.loads((logs.parents[1] / "record.json").read_text())["attempt"]["placements"]
    rank = placements[int(options["node-rank"])]["first_rank"] + local_rank
    own = logs / "light" / "attempt_0" / str(local_rank)
    own.mkdir(parents=True)
    environment = {
        **os.environ,
        "RANK": str(rank),
        "LOCAL_RANK": str(local_rank),
        "WORLD_SIZE": str(sum(place["nproc"] for place in placements)),
        "LOCAL_WORLD_SIZE": options["nproc-per-node"],
        "TORCHELASTIC_ERROR_FILE": str(own / "error.json"),
        "MASTER_ADDR": options["master-addr"],
        "MASTER_PORT": options["master-port"],
    }
    started: Rank = imported.begin(entry, environment) or subprocess.Popen(
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


def _relay(rank: Rank, label: str) -> None:
    assert rank.stdout is not None
    for line in rank.stdout:
        sys.stdout.write(f"{label}{line}")
        sys.stdout.flush()


def _end(ranks: list[Rank]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        for rank in ranks:
            if rank.poll() is None:
                rank.send_signal(number)
        until_s = time.monotonic() + GRACE_S
        while time.monotonic() < until_s and any(rank.poll() is None for rank in ranks):
            time.sleep(LOOK_S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
