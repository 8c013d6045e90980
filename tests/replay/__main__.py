"""``python -m tests.replay``: prints where its agents are, and serves until it is told to end."""

from __future__ import annotations

import argparse
import asyncio
import signal

from tests.replay.cluster import Replay


async def serve(arguments: argparse.Namespace) -> None:
    replay = Replay(arguments.nodes, arguments.ranks, base_port=arguments.base_port)
    await replay.start()
    print(f"MNTRAIN_AGENTS={' '.join(agent.where for agent in replay.agents)}", flush=True)
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    running = asyncio.create_task(replay.run(arguments.steps_per_s))
    await ended.wait()
    running.cancel()
    await replay.stop()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.replay", description=__doc__)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--steps-per-s", type=float, default=1.0)
    parser.add_argument("--base-port", type=int, default=0)
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
