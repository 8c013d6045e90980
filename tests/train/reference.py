"""The other side of the equality tests: transformers' whole model, trained by torch's AdamW."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from transformers import AutoModelForCausalLM

from jupyter_mntrain.families import family_of
from jupyter_mntrain.recipe.learning_rate import learning_rate_ratio
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.train.data.batches import Batch, Batches
from jupyter_mntrain.train.data.sequences import rows_of
from jupyter_mntrain.train.data.tokens import Tokens
from jupyter_mntrain.train.model.adapters import first_values, trained_whole
from jupyter_mntrain.train.model.decoder import EMBEDDING, HEAD, read_config
from jupyter_mntrain.train.model.weights import seeded_weights
from jupyter_mntrain.train.world import World
from tests.train.equality_cases import VOCABULARY, for_one_process
from tests.train.families import whole_model


class OneProcess:
    """The same training without any of our pipeline code."""

    def __init__(self, recipe: Recipe, config: Any) -> None:
        self.recipe = recipe
        self.model = _whole(recipe, config).train()
        if recipe.trains_adapters:
            self.model = _with_adapters(self.model, recipe)
        section = recipe.optimizer
        trained = [p for p in self.model.parameters() if p.requires_grad]
        decayed = [p for p in trained if p.ndim > 1]
        others = [p for p in trained if p.ndim == 1]
        self.adamw = torch.optim.AdamW(
            [{"params": decayed}, {"params": others, "weight_decay": 0.0}],
            lr=section.learning_rate,
            betas=section.betas,
            eps=section.epsilon,
            weight_decay=section.weight_decay,
        )

    def gradients(self) -> dict[str, torch.Tensor]:
        named = {_plain(name): p.grad for name, p in self.model.named_parameters()}
        if self.model.config.tie_word_embeddings:
            named[HEAD] = named[embedding_of(self.model.config)]
        return {name: grad for name, grad in named.items() if grad is not None}

    def weights(self) -> dict[str, torch.Tensor]:
        return {_plain(name): one for name, one in self.model.state_dict().items()}

    def forward_backward(self, batch: Batch) -> float:
        """All of a batch at once: what microbatches and accumulation must come to."""
        loss = self._loss(batch) / batch.counted
        loss.backward()
        return loss.item()

    def evaluate(self, batch: Batch) -> float:
        with torch.no_grad():
            return self._loss(batch).item() / batch.counted

    def _loss(self, batch: Batch) -> torch.Tensor:
        """Documents of a packed batch are shown to the model one by one, as if alone."""

        def loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            each = nn.functional.cross_entropy(logits, labels, reduction="none")
            return each.double().sum()  # no rounding of a sum of hundreds

        if self.recipe.data.is_wrapped:
            logits = self.model(input_ids=batch.inputs, use_cache=False).logits
            return loss(logits.flatten(0, 1), batch.labels.flatten())
        total = torch.zeros((), dtype=torch.float64)
        for ids, labels, positions in zip(batch.inputs, batch.labels, batch.positions, strict=True):
            begins = (positions == 0).nonzero().flatten().tolist()
            for begin, end in pairwise([*begins, len(ids)]):
                logits = self.model(input_ids=ids[None, begin:end], use_cache=False).logits[0]
                total = total + loss(logits, labels[begin:end])
        return total

    def update(self, step: int) -> None:
        section = self.recipe.optimizer
        ratio = learning_rate_ratio(
            step,
            steps=self.recipe.train.steps,
            warmup_steps=self.recipe.warmup_steps,
            min_ratio=section.min_ratio,
        )
        for group in self.adamw.param_groups:
            group["lr"] = section.learning_rate * ratio
        nn.utils.clip_grad_norm_(self.model.parameters(), section.clip_norm)
        self.adamw.step()
        self.adamw.zero_grad()


def _whole(recipe: Recipe, config: Any) -> Any:
    """The model in one piece."""
    if recipe.model.path is not None:
        return whole_model(Path(recipe.model.path))
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    weights = seeded_weights(
        dict(model.named_parameters()),
        seed=recipe.train.seed,
        deviation=config.initializer_range,
        tied_to=EMBEDDING if config.tie_word_embeddings else None,
        device=torch.device("cpu"),
    )
    model.load_state_dict(weights, strict=False)
    return model


def embedding_of(config: Any) -> str:
    return family_of(config.to_dict()).embedding_weight


def _with_adapters(model: Any, recipe: Recipe) -> Any:
    """peft's own model, with our first values; it draws them in an order of its own."""
    from peft import LoraConfig, get_peft_model

    section = recipe.adapters
    modules = section.modules if isinstance(section.modules, str) else list(section.modules)
    whole = trained_whole(section, model.config)
    config = LoraConfig(
        r=section.rank,
        lora_alpha=section.chosen_alpha,
        lora_dropout=section.dropout,
        target_modules=modules,
        modules_to_save=[one.rpartition(".")[2] for one in whole.values()] or None,
        ensure_weight_tying=bool(whole) and bool(model.config.tie_word_embeddings),
        task_type="CAUSAL_LM",
    )
    made: Any = get_peft_model(model, config)
    for name, one in made.named_parameters():
        if ".lora_A." in name:
            one.data.copy_(first_values(_plain(name), one, recipe.train.seed))
    if section.quantizes:
        _round_to_nf4(made)
    return made


def _round_to_nf4(model: nn.Module) -> None:
    """Whole weights next to adapters, of the values that torchao's 4 bits stand for."""
    from torchao.quantization import to_nf4

    for name, one in model.named_parameters():
        if name.endswith(".base_layer.weight"):
            scales = math.gcd(one.numel() // 64, 256)
            one.data.copy_(to_nf4(one.detach(), 64, scales).get_original_weight())


def _plain(name: str) -> str:
    """A parameter's name without what peft adds to it."""
    name = name.removeprefix("base_model.model.").replace(".modules_to_save", "")
    return name.replace(".base_layer", "").replace(".default", "")


class Reference:
    """All that is compared with of one training by one process."""

    def __init__(self, recipe: Recipe, config: Any) -> None:
        one = OneProcess(recipe, config)
        batches = batches_of(recipe)
        self.losses = [one.forward_backward(batches[0])]
        self.gradients = {name: grad.clone() for name, grad in one.gradients().items()}
        self.evaluations = [one.evaluate(batches[0])]
        self._models = [_copy(one.model)]
        for step in range(recipe.train.steps):
            one.update(step)
            self.evaluations.append(one.evaluate(some_of(batches, step)))
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


def some_of(batches: list[Batch], step: int) -> Batch:
    """Between two steps, of a number of sequences that no microbatch divides."""
    return next(batches[step].parts(3 + step))


def _copy(model: nn.Module) -> nn.Module:
    """As it is now, without its gradients."""
    made = copy.deepcopy(model)
    made.zero_grad()
    return made


def batches_of(recipe: Recipe) -> list[Batch]:
    generator = np.random.default_rng(7)
    wanted = recipe.train.steps + 1
    count = recipe.train.batch_size * (recipe.data.sequence_length + 1) * wanted
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
    return [found.batch(step) for step in range(wanted)]
