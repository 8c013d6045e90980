"""Simulator: walks the order of every rank over the times of stages and links. Pure.

A message occupies its link, one after another in each direction, and arrives a latency later. It
begins once its sender has sent it and knows that its receiver has begun to receive. Links of a node
share its interface.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from itertools import count, permutations

from jupyter_mntrain.plan.prediction.queues import Queues
from jupyter_mntrain.plan.prediction.simulated import (
    BusySpan,
    LinkTimes,
    Pair,
    Simulated,
    StageTimes,
)
from jupyter_mntrain.plan.prediction.wires import Wires
from jupyter_mntrain.recipe.orders import Actions, StageAction, Stages


class DeadlockError(Exception):
    """Ranks wait for each other; the text says for what."""


QueueOf = Callable[[StageAction, Pair], Hashable]
"""Messages of one rank with the same key follow each other: none begins before the last has ended.
``None``: this one waits for nothing."""


def unordered(sent_or_received: StageAction, pair: Pair) -> Hashable:  # noqa: ARG001 - of all alike
    """Messages over Gloo: each is a connection's own business."""
    return None


def simulate(
    orders: Sequence[Actions],
    stages: Stages,
    times: Sequence[StageTimes],
    link: Callable[[int, int], LinkTimes],
    queue_of: QueueOf = unordered,
    *,
    is_batched: bool = False,
    receives_beside: bool = False,
    node_of: Callable[[int], Hashable] | None = None,
    is_one_connection: bool = False,
) -> Simulated:
    """Walk a step.

    Args:
        orders: of each rank; from :func:`~jupyter_mntrain.recipe.orders.make_order`.
        times: of each stage.
        link: from rank to rank.
        is_batched: whether messages that a rank starts one right after another are one operation of
            its queue, as in torch's schedules of one stage per rank.
        receives_beside: whether receives begin beside what is computed, on a CUDA stream of their
            own, as soon as those before them in their queue have ended.
        node_of: of a rank, whose links share its interface; ``None``: each link is apart.

        is_one_connection: whether two ranks exchange both directions over one connection, as
            Gloo does within a group: word that a message is awaited then comes behind messages.

    Raises:
        DeadlockError: the ranks would never end.
    """
    queues = Queues(queue_of, is_batched=is_batched)
    walk = _Walk(orders, stages, times, link, queues, node_of, is_one_connection=is_one_connection)
    walk.run(receives_beside=receives_beside)
    return walk.result()


class _Message:
    """A message on its way."""

    def __init__(self, pair: Pair, times: LinkTimes) -> None:
        self.pair = pair
        self.times = times
        self.is_sent = self.is_awaited = self.begins = False
        self.begin_s = 0.0
        """When it was in front on its link."""
        self.left_s: float | None = None
        """When its sender need no longer wait."""
        self.arrived_s: float | None = None


