"""Tied embedding: keeps its two copies equal, on the first and on the last stage."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.distributed as dist

from jupyter_mntrain.recipe.layout import Layout
from jupyter_mntrain.train.model.decoder import HEAD
from jupyter_mntrain.train.pipeline.stopwatch import StageMeter
from jupyter_mntrain.train.world import World


class TiedEmbedding:
    """The copies of a tied embedding, of which this rank may hold one, or both, as in a V.

    Args:
        name: of the embedding; the other copy is the output projection.
        layout: whose first and last stage they are on.
        world: of the pipeline.
        meter: counts what is exchanged.
    """

    def __init__(self, name: str, layout: Layout, world: World, meter: StageMeter) -> None:
        own = layout.stages_of(world.rank)
        self._has_first, self._has_last = 0 in own, layout.last_stage in own
        self._peer = layout.tied_peer(world.rank)
        self._name = name
        self._world = world
        self._meter = meter

    def add_up(self, gradients: Mapping[str, torch.Tensor]) -> None:
        """Give both copies the sum of both, in place. Collective.

        Args:
            gradients: by name, of at least the copies that this rank holds.
        """
        self._combine(gradients, 1)

    def even_out(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Give both copies the mean of both, in place: where they are equal already, themselves.

        Collective. Sums over replicas may be rounded otherwise in each copy, because ranks send
        other things beside it.

        Args:
            weights: likewise; on any device.
        """
        self._combine(weights, 2)

    def _combine(self, tensors: Mapping[str, torch.Tensor], divisor: int) -> None:
        if self._has_first and self._has_last:
            if HEAD in tensors:  # one stage alone has one copy
                first, last = tensors[self._name], tensors[HEAD]
                _add(first, last, divisor)
                last.copy_(first)
        elif self._peer is not None:
            mine = tensors[self._name if self._has_first else HEAD]
            here = mine.to(self._world.device)
            # a + b equals b + a bitwise, so the copies stay equal.
            _add(here, self._of_peer(here, self._peer), divisor)
            mine.copy_(here)  # on another device, else it is itself

    def _of_peer(self, mine: torch.Tensor, peer: int) -> torch.Tensor:
        """Exchange the copies; return the peer's."""
        theirs = torch.empty_like(mine)
        peer = self._world.in_job(peer)
        exchange = [
            dist.P2POp(dist.isend, mine, peer, self._world.group),
            dist.P2POp(dist.irecv, theirs, peer, self._world.group),
        ]
        for work in dist.batch_isend_irecv(exchange):
            work.wait()
        self._meter.exchanged(peer, mine.nbytes)
        return theirs


def _add(one: torch.Tensor, other: torch.Tensor, divisor: int) -> None:
    one += other
    if divisor > 1:
        one /= divisor
