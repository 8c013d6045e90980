"""Equality: run by every rank, compares a pipeline with one process without pipelining.

The other side is transformers' own model, whole, with its own loss code path, torch's AdamW and
``clip_grad_norm_``. It is trained once for all schedules and ways to save memory; each rank trains
a share of these models for all ranks, and compares what it holds.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from transformers import AutoModelForCausalLM

from jupyter_mntrain.recipe.layout import Grid, Layout, lay_out
from jupyter_mntrain.recipe.optimizer.learning_rate import learning_rate_ratio
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.train.data.batches import Batch, Batches
from jupyter_mntrain.train.data.sequences import rows_of
from jupyter_mntrain.train.data.tokens import Tokens
from jupyter_mntrain.train.model.decoder import EMBEDDING, HEAD, read_config
from jupyter_mntrain.train.model.stages import build_modules
from jupyter_mntrain.train.model.weights import seeded_weights
from jupyter_mntrain.train.optimizer.optimizer import Optimizer
from jupyter_mntrain.train.pipeline.pipeline import Pipeline
from jupyter_mntrain.train.pipeline.stopwatch import StageMeter, Stopwatch
from jupyter_mntrain.train.world import World, form_groups, join_world
from tests.train.equality_cases import (
    STEPS,
    VOCABULARY,
    Outcome,
    cases,
    for_one_process,
    layers_of,
)

TIMEOUT_S = 300.0
"""For the other ranks, on a machine that is busy with other work."""


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

    def forward_backward(self, batch: Batch) -> float:
        parts = self.recipe.microbatches * self.recipe.train.accumulation
        total = 0.0
        for part in batch.parts(len(batch) // parts):
            loss = self._loss(part) / batch.counted
            loss.backward()
            total += loss.item()
        return total

    def evaluate(self, batch: Batch) -> float:
        with torch.no_grad():
            return self._loss(batch).item() / batch.counted

    def _loss(self, batch: Batch) -> torch.Tensor:
        """Documents of a packed batch are shown to the model one by one, as if alone."""
        loss = nn.CrossEntropyLoss(reduction="sum")
        if self.recipe.data.is_wrapped:
            logits = self.model(input_ids=batch.inputs, use_cache=False).logits
            return loss(logits.flatten(0, 1), batch.labels.flatten())
        total = torch.zeros(())
        for ids, labels, positions in zip(batch.inputs, batch.labels, batch.positions, strict=True):
            begins = (positions == 0).nonzero().flatten().tolist()
            for begin, end in pairwise([*begins, len(ids)]):
                logits = self.model(input_ids=ids[None, begin:end], use_cache=False).logits[0]
                total = total + loss(logits, labels[begin:end])
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


class Reference:
    """All that is compared with of one training by one process."""

    def __init__(self, recipe: Recipe, config: Any) -> None:
        one = OneProcess(recipe, config)
        batches = _batches(recipe)
        self.losses = [one.forward_backward(batches[0])]
        self.gradients = {name: grad.clone() for name, grad in one.gradients().items()}
        self.evaluations = [one.evaluate(batches[0])]
        self._models = [_copy(one.model)]
        for step in range(STEPS):
            one.update(step)
            self.evaluations.append(one.evaluate(_some(batches, step)))
            self._models.append(_copy(one.model))
            self.losses.append(one.forward_backward(batches[step + 1]))
        self.weights = one.weights()

    def next_logits(self, step: int, ids: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
        """After so many steps, at the last token of each text. What follows it is not looked at."""
        with torch.no_grad():
            logits: torch.Tensor = self._models[step](input_ids=ids, use_cache=False).logits
        return logits[torch.arange(len(ids)), last]


def train_references(recipes: Iterable[Recipe], world: World) -> dict[Recipe, Reference]:
    """What each recipe is compared with; every rank trains some of them."""
    wanted = list(dict.fromkeys(for_one_process(recipe) for recipe in recipes))
    mine = {
        recipe: Reference(recipe, read_config(recipe.model, VOCABULARY))
        for recipe in wanted[world.rank :: world.size]
    }
    trained: list[Any] = [None] * world.size
    dist.all_gather_object(trained, mine)
    return {recipe: reference for part in trained for recipe, reference in part.items()}


def run_case(recipe: Recipe, world: World, reference: Reference) -> Outcome:
    config = read_config(recipe.model, VOCABULARY)
    grid = Grid(world.size, recipe.data_parallel.replicas, recipe.data_parallel.shards)
    layout = lay_out(recipe, world.size, layers_of(world.size))
    modules = build_modules(recipe, config, layout, grid.place_of(world.rank), world.device)
    meter = StageMeter(Stopwatch(world.device))
    groups = form_groups(world, recipe, grid, layout)
    pipeline = Pipeline(recipe, config, layout, groups, modules, meter)
    pipeline.measure()
    optimizer = Optimizer(recipe, pipeline.parameters(), pipeline.counted_once())
    batches = _batches(recipe)

    loss, norm = _backward(pipeline, optimizer, batches[0])

    def mine_of(name: str) -> slice:
        return slice(*pipeline.rows().get(name, (None,)))

    errors = {
        name: _error(parameter.grad, reference.gradients[name][mine_of(name)])
        for name, parameter in pipeline.parameters().items()
    }
    worst = max(errors, key=lambda name: errors[name])
    first_loss_error = abs(loss - reference.losses[0])
    sent = dict(meter.sent_bytes)

    evaluation_error = _evaluation_error(pipeline, batches[0], reference.evaluations[0])
    choice_error = _choice_error(pipeline, reference, 0)
    for step in range(STEPS):
        optimizer.update(norm)
        found = _evaluation_error(pipeline, _some(batches, step), reference.evaluations[step + 1])
        evaluation_error = max(evaluation_error, found)
        choice_error = max(choice_error, _choice_error(pipeline, reference, step + 1))
        loss, norm = _backward(pipeline, optimizer, batches[step + 1])
    weight_errors = [
        _error(p.detach(), reference.weights[name][mine_of(name)])
        for name, p in pipeline.parameters().items()
    ]

    mine = Outcome(
        evaluation_error=evaluation_error,
        choice_error=choice_error,
        loss_error=first_loss_error,
        gradient_error=errors[worst],
        worst=worst,
        trained_loss_error=abs(loss - reference.losses[STEPS]),
        trained_weight_error=max(weight_errors),
        sent_bytes={world.rank: sent},
        expected_bytes={world.rank: _expected_bytes(recipe, config, layout, grid, pipeline)},
    )
    return _gathered(mine, world)


def _some(batches: list[Batch], step: int) -> Batch:
    """Between two steps, of a number of sequences that no microbatch divides."""
    return next(batches[step].parts(3 + step))


def _copy(model: nn.Module) -> nn.Module:
    """As it is now, without its gradients."""
    made = copy.deepcopy(model)
    made.zero_grad()
    return made


def _backward(pipeline: Pipeline, optimizer: Optimizer, batch: Batch) -> tuple[float, torch.Tensor]:
    loss = pipeline.forward_backward(batch)
    pipeline.share_gradients()
    loss, norm, _ = optimizer.total(loss, optimizer.gradient_squares())
    return loss.item(), norm


def _evaluation_error(pipeline: Pipeline, batch: Batch, expected: float) -> float:
    total = pipeline.forwards.evaluate(batch)
    dist.all_reduce(total)
    return abs(total.item() / batch.counted - expected)


def _choice_error(pipeline: Pipeline, reference: Reference, step: int) -> float:
    """How much less likely than the reference's first choice the tokens are that were chosen."""
    ids = torch.randint(VOCABULARY, (3, 12), generator=torch.Generator().manual_seed(5))
    last = torch.tensor([0, 3, 8])
    worst = 0.0
    for _ in range(3):
        chosen = torch.as_tensor(pipeline.forwards.likeliest(ids, last))
        logits = reference.next_logits(step, ids, last)
        less = logits.max(dim=1).values - logits[torch.arange(len(ids)), chosen]
        worst = max(worst, less.max().item())
        last += 1
        ids[torch.arange(3), last] = chosen
    return worst


