"""Simulator: executes each rank's order of actions, given the times of stages and links. Pure."""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from itertools import count, permutations
from math import inf
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.plan import LinkSpeed, StepSpan, StepSpans
from jupyter_mntrain.recipe.instructions import Actions, StageAction, Stages

# Times of stages and links that a step is simulated with, and the step that results. Pure.


class CodingTimes(NamedTuple):
    """The seconds per microbatch in which a stage's device decodes what the stage receives, before
    it computes, and encodes what it sends, after that. It computes nothing meanwhile.

    Args:
        activation_in, activation_out: of the activation from the stage before it, and to the next.
        gradient_in, gradient_out: of the gradient from the next stage, and to the one before it.
    """

    activation_in: float = 0.0
    activation_out: float = 0.0
    gradient_in: float = 0.0
    gradient_out: float = 0.0

    @property
    def seconds(self) -> float:
        """The seconds of all four."""
        return sum(self)

    def around(self, kind: str) -> tuple[float, float]:
        """Return the seconds before and after an action."""
        match kind:
            case "F":
                return self.activation_in, self.activation_out
            case "W":
                return 0.0, 0.0
            case _:
                return self.gradient_in, self.gradient_out


NOTHING_CODED: Final = CodingTimes()


class StageTimes(NamedTuple):
    """The seconds that one stage computes per microbatch.

    Args:
        forward: with the loss, on the last stage.
        backward: of inputs and weights together.
        inputs: of the gradients of inputs alone.
        weights: of the gradients of weights alone.
        coding: what its compressed messages take in addition.
    """

    forward: float
    backward: float
    inputs: float
    weights: float
    coding: CodingTimes = NOTHING_CODED

    def of(self, kind: str) -> float:
        match kind:
            case "F":
                return self.forward
            case "B":
                return self.backward
            case "I":
                return self.inputs
            case _:
                return self.weights


SOCKET_BYTES: Final = 512 << 10
"""What a socket's send buffer holds, roughly: Linux lets it grow with what is under way."""


class LinkTimes(NamedTuple):
    """The seconds of one message on a link, in one direction.

    Args:
        latency: one way.
        occupied: bytes / capacity.
        buffered: of that, what its sender need not wait for: its socket holds it.
    """

    latency: float = 0.0
    occupied: float = 0.0
    buffered: float = 0.0

    @property
    def seconds(self) -> float:
        """The seconds from the start of a message to its arrival."""
        return self.latency + self.occupied


FREE = LinkTimes()
"""Times between ranks of one node."""


class BusySpan(NamedTuple):
    """A time during which a rank or link is busy, in seconds from the start of the step."""

    action: StageAction
    begin_s: float
    end_s: float


class Simulated(NamedTuple):
    """A simulated step, without the optimizer.

    Args:
        seconds: until the last action's end.
        computing: spans per rank, in order.
        messages: spans per link, in order; its action is the sender's.
    """

    seconds: float
    computing: tuple[tuple[BusySpan, ...], ...]
    messages: Mapping[Pair, tuple[BusySpan, ...]]

    def computing_s(self, rank: int) -> float:
        return sum(span.end_s - span.begin_s for span in self.computing[rank])

    def bubble(self, rank: int) -> float:
        """Return the share of the step in which a rank does not compute."""
        return 1.0 - self.computing_s(rank) / self.seconds if self.seconds > 0 else 0.0

    def busy(self, link: Pair) -> float:
        """Return the share of the step in which a link is occupied."""
        spans = self.messages.get(link, ())
        return sum(span.end_s - span.begin_s for span in spans) / self.seconds if spans else 0.0


# Wires: messages on their way at once share what their nodes' interfaces carry. Pure.
#
# On each link one message follows the other. Messages from one node to several, or from several to
# one, share its interface evenly, as TCP connections do; what comes in is apart from what goes out.


Port = tuple[str, Hashable]
"""A node's outgoing or incoming traffic."""

T = TypeVar("T")


