"""Evaluation: the loss on held-out text and samples of generated text, during training."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from jupyter_mntrain.families.directories import listed_ends
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.layout import Layout
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.telemetry.progress import ProgressWriter, Tally, unwatched
from jupyter_mntrain.telemetry.recorder import Recorder
from jupyter_mntrain.train.data.batches import Batch
from jupyter_mntrain.train.data.chat import DAY, ChatWriter
from jupyter_mntrain.train.data.tokens import Tokens, text_ids
from jupyter_mntrain.train.finite import FiniteCheck
from jupyter_mntrain.train.model.decoder import StageModule
from jupyter_mntrain.train.model.losses import Loss
from jupyter_mntrain.train.model.stages import make_stages
from jupyter_mntrain.train.pipeline.runtime import NO_OUTPUTS, make_forward_only
from jupyter_mntrain.train.world import Groups, World

# Forward-only runs: compute the held-out loss and next tokens.


@dataclass
class Forwards:
    """Runs a rank's stages forward only, whatever the schedule, and leaves gradients untouched.

    It wraps the same modules in its own torch stages, separate from those that train.

    Args:
        groups: the ranks of this pipeline, and of its replicas.
        modules: this rank's stages by index.
        renew: called before each computation: frees gathered weights that may be stale.
        loss: sums over the tokens of a microbatch.
    """

    recipe: Recipe
    config: Any
    layout: Layout
    groups: Groups
    modules: Mapping[int, StageModule]
    renew: Callable[[], None]
    loss: Loss
    _evaluator: Any = None
    _sampler: Any = None

    def evaluate(self, batch: Batch, progress: ProgressWriter = unwatched) -> torch.Tensor:
        """Sum the loss over a batch: this pipeline's share on its last stage's rank, else zero.

        A float64 scalar on the device, which may still be computing it.

        Collective; every rank passes the same batch.

        Args:
            batch: any number of sequences.
            progress: receives the progress.
        """
        count, size = self.recipe.microbatches, self.recipe.microbatch_size
        grid, each = self.groups.grid, count * size
        # The same number of rounds on every rank: gathering sharded weights is collective.
        rounds = -(-len(batch) // (each * grid.width))
        batch = batch.share(grid.part_of(self.groups.rank), grid.width)
        tally = Tally(progress, "evaluating", len(batch), "sequences")
        if self._evaluator is None:
            shape = (size, self.recipe.data.sequence_length)
            self._evaluator = self._runtime(shape, count, self.loss)
        total = torch.zeros((), dtype=torch.float64, device=self.groups.pipeline.device)
        with self._not_training():
            for part in batch.parts(each, at_least=rounds):
                filled = part.filled(each).to(self.groups.pipeline.device)
                losses = run(self._evaluator.eval, self.modules, filled)
                for loss in losses:
                    total += loss
                tally.add(len(part))
        tally.end()
        return total

    def likeliest(self, ids: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
        """Return the likeliest next token of each text on every rank: (b,), on the CPU.

        Collective; every rank passes the same texts, always of the same shape.

        Args:
            ids: (b, T); anything may follow a text.
            last: (b,), index of each text's last token.
        """
        device = self.groups.pipeline.device
        ids, last = ids.to(device), last.to(device)
        if self._sampler is None:
            self._sampler = self._runtime((ids.shape[0], ids.shape[1]), 1, self._choose)
        place = torch.arange(ids.shape[1], device=device).expand_as(ids)
        # What follows a text is none of it: some models rotate by the length of a text.
        after = place - last.unsqueeze(1) - 1
        positions = torch.where(after < 0, place, after)
        texts = Batch(ids, last, positions, len(last))
        with self._not_training(), _as_written(self.recipe):
            chosen = run(self._sampler.eval, self.modules, texts)
        found = chosen[0] if chosen else torch.empty_like(last)
        source = self.groups.pipeline.in_job(self.layout.last_rank)
        dist.broadcast(found, source, group=self.groups.pipeline.group)
        if self.groups.shards is not None:
            # On unlike devices a near tie may fall otherwise, and all gather weights as often.
            dist.broadcast(found, group=self.groups.shards, group_src=0)
        return found.cpu()

    def _choose(self, output: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
        """Pick the likeliest ids, (b,), from the last stage's output, (b, T, d) or (b, T, V)."""
        module = self.modules[self.layout.last_stage]
        here = output[torch.arange(len(last), device=last.device), last]
        logits = module.project(here) if module.leaves_head else here
        return logits.float().argmax(-1)

    def _runtime(self, shape: tuple[int, int], microbatches: int, loss: Loss) -> Any:
        """Make a forward-only schedule; ``shape`` is (sequences, length) of a microbatch."""
        stages = make_stages(
            self.recipe,
            self.config,
            self.layout,
            self.groups,
            self.modules,
            shape,
            trains=False,
        )
        return make_forward_only(
            stages,
            [self.layout.stages_of(rank) for rank in range(self.groups.pipeline.size)],
            microbatches,
            loss,
        )

    @contextmanager
    def _not_training(self) -> Iterator[None]:
        self.renew()
        for module in self.modules.values():
            module.eval()
        with torch.no_grad():
            yield
        for module in self.modules.values():
            module.train()