def _batches(recipe: Recipe) -> list[Batch]:
    generator = np.random.default_rng(7)
    count = recipe.train.batch_size * (recipe.data.sequence_length + 1) * (STEPS + 1)
    ids = generator.integers(VOCABULARY, size=count, dtype=np.int32)
    lengths, answers = [count], None
    if not recipe.data.is_wrapped:
        lengths = generator.integers(2, 25, size=count // 10).tolist()
        ids = generator.integers(VOCABULARY, size=sum(lengths), dtype=np.int32)
        answers = generator.random(len(ids)) < 0.6
    ends = np.cumsum(lengths)
    tokens = Tokens(ids, ends, answers, digest="", tokenizer=None)  # type: ignore[arg-type]
    rows = rows_of(tokens, recipe.data)
    found = Batches(rows, batch_size=recipe.train.batch_size, seed=0)
    return [found.batch(step) for step in range(STEPS + 1)]


def _error(ours: torch.Tensor | None, theirs: torch.Tensor) -> float:
    assert ours is not None
    return ((ours - theirs).abs().max() / theirs.abs().max().clamp_min(1e-12)).item()


def _expected_bytes(
    recipe: Recipe, config: Any, layout: Layout, grid: Grid, pipeline: Pipeline
) -> dict[int, int]:
    """By rank of the job: b x T x d x 4 bytes per boundary and microbatch, once a tied gradient,
    and what a ring of replicas passes on of all gradients.
    """
    mine = dist.get_rank()
    ranks, rank = grid.pipeline_of(mine), grid.place_of(mine)
    shape = recipe.microbatch_size * recipe.data.sequence_length * config.hidden_size
    once = shape * 4 * recipe.microbatches * recipe.train.accumulation
    expected: dict[int, int] = {}
    for stage in layout.stages_of(rank):
        for other in (stage - 1, stage + 1):
            if 0 <= other <= layout.last_stage:
                peer = layout.rank_of(other)
                if peer != rank:  # in a V two stages that follow each other are on one rank
                    expected[peer] = expected.get(peer, 0) + once
    peer_of_copy = layout.tied_peer(rank)
    if config.tie_word_embeddings and peer_of_copy is not None:
        size = pipeline.parameters()[EMBEDDING if rank == layout.rank_of(0) else HEAD].nbytes
        expected[peer_of_copy] = expected.get(peer_of_copy, 0) + size
    in_job = {ranks[peer]: size for peer, size in expected.items()}
    if grid.replicas > 1:
        held = sum(one.nbytes for one in pipeline.parameters().values())
        after = grid.ring_of(mine)[1]
        in_job[after] = 2 * held * (grid.replicas - 1) // grid.replicas
    return in_job


def _gathered(mine: Outcome, world: World) -> Outcome:
    outcomes: list[Any] = [None] * world.size
    dist.all_gather_object(outcomes, mine)
    worst = max(outcomes, key=lambda outcome: outcome.gradient_error)
    return Outcome(
        evaluation_error=max(o.evaluation_error for o in outcomes),
        choice_error=max(o.choice_error for o in outcomes),
        loss_error=max(o.loss_error for o in outcomes),
        gradient_error=worst.gradient_error,
        worst=worst.worst,
        trained_loss_error=max(o.trained_loss_error for o in outcomes),
        trained_weight_error=max(o.trained_weight_error for o in outcomes),
        sent_bytes={k: v for o in outcomes for k, v in o.sent_bytes.items()},
        expected_bytes={k: v for o in outcomes for k, v in o.expected_bytes.items()},
    )


def run_all(directory: str) -> None:
    """All cases of this world; the first rank writes what came out."""
    torch.set_num_threads(1)
    with join_world("cpu", TIMEOUT_S) as world:
        wanted = cases(world.size)
        references = train_references(wanted.values(), world)
        results = {
            name: run_case(recipe, world, references[for_one_process(recipe)])
            for name, recipe in wanted.items()
        }
        if world.is_head:
            path = Path(directory) / f"world-{world.size}.json"
            path.write_bytes(msgspec.json.encode(results))
