"""Orders: equal to what torch's own runtime does, action by action."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.distributed.pipelining import schedules

from jupyter_mntrain.recipe.instructions import (
    Actions,
    Counts,
    Messaging,
    StageAction,
    make_order,
    stages_of,
)
from jupyter_mntrain.recipe.schedules import KINDS, ScheduleName, fewest_microbatches
from jupyter_mntrain.train.pipeline.runtime import make_eager

private: Any = schedules

CLASSES = {
    "gpipe": "ScheduleGPipe",
    "1f1b": "Schedule1F1B",
    "interleaved-1f1b": "ScheduleInterleaved1F1B",
    "looped-bfs": "ScheduleLoopedBFS",
    "interleaved-zero-bubble": "ScheduleInterleavedZeroBubble",
    "zbv": "ScheduleZBVZeroBubble",
    "dualpipev": "ScheduleDualPipeV",
}
SINGLE = ("gpipe", "1f1b")


class Stage:
    """What torch's schedules read of a stage; its messages are their names."""

    def __init__(self, index: int, count: int, ranks: int) -> None:
        self.stage_index, self.num_stages, self.group_size = index, count, ranks
        self.group_rank = index % ranks
        self.is_first, self.is_last = index == 0, index == count - 1
        self.has_backward = True
        self.submod = torch.nn.Identity()
        self.device = torch.device("cpu")
        self.stage_index_to_group_rank: Any = {one: one % ranks for one in range(count)}
        self.done: list[StageAction] = []

    def get_fwd_recv_ops(self, microbatch: int) -> list[StageAction]:
        return [] if self.is_first else [StageAction("RECV_F", self.stage_index, microbatch)]

    def get_fwd_send_ops(self, microbatch: int) -> list[StageAction]:
        return [] if self.is_last else [StageAction("SEND_F", self.stage_index, microbatch)]

    def get_bwd_recv_ops(self, microbatch: int) -> list[StageAction]:
        return [] if self.is_last else [StageAction("RECV_B", self.stage_index, microbatch)]

    def get_bwd_send_ops(self, microbatch: int) -> list[StageAction]:
        return [] if self.is_first else [StageAction("SEND_B", self.stage_index, microbatch)]

    def forward_one_chunk(self, microbatch: int, *_: object, **__: object) -> None:
        self.done.append(StageAction("F", self.stage_index, microbatch))

    def backward_one_chunk(self, microbatch: int, **_: object) -> None:
        self.done.append(StageAction("B", self.stage_index, microbatch))

    def perform_reduce_grad(self, _: int) -> None: ...


