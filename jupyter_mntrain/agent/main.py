"""``mntrain agent``: joins, leaves, and runs the daemon."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import msgspec

from jupyter_mntrain.agent.access.log import set_up_log
from jupyter_mntrain.agent.daemon.announcing import announce
from jupyter_mntrain.agent.daemon.assembly import make_node
from jupyter_mntrain.agent.daemon.owner import Keeping, change_availability
from jupyter_mntrain.agent.daemon.speaking import read_until
from jupyter_mntrain.agent.gang.achieved_rates import Achievements
from jupyter_mntrain.agent.gang.peer_client import PeerClients
from jupyter_mntrain.agent.gang.watch import WatchTasks
from jupyter_mntrain.agent.heartbeat import HeartbeatSampler, every
from jupyter_mntrain.agent.http import agent_server, application
from jupyter_mntrain.agent.jobs.allocation_end import (
    FIRST_JOB_S,
    Idleness,
    end_parts,
    go_on_as_granted,
    save_if_wished,
    save_within,
)
from jupyter_mntrain.agent.machine.interfaces import read_interfaces
from jupyter_mntrain.agent.machine.software.workplace import LOADED_INTERVAL_S
from jupyter_mntrain.agent.membership import service
from jupyter_mntrain.agent.membership import state as membership
from jupyter_mntrain.agent.membership.availability import OWNER
from jupyter_mntrain.agent.membership.joining import join, wait_until_joined
from jupyter_mntrain.agent.membership.listening import bind, with_port
from jupyter_mntrain.agent.membership.slot_place import SlotPlace, is_back
from jupyter_mntrain.agent.membership.state_directory import LOCK_S, load_node_id, locked_state
from jupyter_mntrain.agent.node import LocalNode
from jupyter_mntrain.agent.options import Options, parse_options
from jupyter_mntrain.command_line.agent import PROGRAM
from jupyter_mntrain.command_line.error_output import print_defect, print_error, replace_unencodable
from jupyter_mntrain.command_line.parser import HelpWanted
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.api import HEARTBEAT_INTERVAL_S, Goodbye
from jupyter_mntrain.model.errors import MntrainError, SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.failure.system_errors import system_errors_told
from jupyter_mntrain.model.text.foreign import shown
from jupyter_mntrain.model.whereabouts import name_user
from jupyter_mntrain.trust.audit import FILE as AUDIT_FILE
from jupyter_mntrain.trust.audit import Audit
from jupyter_mntrain.trust.joining.announcer import Announcer

log = logging.getLogger("mntrain.agent")

POLL_INTERVAL_S = 0.1
"""Interval of reading what ranks write: a rank's sample is sent within this time."""
SLOT_LOCK_S = 15.0
"""Longest wait for the lock of a slot's state directory: something may be reading it."""
JOIN_PORT_S = 3.0
"""Timeout for the port of an agent that joins: one that waited to join lets go of it."""


class Done(NamedTuple):
    """Result of an action, as text for people and as data for ``--json``."""

    text: str
    data: dict[str, Any]


def run(argv: Sequence[str]) -> int:
    """Run the command line, and return the exit code."""
    replace_unencodable()
    name_user()  # of its jobs
    try:
        tunables.check()
        with system_errors_told():
            options = parse_options(argv)
            if options.waits_to_join:
                if not asyncio.run(_joins(options)):
                    return 0
                options = parse_options(argv)  # its name and port were chosen by joining
            done = perform(options)
        print(json.dumps(done.data, indent=2) if options.wants_json else shown(done.text))  # noqa: T201
    except HelpWanted as wanted:
        print(shown(str(wanted)))  # noqa: T201
    except MntrainError as error:
        return print_error(error, argv, _say_error)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except Exception as error:  # noqa: BLE001 - shown, and the exit code is Python's own
        return print_defect(error, PROGRAM)
    return 0


def _say_error(text: str) -> None:
    print(f"{PROGRAM}: {shown(text)}", file=sys.stderr)  # noqa: T201


