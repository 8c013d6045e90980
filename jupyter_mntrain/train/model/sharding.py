"""Sharding: splits weights, gradients and optimizer state among ranks with FSDP2."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.train.model.activations import Offload
from jupyter_mntrain.train.model.decoder import StageModule
from jupyter_mntrain.train.pipeline.stopwatch import StageMeter


class _OnHost:
    """The base class of what FSDP2 calls in place of torch's collectives.

    It allocates new memory for each exchange. FSDP2's own base class is private and not needed.
    """

    def allocate(
        self, size: Sequence[int | torch.SymInt], *, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)


class RingGather(_OnHost):
    """Passes weights around the ring; each receive is posted before its send.

    Gloo tells a sender that it may send by a message on the same connection. Posted after a send,
    that message waits behind what is sent, and a link carries one direction at a time: between two
    hosts at 200 Mbit/s, Gloo's own all-gather of 20 MB took 1.59 times bytes / rate, this 1.05
    times (torch 2.13).
    """

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        async_op: bool = False,  # noqa: ARG002 - torch gives it
    ) -> None:
        place, count = dist.get_rank(group), dist.get_world_size(group)
        parts = output_tensor.view(count, -1)
        if parts[place].data_ptr() != input_tensor.data_ptr():
            parts[place].copy_(input_tensor)
        before, after = (place - 1) % count, (place + 1) % count
        for number in range(count - 1):
            _exchange(
                [(parts[(place - number - 1) % count], before)],
                [(parts[(place - number) % count], after)],
                group,
            )


class DirectScatter(_OnHost):
    """Sends each rank its rows of the gradients; all receives are posted before the first send.

    See :class:`RingGather`. Gloo's own reduce-scatter is an all-reduce, which sends twice as much,
    and its all-to-all posts receives last: 2.17 and 2.09 times bytes / rate, this 1.17 times.

    Args:
        meter: is told, as a rank that scatters does not compute.
    """

    def __init__(self, meter: StageMeter) -> None:
        self._meter = meter

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,  # noqa: ARG002 - torch gives it
    ) -> None:
        place, count = dist.get_rank(group), dist.get_world_size(group)
        sent = input_tensor.view(count, -1)
        received = torch.empty_like(sent)
        received[place].copy_(sent[place])
        after = [(place + number) % count for number in range(1, count)]
        self._meter.begin_exchange()
        _exchange(
            [(received[other], other) for other in reversed(after)],
            [(sent[other], other) for other in after],
            group,
        )
        self._meter.end_exchange()
        is_mean = op == dist.ReduceOp.AVG
        whole = received.mean(0) if is_mean else received.sum(0)
        output_tensor.copy_(whole.view_as(output_tensor))


Part = tuple[torch.Tensor, int]
"""What is sent or received, and the place of the other rank in its group."""


def _exchange(received: Sequence[Part], sent: Sequence[Part], group: dist.ProcessGroup) -> None:
    """Post receives, then sends, and wait for all of them."""
    works = [
        call(one.view(torch.uint8), group=group, **{peer: other})  # bytes: of any dtype
        for call, peer, parts in (
            (dist.irecv, "group_src", received),
            (dist.isend, "group_dst", sent),
        )
        for one, other in parts
    ]
    for work in filter(None, works):
        work.wait()


class Shards:
    """This rank's shard (some rows) of each weight of its stages.

    Weights are gathered before a step's first microbatch and stay gathered until its last, when
    gradients are averaged and scattered. Where they are to be dropped after each pass, that is done
    layer by layer, in each microbatch: less memory is needed, and more is sent.

    Args:
        stages: with their weights, which are split in place.
        group: the ranks that hold the same stages.
        drops: whether each layer's weights are dropped after each pass.
        meter: is told when this rank waits for others instead of computing.

    Attributes:
        parts: this rank's shards of what is trained, by name, sharing memory with the stages.
        rows: begin and end of this rank's rows of them, by name.
        whole_rows: rows of all ranks, by name.
        count: of the values in all of this rank's shards.
    """

    def __init__(
        self,
        stages: Collection[StageModule],
        group: dist.ProcessGroup,
        device: torch.device,
        meter: StageMeter,
        *,
        drops: bool = False,
    ) -> None:
        self._stages = stages
        mesh = DeviceMesh.from_group(group, device.type, mesh_dim_names=("shards",))
        for stage in stages:
            for layer in stage.present().values():
                fully_shard(layer, mesh=mesh, reshard_after_forward=drops)
            # Embedding and head stay: losses use the head outside of the stage.
            fully_shard(stage, mesh=mesh, reshard_after_forward=False)
            for module in stage.modules():
                if not isinstance(module, FSDPModule):
                    continue
                _leave_gathers_out(module, meter)
                if isinstance(stage.keeping, Offload):
                    _leave_weights(
                        module, stage.keeping, drops=drops and not isinstance(module, StageModule)
                    )
                if device.type == "cpu":
                    _exchange_by_hand(module, meter)
        self._whole = {
            name: _as_split(one) for stage in stages for name, one in stage.weights().items()
        }
        self.count = sum(one.to_local().numel() for one in self._whole.values())
        trained = {name: one for name, one in self._whole.items() if one.requires_grad}
        self.parts = {name: nn.Parameter(one.to_local().detach()) for name, one in trained.items()}
        place, count = dist.get_rank(group), dist.get_world_size(group)
        self.whole_rows = {name: len(one) for name, one in trained.items()}
        self.rows = {
            name: rows_of_shard(rows, place, count) for name, rows in self.whole_rows.items()
        }

    def take_gradients(self) -> None:
        """Move the step's gradients from the stages to the parts."""
        for name, one in self._whole.items():
            if one.grad is not None:
                self.parts[name].grad = _as_split(one.grad).to_local()
                one.grad = None

    def forget_gathered(self) -> None:
        """Free the gathered weights; they are stale once the parts have changed."""
        for stage in self._stages:
            for module in stage.modules():
                if isinstance(module, FSDPModule):
                    module.reshard()
                if isinstance(stage.keeping, Offload):
                    stage.keeping.forget(module)

    def gather(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the whole weights, one by one. Collective: iterate to the end on every rank."""
        self.forget_gathered()
        for name, one in self._whole.items():
            with torch.no_grad():
                whole = one.full_tensor()
            yield name, whole


def _exchange_by_hand(module: FSDPModule, meter: StageMeter) -> None:
    """Replace Gloo's collectives by ours.

    Raises:
        RecipeError: this torch does not let them be replaced.
    """
    replaced: tuple[tuple[str, Any], ...] = (
        ("set_custom_all_gather", RingGather()),
        ("set_custom_reduce_scatter", DirectScatter(meter)),
    )
    for name, ours in replaced:
        replace = getattr(module, name, None)
        if replace is None:
            cause = f"data_parallel.shards: FSDP2 of torch {torch.__version__} has no {name}"
            raise RecipeError(
                cause, fix="use torch 2.9 or newer, or leave data_parallel.shards out"
            )
        replace(ours)


def _leave_weights(module: nn.Module, offload: Offload, *, drops: bool) -> None:
    """Keep gathered weights from being offloaded to the host with the activations."""

    def gathered(one: nn.Module, *_: Any) -> None:
        offload.leave(one)

    def dropped(one: nn.Module, *_: Any) -> None:
        offload.forget(one)

    module.register_forward_pre_hook(gathered)  # after FSDP2's
    if drops:
        module.register_forward_hook(dropped)


def _leave_gathers_out(module: nn.Module, meter: StageMeter) -> None:
    """Exclude the time in which FSDP2 waits for gathered weights.

    That is before a module's forward and backward pass. On a GPU, scatters run on their own stream
    while others compute.
    """

    def begin(*_: Any) -> None:
        meter.begin_exchange()

    def end(*_: Any) -> None:
        meter.end_exchange()

    module.register_forward_pre_hook(begin, prepend=True)
    module.register_forward_pre_hook(end)
    # FSDP2 gathers again in a hook of the gradient of what comes out.
    for callback, is_before in ((begin, True), (end, False)):

        def on_gradient(
            _module: nn.Module, _inputs: Any, output: Any, callback: Any = callback
        ) -> None:
            if isinstance(output, torch.Tensor) and output.requires_grad:
                output.register_hook(callback)  # type: ignore[no-untyped-call]

        module.register_forward_hook(on_gradient, prepend=is_before)


def rows_of_shard(rows: int, place: int, count: int) -> tuple[int, int]:
    """Return begin and end of the rows that FSDP2 gives to rank ``place`` of ``count``."""
    each = -(-rows // count)
    return min(rows, place * each), min(rows, (place + 1) * each)


def _as_split(tensor: torch.Tensor) -> DTensor:
    if not isinstance(tensor, DTensor):
        raise TypeError(f"torch's FSDP2 left a {type(tensor).__name__} unsplit")
    return tensor