class Wires(Generic[T]):
    """The messages in transit, and how much of each is sent.

    Args:
        rates: of each link alone, in whole messages per second.
        node_of: of a rank, whose links share its interface.
    """

    def __init__(self, rates: Mapping[Pair, float], node_of: Callable[[int], Hashable]) -> None:
        self._rates = rates
        self._ports: dict[Pair, tuple[Port, Port]] = {}
        self._capacity: dict[Port, float] = {}
        self._active: dict[Port, set[Pair]] = {}
        for pair, rate in rates.items():
            self._ports[pair] = ("out", node_of(pair[0])), ("in", node_of(pair[1]))
            for port in self._ports[pair]:
                self._capacity[port] = max(self._capacity.get(port, 0.0), rate)
                self._active[port] = set()
        self._queues: dict[Pair, deque[tuple[T, float]]] = {pair: deque() for pair in rates}
        self._left: dict[Pair, float] = {}
        """Share of the message in front that is still to be sent."""
        self._shared: dict[Pair, float] = {}
        """Current rates."""
        self._at_s = 0.0

    def has(self, pair: Pair) -> bool:
        """Whether messages take time on a link."""
        return pair in self._rates

    def add(self, pair: Pair, message: T, now: float, size: float = 1.0) -> bool:
        """Send a message or a part of one, after those before it on its link. Returns whether there
        are none.
        """
        self._advance(now)
        self._queues[pair].append((message, size))
        if len(self._queues[pair]) > 1:
            return False
        self._left[pair] = size
        for port in self._ports[pair]:
            self._active[port].add(pair)
        self._share(pair)
        return True

    def next_end(self) -> tuple[float, Pair] | None:
        """Return when and on which link the next message ends, if none is added before."""
        ends = ((self._at_s + left / self._shared[pair], pair) for pair, left in self._left.items())
        return min(ends, default=None)

    def end(self, pair: Pair, now: float) -> tuple[T, T | None]:
        """Remove a link's message. Returns it and the one that follows."""
        self._advance(now)
        queue = self._queues[pair]
        ended, _ = queue.popleft()
        if queue:
            following, self._left[pair] = queue[0]
            return ended, following
        del self._left[pair]
        for port in self._ports[pair]:
            self._active[port].discard(pair)
        self._share(pair)
        return ended, None

    def _advance(self, now: float) -> None:
        for pair, left in self._left.items():
            self._left[pair] = max(0.0, left - (now - self._at_s) * self._shared[pair])
        self._at_s = now

    def _share(self, changed: Pair) -> None:
        """Set the rates of all links that share a port with a link."""
        out, into = self._ports[changed]
        for pair in self._active[out] | self._active[into]:
            levels = (self._level(port) for port in self._ports[pair])
            self._shared[pair] = min(self._rates[pair], *levels)

    def _level(self, port: Port) -> float:
        """Return the highest rate of each link at which all of them fit into the port's
        capacity.
        """
        room, rates = self._capacity[port], sorted(self._rates[one] for one in self._active[port])
        for shared, rate in enumerate(rates):
            level = room / (len(rates) - shared)
            if rate > level:
                return level
            room -= rate
        return inf


# Queues: messages of a rank that begin one after another.


Pair = tuple[int, int]
"""Sender's and receiver's rank."""


class Queues:
    """Decides which messages may begin: those at the head of each of their queues.

    Args:
        queue_of: the queue of a rank's message; ``None`` if it waits for nothing.
        is_batched: whether messages that follow each other at once are one operation.
    """

    def __init__(
        self, queue_of: Callable[[StageAction, Pair], Hashable], *, is_batched: bool
    ) -> None:
        self._queue_of = queue_of
        self._is_batched = is_batched
        self._operations: dict[Hashable, deque[list[StageAction]]] = defaultdict(deque)
        self._queues_of: dict[StageAction, list[Hashable]] = defaultdict(list)

    def add(
        self, rank: int, action: StageAction, received: StageAction, pair: Pair, *, follows: bool
    ) -> None:
        """Add a rank's send or receive.

        Args:
            received: the message's name.
            follows: right after another message of this rank.
        """
        queue = self._queue_of(action, pair)
        if queue is None:
            return
        operations = self._operations[rank, queue]
        if self._is_batched and follows and operations:
            operations[-1].append(received)
        else:
            operations.append([received])
        self._queues_of[received].append((rank, queue))

    def may_begin(self, received: StageAction) -> bool:
        return all(received in self._operations[key][0] for key in self._queues_of[received])

    def end(self, received: StageAction) -> list[StageAction]:
        """Remove a message, and return those that may begin now."""
        following: list[StageAction] = []
        for key in self._queues_of[received]:
            operations = self._operations[key]
            operations[0].remove(received)
            if not operations[0]:
                operations.popleft()
                following += operations[0] if operations else ()
        return following


# Simulator: walks the order of every rank over the times of stages and links. Pure.
#
# A message occupies its link, one after another in each direction, and arrives a latency later. It
# begins once its sender has sent it and knows that its receiver has begun to receive. Links of a
# node share its interface.


class DeadlockError(Exception):
    """Raised when ranks wait for one another; the text says for what."""


