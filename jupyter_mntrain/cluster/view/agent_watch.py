"""Agent watch: reads one agent's stream, reopens it, and judges the node's liveness by it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from jupyter_mntrain.cluster.agents.client import AgentClient
from jupyter_mntrain.cluster.discovery.discovery import FoundAgent
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.api import (
    LOST_AFTER_S,
    SUSPECT_AFTER_S,
    Goodbye,
    Hello,
    NodeChanged,
    StreamMessage,
)
from jupyter_mntrain.model.errors import MntrainError, NodeError
from jupyter_mntrain.model.failure.kinds import ANSWERS, Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import NodeId
from jupyter_mntrain.model.records.node import FoundBy, Heartbeat, Liveness, NodeInfo, NodeView

# Liveness: up, suspect or lost, from how long a node has been silent. Pure.


CONNECT_S = tunables.seconds("cluster.connect_s")

PROBE_TIMEOUT_S = 2.5
"""Timeout of a probe. It must end before the node could be called lost."""

PROBE_EVERY_S = 1.0
"""Pause between probes of a silent node."""


def judge(
    silence_s: float,
    *,
    was_heard: bool,
    is_unanswered: bool,
    said_goodbye: bool = False,
    lost_after_s: float = LOST_AFTER_S,
) -> Liveness:
    """Judge a node's liveness.

    Args:
        silence_s: since its last message, or since we began to listen if there was none.
        was_heard: whether it has sent anything.
        is_unanswered: whether the newest probe failed. Silence alone proves nothing: the stream
            may be stuck, or the node's machine overloaded.
        said_goodbye: whether its last message was a goodbye.
        lost_after_s: how long it may be silent.
    """
    if said_goodbye:
        return "lost"
    if was_heard and silence_s < SUSPECT_AFTER_S:
        return "up"
    if is_unanswered and silence_s >= lost_after_s:
        return "lost"
    return "suspect" if was_heard else "connecting"


def wants_probe(silence_s: float, since_probe_s: float | None) -> bool:
    """Whether to probe a node now.

    Args:
        silence_s: since its last message.
        since_probe_s: since the last probe ended; ``None`` = none during this silence.
    """
    if silence_s < SUSPECT_AFTER_S:
        return False
    return since_probe_s is None or since_probe_s >= PROBE_EVERY_S


def forgiven(gap_s: float, tick_s: float) -> float:
    """Return the part of a node's silence during which this process itself did not run.

    A suspended laptop, or a kernel that holds the interpreter lock, receives nothing.
    """
    return gap_s - tick_s if gap_s > 4 * tick_s else 0.0


# Agent watch: reads one agent's stream, reopens it, and judges the node's liveness.


FIRST_RETRY_S = 0.25
"""Pause before a lost stream is opened again; each failure doubles it."""
LAST_RETRY_S = 5.0
"""Longest pause: a node that comes back is seen within this time."""


class Clock(Protocol):
    """Source of the two times that a watch needs: monotonic and Unix time."""

    def monotonic(self) -> float:
        """Seconds for durations; never jumps."""
        ...

    def time(self) -> float:
        """Unix time in seconds, for people."""
        ...


@dataclass(eq=False)
class AgentWatch:
    """Follows one agent for as long as :meth:`run` runs.

    Args:
        addresses: ``host:port``, tried in turn until one answers.
        found_by: how the first of them became known.
        node_id: the node that should answer; ``None`` = any node of the cluster.
        info: its answer to an earlier request, before anything was streamed.
        called: its name, if known.
        client: makes a client for an address and the node that should answer there.
        on_message: called for every message of the stream, before :attr:`view` shows it.
        on_change: called with this watch when :attr:`view` has changed.
    """

    addresses: tuple[str, ...]
    found_by: FoundBy
    client: Callable[[str, NodeId | None], AgentClient]
    clock: Clock
    on_message: Callable[[NodeId, StreamMessage], None]
    on_change: Callable[[AgentWatch], None]
    node_id: NodeId | None = None
    info: NodeInfo | None = None
    called: str = ""
    _heartbeat: Heartbeat | None = None
    _liveness: Liveness = "connecting"
    _last_seen_s: float | None = None
    _error: MntrainError | None = None
    _refused: str | None = None
    """The address at which its machine answers that nothing listens there."""
    _goodbye: str | None = None
    _retry_s: float = FIRST_RETRY_S
    _try_now: asyncio.Event = field(default_factory=asyncio.Event)
    _probe: asyncio.Task[None] | None = None
    _probed_at: float | None = None

    def __post_init__(self) -> None:
        self._address = self.addresses[0]
        self._last_word = self.clock.monotonic()
        self._asked_s = self.clock.time()

    @property
    def _was_heard(self) -> bool:
        return self._last_seen_s is not None

    @property
    def view(self) -> NodeView:
        return NodeView(
            address=self._address,
            found_by=self.found_by,
            liveness=self._liveness,
            info=self.info,
            heartbeat=self._heartbeat,
            last_seen_s=self._last_seen_s,
            problem=self._problem(),
            called=self.called,
            asked_s=self._asked_s,
        )

    async def run(self) -> None:
        """Watch until canceled."""
        try:
            while True:
                await self._read_stream()
                self.on_change(self)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._try_now.wait(), self._retry_s)
                self._try_now.clear()
                self._retry_s = min(2 * self._retry_s, LAST_RETRY_S)
                self._take_next_address()
        finally:
            if self._probe is not None:
                self._probe.cancel()

    def tick(self) -> None:
        """Update liveness; probe a silent node before calling it lost. Call often."""
        self._judge()
        now = self.clock.monotonic()
        since_probe = None if self._probed_at is None else now - self._probed_at
        is_probing = self._probe is not None and not self._probe.done()
        if self._was_heard and not is_probing and wants_probe(now - self._last_word, since_probe):
            self._probe = asyncio.create_task(self._ask_directly())

    def is_of(self, found: FoundAgent) -> bool:
        """Whether this watch is for an agent that was found.

        Two machines with one node id (a copied disk, a shared home) are both watched, so that the
        conflict can be shown.
        """
        known = self.node_id or (self.info.node_id if self.info else None)
        if known is not None and found.node_id is not None:
            is_another = (
                self.info is not None
                and self._liveness == "up"
                and found.instance not in ("", self.info.instance)
                and set(self.addresses).isdisjoint(found.addresses)
            )
            return known == found.node_id and not is_another
        return not set(self.addresses).isdisjoint(found.addresses)

    def forgive(self, seconds: float) -> None:
        """Ignore a silence during which this process did not listen."""
        self._last_word = min(self.clock.monotonic(), self._last_word + seconds)

    def expect(self, found: FoundAgent) -> None:
        """Handle an announcement: connect at once, also to new addresses."""
        self.addresses = tuple(dict.fromkeys([*found.addresses, *self.addresses]))
        self.node_id = found.node_id or self.node_id
        if self.found_by == "remembered":
            self.found_by = "mdns"
        if self._liveness != "up":
            self.try_now()

    def try_now(self) -> None:
        """Retry now, without the pause."""
        self._retry_s = FIRST_RETRY_S
        self._try_now.set()

    async def _read_stream(self) -> None:
        where = self._address
        try:
            client = self.client(where, self._expected_id())
            async with aclosing(client.stream()) as messages:
                async for message in messages:
                    self._take(client, message)
            self._error = NodeError(
                "the agent closed the connection", node=client.node, kind=Kind.BROKEN_OFF
            )
        except MntrainError as error:
            self._note(error, where)

    def _note(self, error: MntrainError, where: str) -> None:
        """Take why an address does not answer. While its machine refuses at one, that others lead
        nowhere from here says nothing.
        """
        if error.kind is Kind.CONNECTION_REFUSED:
            self._refused = where
        elif self._refused == where or error.kind not in (Kind.UNREACHABLE, Kind.NO_ANSWER):
            self._refused = None
        if self._refused in (None, where):
            self._error = error

    def _take(self, client: AgentClient, message: StreamMessage) -> None:
        match message:
            case Hello(node=info):
                client.check(info)
                self.info, self._retry_s = info, FIRST_RETRY_S
                self._try_now.clear()
            case NodeChanged(node=info):
                self.info = info
            case Heartbeat() as heartbeat:
                self._heartbeat = heartbeat
        if self.info is not None:
            self.on_message(self.info.node_id, message)
        self._heard(goodbye=message.reason if isinstance(message, Goodbye) else None)
        self.on_change(self)

    def _heard(self, *, goodbye: str | None = None) -> None:
        self._last_word = self.clock.monotonic()
        self._last_seen_s = self.clock.time()
        self._error = self._probed_at = self._refused = None
        self._goodbye = goodbye
        self._judge()

    def _judge(self) -> None:
        before = self._liveness
        was_probed = self._probed_at is not None
        self._liveness = judge(
            self.clock.monotonic() - self._last_word,
            was_heard=self._was_heard,
            is_unanswered=self._error is not None and (not self._was_heard or was_probed),
            said_goodbye=self._goodbye is not None,
            lost_after_s=CONNECT_S if self._is_slow_to_begin else LOST_AFTER_S,
        )
        if self._liveness != before:
            self.on_change(self)

    @property
    def _is_slow_to_begin(self) -> bool:
        """Whether its machine accepts connections, but its agent has never answered one."""
        is_slow = self._error is not None and self._error.kind is Kind.SLOW_TO_ANSWER
        return is_slow and not self._was_heard

    async def _ask_directly(self) -> None:
        where = self._address
        try:
            client = self.client(where, self._expected_id())
            # A connection is tried several times; that must not delay the report.
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                info = await client.node_info()
        except TimeoutError:
            error = NodeError(
                f"no answer from {where} in {PROBE_TIMEOUT_S:g} s",
                fix="check that the machine is on and no firewall drops the port",
                node=self.called or where,
                kind=Kind.NO_ANSWER,
            )
            self._note(error, where)
            self._probed_at = self.clock.monotonic()
        except MntrainError as error:
            self._note(error, where)
            self._probed_at = self.clock.monotonic()
        else:
            self.info = info
            self._heard()
            self.try_now()

    def _take_next_address(self) -> None:
        where = self.addresses.index(self._address) if self._address in self.addresses else -1
        self._address = self.addresses[(where + 1) % len(self.addresses)]

    def _expected_id(self) -> NodeId | None:
        """Return the node id that must answer; at a typed address, the one that answered last."""
        is_another = self._error is not None and self._error.kind is Kind.WRONG_NODE
        known = None if self.info is None or is_another else self.info.node_id
        return self.node_id or known

    def _problem(self) -> Problem | None:
        if self._liveness == "up":
            return self.info.problem if self.info is not None else None
        is_there_again = self._error is not None and self._error.kind in ANSWERS
        if self._goodbye is not None and not is_there_again:
            return Problem(
                kind=Kind.AGENT_STOPPED,
                cause=f"{self._goodbye}; its jobs continue",
                fix="start it again with mntrain agent run",
            )
        if self._error is not None:
            # The view names the node.
            return msgspec.structs.replace(self._error.problem, node=None)
        if not self._was_heard:
            return None
        return Problem(kind=Kind.SILENT, cause="sends no heartbeat")
