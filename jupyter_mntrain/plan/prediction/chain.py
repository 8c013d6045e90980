"""Chain: the length of a step with one stage per rank, without a walk over events. Pure.

Equal to :func:`~jupyter_mntrain.plan.prediction.simulator.simulate` over the orders of eager 1F1B
and eager zero bubble (a test holds them equal), and some twenty times as fast: on each link every
message follows the one before, so that each time follows from times that are known already.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import lru_cache

from jupyter_mntrain.plan.prediction.simulated import LinkTimes, StageTimes
from jupyter_mntrain.recipe.orders import Counts, zero_bubble_slots

LATER = sys.maxsize
"""Turn that is not known yet."""

ROUNDS = 6
"""Times its number of stages that a pipeline runs before its pace is taken for steady."""

FEWEST = 64
"""Microbatches from which on a pace is taken, even with few stages: what is ahead at the begin
hides a slower pace for some time.
"""


def chain_seconds(
    counts: Counts,
    times: Sequence[StageTimes],
    onward: Sequence[LinkTimes],
    back: Sequence[LinkTimes],
    microbatches: int,
) -> float:
    """Return the seconds of a step.

    Args:
        onward: from each stage to the next; one fewer than stages.
        back: from each stage's next one to it.
    """
    return _Chain(counts, times, onward, back, microbatches).run()


def steady_seconds(
    counts: Counts,
    times: Sequence[StageTimes],
    onward: Sequence[LinkTimes],
    back: Sequence[LinkTimes],
    microbatches: int,
) -> float:
    """Like :func:`chain_seconds`, but of a long step only the begin is walked.

    Once all stages are busy, each further microbatch takes the same time. It is taken from two
    lengths of which the shorter fills the pipeline :data:`ROUNDS` times.
    """
    filled = max(FEWEST, ROUNDS * len(times), 2 * max(counts.ahead))
    further = filled + max(4, len(times) // 2)
    if microbatches <= 2 * further:
        return chain_seconds(counts, times, onward, back, microbatches)
    shorter, longer = (
        chain_seconds(counts, times, onward, back, count) for count in (filled, further)
    )
    return longer + (longer - shorter) / (further - filled) * (microbatches - further)


@lru_cache(maxsize=256)  # a search asks for the same ones with every split that it tries
def _slots(ahead: int, kept_back: int, microbatches: int) -> tuple[tuple[str, int], ...]:
    """What a stage computes: the kind, and the number of the microbatch."""
    slots = zero_bubble_slots(0, ahead, kept_back, microbatches)
    return tuple((action.kind, action.microbatch) for (action,) in slots)


class _Chain:
    """Walks every stage as far as its neighbors allow.

    The order in which ranks begin to receive is that of
    :func:`~jupyter_mntrain.recipe.orders.with_messages`, which takes one slot of each rank
    in turn: ``turns`` counts them. Gradients of weights take none, and go after all messages:
    theirs is the turn of the slot that follows, once that is known.
    """

    def __init__(
        self,
        counts: Counts,
        times: Sequence[StageTimes],
        onward: Sequence[LinkTimes],
        back: Sequence[LinkTimes],
        microbatches: int,
    ) -> None:
        self._stages = len(times)
        self._times = times
        self._links = {"F": [LinkTimes(), *onward], "B": [*back, LinkTimes()]}
        self._orders = [
            _slots(ahead, kept, microbatches)
            for ahead, kept in zip(counts.ahead, counts.kept_back, strict=True)
        ]
        # Of each stage: end and turn of every slot, and of what its neighbors wait for.
        self._ends: list[list[float]] = [[] for _ in times]
        self._turns: list[list[int]] = [[] for _ in times]
        self._done: dict[str, list[list[tuple[float, int]]]] = {
            kind: [[] for _ in times] for kind in "FB"
        }
        self._posted = {kind: [0] * len(times) for kind in "FB"}
        self._free = {kind: [0.0] * len(times) for kind in "FB"}

    def run(self) -> float:
        waiting = list(range(self._stages - 1, -1, -1))
        while waiting:
            stage = waiting.pop()
            self._advance(stage)
            for other in (stage - 1, stage + 1):
                if 0 <= other < self._stages and other not in waiting and self._can_go_on(other):
                    waiting.append(other)
        return max(ends[-1] for ends in self._ends)

    def _can_go_on(self, stage: int) -> bool:
        order, at = self._orders[stage], len(self._ends[stage])
        if at == len(order):
            return False
        kind, microbatch = order[at]
        if kind == "F":
            return stage == 0 or len(self._done["F"][stage - 1]) > microbatch
        if kind == "W":
            return True
        return stage == self._stages - 1 or len(self._done["B"][stage + 1]) > microbatch

    def _advance(self, stage: int) -> None:
        order, ends, turns = self._orders[stage], self._ends[stage], self._turns[stage]
        forward, backward, inputs, weights = self._times[stage]
        last = self._stages - 1
        now = ends[-1] if ends else 0.0
        turn = next((one for one in reversed(turns) if one != LATER), -1)
        activations = self._done["F"][stage - 1] if stage else None
        gradients = self._done["B"][stage + 1] if stage < last else None
        sent, returned = self._done["F"][stage], self._done["B"][stage]
        for kind, microbatch in order[len(ends) :]:
            if kind == "W":
                now += weights
                ends.append(now)
                turns.append(LATER)
                continue
            turn += 1
            if kind == "F":
                if activations is not None:
                    if len(activations) <= microbatch:
                        return
                    left, its_turn = activations[microbatch]
                    now = max(now, self._arrival("F", stage, left, its_turn))
                    turn = max(turn, its_turn)
                now += forward
                sent.append((now, turn))
            else:
                if gradients is not None:
                    if len(gradients) <= microbatch:
                        return
                    left, its_turn = gradients[microbatch]
                    now = max(now, self._arrival("B", stage, left, its_turn + 1))
                    turn = max(turn, its_turn + 1)
                now += inputs if kind == "I" else backward
                returned.append((now, turn))
            for place in range(len(turns) - 1, -1, -1):
                if turns[place] != LATER:
                    break
                turns[place] = turn
            ends.append(now)
            turns.append(turn)

    def _arrival(self, kind: str, stage: int, sent_s: float, before: int) -> float:
        """When a message arrives.

        Args:
            before: the turn before which its receiver begins to receive it.
        """
        turns, at = self._turns[stage], self._posted[kind][stage]
        while at < len(turns) and turns[at] < before:
            at += 1
        self._posted[kind][stage] = at
        posted_s = self._ends[stage][at - 1] if at else 0.0
        latency, occupied, _ = self._links[kind][stage]
        left = max(sent_s, posted_s + latency, self._free[kind][stage]) + occupied
        self._free[kind][stage] = left
        return left + latency
