"""Recorded steps: what the real runtime computes, sends, receives and waits for, on every rank.

With the process group of each message, and whether a receive was posted next to what is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import torch
import torch.distributed as dist
from torch.distributed.pipelining import schedules

from jupyter_mntrain.recipe.instructions import StageAction
from jupyter_mntrain.recipe.layout import Grid, lay_out
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.train.data.batches import Batch
from jupyter_mntrain.train.model.decoder import read_config
from jupyter_mntrain.train.model.stages import Stage, build_modules
from jupyter_mntrain.train.pipeline.directions import ReceiveStream
from jupyter_mntrain.train.pipeline.pipeline import Pipeline
from jupyter_mntrain.train.pipeline.stopwatch import StageMeter, Stopwatch
from jupyter_mntrain.train.world import World, form_groups, join_world
from tests.train.pipeline.recorded_cases import CASES, RANKS, VOCABULARY, Recorded, Step

_MESSAGES = {
    "get_fwd_send_ops": "SEND_F",
    "get_bwd_send_ops": "SEND_B",
    "get_fwd_recv_ops": "RECV_F",
    "get_bwd_recv_ops": "RECV_B",
}


class Recorder:
    """Notes what one rank does, while :meth:`noting`."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._made: list[tuple[dist.P2POp, StageAction]] = []
        """Operations that a stage has made."""
        self._batches = 0
        self._is_beside = False

    @contextmanager
    def noting(self) -> Iterator[None]:
        begin, posting = schedules._batch_p2p, ReceiveStream.posting

        @contextmanager
        def posting_beside(stream: ReceiveStream) -> Iterator[None]:
            with posting(stream):
                self._is_beside = True
                yield
                self._is_beside = False

        with (
            patch.object(schedules, "_batch_p2p", self._posted(begin)),
            patch.object(ReceiveStream, "posting", posting_beside),
            patch.object(Stage, "forward_one_chunk", self._noted(Stage.forward_one_chunk, "F")),
            patch.object(Stage, "backward_one_chunk", self._backward(Stage.backward_one_chunk)),
            patch.object(
                Stage,
                "backward_weight_one_chunk",
                self._noted(Stage.backward_weight_one_chunk, "W"),
            ),
        ):
            for name, kind in _MESSAGES.items():
                made = patch.object(Stage, name, self._makes(getattr(Stage, name), kind))
                made.start()
            try:
                yield
            finally:
                patch.stopall()

    def _note(self, kind: str, stage: Stage, microbatch: int) -> None:
        self.steps.append(Step(kind, stage.stage_index, microbatch))

    def _noted(self, function: Callable[..., Any], kind: str) -> Callable[..., Any]:
        @wraps(function)
        def noted(stage: Stage, microbatch: int, *arguments: Any, **named: Any) -> Any:
            self._note(kind, stage, microbatch)
            return function(stage, microbatch, *arguments, **named)

        return noted

    def _backward(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def noted(stage: Stage, microbatch: int, *arguments: Any, **named: Any) -> Any:
            self._note("B" if named.get("full_backward", True) else "I", stage, microbatch)
            return function(stage, microbatch, *arguments, **named)

        return noted

    def _makes(self, function: Callable[..., Any], kind: Any) -> Callable[..., Any]:
        @wraps(function)
        def noted(stage: Stage, microbatch: int) -> Any:
            made = function(stage, microbatch)
            self._made += ((one, StageAction(kind, stage.stage_index, microbatch)) for one in made)
            return made

        return noted

    def _posted(self, begin: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
        @wraps(begin)
        def noted(operations: Sequence[dist.P2POp], desc: str | None = None) -> list[Any]:
            self._batches += 1
            actions = [self._action_of(one) for one in operations]
            for one, action in zip(operations, actions, strict=True):
                is_send = one.op in (dist.isend, torch.distributed.isend)
                assert is_send == action.kind.startswith("SEND")
                group = one.group or dist.group.WORLD
                assert group is not None
                self.steps.append(
                    Step(
                        *action,
                        group=group.group_name,
                        group_ranks=tuple(dist.get_process_group_ranks(group)),
                        peer=one.peer,
                        batch=self._batches,
                        is_beside=self._is_beside,
                    )
                )
            sent = [one for one in actions if one.kind.startswith("SEND")]
            return [_Awaited(work, sent, self.steps) for work in begin(operations, desc=desc)]

        return noted

    def _action_of(self, operation: dist.P2POp) -> StageAction:
        return next(action for one, action in self._made if one is operation)


class _Awaited:
    """torch's work, which notes that what it sent is waited for."""

    def __init__(self, work: Any, sent: list[StageAction], steps: list[Step]) -> None:
        self._work, self._sent, self._steps = work, sent, steps

    def wait(self) -> Any:
        while self._sent:
            _, stage, microbatch = sent = self._sent.pop(0)
            self._steps.append(Step(f"AWAIT_{sent.kind[-1]}", stage, microbatch))
        return self._work.wait()


def record_all(words: list[str]) -> None:
    """Run by each of :data:`RANKS` ranks: writes all cases next to the recipe."""
    torch.set_num_threads(1)
    with join_world("cpu", 300.0) as world:
        recorded = {name: _record(recipe, world) for name, recipe in CASES.items()}
    path = Path(words[0]).parent / f"rank-{world.rank}.json"
    path.write_bytes(msgspec.json.encode(recorded))


def _record(recipe: Recipe, world: World) -> Recorded:
    config = read_config(recipe.model, VOCABULARY)
    grid, layout = Grid(RANKS), lay_out(recipe, RANKS, config.num_hidden_layers)
    modules = build_modules(recipe, config, layout, world.rank, world.device)
    groups = form_groups(world, recipe, grid, layout)
    connected = [group.group_name for group in groups.directions.values()]
    meter = StageMeter(Stopwatch(world.device))
    pipeline = Pipeline(recipe, config, layout, groups, modules, meter)
    shape = (recipe.train.batch_size, recipe.data.sequence_length)
    ids = torch.zeros(shape, dtype=torch.int64)
    batch = Batch(ids, ids, torch.arange(shape[1]).expand(shape), ids.numel())
    recorder = Recorder()
    with recorder.noting():
        pipeline.forward_backward(batch)
    return Recorded(tuple(recorder.steps), tuple(connected))
