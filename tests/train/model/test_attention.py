"""Attention: packed documents are as if alone, with every kernel, and no tensor is read back."""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
from transformers import AutoModelForCausalLM

from jupyter_mntrain.families.presets import FAMILIES
from jupyter_mntrain.train.model import attention as module_under_test
from jupyter_mntrain.train.model.attention import (
    Kernel,
)
from tests.searches import pairs
from tests.train.data.test_packing import packed
from tests.train.model.documents import (
    LENGTH,
    LENGTHS,
    Reads,
    config_of,
    gradients_alone,
    logits,
    packaged,
    recipe_of,
    refuse_other_gradients,
    stages_of,
    summed_loss,
    torchs,
)

KERNELS = ("mask", "varlen", "flash-attn")


@pytest.fixture(params=KERNELS)
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    """Each kernel that can be had, or stood for, on a CPU."""
    monkeypatch.setattr(module_under_test, "torchs_kernel", torchs)
    monkeypatch.setattr(module_under_test, "packaged_kernel", packaged)
    chosen: Kernel = request.param
    return chosen


def has_window(family: str, slides: bool, *_: object) -> bool:
    return family != "llama" or not slides


@pytest.mark.parametrize(
    ("family", "slides", "sequences", "kernel"),
    pairs(FAMILIES, [False, True], [1, 3], KERNELS, there_is=has_window),
    indirect=["kernel"],
)
def test_gradients_of_packed_documents_are_those_of_each_alone(
    family: str, slides: bool, sequences: int, kernel: Kernel
) -> None:
    recipe = recipe_of(family)
    config = config_of(recipe, slides=slides)
    stages = stages_of(recipe, config, kernel)
    batch = packed(*LENGTHS, length=LENGTH)
    assert batch.ends is not None
    assert batch.ends.shape[1] > 1
    for part in batch.parts(sequences):
        summed_loss(logits(stages, part), part.labels).backward()
    refuse_other_gradients(stages, gradients_alone(config, stages, batch))


@pytest.mark.parametrize("checkpointing", ["full", "selective"])
def test_they_are_recomputed_alike_on_two_stages(checkpointing: str, kernel: Kernel) -> None:
    recipe = recipe_of("qwen3", f"memory.checkpointing={checkpointing}")
    config = config_of(recipe, slides=True)
    stages = stages_of(recipe, config, kernel, ranks=2)
    assert len(stages) == 2
    batch = packed(*LENGTHS, length=LENGTH)
    for part in batch.parts(2):
        summed_loss(logits(stages, part), part.labels).backward()
    refuse_other_gradients(stages, gradients_alone(config, stages, batch))


@pytest.mark.parametrize("slides", [False, True])
def test_padded_documents_and_empty_sequences_disturb_nothing(slides: bool, kernel: Kernel) -> None:
    recipe = recipe_of("mistral", packing="none")
    config = config_of(recipe, slides=slides)
    stages = stages_of(recipe, config, kernel)
    alone = packed(*LENGTHS, length=LENGTH, packing="none")
    assert alone.ends is None
    together = packed(*LENGTHS, length=LENGTH)
    assert together.ends is not None
    for batch in (alone, together):
        filled = batch.filled(len(batch) + 2)
        summed_loss(logits(stages, filled), filled.labels).backward()
        refuse_other_gradients(stages, gradients_alone(config, stages, batch))
        for stage in stages:
            stage.zero_grad()


@pytest.mark.parametrize(
    ("family", "packing", "sequences"), pairs(FAMILIES, ["best-fit", "none", "wrapped"], [1, 2])
)
def test_no_tensor_is_read_back(family: str, packing: str, sequences: int) -> None:
    recipe = recipe_of(family, packing=packing)
    stages = stages_of(recipe, config_of(recipe, slides=family == "qwen3"))
    part = next(packed(*LENGTHS, length=LENGTH, packing=packing).parts(sequences))
    with Reads() as reads:
        summed_loss(logits(stages, part), part.labels).backward()
    assert reads.seen == []
    assert "_scaled_dot_product_flash_attention_for_cpu" in reads.all
    model = AutoModelForCausalLM.from_config(config_of(recipe), attn_implementation="sdpa")
    with Reads() as theirs:
        model(input_ids=part.inputs, position_ids=part.positions, use_cache=False)
    assert theirs.seen, "transformers reads positions, or this test sees nothing"
