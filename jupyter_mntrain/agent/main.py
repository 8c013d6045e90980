"""``mntrain agent run``: the daemon's command line and life."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import platformdirs
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets

from jupyter_mntrain.agent.announce import Announcer, announced_on
from jupyter_mntrain.agent.capacities import CapacityBook, parse_link_capacity
from jupyter_mntrain.agent.handlers import application
from jupyter_mntrain.agent.hub import Hub
from jupyter_mntrain.agent.identity import checked_name, load_node_id, lock_state
from jupyter_mntrain.agent.inventory import InventoryReader
from jupyter_mntrain.agent.jobs import JobBook
from jupyter_mntrain.agent.leases import LeaseBook, port_owner
from jupyter_mntrain.agent.node import Node
from jupyter_mntrain.agent.sampler import Sampler
from jupyter_mntrain.agent.watches import Watches
from jupyter_mntrain.model.api import (
    BEAT_INTERVAL_S,
    DEFAULT_CLUSTER,
    DEFAULT_PORT,
    PROTOCOL,
    Goodbye,
    ServiceRecord,
)
from jupyter_mntrain.model.errors import MntrainError

log = logging.getLogger("mntrain.agent")

POLL_INTERVAL_S = 0.1
"""Between looks at running attempts; a rank's line is on its way within this."""

INVENTORY_INTERVAL_S = 5.0
"""Between looks for changed interfaces, GPUs and addresses."""

MAX_BODY_BYTES = 8 << 20


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="mntrain agent run", description="Offer this machine.")
    p.add_argument("--cluster", default=DEFAULT_CLUSTER, help="name of the cluster to join")
    p.add_argument("--name", default=socket.gethostname(), help="name of this node")
    p.add_argument(
        "--address",
        action="append",
        metavar="IP",
        help="address to listen on, repeatable; default: loopback only",
    )
    p.add_argument("--port", type=int, default=DEFAULT_PORT)
    p.add_argument("--state-dir", type=Path, help="where the node's id and jobs are kept")
    p.add_argument(
        "--link-capacity",
        action="append",
        default=[],
        metavar="IFACE=RATE",
        help="what a link carries, like eth1=1gbit; otherwise it is measured",
    )
    p.add_argument("--python", default=sys.executable, help="interpreter that ranks run under")
    return p


def run(argv: Sequence[str]) -> int:
    """Run until SIGTERM or Ctrl-C; jobs go on under their keepers."""
    arguments = parser().parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    logging.getLogger("tornado.access").setLevel(logging.WARNING)
    try:
        asyncio.run(_serve(arguments))
    except MntrainError as error:
        print(f"mntrain agent: {error}", file=sys.stderr)  # noqa: T201
        return error.exit_code
    return 0


async def _serve(arguments: argparse.Namespace) -> None:
    name = checked_name("node name", arguments.name)
    cluster = checked_name("cluster name", arguments.cluster)
    given = dict(parse_link_capacity(text) for text in arguments.link_capacity)
    state = arguments.state_dir or platformdirs.user_state_path("mntrain") / "nodes" / name
    bound = tuple(arguments.address or ["127.0.0.1"])
    lock_state(state)
    node_id = load_node_id(state)
    sockets = _bind(bound, arguments.port)

    hub, leases = Hub(), LeaseBook(clock=time.monotonic)
    capacities = CapacityBook(state / "capacities.json", given)
    inventory = InventoryReader(arguments.python, capacities)
    jobs = JobBook(
        state / "jobs",
        node_id=node_id,
        node=name,
        python=arguments.python,
        leases=leases,
        hub=hub,
    )
    node = Node(
        node_id=node_id,
        name=name,
        cluster=cluster,
        bound=bound,
        port=arguments.port,
        python=arguments.python,
        inventory=inventory,
        capacities=capacities,
        leases=leases,
        jobs=jobs,
        hub=hub,
    )
    watches = Watches(cluster)
    sampler = Sampler(hub=hub, jobs=jobs, capacities=capacities, read_gpus=inventory.gpus.read)
    record = ServiceRecord(node_id=node_id, name=name, cluster=cluster, protocol=PROTOCOL)
    announcer = Announcer(record, bound, arguments.port)

    jobs.load()
    for job in jobs.active():
        watches.watch(job)
    server = HTTPServer(application(node, watches), max_body_size=MAX_BODY_BYTES)
    server.add_sockets(sockets)
    _greet(node)
    tasks = [
        asyncio.ensure_future(_every(BEAT_INTERVAL_S, sampler.sample)),
        asyncio.ensure_future(_every(POLL_INTERVAL_S, jobs.poll)),
        asyncio.ensure_future(_follow_interfaces(node, announcer)),
    ]
    await _until_told()
    for task in tasks:
        task.cancel()
    watches.close()
    hub.publish(Goodbye(reason="the agent was stopped"))
    hub.close()
    server.stop()
    await announcer.close()
    jobs.close()


def _bind(addresses: Sequence[str], port: int) -> list[socket.socket]:
    sockets: list[socket.socket] = []
    for address in addresses:
        try:
            sockets += bind_sockets(port, address)
        except OSError as error:
            owner = port_owner(port)
            raise MntrainError(
                f"cannot listen on {address}:{port}: {error.strerror}"
                + (f"; {owner} does" if owner else ""),
                fix="choose another --port, or an --address this machine has",
            ) from error
    return sockets


def _greet(node: Node) -> None:
    where = ", ".join(f"{address}:{node.port}" for address in node.bound)
    log.info("node %s of cluster %s listens on %s", node.name, node.cluster, where)
    if all(address.startswith("127.") for address in node.bound):
        log.info("unauthenticated: every user of this machine can run programs as you")
        log.info("loopback only: other machines need --address with an address of this one")
    else:
        log.warning(
            "UNAUTHENTICATED AND UNENCRYPTED: whoever reaches %s can run programs as you", where
        )


async def _every(interval_s: float, work: object) -> None:
    while True:
        await asyncio.sleep(interval_s)
        try:
            work()  # type: ignore[operator]
        except Exception:  # one bad reading must not end the agent; it is in the log
            log.exception("periodic work failed")


async def _follow_interfaces(node: Node, announcer: Announcer) -> None:
    """Announce, and announce anew when interfaces come and go."""
    previous = None
    while True:
        inventory = node.inventory.read()
        await announcer.announce(announced_on(inventory.interfaces, node.bound))
        # Memory changes always, and comes with every beat.
        current = (inventory.interfaces, tuple(gpu.uuid for gpu in inventory.gpus))
        if previous is not None and current != previous:
            node.changed()
        previous = current
        await asyncio.sleep(INVENTORY_INTERVAL_S)


async def _until_told() -> None:
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    await told.wait()
