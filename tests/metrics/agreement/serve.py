"""``python -m tests.metrics.agreement.serve``: agents that serve the recorded jobs.

The first line on stdout is ``MNTRAIN_AGENTS=…`` once all of them listen. Ends on SIGTERM.
"""

from __future__ import annotations

import asyncio
import signal

import msgspec

from jupyter_mntrain.model.records.job import JobRecord
from tests.metrics.agreement.recordings import NAMES, load
from tests.standin.agent import FakeAgent

CLUSTER = "lab"
HEARTBEAT_S = 1.0


async def main() -> None:
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    nodes = [node for name in NAMES for node in load(name).nodes]
    agents: dict[str, FakeAgent] = {}
    for name in sorted({node.record.part.node for node in nodes}):
        agents[name] = FakeAgent(name, cluster=CLUSTER, heartbeat_every_s=HEARTBEAT_S)
        await agents[name].start()
    for node in nodes:
        agent, record = agents[node.record.part.node], node.record
        agent.jobs[record.job_id] = _answering(record, agents)
        agent.journals[record.job_id] = list(node.journal)
    print("MNTRAIN_AGENTS=" + " ".join(one.where for one in agents.values()), flush=True)
    await ended.wait()
    for agent in agents.values():
        await agent.die()


def _answering(record: JobRecord, agents: dict[str, FakeAgent]) -> JobRecord:
    """With the addresses of these agents, not of those that were recorded."""
    placements = tuple(
        msgspec.structs.replace(placement, agent=(agents[placement.node].where,))
        for placement in record.attempt.placements
    )
    attempt = msgspec.structs.replace(record.attempt, placements=placements)
    return msgspec.structs.replace(record, attempt=attempt)


if __name__ == "__main__":
    asyncio.run(main())
