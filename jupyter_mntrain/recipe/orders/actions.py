"""Actions: what a rank computes, sends, receives and waits for in a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

Computing = Literal["F", "B", "I", "W"]
"""A forward pass, a backward pass, and its two halves: the gradients of inputs and of weights."""

Messaging = Literal["SEND_F", "RECV_F", "SEND_B", "RECV_B", "AWAIT_F", "AWAIT_B"]
"""Start to send or receive an activation (F) or its gradient (B), and wait until one is sent."""


class StageAction(NamedTuple):
    """One action of a rank.

    Args:
        stage: that computes, sends, receives or waits.
    """

    kind: Computing | Messaging
    stage: int
    microbatch: int

    @property
    def computes(self) -> bool:
        return len(self.kind) == 1


Slot = tuple[StageAction, ...]
"""What is computed between two messages: one action, or a forward and a backward pass."""

Slots = tuple[Slot, ...]
"""What one rank computes in a step, in order."""

Actions = tuple[StageAction, ...]
"""What one rank does in a step, in order, with its messages."""


class Stages(NamedTuple):
    """Stages of a pipeline, and their ranks: s mod R, or in a V down and back up.

    Args:
        ranks: of the pipeline, R.
        per_rank: stages on each.
    """

    ranks: int
    per_rank: int = 1
    is_v: bool = False

    @property
    def number(self) -> int:
        return self.ranks * self.per_rank

    def rank_of(self, stage: int) -> int:
        return rank_of_stage(stage, self.ranks, is_v=self.is_v)

    def sends(self, action: StageAction) -> StageAction | None:
        """Return the stage and rank's message that follows from an action, if one does."""
        after = action.stage + (1 if action.kind == "F" else -1)
        if action.kind == "W" or not 0 <= after < self.number:
            return None
        if self.rank_of(after) == self.rank_of(action.stage):
            return None
        return StageAction(
            "SEND_F" if action.kind == "F" else "SEND_B", action.stage, action.microbatch
        )

    def received(self, sent: StageAction) -> StageAction:
        """Return the other end of a message."""
        is_forward = sent.kind == "SEND_F"
        after = sent.stage + (1 if is_forward else -1)
        return StageAction("RECV_F" if is_forward else "RECV_B", after, sent.microbatch)


def rank_of_stage(stage: int, ranks: int, *, is_v: bool = False) -> int:
    """Return the rank that holds a stage: ``s mod R``, or in a V down and back up."""
    turn, place = divmod(stage, ranks)
    return ranks - 1 - place if is_v and turn % 2 else place


def with_messages(stages: Stages, computing: Sequence[Slots]) -> tuple[Actions, ...]:
    """Add the messages of torch's pipeline runtime to what each rank computes.

    A result is sent as soon as it is there, and its receiver begins to receive it at the same place
    of one order of all ranks, so that no two of them wait for each other.

    Raises:
        ValueError: a rank would wait forever.
    """
    done: list[list[StageAction]] = [[] for _ in computing]
    known: list[set[StageAction]] = [set() for _ in computing]
    at = [0] * len(computing)
    while any(place < len(slots) for place, slots in zip(at, computing, strict=True)):
        before = sum(at)
        for rank, slots in enumerate(computing):
            if at[rank] == len(slots):
                continue
            slot = slots[at[rank]]
            if all(_is_ready(stages, action, known[rank]) for action in slot):
                at[rank] += 1
                _do(stages, slot, rank, done, known)
        if sum(at) == before:
            raise ValueError("every rank waits for another one")
    return tuple(map(tuple, done))


def _do(
    stages: Stages,
    slot: Slot,
    rank: int,
    done: Sequence[list[StageAction]],
    known: Sequence[set[StageAction]],
) -> None:
    done[rank] += slot
    for action in slot:
        known[rank].add(action)
        sent = stages.sends(action)
        if sent is not None:
            received = stages.received(sent)
            for place, one in ((rank, sent), (stages.rank_of(received.stage), received)):
                done[place].append(one)
                known[place].add(one)


def _is_ready(stages: Stages, action: StageAction, known: set[StageAction]) -> bool:
    kind, stage, microbatch = action
    if kind == "F" and stage > 0:
        given = {StageAction("RECV_F", stage, microbatch), StageAction("F", stage - 1, microbatch)}
    elif kind in "BI" and stage < stages.number - 1:
        after = [StageAction(one, stage + 1, microbatch) for one in ("B", "I")]
        given = {StageAction("RECV_B", stage, microbatch), *after}
    else:
        return True
    return not given.isdisjoint(known)