def perform(options: Options) -> Done:
    """Run an action. A daemon runs until SIGTERM or Ctrl-C; its jobs continue after that.

    Raises:
        MntrainError: it failed.
    """
    state = options.state
    if options.action in ("install-service", "remove-service"):
        lines = service.remove(state) if options.action == "remove-service" else _install(options)
        return Done("\n".join(lines), {"done": "; ".join(lines)})
    if options.action == "read":
        if not state.is_dir():
            cause = f"{state}: no such allocation directory"
            raise SpecError(cause, fix="name the one that its agents write to")
        asyncio.run(read_until(state, _told_to_end))
        return Done("nobody reads any more", {"read": str(state)})
    if options.owner is not None:
        name = membership.joined(state).settings.name
        return Done(*change_availability(options.owner, state, name))
    done = _locked(options)
    if not options.is_service:
        return done
    lines = _install(options)
    return Done("\n".join([done.text, *lines]), done.data | {"service": lines})


def _install(options: Options) -> list[str]:
    return service.install(
        membership.joined(options.state),
        options.state,
        without_systemd=options.without_systemd,
        is_restarted=options.is_restarted,
    )


def _locked(options: Options) -> Done:
    """Run an action that needs the lock of the state directory."""
    state = options.state
    with locked_state(state, SLOT_LOCK_S if options.is_slot else LOCK_S) as was_open:
        if options.action == "leave":
            cluster = membership.leave(state)
            Audit(state / AUDIT_FILE).note("leave", who=OWNER, cluster=cluster)
            return Done(f"left the cluster {cluster}", {"left": cluster})
        if options.token is None:
            membership.joined(state)
        set_up_log()
        if was_open and (state / "jobs").exists():
            log.warning(
                "other users could read %s until now, with the environment and files of its jobs: "
                "if they hold secrets, replace those",
                state,
            )
        warning = asyncio.run(_serve(options))
        found = membership.find(state)
        data = {
            "node": options.settings.name,
            "node_id": load_node_id(state),
            "cluster": found.cluster if found else "",
        }
        done = "ran as a node" if options.stays else "joined as a node"
        warnings = {"warnings": msgspec.to_builtins([warning])} if warning else {}
        return Done(f"{done} of cluster {data['cluster']}: {data['node']}", data | warnings)


async def _joins(options: Options) -> bool:
    """Wait until this node has joined a cluster; return ``False`` if told to end before that."""
    told = _told_to_end()
    set_up_log()
    await wait_until_joined(options.state, partial(bind, options.settings), told)
    return not told.is_set()


async def _serve(options: Options) -> Problem | None:
    """Join, if there is a token, and run the daemon. Returns a warning about joining, if any."""
    # An agent of this machine that waits to join lets go of the port in a moment.
    sockets = await bind(options.settings, JOIN_PORT_S if options.token else 0.0)
    options = msgspec.structs.replace(options, settings=with_port(options.settings, sockets))
    announcer = Announcer()
    warning = None
    if options.is_slot and is_back(options.state, options.token, options.settings):
        options = msgspec.structs.replace(options, token=None)
    place = SlotPlace(options.state, load_node_id(options.state)) if options.is_slot else None
    if options.token is not None:
        if place is not None:
            where = options.settings.addresses(read_interfaces())
            place.tell("joining", where, joining=options.token.id)
        warning = await join(
            options.token,
            options.settings,
            options.state,
            sockets,
            announcer,
            options.patience_s,
        )
    if options.stays:
        await _run(options, sockets, announcer, place)
    else:
        await announcer.close()
        for one in sockets:  # a service that follows needs the port
            one.close()
    return warning


