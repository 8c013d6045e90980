"""Memory options: they save memory, and do not change what is learned."""

from __future__ import annotations

import re
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode

from jupyter_mntrain.model.records.node import Tools
from jupyter_mntrain.recipe.devices import Seat
from jupyter_mntrain.recipe.layout import lay_out
from jupyter_mntrain.recipe.parse import parse_recipe
from jupyter_mntrain.train.model import losses
from jupyter_mntrain.train.model.decoder import read_config
from jupyter_mntrain.train.model.losses import (
    choose_loss,
    from_logits,
    make_loss,
)
from jupyter_mntrain.train.model.stages import build_modules
from tests.train.ranks import run_ranks
from tests.train.test_command import RECIPE, STEPS, read, write_text
from tests.train.test_command import losses as told_losses
from tests.train.test_loop import result

CPU = torch.device("cpu")
CUDA = torch.device("cuda")
TOKENS, HIDDEN, VOCABULARY = 64, 8, 500
FREE = "optimizer.clip_norm=0"


@pytest.fixture
def text(tmp_path: Path) -> Path:
    return write_text(tmp_path / "text")


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        ("memory.checkpointing=full",),
        ("memory.checkpointing=selective",),
        ("memory.loss=chunked", "memory.chunk_tokens=5"),
        ("memory.fused_backward=true",),
        ("memory.fused_backward=true", "train.accumulation=2"),
        ("memory.fused_backward=true", "model.tie_embeddings=true"),
    ],
)
def test_it_learns_the_same(text: Path, changes: tuple[str, ...]) -> None:
    tied = [one for one in changes if one.startswith("model.")]
    plain, run = result(text, FREE, *tied), result(text, FREE, *changes)
    assert run.losses == pytest.approx(plain.losses, rel=1e-5)
    assert run.gradient_norms == pytest.approx(plain.gradient_norms, rel=1e-5)


@pytest.mark.slow  # compiles for half a minute
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
@pytest.mark.filterwarnings("ignore:.*context_fn:UserWarning")
def test_compiled_layers_keep_what_selective_checkpointing_says() -> None:
    def kept(checkpointing: str) -> int:
        torch.compiler.reset()
        words = ["model.preset=llama-tiny", "model.layers=2", "memory.compile=true"]
        recipe = parse_recipe("", [*words, f"memory.checkpointing={checkpointing}"])
        config = read_config(recipe.model, VOCABULARY)
        (stage,) = build_modules(recipe, config, lay_out(recipe, 1, 2), 0, CPU).values()
        weights = {one.untyped_storage().data_ptr() for one in stage.parameters()}
        seen: dict[int, int] = {}

        def keep(saved: torch.Tensor) -> torch.Tensor:
            storage = saved.untyped_storage()
            if storage.data_ptr() not in weights:
                seen[storage.data_ptr()] = storage.nbytes()
            return saved

        ids = torch.arange(128).view(2, 64)
        with saved_tensors_hooks(keep, lambda saved: saved):
            output = stage(ids, ids)
        assert output.requires_grad
        return sum(seen.values())

    everything, selected, inputs = map(kept, ("none", "selective", "full"))
    assert inputs < 0.5 * selected
    assert selected < 0.8 * everything


@pytest.mark.slow
def test_a_fused_backward_pass_goes_with_every_precision(text: Path) -> None:
    for precision in ("float32-master", "stochastic-rounding", "plain"):
        changes = (FREE, "model.dtype=bfloat16", f"optimizer.precision={precision}")
        fused = result(text, "memory.fused_backward=true", *changes)
        assert fused.losses == result(text, *changes).losses


