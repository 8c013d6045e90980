"""Joining: a node waits for a driver that admits it, and keeps what it is given."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from jupyter_mntrain.agent.machine.interfaces import read_interfaces
from jupyter_mntrain.agent.membership import state as membership
from jupyter_mntrain.agent.membership.availability import OWNER
from jupyter_mntrain.agent.membership.node_id import load_node_id
from jupyter_mntrain.model.errors import TrustError
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.trust.audit import FILE as AUDIT_FILE
from jupyter_mntrain.trust.audit import Audit
from jupyter_mntrain.trust.certificates import Subject, fingerprint
from jupyter_mntrain.trust.credentials import Credentials
from jupyter_mntrain.trust.joining.announcer import Announcer
from jupyter_mntrain.trust.joining.candidate import Candidate
from jupyter_mntrain.trust.joining.clocks import clock_problem
from jupyter_mntrain.trust.joining.join_server import seek_admission
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
