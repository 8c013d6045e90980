"""Live view of 64 ranks: its drawing thread costs the kernel ≤ 2 % of a core."""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil

from benchmarks.loopback import replay, until
from jupyter_mntrain.cluster import Cluster
from jupyter_mntrain.notebook.liveview import LiveView
from jupyter_mntrain.notebook.updater import Updater

LIMIT_SHARE = 0.02
WARM_UP_S = 20.0
"""The first frames also load matplotlib and fonts."""


class Page:
    """Accepts frames like a page, and counts them."""

    def __init__(self) -> None:
        self.frames = 0
        self.bytes = 0

    def display(self, obj: Any, **_: Any) -> None:
        self.update(obj)

    def update(self, obj: Any, **_: Any) -> None:
        self.frames += 1
        self.bytes = max(self.bytes, len(json.dumps(obj)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with (
        replay(arguments.ranks) as addresses,
        Cluster("replay", addresses=addresses.split()) as cluster,
    ):
        until(cluster.jobs, "the replayed job")
        page, updater = Page(), Updater()
        view = LiveView(cluster.job(cluster.jobs()[0].job_id))
        view.attach(page)
        updater.add(view)
        time.sleep(WARM_UP_S)
        before, frames = threads(), page.frames
        time.sleep(arguments.seconds)
        after = threads()
        updater.close()
    shares = {name: (after[name] - before.get(name, 0.0)) / arguments.seconds for name in after}
    drawing = shares.get("mntrain-live-view", 0.0)
    print(f"drawing: {100 * drawing:.2f} % of a core (limit {100 * LIMIT_SHARE:.0f})")
    print(f"reading the cluster: {100 * shares.get('mntrain-replay', 0.0):.2f} % of a core")
    print(f"{page.frames - frames} frames, the largest of {page.bytes / 1000:.0f} kB")
    if arguments.json:
        arguments.json.write_text(json.dumps({"shares": shares, "bytes": page.bytes}) + "\n")
    return 0 if drawing <= LIMIT_SHARE else 1


def threads() -> dict[str, float]:
    """CPU seconds of each thread of this process, by name."""
    spent = {one.id: one.user_time + one.system_time for one in psutil.Process().threads()}
    return {
        thread.name: spent[thread.native_id]
        for thread in threading.enumerate()
        if thread.native_id in spent
    }


if __name__ == "__main__":
    sys.exit(main())