@pytest.mark.slow
def test_on_two_ranks_a_fused_backward_pass_and_rounding_by_chance_change_nothing(
    text: Path, tmp_path: Path
) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE)
    common = [f"data.source={text}", FREE, "model.tie_embeddings=false", "model.dtype=bfloat16"]
    common += ["optimizer.precision=stochastic-rounding"]

    def run(*changes: str, ranks: int = 2) -> list[float]:
        metrics = tmp_path / f"metrics-{len(changes)}-{ranks}"
        settings = [part for one in (*common, *changes) for part in ("--set", one)]
        ended = run_ranks(recipe, ["n1"] * ranks, *settings, metrics=metrics)
        assert all(one.exit_code == 0 for one in ended), ended[0].err
        return told_losses(read(metrics, 0))

    plain = run()
    assert len(plain) == STEPS
    assert run("memory.fused_backward=true") == plain
    # What is drawn does not depend on who draws it; one process has the same microbatches.
    assert run(ranks=1) == plain


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is somewhere to offload from")
def test_every_rank_says_what_it_will_hold_before_the_first_step(
    text: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result(text, "memory.offload_activations=true", "train.device=auto")
    lines = capsys.readouterr().out.splitlines()
    first_step = next(place for place, line in enumerate(lines) if line.startswith("step 1/"))
    said = [line for line in lines[:first_step] if line.startswith("rank 0 memory: ")]
    assert re.fullmatch(
        r"rank 0 memory: weights \S+ \SB \+ gradients .* \+ optimizer .* = .* \SB", said[0]
    )
    assert said[1:] == ["rank 0 memory: nothing to offload on a CPU"]


class Largest(TorchDispatchMode):
    """The most values of any tensor that is made."""

    values = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if isinstance(made, torch.Tensor):
            self.values = max(self.values, made.numel())
        return made


def output_and_labels() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(4, TOKENS // 4, HIDDEN, generator=generator)
    labels = torch.randint(VOCABULARY, (4, TOKENS // 4), generator=generator)
    labels[0, :3] = losses.NOT_COUNTED
    return hidden, labels


@pytest.mark.parametrize("splits_backward", [False, True])
@pytest.mark.parametrize("chunk_tokens", [1, 7, 64, 1000])
def test_a_chunked_loss_is_the_plain_one_and_never_has_all_logits(
    chunk_tokens: int, *, splits_backward: bool
) -> None:
    largest = Largest()
    refuse_difference(chunk_tokens, largest, splits_backward=splits_backward)
    assert largest.values == max(min(chunk_tokens, TOKENS) * VOCABULARY, HIDDEN * VOCABULARY)


def test_all_chunks_add_to_one_gradient_of_the_head() -> None:
    class Heads(TorchDispatchMode):
        made = 0

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            out = func(*args, **(kwargs or {}))
            is_new = isinstance(out, torch.Tensor) and not func.is_view and "_." not in str(func)
            self.made += is_new and out.shape == (VOCABULARY, HIDDEN)
            return out

    hidden, labels = output_and_labels()
    head = nn.Linear(HIDDEN, VOCABULARY, bias=False)
    loss = make_loss("chunked", head, 7)(hidden.requires_grad_(), labels)
    with Heads() as heads:
        loss.backward()
    assert heads.made <= 2  # the sum, and autograd's copy of it


@pytest.mark.slow  # compiles for half a minute
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")
def test_a_compiled_chunked_loss_is_the_plain_one() -> None:
    torch.compiler.reset()
    counters.clear()
    for _ in range(2):
        # 64 tokens: three chunks of 20 and one of 4, forward and backward.
        refuse_difference(20, is_compiled=True)
        assert counters["stats"]["unique_graphs"] == 4


def refuse_difference(
    chunk_tokens: int, watching: AbstractContextManager[Any] | None = None, **how: bool
) -> None:
    """Compare the chunked loss and all its gradients with the plain ones."""
    hidden, labels = output_and_labels()
    head = nn.Linear(HIDDEN, VOCABULARY, bias=False)
    first, second = (hidden.clone().requires_grad_() for _ in range(2))
    plain = from_logits(head(first * 3), labels)
    (plain / 5).backward()
    assert head.weight.grad is not None
    gradient, head.weight.grad = head.weight.grad, None
    with watching or nullcontext():
        found = make_loss("chunked", head, chunk_tokens, **how)(second * 3, labels)
        (found / 5).backward()
    assert found.item() == pytest.approx(plain.item())
    torch.testing.assert_close(head.weight.grad, gradient)
    torch.testing.assert_close(second.grad, first.grad)


def test_a_loss_that_nobody_chose_is_what_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    small = parse_recipe("")
    # 4 sequences of 256 tokens to a microbatch: 32768 tokens of 4 B make 128 MiB.
    assert [choose_loss(small, size, CPU) for size in (32768, 32769)] == ["plain", "chunked"]
    tools = Tools(
        packages={"triton": "3", "liger-kernel": "0.6"}, c_compiler="/gcc", has_headers=True
    )
    seat = Seat(node="a", gpu="GPU 0", capability=(8, 0), tools=tools)
    monkeypatch.setattr(losses, "own_seat", lambda _: seat)
    assert choose_loss(small, 300, CUDA) == "liger"
    assert choose_loss(parse_recipe("", ["memory.loss=plain"]), 300, CUDA) == "plain"


def test_liger_is_given_weight_tokens_and_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fused:
        def __init__(self, ignore_index: int, reduction: str) -> None:
            assert (ignore_index, reduction) == (losses.NOT_COUNTED, "sum")

        def __call__(self, weight: Any, tokens: Any, labels: Any) -> torch.Tensor:
            return from_logits(tokens @ weight.T, labels)

    module = SimpleNamespace(LigerFusedLinearCrossEntropyLoss=Fused)
    monkeypatch.setitem(sys.modules, "liger_kernel", SimpleNamespace(transformers=module))
    monkeypatch.setitem(sys.modules, "liger_kernel.transformers", module)
    hidden, labels = output_and_labels()
    head = nn.Linear(HIDDEN, VOCABULARY, bias=False)
    expected = from_logits(head(hidden), labels)
    assert make_loss("liger", head, 1)(hidden, labels).item() == pytest.approx(expected.item())
