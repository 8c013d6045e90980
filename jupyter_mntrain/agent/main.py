"""``mntrain agent run``: the daemon's life, from its command line to its last goodbye."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets

from jupyter_mntrain.agent.announce import Announcer, announced_on, service_info
from jupyter_mntrain.agent.audit import Audit
from jupyter_mntrain.agent.capacities import CapacityBook
from jupyter_mntrain.agent.handlers import MAX_BODY_BYTES, application
from jupyter_mntrain.agent.hub import Hub
from jupyter_mntrain.agent.identity import load_node_id, locked_state
from jupyter_mntrain.agent.inventory import InventoryReader
from jupyter_mntrain.agent.jobs import JobBook
from jupyter_mntrain.agent.leases import LeaseBook
from jupyter_mntrain.agent.limits import BODY_WITHIN_S, HEADERS_WITHIN_S, MAX_HEADER_BYTES
from jupyter_mntrain.agent.node import Node
from jupyter_mntrain.agent.options import Options, parse_options
from jupyter_mntrain.agent.ports import port_owner
from jupyter_mntrain.agent.sampler import Sampler
from jupyter_mntrain.agent.watches import Watches
from jupyter_mntrain.model.api import BEAT_INTERVAL_S, PROTOCOL, Goodbye, ServiceRecord
from jupyter_mntrain.model.errors import MntrainError

log = logging.getLogger("mntrain.agent")

POLL_INTERVAL_S = 0.1
"""Between looks at running attempts; a rank's line is on its way within this."""

INVENTORY_INTERVAL_S = 5.0
"""Between looks for changed interfaces, GPUs and addresses."""


def run(argv: Sequence[str]) -> int:
    """Run until SIGTERM or Ctrl-C; jobs go on under their keepers."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    logging.getLogger("tornado.access").setLevel(logging.ERROR)
    try:
        options = parse_options(argv)
        with locked_state(options.state):
            asyncio.run(_serve(options))
    except MntrainError as error:
        print(f"mntrain agent: {error}", file=sys.stderr)  # noqa: T201
        return error.exit_code
    return 0


async def _serve(options: Options) -> None:
    sockets = _bind(options.bound, options.port)
    node = _node(options)
    watches = Watches(node.cluster)
    node.jobs.load()
    for job in node.jobs.all():
        watches.watch(job)
    server = HTTPServer(
        application(node, watches),
        max_body_size=MAX_BODY_BYTES,
        max_header_size=MAX_HEADER_BYTES,
        idle_connection_timeout=HEADERS_WITHIN_S,
        body_timeout=BODY_WITHIN_S,
    )
    server.add_sockets(sockets)
    _greet(node)

    sampler = Sampler(
        hub=node.hub,
        jobs=node.jobs,
        capacities=node.capacities,
        read_gpus=node.inventory.gpus.read,
    )
    record = ServiceRecord(
        node_id=node.node_id, name=node.name, cluster=node.cluster, protocol=PROTOCOL
    )
    announcer = Announcer(service_info(record, node.bound, node.port))
    tasks = [
        asyncio.ensure_future(_every(BEAT_INTERVAL_S, sampler.sample)),
        asyncio.ensure_future(_every(BEAT_INTERVAL_S, node.tell_leases)),
        asyncio.ensure_future(_every(POLL_INTERVAL_S, node.jobs.poll)),
        asyncio.ensure_future(_follow_interfaces(node, announcer)),
    ]
    await _until_told()

    for task in tasks:
        task.cancel()
    watches.close()
    server.stop()
    node.hub.publish(Goodbye(reason="the agent was stopped"))
    await asyncio.gather(node.hub.close(), announcer.close())
    node.jobs.close()


def _node(options: Options) -> Node:
    hub, leases = Hub(), LeaseBook(clock=time.monotonic)
    node_id = load_node_id(options.state)
    capacities = CapacityBook(options.state / "capacities.json", options.capacities)
    return Node(
        node_id=node_id,
        name=options.name,
        cluster=options.cluster,
        bound=options.bound,
        port=options.port,
        python=options.python,
        inventory=InventoryReader(options.python, capacities),
        capacities=capacities,
        leases=leases,
        jobs=JobBook(
            options.state / "jobs",
            node_id=node_id,
            node=options.name,
            python=options.python,
            leases=leases,
            hub=hub,
        ),
        hub=hub,
        audit=Audit(options.state / "audit.log"),
    )


def _bind(addresses: Sequence[str], port: int) -> list[socket.socket]:
    sockets: list[socket.socket] = []
    for address in addresses:
        try:
            sockets += bind_sockets(port, address)
        except OSError as error:
            owner = port_owner(address, port)
            raise MntrainError(
                f"cannot listen on {address}:{port}: {error.strerror}"
                + (f"; {owner} does" if owner else ""),
                fix="choose another --port, or an --address this machine has",
            ) from error
    return sockets


def _greet(node: Node) -> None:
    where = ", ".join(f"{address}:{node.port}" for address in node.bound)
    log.info("node %s of cluster %s listens on %s", node.name, node.cluster, where)
    if all(ipaddress.ip_address(address).is_loopback for address in node.bound):
        log.info("unauthenticated: every user of this machine can run programs as you")
        log.info("loopback only: other machines need --address with an address of this one")
    else:
        log.warning(
            "UNAUTHENTICATED AND UNENCRYPTED: whoever reaches %s can run programs as you", where
        )


async def _every(interval_s: float, work: Callable[[], object]) -> None:
    trouble = ""
    while True:
        await asyncio.sleep(interval_s)
        try:
            work()
        except Exception as error:  # one bad reading must not end the agent; it is in the log
            if repr(error) != trouble:  # once, not ten times a second
                log.exception("periodic work failed")
            trouble = repr(error)


async def _follow_interfaces(node: Node, announcer: Announcer) -> None:
    """Announce, and announce anew when interfaces come and go."""
    previous: object = None

    def look() -> tuple[str, ...]:
        nonlocal previous
        inventory = node.inventory.read()
        # Memory changes always, and comes with every beat.
        current = (inventory.interfaces, tuple(gpu.uuid for gpu in inventory.gpus))
        if previous is not None and current != previous:
            node.changed()
        previous = current
        return announced_on(inventory.interfaces, node.bound)

    while True:
        try:
            await announcer.announce(look())
        except Exception:  # whatever a network does, the agent stays; it is in the log
            log.exception("looking at the interfaces failed")
        await asyncio.sleep(INVENTORY_INTERVAL_S)


async def _until_told() -> None:
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    await told.wait()
