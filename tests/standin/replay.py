"""``python -m tests.standin.replay --nodes 8 --ranks 64 --steps-per-s 1 --base-port P``

One agent per port from P on, all on 127.0.0.1 in the cluster "replay", and one running job. The
first line on stdout is ``MNTRAIN_AGENTS=…`` once all of them listen. Ends on SIGTERM.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import time
from collections.abc import Sequence
from ipaddress import ip_address

import msgspec

from jupyter_mntrain.model.records.job import Placement
from jupyter_mntrain.model.records.node import Interface, NodeInfo
from tests.standin.agent import FakeAgent
from tests.standin.nodes import nic
from tests.standin.story import HISTORY_STEPS, JOB, Story

CLUSTER = "replay"


class ReplayNode(FakeAgent):
    """An agent whose hardware and ranks are told by a story."""

    def __init__(self, story: Story, number: int) -> None:
        super().__init__(
            story.placements[number].node,
            cluster=CLUSTER,
            port=story.base_port + number,
            boot_id=f"boot-{number}",
            interfaces=(_interface(story, number),),
            started_s=story.began_s - 3600.0,
        )
        self._story = story
        self._number = number
        self._has_told = False

    @property
    def info(self) -> NodeInfo:
        basis = super().info
        inventory = msgspec.structs.replace(
            basis.inventory,
            cpu_model="AMD EPYC 7543",
            cpu_count=64,
            memory_total_bytes=256 << 30,
            memory_available_bytes=200 << 30,
            gpus=self._story.gpus(self._number, time.time()),
        )
        return msgspec.structs.replace(basis, inventory=inventory)

    @property
    def runs(self) -> bool:
        return self.jobs[JOB].part.state == "running"

    def begin(self, steps: int) -> None:
        """The job as it is after this many steps."""
        self.jobs[JOB] = self._story.record(self._number)
        self.write(JOB, *(self._story.start(rank) for rank in self._ranks))
        for step in range(1, steps + 1):
            self.write_step(step)
        for second in range(1, int(time.time() - self._story.began_s)):
            self._write_link(second)

    def write_step(self, step: int) -> None:
        if self.runs:
            self.write(JOB, *(self._story.step(rank, step) for rank in self._ranks))
            if 0 in self._ranks:
                self.write(JOB, *self._story.texts(step))
            self.logs[JOB] = self._story.log(self._number, step)

    def second(self) -> None:
        now_s = time.time()
        self.say(self._story.heartbeat(self._number, now_s))
        if self.runs:
            self._write_link(now_s - self._story.began_s)

    def _write_link(self, second: float) -> None:
        """As an agent does: measurements that have not changed are said once."""
        told = self._story.link(self._place, second)
        is_first, self._has_told = not self._has_told, True
        self.write(JOB, told if is_first else msgspec.structs.replace(told, links=None))

    @property
    def _place(self) -> Placement:
        return self._story.placements[self._number]

    @property
    def _ranks(self) -> Sequence[int]:
        return self._place.ranks


def _interface(story: Story, number: int) -> Interface:
    return nic(
        "eno1",
        f"{ip_address('10.0.0.1') + number}/16",
        speed_mbit_per_s=10_000,
        links=story.links(story.placements[number].node),
    )


async def _steps(story: Story, nodes: list[ReplayNode]) -> None:
    step = HISTORY_STEPS
    while True:
        step += 1
        await asyncio.sleep(max(0.0, story.time_s(step) - time.time()))
        for node in nodes:
            node.write_step(step)


async def _seconds(nodes: list[ReplayNode]) -> None:
    while True:
        await asyncio.sleep(1.0)
        for node in nodes:
            node.second()


async def _serve(arguments: argparse.Namespace) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    story = Story.of(
        *(arguments.nodes, arguments.ranks, arguments.steps_per_s),
        base_port=arguments.base_port,
        seed=arguments.seed,
        now_s=time.time(),
    )
    nodes = [ReplayNode(story, number) for number in range(len(story.layout))]
    for node in nodes:
        node.begin(HISTORY_STEPS)
        await node.start()
    print("MNTRAIN_AGENTS=" + " ".join(node.where for node in nodes), flush=True)
    work = [asyncio.create_task(_steps(story, nodes)), asyncio.create_task(_seconds(nodes))]
    stopping = asyncio.create_task(ended.wait())
    try:
        done, _ = await asyncio.wait([*work, stopping], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in (*work, stopping):
            task.cancel()
        for node in nodes:
            await node.die()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.standin.replay", description=__doc__)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--steps-per-s", type=float, default=1.0)
    parser.add_argument("--base-port", type=int, required=True)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.nodes < 1 or arguments.ranks % arguments.nodes:
        parser.error("--ranks must be a multiple of --nodes")
    asyncio.run(_serve(arguments))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
