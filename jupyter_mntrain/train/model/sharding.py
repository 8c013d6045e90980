"""Sharding: splits weights, gradients and optimizer state over ranks with FSDP2."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.fsdp._fully_shard._fsdp_api import ReduceScatter
from torch.distributed.tensor import DTensor

from jupyter_mntrain.train.model.decoder import StageModule


class DirectScatter(ReduceScatter):
    """Sends each rank its rows of the gradients. Gloo's own reduce-scatter is an all-reduce, which
    sends twice as much (measured with torch 2.13).
    """

    def allocate(
        self, size: Sequence[int | torch.SymInt], *, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,  # noqa: ARG002 - torch gives it
    ) -> None:
        received = torch.empty_like(input_tensor)
        bits = (received.view(torch.uint8), input_tensor.view(torch.uint8))  # of any dtype
        dist.all_to_all_single(*bits, group=group)
        parts = received.view(dist.get_world_size(group), -1)
        is_mean = op == dist.ReduceOp.AVG
        whole = parts.mean(0) if is_mean else parts.sum(0)
        output_tensor.copy_(whole.view_as(output_tensor))


class Shards:
    """This rank's shard (some rows) of each weight of its stages.

    Weights are gathered before a step's first microbatch and stay gathered until its last, when
    gradients are averaged and scattered. Where they are to be dropped after each pass, that is done
    layer by layer, in each microbatch: less memory is needed, and more is sent.

    Args:
        stages: with their weights, which are split in place.
        group: the ranks that hold the same stages.
        drops: whether each layer's weights are dropped after each pass.

    Attributes:
        parts: this rank's shards of what is trained, by name, sharing memory with the stages.
        rows: begin and end of this rank's rows of them, by name.
        count: of the values in all of this rank's shards.
    """

    def __init__(
        self,
        stages: Collection[StageModule],
        group: dist.ProcessGroup,
        device: torch.device,
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
            if device.type == "cpu":
                for module in stage.modules():
                    if isinstance(module, FSDPModule):
                        module.set_custom_reduce_scatter(DirectScatter())
        self._whole = {
            name: _as_split(one) for stage in stages for name, one in stage.weights().items()
        }
        self.count = sum(one.to_local().numel() for one in self._whole.values())
        trained = {name: one for name, one in self._whole.items() if one.requires_grad}
        self.parts = {name: nn.Parameter(one.to_local().detach()) for name, one in trained.items()}
        place, count = dist.get_rank(group), dist.get_world_size(group)
        self.rows = {name: rows_of_shard(len(one), place, count) for name, one in trained.items()}

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

    def gather(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the whole weights, one by one. Collective: iterate to the end on every rank."""
        self.forget_gathered()
        for name, one in self._whole.items():
            with torch.no_grad():
                whole = one.full_tensor()
            yield name, whole


def rows_of_shard(rows: int, place: int, count: int) -> tuple[int, int]:
    """Begin and end of the rows that FSDP2 gives to rank ``place`` of ``count``."""
    each = -(-rows // count)
    return min(rows, place * each), min(rows, (place + 1) * each)


def _as_split(tensor: torch.Tensor) -> DTensor:
    if not isinstance(tensor, DTensor):
        raise TypeError(f"torch's FSDP2 left a {type(tensor).__name__} unsplit")
    return tensor