async def _run(
    options: Options,
    sockets: list[socket.socket],
    announcer: Announcer,
    place: SlotPlace | None,
) -> None:
    node = make_node(options.state, options.settings, options.capacities)
    credentials = node.trust.credentials
    peers = PeerClients(credentials.client, place.where if place is not None else lambda _: ())
    why_taken = place.why_taken if place is not None else lambda _: None
    watch_tasks = WatchTasks(node, peers, why_taken, peers.renewed)
    node.jobs.load()
    for job in node.jobs.all():
        if place is not None:
            go_on_as_granted(job)
        watch_tasks.watch(job)
    server = agent_server(application(node, watch_tasks), credentials.server)
    server.add_sockets(sockets)
    _greet(node)

    at_heartbeats = (
        HeartbeatSampler(node).sample,
        node.tell_leases,
        node.check_state,
        node.transfers.forget_idle,
        Keeping(node).keep,
        node.jobs.rest,
    )
    tasks = [
        *(asyncio.ensure_future(every(HEARTBEAT_INTERVAL_S, work)) for work in at_heartbeats),
        asyncio.ensure_future(every(HEARTBEAT_INTERVAL_S, Achievements(node).look)),
        asyncio.ensure_future(every(LOADED_INTERVAL_S, node.workplaces.load_anew)),
        asyncio.ensure_future(announce(node, announcer, place)),
    ]
    told = _told_to_end()
    decided = asyncio.Event()

    def poll() -> bool:
        # A scheduler has told ranks, too: what they end for from then on has to be known first.
        return (not told.is_set() or decided.is_set()) and node.jobs.poll()

    tasks.append(asyncio.ensure_future(every(POLL_INTERVAL_S, poll)))
    if place is not None:
        if place.notice_s is not None:
            place.save_wish.unlink(missing_ok=True)  # of before its machine was taken
        looks: list[Callable[[], bool]] = [partial(_save, place, node)]
        if options.idle_s is not None:
            # One that is back either goes on with a job, or nobody is about to send one.
            first_s = FIRST_JOB_S if options.token is not None else 0.0
            looks.append(Idleness(place.use_mark, node.jobs, options.idle_s, first_s).is_over)
        ends = partial(_end_if_unused, looks, told)
        tasks.append(asyncio.ensure_future(every(HEARTBEAT_INTERVAL_S, ends)))
    await told.wait()

    why = "the agent was stopped"
    if place is not None:
        why = await _leave(place, node, watch_tasks, decided)
    for task in tasks:
        task.cancel()
    watch_tasks.close()
    peers.close()
    server.stop()
    node.listeners.publish(Goodbye(reason=why))
    await asyncio.gather(node.listeners.close(), announcer.close())
    node.jobs.close()
    with suppress(OSError):  # a full disk: a few seconds are lost
        node.usage.save()


def _save(place: SlotPlace, node: LocalNode) -> bool:
    """Have jobs save if that was requested; return whether agents end then, as they do unless just
    one pod ends.
    """
    return save_if_wished(place.save_wish, node.jobs) and place.notice_s is None


def _end_if_unused(looks: Sequence[Callable[[], bool]], told: asyncio.Event) -> None:
    if any(look() for look in looks) and not told.is_set():
        log.info("this allocation has no job any more: ending")
        told.set()


async def _leave(
    place: SlotPlace, node: LocalNode, watch_tasks: WatchTasks, decided: asyncio.Event
) -> str:
    """End the parts of jobs, as the allocation ends. Returns the reason.

    Args:
        decided: is set while it is known why parts end, so that they may be polled.
    """
    if place.notice_s is not None:
        decided.set()
        await save_within(place.notice_s, place.save_wish, node.jobs)
        decided.clear()
    ending = node.jobs.active()
    if ending:
        await place.ask_why()
    allocation, problem = place.allocation, place.why_it_ends(time.time())
    if allocation.comes_back:
        watch_tasks.close()  # who goes on is decided: nobody here
    decided.set()  # recorded before the next poll
    await end_parts(
        node.jobs,
        problem,
        is_canceled=allocation.is_canceled,
        go_on=ending if allocation.comes_back else None,
    )
    place.tell("gone", (), problem=problem)
    return problem.cause


def _greet(node: LocalNode) -> None:
    interfaces = read_interfaces()
    where = ", ".join(node.address_settings.addresses(interfaces))
    log.info("node %s of cluster %s listens on %s", node.name, node.cluster, where)
    if os.geteuid() == 0:
        log.warning(
            "running as root: the cluster's drivers are root on this machine through their jobs; "
            "run the agent as a user of its own where you can"
        )
    if node.address_settings.listen and node.address_settings.is_local(interfaces):
        log.info("listening on loopback only, as configured: no other machine can reach this node")
    elif node.address_settings.is_local(interfaces):
        cause = "no network interface is up: no other machine can reach this node"
        fix = "connect it, or give its address with --address"
        log.warning("%s", Problem(kind=Kind.NO_INTERFACE, cause=cause, fix=fix))


def _told_to_end() -> asyncio.Event:
    """Return an event that SIGTERM and SIGINT set immediately, not in the loop's next iteration."""
    told = asyncio.Event()
    loop = asyncio.get_running_loop()

    def tell(*_: object) -> None:
        told.set()
        loop.call_soon_threadsafe(lambda: None)  # it may be waiting

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, tell)
    return told
