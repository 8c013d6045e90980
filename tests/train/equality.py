"""Run under torchrun: compares pipelines with one process that knows nothing of pipelines.

The other side is transformers' own model, whole, with its own loss code path, torch's AdamW and
``clip_grad_norm_``. Every rank builds it for itself and compares what it holds.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
import torch
import torch.distributed as dist
from torch import nn
from transformers import AutoModelForCausalLM

from jupyter_mntrain.train.decoder import EMBEDDING, HEAD, read_config
from jupyter_mntrain.train.layout import Layout, lay_out
from jupyter_mntrain.train.optimiser import Optimiser, learning_rate_ratio
from jupyter_mntrain.train.pipeline import Pipeline, build_modules
from jupyter_mntrain.train.sections import Recipe
from jupyter_mntrain.train.stopwatch import StageMeter, Stopwatch
from jupyter_mntrain.train.weights import seeded_weights
from jupyter_mntrain.train.world import World, join_world
from tests.train.equality_cases import LAYERS, STEPS, VOCABULARY, Outcome, cases


class OneProcess:
    """The same training without any of our pipeline code."""

    def __init__(self, recipe: Recipe, config: Any) -> None:
        self.recipe = recipe
        self.model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
        self.model.train()
        weights = seeded_weights(
            dict(self.model.named_parameters()),
            seed=recipe.train.seed,
            deviation=config.initializer_range,
            tied=config.tie_word_embeddings,
            device=torch.device("cpu"),
        )
        self.model.load_state_dict(weights, strict=False)
        section = recipe.optimizer
        decayed = [p for p in self.model.parameters() if p.ndim > 1]
        others = [p for p in self.model.parameters() if p.ndim == 1]
        self.adamw = torch.optim.AdamW(
            [{"params": decayed}, {"params": others, "weight_decay": 0.0}],
            lr=section.learning_rate,
            betas=section.betas,
            eps=section.epsilon,
            weight_decay=section.weight_decay,
        )

    def gradients(self) -> dict[str, torch.Tensor]:
        named = {name: p.grad for name, p in self.model.named_parameters()}
        if self.model.config.tie_word_embeddings:
            named[HEAD] = named[EMBEDDING]
        return {name: grad for name, grad in named.items() if grad is not None}

    def weights(self) -> dict[str, torch.Tensor]:
        return dict(self.model.state_dict())

    def forward_backward(self, batch: torch.Tensor) -> float:
        parts = self.recipe.pipeline.microbatches * self.recipe.train.accumulation
        total = 0.0
        for part in batch.chunk(parts):
            logits = self.model(input_ids=part[:, :-1], use_cache=False).logits
            loss = nn.CrossEntropyLoss()(logits.flatten(0, 1), part[:, 1:].flatten()) / parts
            loss.backward()
            total += loss.item()
        return total

    def update(self, step: int) -> None:
        section = self.recipe.optimizer
        ratio = learning_rate_ratio(
            step, steps=STEPS, warmup_steps=self.recipe.warmup_steps, min_ratio=section.min_ratio
        )
        for group in self.adamw.param_groups:
            group["lr"] = section.learning_rate * ratio
        nn.utils.clip_grad_norm_(self.model.parameters(), section.clip_norm)
        self.adamw.step()
        self.adamw.zero_grad()


def run_case(recipe: Recipe, world: World) -> Outcome:
    config = read_config(recipe.model, VOCABULARY)
    layout = lay_out(recipe, world.size, LAYERS)
    modules = build_modules(recipe, config, layout, world.rank, world.device)
    meter = StageMeter(Stopwatch(world.device))
    pipeline = Pipeline(recipe, config, layout, world, modules, meter)
    pipeline.measure()
    optimiser = Optimiser(recipe, pipeline.parameters(), pipeline.counted_once())
    reference = OneProcess(recipe, config)
    batches = _batches(recipe)

    loss, norm = _backward(pipeline, optimiser, batches[0])
    expected = reference.forward_backward(batches[0])
    theirs = reference.gradients()
    errors = {
        name: _error(parameter.grad, theirs[name])
        for name, parameter in pipeline.parameters().items()
    }
    worst = max(errors, key=lambda name: errors[name])
    first_loss_error = abs(loss - expected)
    sent = dict(meter.sent_bytes)

    for step in range(STEPS):
        optimiser.update(norm)
        reference.update(step)
        loss, norm = _backward(pipeline, optimiser, batches[step + 1])
        expected = reference.forward_backward(batches[step + 1])
    final = reference.weights()
    weight_errors = [_error(p.detach(), final[name]) for name, p in pipeline.parameters().items()]

    mine = Outcome(
        loss_error=first_loss_error,
        gradient_error=errors[worst],
        worst=worst,
        trained_loss_error=abs(loss - expected),
        trained_weight_error=max(weight_errors),
        sent_bytes={world.rank: sent},
        expected_bytes={world.rank: _expected_bytes(recipe, config, layout, world.rank)},
    )
    return _gathered(mine, world)


def _backward(
    pipeline: Pipeline, optimiser: Optimiser, batch: torch.Tensor
) -> tuple[float, torch.Tensor]:
    loss = pipeline.forward_backward(batch)
    pipeline.share_tied_gradient()
    loss, norm, _ = optimiser.total(loss, optimiser.gradient_square())
    return loss.item(), norm


def _batches(recipe: Recipe) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    shape = (recipe.train.batch_size, recipe.data.sequence_length + 1)
    return [torch.randint(VOCABULARY, shape, generator=generator) for _ in range(STEPS + 1)]


def _error(ours: torch.Tensor | None, theirs: torch.Tensor) -> float:
    assert ours is not None
    return ((ours - theirs).abs().max() / theirs.abs().max().clamp_min(1e-12)).item()


def _expected_bytes(recipe: Recipe, config: Any, layout: Layout, rank: int) -> dict[int, int]:
    """b x T x d x 4 bytes per boundary and microbatch; and once a tied gradient."""
    shape = recipe.microbatch_size * recipe.data.sequence_length * config.hidden_size
    once = shape * 4 * recipe.pipeline.microbatches * recipe.train.accumulation
    expected: dict[int, int] = {}
    for stage in layout.stages_of(rank):
        for other in (stage - 1, stage + 1):
            if 0 <= other <= layout.last_stage:
                peer = layout.rank_of(other)
                expected[peer] = expected.get(peer, 0) + once
    peer_of_copy = layout.tied_peer(rank)
    if config.tie_word_embeddings and peer_of_copy is not None:
        size = config.vocab_size * config.hidden_size * 4
        expected[peer_of_copy] = expected.get(peer_of_copy, 0) + size
    return expected


def _gathered(mine: Outcome, world: World) -> Outcome:
    outcomes: list[Any] = [None] * world.size
    dist.all_gather_object(outcomes, mine)
    worst = max(outcomes, key=lambda outcome: outcome.gradient_error)
    return Outcome(
        loss_error=max(o.loss_error for o in outcomes),
        gradient_error=worst.gradient_error,
        worst=worst.worst,
        trained_loss_error=max(o.trained_loss_error for o in outcomes),
        trained_weight_error=max(o.trained_weight_error for o in outcomes),
        sent_bytes={k: v for o in outcomes for k, v in o.sent_bytes.items()},
        expected_bytes={k: v for o in outcomes for k, v in o.expected_bytes.items()},
    )


def main(directory: Path) -> None:
    torch.set_num_threads(1)
    with join_world("cpu", 60.0) as world:
        results = {name: run_case(recipe, world) for name, recipe in cases(world.size).items()}
        if world.is_head:
            path = directory / f"world-{world.size}.json"
            path.write_bytes(msgspec.json.encode(results))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
