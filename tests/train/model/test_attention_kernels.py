"""Attention's kernels: which one a rank takes, what it is given, and that it compiles once."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounter
from torch._subclasses.fake_tensor import FakeTensorMode

from jupyter_mntrain.recipe.devices import Seat
from jupyter_mntrain.recipe.layout import lay_out
from jupyter_mntrain.train import own_tools as own_tools_module
from jupyter_mntrain.train.model import attention as module_under_test
from jupyter_mntrain.train.model import stages as stages_module
from jupyter_mntrain.train.model.attention import (
    KERNELS,
    Attention,
    Boundaries,
    Kernel,
    attend,
    torchs_kernel,
)
from jupyter_mntrain.train.model.stages import build_modules
from jupyter_mntrain.train.own_tools import own_seat
from tests.train.data.test_packing import packed
from tests.train.model.documents import (
    CPU,
    CUDA,
    HALF,
    LENGTH,
    LENGTHS,
    WINDOW,
    Reads,
    config_of,
    gradients_alone,
    logits,
    recipe_of,
    refuse_other_gradients,
    stages_of,
    summed_loss,
    torchs,
)


@pytest.mark.parametrize("kernel_without_reads", ["varlen", "flash-attn", "flex"])
@pytest.mark.parametrize("is_packed", [False, True])
def test_kernels_for_gpus_are_prepared_without_reading(
    kernel_without_reads: Kernel, is_packed: bool
) -> None:
    batch = packed(*LENGTHS, length=LENGTH)
    ends = batch.ends if is_packed else None
    attention = Attention(kernel_without_reads, frozenset({None, WINDOW}), HALF)
    with Reads() as reads:
        seen = attention.prepare(batch.positions, ends, batch.longest)
    assert reads.seen == []
    assert seen.keys() == {None, WINDOW}


# Of torch: on a CPU flex attention is not compiled here, and computes every score.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:flex_attention called without")
@pytest.mark.parametrize("is_packed", [False, True])
def test_flex_attention_sees_the_same(is_packed: bool) -> None:
    recipe = recipe_of("qwen3", packing="best-fit" if is_packed else "none")
    config = config_of(recipe, slides=True)
    batch = packed(*LENGTHS, length=LENGTH, packing=recipe.data.packing)
    with torch.no_grad(), torch.compiler.set_stance("force_eager"):
        usual, flex = (
            logits(stages_of(recipe, config, kernel), batch) for kernel in ("mask", "flex")
        )
    assert torch.allclose(flex, usual, atol=2e-6)


def test_one_document_per_sequence_takes_the_causal_kernel_and_no_mask() -> None:
    positions = torch.arange(LENGTH).expand(2, -1)
    for kernel in ("mask", "varlen", "flex"):
        attention = Attention(kernel, frozenset({None, LENGTH}), HALF)
        assert attention.prepare(positions, None, 0) == {None: None, LENGTH: None}


@pytest.mark.skipif(torchs_kernel is None, reason="this torch has no varlen_attn of use")
def test_on_a_gpu_documents_go_to_torchs_flash_kernel() -> None:
    with FakeTensorMode(), torch.no_grad():
        query = torch.empty(2, LENGTH, 4, 64, dtype=HALF, device=CUDA).transpose(1, 2)
        key = torch.empty(2, LENGTH, 2, 64, dtype=HALF, device=CUDA).transpose(1, 2)
        positions = torch.empty(2, LENGTH, dtype=torch.int64, device=CUDA)
        ends = torch.empty(2, 3, dtype=torch.int32, device=CUDA)
        attention = Attention("varlen", frozenset({None, WINDOW}), HALF)
        with Reads() as reads:
            seen = attention.prepare(positions, ends, 8)
            for window in (None, WINDOW):
                output, _ = attend(
                    *(nn.Identity(), query, key, key, None),
                    scaling=0.1,
                    seen=seen,
                    sliding_window=window,
                )
                assert output.shape == (2, LENGTH, 4, 64)
                assert output.device.type == "cuda"
        bounds = seen[None]
        assert isinstance(bounds, Boundaries)
        assert bounds.ends.shape == (2 * 3 + 1,)
        assert bounds.longest == 8
        assert "_varlen_attn" in reads.all
        assert reads.seen == []


@pytest.mark.skipif(torchs_kernel is None, reason="this torch has no varlen_attn of use")
def test_torchs_flash_kernel_takes_grouped_queries_backward() -> None:
    with FakeTensorMode():
        query = torch.empty(1, 4, LENGTH, 64, dtype=HALF, requires_grad=True)
        key = torch.empty(1, 2, LENGTH, 64, dtype=HALF, requires_grad=True)
        bounds = Boundaries(torch.empty(4, dtype=torch.int32), 8, packaged=False)
        with Reads() as reads:
            output, _ = attend(
                nn.Identity(), query, key, key, None, scaling=0.1, seen={None: bounds}
            )
            output.sum().backward()
        assert query.grad is not None
        assert key.grad is not None
        assert key.grad.shape == key.shape
        assert "_varlen_attn_backward" in reads.all


@pytest.mark.skipif(torchs_kernel is None, reason="this torch has no varlen_attn of use")
def test_selective_checkpointing_keeps_what_torchs_flash_kernel_computed() -> None:
    recipe = recipe_of("llama", "memory.checkpointing=selective", "model.layers=1")
    layer = stages_of(recipe, config_of(recipe), "varlen")[0].causal.model.layers[0]
    with FakeTensorMode(allow_non_fake_inputs=True):
        hidden = torch.empty(1, LENGTH, 64, requires_grad=True)
        rotations = (torch.empty(1, LENGTH, 16), torch.empty(1, LENGTH, 16))
        bounds = Boundaries(torch.empty(4, dtype=torch.int32), 8, packaged=False)
        with Reads() as reads:
            output = layer(hidden, position_embeddings=rotations, seen={None: bounds})
        assert "_varlen_attn" in reads.all
        with Reads() as again:
            output.sum().backward()
        assert "_varlen_attn" not in again.all
        assert "_varlen_attn_backward" in again.all


@pytest.mark.parametrize("kind", KERNELS)
def test_a_rank_obeys_what_was_chosen_for_all(kind: str) -> None:
    recipe = recipe_of("llama", f"model.attention={kind}", "model.dtype=bfloat16")
    (stage,) = build_modules(recipe, config_of(recipe), lay_out(recipe, 1, 2), 0, CPU).values()
    assert stage.attention is not None
    assert stage.attention.kernel == KERNELS[kind]


def test_a_rank_for_which_nobody_chose_takes_what_its_device_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recipe = recipe_of("llama", "model.dtype=bfloat16")
    seat = Seat(node="a", gpu="GPU 0", capability=(8, 0), has_varlen=True)
    for own, wanted in ((own_seat(CPU), "mask"), (seat, "varlen")):
        monkeypatch.setattr(stages_module, "own_seat", lambda _, own=own: own)
        (stage,) = build_modules(recipe, config_of(recipe), lay_out(recipe, 1, 2), 0, CPU).values()
        assert stage.attention is not None
        assert stage.attention.kernel == wanted


def test_a_seat_tells_only_kernels_that_can_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    properties = SimpleNamespace(total_memory=1)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "A100")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    monkeypatch.setattr("importlib.metadata.version", lambda _: "1")
    for has in (True, False):
        monkeypatch.setattr(own_tools_module, "has_flash_attn", lambda has=has: has)
        monkeypatch.setattr(module_under_test, "torchs_kernel", torchs if has else None)
        monkeypatch.setattr(torch.backends.cuda, "is_flash_attention_available", lambda: True)
        seat = own_seat(CUDA)
        assert seat.tools is not None
        assert ("flash-attn" in seat.tools.packages) is seat.has_varlen is has


PACKINGS = (LENGTHS, (9, 9, 9), (17, 3, 3, 3, 3), (5,) * 8, (2,) * 30)


# Of torch's compiler, about tensors that are no leaves.
@pytest.mark.filterwarnings("ignore:(?s).*grad attribute of a Tensor")
def test_a_compiled_layer_is_not_compiled_anew_for_each_packing() -> None:
    recipe = recipe_of()
    config = config_of(recipe)
    stages = stages_of(recipe, config)
    counter = CompileCounter()
    for layer in stages[0].causal.model.layers:
        layer.compile(backend=counter)
    batch = packed(*LENGTHS, length=LENGTH)
    counted: list[int] = []
    for part in batch.parts(1):
        summed_loss(logits(stages, part), part.labels).backward()
        counted.append(counter.frame_count)
    for lengths in PACKINGS:
        for part in packed(*lengths, length=LENGTH).parts(1):
            logits(stages, part)
            counted.append(counter.frame_count)
    assert set(counted) == {1}
    refuse_other_gradients(stages, gradients_alone(config, stages, batch))


@pytest.mark.skipif(torchs_kernel is None, reason="this torch has no varlen_attn of use")
def test_nor_with_torchs_flash_kernel() -> None:
    recipe = recipe_of("llama", "model.layers=1")
    stages = stages_of(recipe, config_of(recipe), "varlen")
    graphs: list[set[str]] = []

    def backend(graph: torch.fx.GraphModule, _: Any) -> Any:
        # The kernel cannot run here; what it would compute is not looked at.
        graphs.append({str(node.target) for node in graph.graph.nodes})
        return lambda *_: (torch.zeros(1, LENGTH, 64),)

    stages[0].causal.model.layers[0].compile(backend=backend)
    with torch.no_grad():
        for lengths in PACKINGS:
            for part in packed(*lengths, length=LENGTH).parts(1):
                logits(stages, part)
    assert all(any("_varlen_attn" in one for one in graph) for graph in graphs), "a graph break"
    # Once more when the number of documents differs for the first time, and likewise the longest.
    assert 1 <= len(graphs) <= 3