QueueOf = Callable[[StageAction, Pair], Hashable]
"""Messages of one rank with the same key follow each other: none begins before the last has ended.
``None``: this one waits for nothing."""


def unordered(sent_or_received: StageAction, pair: Pair) -> Hashable:  # noqa: ARG001 - of all alike
    """Return the queue of a message over Gloo: none, as messages do not wait for one another."""
    return None


def whole(received: StageAction) -> float:  # noqa: ARG001 - of all alike
    """Return the share of a message that is sent: all of it."""
    return 1.0


def simulate(
    orders: Sequence[Actions],
    stages: Stages,
    times: Sequence[StageTimes],
    link: Callable[[int, int], LinkTimes],
    queue_of: QueueOf = unordered,
    *,
    share_of: Callable[[StageAction], float] = whole,
    is_batched: bool = False,
    receives_beside: bool = False,
    node_of: Callable[[int], Hashable] | None = None,
    is_one_connection: bool = False,
) -> Simulated:
    """Simulate a step.

    Args:
        orders: of each rank; from :func:`~jupyter_mntrain.recipe.instructions.make_order`.
        times: of each stage.
        link: of a message from rank to rank that is not compressed.
        share_of: the bytes of a message, over those that it has without compression, by its
            receiver's action; the same in every microbatch.
        is_batched: whether messages that a rank starts one right after another are one operation of
            its queue, as in torch's schedules of one stage per rank.
        receives_beside: whether receives begin next to what is computed, on a CUDA stream of their
            own, as soon as those before them in their queue have ended.
        node_of: of a rank, whose links share its interface; ``None``: each link is apart.

        is_one_connection: whether two ranks exchange both directions over one connection, as
            Gloo does within a group: word that a message is awaited then comes behind messages.

    Raises:
        DeadlockError: the ranks would never end.
    """
    queues = Queues(queue_of, is_batched=is_batched)
    walk = _Walk(
        orders,
        stages,
        times,
        link,
        queues,
        share_of,
        node_of,
        is_one_connection=is_one_connection,
    )
    walk.run(receives_beside=receives_beside)
    return walk.result()


class _Message:
    """A message in transit.

    Args:
        times: its own.
        share: of a message that is not compressed.
    """

    def __init__(self, pair: Pair, times: LinkTimes, share: float) -> None:
        self.pair = pair
        self.times = times
        self.share = share
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
        share_of: Callable[[StageAction], float],
        node_of: Callable[[int], Hashable] | None,
        *,
        is_one_connection: bool,
    ) -> None:
        self._orders = orders
        self._stages = stages
        self._times = times
        self._link = link
        self._share_of = share_of
        self._alike: dict[tuple[str, int], tuple[Pair, LinkTimes, float]] = {}
        """Ends, times and share of the messages that a stage receives, by kind."""
        self._queues = queues
        self._at = [0] * len(orders)
        self._clock = [0.0] * len(orders)
        self._end = 0.0
        self._computed: list[list[BusySpan]] = [[] for _ in orders]
        self._sent: dict[Pair, list[BusySpan]] = defaultdict(list)
        self._messages: dict[StageAction, _Message] = {}
        """Messages by their receiver's action."""
        self._waiting: dict[tuple[StageAction, str], int] = {}
        """Rank that waits until a message has left or arrived."""
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._number = count()
        occupied = {pair: link(*pair).occupied for pair in permutations(range(len(orders)), 2)}
        rates = {pair: 1.0 / each for pair, each in occupied.items() if each > 0 and node_of}
        self._free_s: dict[Pair, float] = defaultdict(float)
        """When each link is free again, for links that share nothing."""
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
        """Run a rank's next actions, until it computes or has to wait."""
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
        times = self._times[action.stage]
        before_s, after_s = times.coding.around(action.kind)
        begin = now + before_s
        end = begin + times.of(action.kind)
        self._computed[rank].append(BusySpan(action, begin, end))
        self._at[rank] += 1
        self._at_time(end + after_s, lambda then: self._go_on(rank, then))

    def _needed(self, action: StageAction) -> StageAction | None:
        """Return the message that an action needs from another rank, if any."""
        kind, stage, microbatch = action
        before = stage + (-1 if kind == "F" else 1)
        if kind == "W" or not 0 <= before < self._stages.number:
            return None
        if self._stages.rank_of(before) == self._stages.rank_of(stage):
            return None
        return StageAction("RECV_F" if kind == "F" else "RECV_B", stage, microbatch)

    def _has_happened(self, rank: int, received: StageAction | None, what: str) -> bool:
        """Whether a message has left or arrived; if not, wake the rank once it has."""
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
                pair, times, share = self._of_message(received)
                self._messages.setdefault(received, _Message(pair, times, share))
                self._queues.add(rank, action, received, pair, follows=follows)
            follows = is_message

    def _of_message(self, received: StageAction) -> tuple[Pair, LinkTimes, float]:
        """Return the ends of a message, its times and its share of one without compression."""
        key = received.kind, received.stage
        if key not in self._alike:
            before = received.stage + (-1 if received.kind == "RECV_F" else 1)
            pair = (self._stages.rank_of(before), self._stages.rank_of(received.stage))
            share, times = self._share_of(received), self._link(*pair)
            self._alike[key] = pair, times._replace(occupied=share * times.occupied), share
        return self._alike[key]

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
        """Notify the sender that its receiver is ready."""

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
            if self._wires.add(message.pair, (received, True), now, message.share):
                self._buffer(received, now)
            self._look_at_wires()
            return
        message.begin_s = begin = max(now, self._free_s[message.pair])
        self._free_s[message.pair] = end = begin + message.times.occupied
        self._buffer(received, begin)
        self._at_time(end, lambda then: self._send(received, then))

    def _buffer(self, received: StageAction, begin: float) -> None:
        """Release a message's sender once the socket buffer holds the rest."""
        _, occupied, buffered = self._messages[received].times
        if buffered > 0:
            held = begin + max(0.0, occupied - buffered)
            self._at_time(held, lambda then: self._leave(received, then))

    def _look_at_wires(self) -> None:
        """Schedule the next end of a message, as earlier schedules no longer hold."""
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
        """Record that a message has left its sender, and schedule its arrival."""
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


