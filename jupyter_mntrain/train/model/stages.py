"""Stages: builds the stages of one rank, with only their own weights in memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule
from torch.distributed.pipelining import PipelineStage

from jupyter_mntrain.families import Family, normal
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.devices import attention_for
from jupyter_mntrain.recipe.layout import Layout
from jupyter_mntrain.recipe.schedules import KINDS
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.telemetry.progress import ProgressWriter, Tally, unwatched
from jupyter_mntrain.train.model.activations import keep_less
from jupyter_mntrain.train.model.adapters import Weights, add_adapters, quantized_weights
from jupyter_mntrain.train.model.attention import KERNELS, OURS, Attention, windows_of
from jupyter_mntrain.train.model.decoder import (
    StageModule,
    materialize,
    meta_stage,
    model_directory,
    model_shape,
)
from jupyter_mntrain.train.model.losses import choose_loss
from jupyter_mntrain.train.model.rotations import rotate_by_document
from jupyter_mntrain.train.model.weight_gradients import WeightGradients
from jupyter_mntrain.train.model.weights import (
    load_weights,
    refuse_missing_weights,
    seeded_weights,
)
from jupyter_mntrain.train.own_tools import own_seat
from jupyter_mntrain.train.pipeline.directions import ReceiveStream, directed
from jupyter_mntrain.train.pipeline.transfers import AS_COMPUTED, End, Ends
from jupyter_mntrain.train.world import Groups

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class Stage(PipelineStage):
    """torch's stage, which can send and receive in fewer bits, and over a group per direction.

    Args:
        count: of all stages.
        groups: of this rank.
        ends: what it exchanges in fewer bits.
        drops_weights: whether sharded weights are dropped after each pass: then gradients are
            scattered in each microbatch, too.
    """

    coding: Callable[[], AbstractContextManager[None]] = nullcontext
    """Around encoding and decoding; a meter sets its own."""

    def __init__(
        self,
        module: StageModule,
        index: int,
        count: int,
        groups: Groups,
        input_args: torch.Tensor,
        output_args: torch.Tensor,
        *,
        ends: Ends = AS_COMPUTED,
        drops_weights: bool = False,
    ) -> None:
        super().__init__(
            module,
            index,
            count,
            groups.pipeline.device,
            input_args=input_args,
            output_args=output_args,
            group=groups.pipeline.group,
            dw_builder=None if module.weight_gradients is None else module.weight_gradients.build,
        )
        self._backward = _stage_backward() if drops_weights else None
        self._directions = groups.directions
        self.ends = ends
        self.receiving: ReceiveStream | None = None
        """Set by a schedule that exchanges by direction: one that never batches a send with a
        receive."""

    def backward_maybe_with_nosync(
        self, backward_type: str, bwd_kwargs: dict[str, Any], last_backward: bool = False
    ) -> Any:
        """Run a backward pass, scattering gradients and dropping weights as configured.

        torch's keeps all gradients unsharded and all weights gathered until the last microbatch.
        """
        module = self.submod
        backward = self._backward if backward_type == "full" else None
        if backward is None or not isinstance(module, FSDPModule):
            return super().backward_maybe_with_nosync(backward_type, bwd_kwargs, last_backward)
        module.set_is_last_backward(True)
        module.set_reshard_after_backward(True)
        # Embedding and head stay: another microbatch's loss may use the head before it is gathered.
        module.set_reshard_after_backward(False, recurse=False)
        module.set_requires_gradient_sync(True)
        outputs, gradients = bwd_kwargs["stage_output"], bwd_kwargs["output_grads"]
        return backward(outputs, gradients, bwd_kwargs["input_values"]), None

    def clear_runtime_states(self) -> None:
        super().clear_runtime_states()
        if self.receiving is not None:
            self.receiving.begin_step()

    def get_fwd_recv_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        found = super().get_fwd_recv_ops(fwd_chunk_id)
        return self._directed(_received(found, self.ends.activations_in, fwd_chunk_id))

    def get_fwd_send_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        found = super().get_fwd_send_ops(fwd_chunk_id)
        return self._directed(self._sent(found, self.ends.activations_out, fwd_chunk_id))

    def get_bwd_recv_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        found = super().get_bwd_recv_ops(bwd_chunk_id)
        return self._directed(_received(found, self.ends.gradients_in, bwd_chunk_id))

    def get_bwd_send_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        found = super().get_bwd_send_ops(bwd_chunk_id)
        return self._directed(self._sent(found, self.ends.gradients_out, bwd_chunk_id))

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        self._unpack(self.ends.activations_in, fwd_chunk_id)
        return super().forward_one_chunk(fwd_chunk_id, *args, **kwargs)

    def backward_one_chunk(self, bwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        self._unpack(self.ends.gradients_in, bwd_chunk_id)
        return super().backward_one_chunk(bwd_chunk_id, *args, **kwargs)

    def _sent(
        self, operations: list[dist.P2POp], end: End | None, microbatch: int
    ) -> list[dist.P2POp]:
        if end is not None:
            with self.coding():
                end.send(operations, microbatch)
        return operations

    def _unpack(self, end: End | None, microbatch: int) -> None:
        if end is not None:
            with self.coding():
                end.unpack(microbatch)

    def _get_init_p2p_neighbors_ops(self) -> list[dist.P2POp]:
        """Fix two bugs of torch 2.9 that abort Gloo.

        Neighbors send an int64 where a float32 is received, and the rank at the tip of a V sends
        to itself.
        """
        operations: list[dist.P2POp] = super()._get_init_p2p_neighbors_ops()
        for one in operations:
            one.tensor = one.tensor.float()
        return [one for one in operations if one.peer != dist.get_rank()]

    def _directed(self, operations: list[dist.P2POp]) -> list[dist.P2POp]:
        by_direction = self.receiving is not None and self._directions
        return directed(operations, self._directions) if by_direction else operations


def _received(operations: list[dist.P2POp], end: End | None, microbatch: int) -> list[dist.P2POp]:
    if end is not None:
        end.receive(operations, microbatch)
    return operations


def _stage_backward() -> Callable[..., Any]:
    """Return torch's private function for the backward pass of a stage.

    Raises:
        RecipeError: this torch has none.
    """
    try:
        from torch.distributed.pipelining._backward import stage_backward
    except ImportError as error:
        cause = "data_parallel.reshard_after_forward = true: "
        cause += f"torch {torch.__version__} has no stage_backward"
        fix = "use the torch that this version was tested with, or set it to false"
        raise RecipeError(cause, fix=fix) from error
    return stage_backward


def build_modules(
    recipe: Recipe,
    config: Any,
    layout: Layout,
    rank: int,
    device: torch.device,
    progress: ProgressWriter = unwatched,
    *,
    weights: Weights | None = None,
    reads_weights: bool = True,
    added: Collection[int] = (),
) -> dict[int, StageModule]:
    """Build the stages of one rank, by index, initializing or reading only their own tensors.

    Args:
        weights: makes a stage's tensors, on ``device``, in place of the recipe's.
        reads_weights: read those of a model directory; else it is only seen that they are there.
        added: ids of tokens that a model directory has no rows for.

    Raises:
        RecipeError: the model directory lacks a stage's tensors.
    """
    stages = {
        index: meta_stage(
            config,
            layout.stages[index],
            first=index == 0,
            last=index == layout.last_stage,
            dtype=DTYPES[recipe.dtype],
            attention="eager" if recipe.model.attention == "eager" else OURS,
        )
        for index in layout.stages_of(rank)
    }
    size = sum(one.nbytes for stage in stages.values() for one in stage.weights().values())
    is_read = reads_weights and recipe.model.path is not None
    what = "loading the model" if is_read else "making the weights"
    tally = Tally(progress, what, size, "B")
    loss = choose_loss(recipe, config.vocab_size, device)
    for stage in stages.values():
        make = weights
        if make is None and is_read:
            make = partial(_read_weights, recipe, stage.family, device, tally, added)
        elif make is None:
            make = partial(_new_weights, recipe, config, stage.family, device, tally, added)
        materialize(stage, _made(make, stage, recipe), device)
        if recipe.trains_adapters:
            add_adapters(stage, recipe)
        rotate_by_document(stage.causal)
        stage.attention = _attention(recipe, config, stage, device)
        stage.leaves_head = loss != "plain"
        keep_less(stage, recipe, device)
        if KINDS[recipe.schedule].defers and len(layout.stages) > 1:
            stage.weight_gradients = WeightGradients(stage)
    return stages


def make_stages(
    recipe: Recipe,
    config: Any,
    layout: Layout,
    groups: Groups,
    modules: Mapping[int, StageModule],
    shape: tuple[int, int],
    *,
    trains: bool = True,
    ends: Mapping[int, Ends] = {},
) -> list[Stage]:
    """Wrap a rank's modules in torch's stages.

    Shapes are given, because torch would otherwise run an extra forward and backward to infer them.

    Args:
        groups: the ranks of the pipeline, and the directions between them.
        shape: sequences per microbatch, and their length.
        trains: whether activations require gradients.
        ends: what each stage exchanges in fewer bits, by its index.
    """
    dtype = DTYPES[recipe.dtype]
    ids = torch.empty(shape, dtype=torch.int64, device="meta")
    hidden, logits = (
        torch.empty((*shape, width), dtype=dtype, device="meta", requires_grad=trains)
        for width in (config.hidden_size, config.vocab_size)
    )
    return [
        Stage(
            module,
            index,
            len(layout.stages),
            groups,
            input_args=ids if module.first else hidden,
            output_args=logits if module.last and not module.leaves_head else hidden,
            ends=ends.get(index, AS_COMPUTED),
            drops_weights=recipe.data_parallel.reshard_after_forward,
        )
        for index, module in modules.items()
    ]


def _attention(
    recipe: Recipe, config: Any, stage: StageModule, device: torch.device
) -> Attention | None:
    """Return what prepares a stage's attention; ``None`` if transformers does."""
    kind, shape = recipe.model.attention, model_shape(config)
    if kind == "eager":
        return None
    if (
        kind == "auto"
    ):  # of a recipe that no job has resolved, or a model that transformers completes
        kind = attention_for(
            recipe.dtype,
            [own_seat(device)],
            head_dim=shape.head_dim,
            dropout=normal(config.to_dict()).get("attention_dropout") or 0.0,
            is_capped=shape.layer.is_capped,
        )
    if shape.layer.is_capped and kind == "varlen":
        cause = 'model.attention = "varlen": this kernel cannot cap scores, as the model does'
        raise RecipeError(cause, fix='use "auto"')
    attentions = (one.get_submodule(stage.family.attention) for one in stage.present().values())
    return Attention(
        KERNELS[kind],
        windows_of(attentions, config),
        DTYPES[recipe.dtype],
        is_capped=shape.layer.is_capped,
    )


