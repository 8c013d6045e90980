"""Jupyter server extension: its cost while three pages watch 64 ranks on eight nodes.

CPU ≤ 5 % of a core. Also prints the latency from a rank's clock to a page.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path

import psutil

from benchmarks.loopback import replay
from tests.agent.live import free_port
from tests.server.live_server import LiveServer, Page
from tests.standin.story import JOB

LIMIT_SHARE = 0.05
PAGES = 3
SETTLE_S = 5.0
RANKS = 64


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with replay(RANKS) as agents, tempfile.TemporaryDirectory() as home:
        server = LiveServer(Path(home), free_port("127.0.0.1"), "replay", agents).start()
        try:
            result = asyncio.run(measure(server, arguments.seconds))
        finally:
            server.end()
    for name, value in result.items():
        print(f"{name:28} {value:.4f}")
    print(f"{100 * result['share_with_pages']:.2f} % of a core (limit {100 * LIMIT_SHARE:.0f})")
    if arguments.json:
        arguments.json.write_text(json.dumps(result) + "\n")
    return 0 if result["share_with_pages"] <= LIMIT_SHARE else 1


async def measure(server: LiveServer, seconds: float) -> dict[str, float]:
    """CPU shares: cluster not connected; connected, without pages; with pages."""
    await asyncio.sleep(SETTLE_S)
    unopened = await share(server.pid, seconds / 2)
    await asyncio.to_thread(wait_for_job, server)
    await asyncio.sleep(SETTLE_S)
    alone = await share(server.pid, seconds)
    late: list[float] = []
    pages = [await server.page() for _ in range(PAGES)]
    for page in pages:
        await page.watch(JOB)
    reading = [asyncio.create_task(read(page, late)) for page in pages]
    await asyncio.sleep(SETTLE_S)
    late.clear()
    watched = await share(server.pid, seconds)
    for task in reading:
        task.cancel()
    await asyncio.wait(reading)
    for page in pages:
        await page.close()
    late.sort()
    return {
        "share_unopened": unopened,
        "share_without_pages": alone,
        "share_with_pages": watched,
        "row_to_page_p50_s": late[len(late) // 2],
        "row_to_page_p95_s": late[int(0.95 * (len(late) - 1))],
        "rows": float(len(late)),
        "rss_mb": psutil.Process(server.pid).memory_info().rss / 1e6,
    }


def wait_for_job(server: LiveServer) -> None:
    """Wait for the nodes: the first request connects to the cluster."""
    while server.ask("GET", f"/jobs/{JOB}").status_code != 200:
        time.sleep(0.1)


async def share(pid: int, seconds: float) -> float:
    """CPU share of one core over this many seconds."""
    process = psutil.Process(pid)
    before, began = sum(process.cpu_times()[:2]), time.monotonic()
    await asyncio.sleep(seconds)
    return (sum(process.cpu_times()[:2]) - before) / (time.monotonic() - began)


async def read(page: Page, late: list[float]) -> None:
    """Receive messages and record the age of the job's newest row."""
    while True:
        series = (await page.next("series"))["series"]
        times = series.get("job", {}).get("time_s", ())
        if series.get("since") and times:
            late.append(time.time() - times[-1])


if __name__ == "__main__":
    sys.exit(main())