class _Walk:
    def __init__(
        self,
        orders: Sequence[Actions],
        stages: Stages,
        times: Sequence[StageTimes],
        link: Callable[[int, int], LinkTimes],
        queues: Queues,
        node_of: Callable[[int], Hashable] | None,
        *,
        is_one_connection: bool,
    ) -> None:
        self._orders = orders
        self._stages = stages
        self._times = times
        self._link = link
        self._queues = queues
        self._at = [0] * len(orders)
        self._clock = [0.0] * len(orders)
        self._end = 0.0
        self._computed: list[list[BusySpan]] = [[] for _ in orders]
        self._sent: dict[Pair, list[BusySpan]] = defaultdict(list)
        self._messages: dict[StageAction, _Message] = {}
        """By their receiver's action."""
        self._waiting: dict[tuple[StageAction, str], int] = {}
        """Rank that waits until a message has left or arrived."""
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._number = count()
        occupied = {pair: link(*pair).occupied for pair in permutations(range(len(orders)), 2)}
        rates = {pair: 1.0 / each for pair, each in occupied.items() if each > 0 and node_of}
        self._free_s: dict[Pair, float] = defaultdict(float)
        """Of links that share nothing."""
        self._wires: Wires[tuple[StageAction, bool]] = Wires(rates, node_of or int)
        """A message, by its receiver's action, or word that it is awaited."""
        self._is_one_connection = is_one_connection
        self._announced: set[StageAction] = set()
        self._next_end = 0

    def run(self, *, receives_beside: bool) -> None:
        for rank, order in enumerate(self._orders):
            self._line_up(rank, order)
        for rank, order in enumerate(self._orders):
            for action in order:
                if receives_beside and action.kind.startswith("RECV"):
                    self._post(action, 0.0)
            self._at_time(0.0, lambda now, rank=rank: self._go_on(rank, now))  # type: ignore[misc]
        while self._events:
            now, _, happen = heapq.heappop(self._events)
            happen(now)
        stuck = {
            rank: order[at]
            for rank, (order, at) in enumerate(zip(self._orders, self._at, strict=True))
            if at < len(order)
        }
        if stuck:
            raise DeadlockError(
                "; ".join(
                    f"rank {rank} waits in {one.kind} of stage {one.stage}, microbatch "
                    f"{one.microbatch}"
                    for rank, one in stuck.items()
                )
            )

    def result(self) -> Simulated:
        return Simulated(
            self._end,
            tuple(map(tuple, self._computed)),
            {pair: tuple(spans) for pair, spans in self._sent.items()},
        )

    def _at_time(self, when: float, happen: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (when, next(self._number), happen))

    def _go_on(self, rank: int, now: float) -> None:
        """Do a rank's next actions, until it computes or has to wait."""
        order = self._orders[rank]
        self._clock[rank] = now
        while self._at[rank] < len(order):
            action = order[self._at[rank]]
            if action.computes:
                if not self._has_happened(rank, self._needed(action), "arrived"):
                    return
                self._compute(rank, action, now)
                return
            if action.kind.startswith("AWAIT"):
                sent = action._replace(kind="SEND_F" if action.kind == "AWAIT_F" else "SEND_B")
                if not self._has_happened(rank, self._stages.received(sent), "left"):
                    return
            else:
                self._post(action, now)
            self._at[rank] += 1
        self._end = max(self._end, now)

    def _compute(self, rank: int, action: StageAction, now: float) -> None:
        end = now + self._times[action.stage].of(action.kind)
        self._computed[rank].append(BusySpan(action, now, end))
        self._at[rank] += 1
        self._at_time(end, lambda then: self._go_on(rank, then))

    def _needed(self, action: StageAction) -> StageAction | None:
        """What an action receives from another rank."""
        kind, stage, microbatch = action
        before = stage + (-1 if kind == "F" else 1)
        if kind == "W" or not 0 <= before < self._stages.number:
            return None
        if self._stages.rank_of(before) == self._stages.rank_of(stage):
            return None
        return StageAction("RECV_F" if kind == "F" else "RECV_B", stage, microbatch)

    def _has_happened(self, rank: int, received: StageAction | None, what: str) -> bool:
        """Whether a message has left or arrived; if not, the rank is woken once it has."""
        if received is None:
            return True
        message = self._messages.get(received)
        if message is not None:
            when = message.arrived_s if what == "arrived" else message.left_s
            if when is not None and when <= self._clock[rank]:
                return True
        self._waiting[received, what] = rank
        return False

    def _line_up(self, rank: int, order: Actions) -> None:
        """Add a rank's messages to their queues."""
        follows = False
        for action in order:
            is_message = action.kind.startswith(("SEND", "RECV"))
            if is_message:
                received = self._received(action)
                before = received.stage + (-1 if received.kind == "RECV_F" else 1)
                pair = (self._stages.rank_of(before), self._stages.rank_of(received.stage))
                self._messages.setdefault(received, _Message(pair, self._link(*pair)))
                self._queues.add(rank, action, received, pair, follows=follows)
            follows = is_message

    def _received(self, action: StageAction) -> StageAction:
        return self._stages.received(action) if action.kind.startswith("SEND") else action

    def _post(self, action: StageAction, now: float) -> None:
        received = self._received(action)
        message = self._messages[received]
        if action != received:
            message.is_sent = True
            self._try_to_begin(received, now)
        elif received not in self._announced:
            self._announced.add(received)
            back = message.pair[::-1]
            if self._is_one_connection and self._wires.has(back):
                self._wires.add(back, (received, False), now, 0.0)
                self._look_at_wires()
            else:
                behind = self._free_s[back] if self._is_one_connection else 0.0
                self._announce(received, max(now, behind))

    def _announce(self, received: StageAction, now: float) -> None:
        """Tell the sender that its message is awaited."""

        def arrive(then: float) -> None:
            self._messages[received].is_awaited = True
            self._try_to_begin(received, then)

        self._at_time(now + self._messages[received].times.latency, arrive)

    def _try_to_begin(self, received: StageAction, now: float) -> None:
        message = self._messages[received]
        is_ready = message.is_sent and message.is_awaited and not message.begins
        if not is_ready or not self._queues.may_begin(received):
            return
        message.begins = True
        message.begin_s = now
        if self._wires.has(message.pair):
            if self._wires.add(message.pair, (received, True), now):
                self._buffer(received, now)
            self._look_at_wires()
            return
        message.begin_s = begin = max(now, self._free_s[message.pair])
        self._free_s[message.pair] = end = begin + message.times.occupied
        self._buffer(received, begin)
        self._at_time(end, lambda then: self._send(received, then))

    def _buffer(self, received: StageAction, begin: float) -> None:
        """Its sender need not wait for what its socket holds."""
        _, occupied, buffered = self._messages[received].times
        if buffered > 0:
            held = begin + max(0.0, occupied - buffered)
            self._at_time(held, lambda then: self._leave(received, then))

    def _look_at_wires(self) -> None:
        """Come back when something ends next; what was to end before ends at another time."""
        self._next_end = number = next(self._number)
        found = self._wires.next_end()
        if found is not None:
            self._at_time(found[0], lambda now: self._end_on_wire(number, found[1], now))

    def _end_on_wire(self, number: int, pair: Pair, now: float) -> None:
        if number != self._next_end:
            return
        (ended, is_message), following = self._wires.end(pair, now)
        if following is not None and following[1]:
            self._messages[following[0]].begin_s = now
            self._buffer(following[0], now)
        self._look_at_wires()
        (self._send if is_message else self._announce)(ended, now)

    def _send(self, received: StageAction, now: float) -> None:
        """A message has left its sender."""
        message = self._messages[received]
        kind = "SEND_F" if received.kind == "RECV_F" else "SEND_B"
        before = received.stage + (-1 if kind == "SEND_F" else 1)
        sent = StageAction(kind, before, received.microbatch)  # type: ignore[arg-type]
        self._sent[message.pair].append(BusySpan(sent, message.begin_s, now))
        self._leave(received, now)
        self._at_time(now + message.times.latency, lambda then: self._arrive(received, then))

    def _leave(self, received: StageAction, now: float) -> None:
        if self._messages[received].left_s is not None:
            return
        self._messages[received].left_s = now
        self._wake(received, "left", now)

    def _arrive(self, received: StageAction, now: float) -> None:
        self._messages[received].arrived_s = now
        for following in self._queues.end(received):
            self._try_to_begin(following, now)
        self._wake(received, "arrived", now)

    def _wake(self, received: StageAction, what: str, now: float) -> None:
        rank = self._waiting.pop((received, what), None)
        if rank is not None:
            self._go_on(rank, now)