def base_weights(
    recipe: Recipe,
    config: Any,
    stage: StageModule,
    device: torch.device,
    names: Collection[str],
) -> dict[str, torch.Tensor]:
    """Return the weights that a stage's training starts from: the model directory's, or new ones.

    Args:
        names: only these weights.

    Raises:
        RecipeError: the model directory lacks some.
    """
    wanted = {name: one for name, one in stage.weights().items() if name in names}
    if recipe.model.path is None:
        return _new_weights(recipe, config, stage.family, device, None, (), wanted)
    return _read_weights(recipe, stage.family, device, None, (), wanted)


def _made(make: Weights, stage: StageModule, recipe: Recipe) -> dict[str, torch.Tensor]:
    """Make a stage's weights, quantized if the recipe says so."""
    if recipe.adapters.quantizes:
        return quantized_weights(make, stage, recipe.adapters)
    return make(stage.weights())


def _read_weights(
    recipe: Recipe,
    family: Family,
    device: torch.device,
    tally: Tally | None,
    added: Collection[int],
    parameters: Mapping[str, torch.Tensor],
) -> dict[str, torch.Tensor]:
    return load_weights(
        model_directory(recipe.model),
        parameters,
        family,
        device=device,
        added=added,
        tally=tally,
    )


def _new_weights(
    recipe: Recipe,
    config: Any,
    family: Family,
    device: torch.device,
    tally: Tally | None,
    added: Collection[int],
    parameters: Mapping[str, torch.Tensor],
) -> dict[str, torch.Tensor]:
    if recipe.model.path is not None:
        refuse_missing_weights(model_directory(recipe.model), parameters, family, added)
    return seeded_weights(
        parameters,
        seed=recipe.train.seed,
        deviation=config.initializer_range,
        tied_to=family.embedding_weight if config.tie_word_embeddings else None,
        device=device,
        tally=tally,
    )