# Spans of a predicted step, as they are recorded of a real one. Pure.


def predicted_spans(
    walked: Simulated,
    links: Mapping[Pair, LinkSpeed],
    *,
    passes: int = 1,
    microbatches: int = 0,
    update_s: float = 0.0,
) -> StepSpans:
    """Return the spans of a simulated step.

    Args:
        links: between nodes: messages within a node take no time and are left out.
        passes: over the schedule, one after another.
        microbatches: of each pass, whose numbers go on in the next one.
        update_s: seconds of the optimizer, after the last pass.
    """
    ranks = range(len(walked.computing))
    computed = passes * walked.seconds
    end = computed + update_s
    found: list[tuple[StepSpan, ...]] = []
    for rank in ranks:
        once = sorted([*_computing(walked, rank), *_messages(walked, links, rank)], key=_begin)
        spans = [
            msgspec.structs.replace(
                span,
                begin_s=span.begin_s + number * walked.seconds,
                end_s=span.end_s + number * walked.seconds,
                microbatch=(span.microbatch or 0) + number * microbatches,
            )
            for number in range(passes)
            for span in once
        ]
        spans += list(_waits(spans, computed))
        if update_s > 0:
            spans.append(StepSpan(kind="update", begin_s=computed, end_s=end))
        found.append(tuple(sorted(spans, key=_begin)))
    return StepSpans(seconds=end, ranks=tuple(found))


def _begin(span: StepSpan) -> float:
    return span.begin_s


def _computing(walked: Simulated, rank: int) -> Iterator[StepSpan]:
    for action, begin, end in walked.computing[rank]:
        yield StepSpan(
            kind=action.kind,  # type: ignore[arg-type]  # it computes
            begin_s=begin,
            end_s=end,
            stage=action.stage,
            microbatch=action.microbatch,
        )


def _messages(walked: Simulated, links: Mapping[Pair, LinkSpeed], rank: int) -> Iterator[StepSpan]:
    """Yield the spans in which a rank sends, and those in which it receives, a latency later."""
    for (sender, receiver), spans in walked.messages.items():
        link = links.get((sender, receiver))
        if link is None or rank not in (sender, receiver):
            continue
        is_sender = rank == sender
        late = 0.0 if is_sender else link.latency_s
        for action, begin, end in spans:
            yield StepSpan(
                kind="send" if is_sender else "receive",
                begin_s=begin + late,
                end_s=end + late,
                stage=action.stage,
                microbatch=action.microbatch,
                peer=Rank(receiver if is_sender else sender),
            )


def _waits(spans: list[StepSpan], end: float) -> Iterator[StepSpan]:
    """Yield the gaps in which a rank does not compute."""
    last = 0.0
    for span in spans:
        if span.kind in ("send", "receive"):
            continue
        if span.begin_s > last:
            yield StepSpan(kind="wait", begin_s=last, end_s=span.begin_s)
        last = span.end_s
    if end > last:
        yield StepSpan(kind="wait", begin_s=last, end_s=end)