@contextmanager
def recorded(stage: Stage, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Record the messages that a schedule of torch starts and waits for."""

    def start(ops: list[StageAction], **_: object) -> list[StageAction]:
        stage.done += ops
        return ops

    def wait(works: list[StageAction]) -> None:
        for one in works:
            if one.kind.startswith("SEND"):
                what: Messaging = "AWAIT_F" if one.kind == "SEND_F" else "AWAIT_B"
                stage.done.append(one._replace(kind=what))

    with patch.context() as inside:
        inside.setattr(schedules, "_batch_p2p", start)
        inside.setattr(schedules, "_sorted_batch_p2p", lambda ops, **_: {0: start(ops)})
        inside.setattr(schedules, "_wait_batch_p2p", wait)
        for nothing in ("_initialize_stage", "_update_losses"):
            inside.setattr(
                schedules.PipelineScheduleSingle, nothing, lambda *_: None, raising=False
            )
        inside.setattr(schedules._PipelineSchedule, "_update_losses", lambda *_: None)
        yield


def of_single(name: str, ranks: int, microbatches: int, patch: pytest.MonkeyPatch) -> list[Actions]:
    """What a schedule of one stage per rank does, as it runs."""
    done = []
    for rank in range(ranks):
        stage = Stage(rank, ranks, ranks)
        with recorded(stage, patch):
            schedule = getattr(schedules, CLASSES[name])(stage, microbatches)
            schedule._step_microbatches()
        done.append(tuple(stage.done))
    return done


def of_runtime(name: str, ranks: int, per_rank: int, microbatches: int) -> list[Actions]:
    """What torch's runtime would do, from the actions that it has prepared."""
    placed = stages_of(name, ranks, per_rank)  # type: ignore[arg-type]
    own = [
        Stage(index, placed.number, ranks)
        for index in range(placed.number)
        if placed.rank_of(index) == 0
    ]
    schedule = getattr(schedules, CLASSES[name])(own, microbatches, loss_fn=lambda *_: None)
    return [plain(schedule.pipeline_order_with_comms[rank]) for rank in range(ranks)]


def of_eager(ahead: tuple[int, ...], deferred: tuple[int, ...], microbatches: int) -> list[Actions]:
    """What the trainer hands to torch's runtime."""
    stage: Any = Stage(0, len(ahead), len(ahead))
    schedule = make_eager(stage, Counts(ahead, deferred), microbatches, lambda *_: None)
    return [plain(schedule.pipeline_order_with_comms[rank]) for rank in range(len(ahead))]


def plain(actions: list[Any]) -> Actions:
    """Convert torch's actions; those that only concern sharded weights are left out."""
    single = (one for action in actions for one in action.sub_actions or (action,))
    kinds = {"F", "B", "I", "W", "SEND_F", "RECV_F", "SEND_B", "RECV_B"}
    return tuple(
        StageAction(one.computation_type.value, one.stage_index, one.microbatch_index)
        for one in single
        if one.computation_type.value in kinds
    )


def without_receives(actions: Actions) -> list[StageAction]:
    return [one for one in actions if not one.kind.startswith("RECV")]


def receives(actions: Actions) -> dict[tuple[str, int], list[int]]:
    """Microbatches in the order in which they are received, by kind and stage.

    How early torch begins to receive depends on its version: it counts actions for sharded weights.
    """
    found: dict[tuple[str, int], list[int]] = {}
    for kind, stage, microbatch in actions:
        if kind.startswith("RECV"):
            found.setdefault((kind, stage), []).append(microbatch)
    return found


CASES = [
    (name, ranks, per_rank, microbatches)
    for name, kind in KINDS.items()
    if name not in ("eager-1f1b", "eager-zero-bubble", *SINGLE)
    for ranks in (2, 3, 4, 5)
    for per_rank in range(max(1, kind.fewest), (kind.most or 3) + 1)
    for microbatches in range(1, 14)
    if microbatches >= fewest_microbatches(name, ranks, ranks * per_rank)
    if not kind.is_in_rounds or microbatches % max(1, microbatches // ranks) == 0
]


@pytest.mark.parametrize("name", SINGLE)
@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_schedules_of_one_stage_per_rank(
    name: ScheduleName, ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for microbatches in range(ranks if name == "1f1b" else 1, 12):
        theirs = of_single(name, ranks, microbatches, monkeypatch)
        assert list(make_order(name, ranks, microbatches)) == theirs, microbatches


@pytest.mark.parametrize("name", [name for name in KINDS if name in CLASSES and name not in SINGLE])
def test_schedules_of_the_runtime(name: ScheduleName) -> None:
    cases = [case[1:] for case in CASES if case[0] == name]
    assert len(cases) > 10
    for ranks, per_rank, microbatches in cases:
        ours = make_order(name, ranks, microbatches, stages_per_rank=per_rank)
        theirs = of_runtime(name, ranks, per_rank, microbatches)
        for mine, other in zip(ours, theirs, strict=True):
            assert without_receives(mine) == without_receives(other), (ranks, per_rank)
            assert receives(mine) == receives(other), (ranks, per_rank, microbatches)


@pytest.mark.parametrize("ahead", [(2, 1), (5, 1), (4, 3, 2, 1), (9, 5, 2, 1), (1, 1, 1)])
def test_eager_1f1b(ahead: tuple[int, ...]) -> None:
    for microbatches in (1, 4, 11):
        ours = make_order("eager-1f1b", len(ahead), microbatches, ahead=ahead)
        nothing = (0,) * len(ahead)
        assert list(ours) == of_eager(ahead, nothing, microbatches)


@pytest.mark.parametrize(
    ("ahead", "deferred"),
    [((3, 1), (0, 1)), ((9, 5, 2, 1), (0, 3, 5, 20)), ((2, 2, 1), (1, 0, 4))],
)
def test_eager_zero_bubble(ahead: tuple[int, ...], deferred: tuple[int, ...]) -> None:
    for microbatches in (1, 4, 11):
        ours = make_order(
            "eager-zero-bubble", len(ahead), microbatches, ahead=ahead, deferred=deferred
        )
        assert list(ours) == of_eager(ahead, deferred, microbatches)
