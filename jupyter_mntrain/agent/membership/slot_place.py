"""Slot place: the files through which an agent in an allocation and its scheduler communicate."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from jupyter_mntrain.agent.membership import state as membership
from jupyter_mntrain.agent.membership.state import Settings
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.failure.fixes import fix_of
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import NodeId
from jupyter_mntrain.model.sources.allocation_limits import read_allocation_limits
from jupyter_mntrain.model.sources.slots import (
    ASK_FILE,
    RELAY_FILE,
    SAVE_FILE,
    USE_FILE,
    AgentState,
    AllocationFile,
    SlotFile,
    read_allocation,
    read_slot,
    write_slot,
)
from jupyter_mntrain.trust.certificates import fingerprint
from jupyter_mntrain.trust.credentials import Credentials
from jupyter_mntrain.trust.joining.token import Token

WHY_S, WHY_EVERY_S = (
    3.0,
    0.1,
)
"""Longest wait, once told to end, for the program that asks the scheduler why; it ends its parts
then. Interval of looking for its answer."""
LIMIT_SLACK_S = tunables.seconds("allocation.limit_slack_s")


class SlotPlace:
    """The files of this agent in its allocation.

    Args:
        state: the agent's state directory; the allocation's is above it.
        environment: may tell when the allocation is over.
    """

    def __init__(
        self, state: Path, node_id: NodeId, environment: Mapping[str, str] = os.environ
    ) -> None:
        self._state = state
        self._node_id = node_id
        limits = read_allocation_limits(environment)
        self._ends_s, self.notice_s = limits.ends_s, limits.notice_s
        self._told: SlotFile | None = None

    def tell(
        self,
        state: AgentState,
        addresses: tuple[str, ...],
        *,
        joining: str = "",
        problem: Problem | None = None,
    ) -> None:
        """Write the addresses of this agent, unless that is done. A full disk is no reason to end:
        drivers that know the address need no file.
        """
        told = SlotFile(
            slot=self._state.name,
            node_id=self._node_id,
            addresses=addresses,
            hostname=socket.gethostname(),
            state=state,
            written_s=self._told.written_s if self._told else 0.0,
            joining=joining,
            problem=problem,
        )
        if told == self._told:
            return
        self._told = msgspec.structs.replace(told, written_s=time.time())
        with suppress(OSError):
            write_slot(self._state.parent, self._told)

    @property
    def allocation(self) -> AllocationFile:
        """What the scheduler has reported so far."""
        return read_allocation(self._state.parent)

    @property
    def save_wish(self) -> Path:
        """The file that asks the jobs to save and end."""
        return self._state.parent / SAVE_FILE

    async def ask_why(self) -> None:
        """Have the status relay, if there is one, report the scheduler's state now."""
        directory = self._state.parent
        if not (directory / RELAY_FILE).exists():
            return
        with suppress(OSError):
            (directory / ASK_FILE).touch()
        deadline = time.monotonic() + WHY_S
        while time.monotonic() < deadline:
            told = self.allocation
            if told.is_canceled or told.why_gone(self._state.name) is not None:
                return
            await asyncio.sleep(WHY_EVERY_S)

    def where(self, node: str) -> tuple[str, ...]:
        """Return the addresses of another node of the allocation; empty if unknown."""
        slot = read_slot(self._state.parent, node)
        return slot.addresses if slot is not None else ()

    @property
    def use_mark(self) -> Path:
        """The file whose modification time says when the allocation was last used."""
        return self._state.parent / USE_FILE

    def why_taken(self, node: str) -> Problem | None:
        """Return why another node of the allocation is gone, if the scheduler has reported that."""
        return self.allocation.gone.get(node)

    def why_it_ends(self, now_s: float) -> Problem:
        """Return why this agent was told to end."""
        told = self.allocation
        if (known := told.why_gone(self._state.name)) is not None:
            return known
        ends_s = told.ends_s or self._ends_s
        if ends_s is not None and now_s >= ends_s - LIMIT_SLACK_S:
            cause = "the time limit of its allocation was reached"
            return Problem(kind=Kind.TIME_LIMIT, cause=cause, fix=fix_of(Kind.TIME_LIMIT))
        cause = "its allocation ended"
        return Problem(kind=Kind.NODES_TAKEN, cause=cause, fix=fix_of(Kind.NODES_TAKEN))


def is_back(state: Path, token: Token | None, settings: Settings) -> bool:
    """Return whether a slot is already a member, from before its machine was replaced or its job
    was requeued.

    A member of another cluster than the token's leaves that: the allocation has a new one.

    Raises:
        TrustError: what is stored of its membership is damaged.
    """
    found = membership.find(state)
    if found is None:
        return False
    credentials = Credentials(state)
    if token is not None and not token.is_of(fingerprint(credentials.authority)):
        membership.leave(state)
        return False
    if token is not None and credentials.certificate.not_valid_after_utc <= datetime.now(UTC):
        return False
    membership.keep(state, found.cluster, settings)  # the machine may be another one
    return True
