"""Joining: waits for a driver that admits this node, and stores the certificates."""

from __future__ import annotations

import asyncio
import logging
import socket
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from filelock import FileLock, Timeout

from jupyter_mntrain.agent.machine.interfaces import read_interfaces
from jupyter_mntrain.agent.membership import state as membership
from jupyter_mntrain.agent.membership.availability import OWNER
from jupyter_mntrain.agent.membership.state_directory import load_node_id
from jupyter_mntrain.model.errors import MntrainError, TrustError
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import new_node_id
from jupyter_mntrain.trust.audit import FILE as AUDIT_FILE
from jupyter_mntrain.trust.audit import Audit
from jupyter_mntrain.trust.authority import self_signed
from jupyter_mntrain.trust.certificates import Subject, fingerprint, new_key
from jupyter_mntrain.trust.credentials import Credentials
from jupyter_mntrain.trust.joining.announcer import Announcer
from jupyter_mntrain.trust.joining.candidate import Candidate
from jupyter_mntrain.trust.joining.join_server import clock_problem, refusing_server, seek_admission
from jupyter_mntrain.trust.joining.token import Token

log = logging.getLogger("mntrain.agent")


async def join(
    token: Token,
    settings: membership.Settings,
    state: Path,
    sockets: Sequence[socket.socket],
    announcer: Announcer,
    patience_s: float | None = None,
) -> Problem | None:
    """Wait until a driver admits this node, and store the certificates.

    Args:
        state: the agent's state directory.
        sockets: to listen on for the driver.
        patience_s: how long to wait; default: as long as the token is valid.

    Returns:
        What is wrong with this machine's clock, if it is: the node has joined all the same.

    Raises:
        TrustError: the node was not admitted, or belongs to another cluster.
    """
    _refuse_other_cluster(state, token)
    node_id = load_node_id(state)
    name = settings.name
    interfaces = read_interfaces()
    addresses = settings.addresses(interfaces)
    log.info("waiting for admission on %s", ", ".join(addresses))
    candidate = Candidate(token, Subject(role="node", name=node_id), name, room=state)
    audit = partial(Audit(state / AUDIT_FILE).note, "join", who=OWNER, invitation=token.id)
    try:
        admission = await seek_admission(
            candidate,
            announcer,
            sockets=sockets,
            addresses=addresses,
            sources=settings.announced_from(interfaces),
            directory=state,
            hint=lambda: _hint(addresses),
            patience_s=patience_s,
        )
    except TrustError as error:
        audit(outcome=f"refused: {error.cause}")
        raise
    if (problem := clock_problem(admission, time.time())) is not None:
        log.warning("%s", problem)
    candidate.keep(state, admission)
    audit(cluster=admission.cluster)
    membership.keep(state, admission.cluster, settings)
    log.info("node %s has joined cluster %s", name, admission.cluster)
    return problem


def _refuse_other_cluster(state: Path, token: Token) -> None:
    found = membership.find(state)
    if found is None:
        return
    authority = Credentials(state).authority
    if not token.is_of(fingerprint(authority)):
        raise TrustError(
            f"this node belongs to cluster {found.cluster!r} already, and the token is for another",
            fix="to change clusters, run mntrain agent leave first",
        )


def _hint(addresses: Sequence[str]) -> None:
    log.info(
        "still waiting: is the notebook or its server running? Where multicast does not reach, "
        "run on that machine: mntrain add %s",
        addresses[0],
    )


# Unjoined: an agent whose node is in no cluster says so to whoever asks, until it is in one.
#
# A service that ended instead would look like a machine on which nothing listens, and nobody would
# learn that its state directory was emptied.


LOOK_EVERY_S = 0.5
"""Interval at which an agent that has not joined looks whether it has. It lets go of its port for
mntrain agent join within this time."""

Bind = Callable[[], Awaitable[list[socket.socket]]]


async def wait_until_joined(state: Path, bind: Bind, told: asyncio.Event) -> None:
    """Answer that this node has not joined, until it has or until told to end.

    While another process uses the state directory, as ``mntrain agent join`` does, the port is its.

    Args:
        bind: makes the sockets to listen on; a port that is taken is tried again.
    """
    while not told.is_set():
        if not _is_in_use(state):
            try:
                membership.joined(state)
            except TrustError as error:
                log.warning("%s", error)
            else:
                return
            await _answer(state, bind, told)
        await _pause(told)


async def _answer(state: Path, bind: Bind, told: asyncio.Event) -> None:
    """Serve until another process uses the state directory, or the node has joined."""
    try:
        sockets = await bind()
    except MntrainError as error:
        log.warning("%s", error)
        return
    key = new_key()
    shown = self_signed(key, Subject(role="node", name=new_node_id()), datetime.now(UTC))
    with tempfile.TemporaryDirectory() as private:
        server = refusing_server(key, shown, sockets, Path(private))
    try:
        while not (told.is_set() or _is_in_use(state) or membership.find(state) is not None):
            await _pause(told)
    finally:
        server.stop()
        for one in sockets:
            one.close()
        await server.close_all_connections()


async def _pause(told: asyncio.Event) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(told.wait(), LOOK_EVERY_S)


def _is_in_use(state: Path) -> bool:
    """Return whether another process holds the lock of :func:`node_id.locked_state`."""
    try:
        with FileLock(state / "lock", mode=0o600).acquire(timeout=0):
            return False
    except Timeout:
        return True
    except OSError:  # there is no such directory, or it is not ours to use: nobody joins there
        return False