def run(
    schedule: Callable[..., Any], modules: Mapping[int, StageModule], batch: Batch
) -> list[torch.Tensor]:
    """Call one of torch's schedules with this rank's arguments.

    Args:
        batch: its labels go to the loss; any shape whose first dimension is sequences.

    Returns:
        The loss of each microbatch on the rank of the last stage; empty elsewhere.
    """
    has_last = any(module.last for module in modules.values())
    losses: list[torch.Tensor] | None = [] if has_last else None
    schedule(
        *((batch.inputs,) if any(module.first for module in modules.values()) else ()),
        target=batch.labels if has_last else None,
        losses=losses,
        # Needed on every rank: without positions gradients are silently wrong (measured).
        position_ids=batch.positions,
        **({} if batch.ends is None else {"document_ends": batch.ends, "longest": batch.longest}),
        **NO_OUTPUTS,
    )
    return losses or []


def _as_written(recipe: Recipe) -> AbstractContextManager[None]:
    """Run without compilation: for a second shape, torch would recompile layers as dynamic."""
    return torch.compiler.set_stance("force_eager") if recipe.compiles else nullcontext()


# Sampling: continues the recipe's prompts greedily during training.
#
# There is no key-value cache: each token takes a forward pass of the whole text through all stages.


SHOWN_CHARACTERS = 40
"""Characters of a prompt that an error message shows."""


class Prompt(NamedTuple):
    """A prompt that the model continues.

    Args:
        text: from the recipe.
        ids: token ids of the text; for chat, of the conversation up to the answer.
    """

    text: str
    ids: tuple[int, ...]


def read_prompts(recipe: Recipe, tokens: Tokens, vocabulary_size: int) -> tuple[Prompt, ...]:
    """Tokenize the recipe's prompts like the training text.

    Args:
        vocabulary_size: the model's.

    Raises:
        RecipeError: a prompt is too long, has no tokens, or the chat template rejects it.
    """
    tokenizer, splits = tokens.tokenizer, recipe.data.split_special_tokens
    writer = ChatWriter(
        *(tokenizer, tokens.template), answers_only=False, splits_special=splits, day=DAY
    )
    found = []
    for number, text in enumerate(recipe.evaluation.prompts):
        where = f"evaluation.prompts[{number}]"
        if recipe.data.format == "chat":
            ids = tuple(writer.asks([{"role": "user", "content": text}], where))
        else:
            ids = tuple(text_ids(tokenizer, text, splits_special=splits))
        _check(ids, recipe, vocabulary_size, f"{where}, {text[:SHOWN_CHARACTERS]!r}")
        found.append(Prompt(text, ids))
    return tuple(found)


def _check(ids: Sequence[int], recipe: Recipe, vocabulary_size: int, where: str) -> None:
    most, length = recipe.evaluation.prompt_tokens, recipe.data.sequence_length
    if not ids or max(ids) >= vocabulary_size:
        cause = f"{where}: the tokenizer produces no tokens for it"
        raise RecipeError(cause, fix="use another prompt")
    if len(ids) + most > length:
        room = length - len(ids)
        cause = f"{where}: with prompt_tokens = {most} the total is {len(ids) + most} tokens,"
        fix = f"use prompt_tokens = {room}" if room > 0 else "shorten it, or use longer sequences"
        raise RecipeError(f"{cause} more than data.sequence_length = {length}", fix=fix)


@dataclass
class TextSampler:
    """Continues prompts with the model, without changing weights or random state.

    Args:
        forwards: runs the model.
        prompts: the same on every rank.
        tokens: supplies the tokenizer.
        ends: token ids that end a text.
    """

    recipe: Recipe
    forwards: Forwards
    prompts: Sequence[Prompt]
    tokens: Tokens
    ends: frozenset[int]

    def __post_init__(self) -> None:
        self._most = self.recipe.evaluation.prompt_tokens
        self._width = max((len(one.ids) for one in self.prompts), default=0) + self._most
        # At most as many tokens at once as a microbatch has, so that memory suffices.
        at_once = self.recipe.microbatch_size * self.recipe.data.sequence_length // self._width
        self._rows = max(1, min(len(self.prompts), at_once))

    def write(self, progress: ProgressWriter = unwatched) -> tuple[str, ...]:
        """Return a continuation of each prompt, on every rank. Collective."""
        groups = range(0, len(self.prompts), self._rows)
        tally = Tally(progress, "writing samples", len(groups) * self._most, "tokens")
        written: list[list[int]] = []
        for begin in groups:
            written += self._continue(self.prompts[begin : begin + self._rows], tally)
        tally.end()
        return tuple(
            str(self.tokens.tokenizer.decode(ids, skip_special_tokens=True)) for ids in written
        )

    def _continue(self, prompts: Sequence[Prompt], tally: Tally) -> list[list[int]]:
        """Return the new ids of each prompt."""
        # Padding follows the text, where causal attention does not see it.
        ids = torch.zeros((self._rows, self._width), dtype=torch.int64)
        last = torch.zeros(self._rows, dtype=torch.int64)
        for row, prompt in enumerate(prompts):
            ids[row, : len(prompt.ids)] = torch.tensor(prompt.ids)
            last[row] = len(prompt.ids) - 1
        written: list[list[int]] = [[] for _ in prompts]
        unfinished = set(range(len(prompts)))
        for _ in range(self._most):
            chosen = self.forwards.likeliest(ids, last).tolist()
            tally.add(1)
            unfinished = {row for row in unfinished if chosen[row] not in self.ends}
            if not unfinished:
                break
            for row in unfinished:
                written[row].append(chosen[row])
                last[row] += 1
                ids[row, last[row]] = chosen[row]
        return written


def ends_of(eos_token_id: int | list[int] | None, tokens: Tokens) -> frozenset[int]:
    """Collect the token ids that end a text.

    Args:
        eos_token_id: from the model's config.
    """
    return frozenset(
        one for named in (eos_token_id, tokens.tokenizer.eos_token_id) for one in listed_ends(named)
    )


# Evaluation: the loss on held-out text, and samples of what the model writes.


@dataclass
class Evaluation:
    """Evaluates between steps, as often as the recipe says. Collective.

    Args:
        held_out: sequences to evaluate on; ``None`` if the recipe has no evaluations.
        finite: is told this rank's part of the loss.
        say: prints a line to the job's log.

    Attributes:
        losses: finished steps → mean held-out loss per token.
        samples: finished steps → the model's continuation of each prompt.
    """

    recipe: Recipe
    world: World
    recorder: Recorder
    forwards: Forwards
    sampler: TextSampler
    held_out: Batch | None
    finite: FiniteCheck
    say: Callable[[str], None]
    losses: dict[int, float] = field(default_factory=dict)
    samples: dict[int, tuple[str, ...]] = field(default_factory=dict)

    def is_due(self, step: int) -> bool:
        """Whether to evaluate after ``step`` finished steps."""
        if self.held_out is None:
            return False
        interval = self.recipe.evaluation.interval_steps
        return step % interval == 0 or step == self.recipe.steps

    @property
    def is_over(self) -> bool:
        """Whether the held-out loss has stopped improving for too long; the same on all ranks."""
        most = self.recipe.evaluation.stop_after
        return bool(most) and evaluations_since_best(self.losses) >= most

    def measure(self, step: int) -> float:
        """Return the mean held-out loss per token after ``step`` steps, and record it."""
        assert self.held_out is not None  # noqa: S101
        total = self.forwards.evaluate(self.held_out, self.recorder.progress)
        self.finite.note(total.clone())
        dist.all_reduce(total)
        loss = self.losses[step] = total.item() / max(1, self.held_out.counted)
        self.recorder.evaluated(step, loss)
        if self.world.is_head:
            count = len(self.held_out)
            self.say(f"evaluation after step {step}: loss {loss:.4f} on {count} sequences")
            if self.is_over:
                best = best_step(self.losses)
                self.say(f"evaluation: no better than after step {best}: the run ends here")
        return loss

    def write_samples(self, step: int) -> None:
        """Generate continuations of the recipe's prompts, if there are any."""
        if not self.sampler.prompts:
            return
        self.samples[step] = self.sampler.write(self.recorder.progress)
        if not self.world.is_head:
            return
        for prompt, text in zip(self.sampler.prompts, self.samples[step], strict=True):
            self.recorder.wrote(step, prompt.text, text)
            self.say(f"sample after step {step}: {prompt.text!r} → {text!r}")


def best_step(losses: Mapping[int, float]) -> int:
    """Return the first step with the lowest loss, ignoring NaN."""
    ranked = {step: math.inf if math.isnan(loss) else loss for step, loss in losses.items()}
    return min(sorted(ranked), key=ranked.__getitem__)


def evaluations_since_best(losses: Mapping[int, float]) -> int:
    """Count the evaluations since the best one."""
    if not losses:
        return 0
    best = best_step(losses)
    return sum(step > best for step in losses)
