"""Preparation: runs every check before the first step, and compares the results on all ranks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, NamedTuple

import msgspec
import numpy as np

from jupyter_mntrain.families import family_of, normal
from jupyter_mntrain.families.directories import CONFIG, listed_ends
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.records.sequences import DataPreview
from jupyter_mntrain.model.text.brief import first_line
from jupyter_mntrain.plan.prediction.step import shard_bytes
from jupyter_mntrain.recipe.layout import Grid, Layout, lay_out, make_grid
from jupyter_mntrain.recipe.learning_rate import with_steps
from jupyter_mntrain.recipe.memory import (
    WIDTHS,
    adapter_values,
    shown_adapters,
    shown_bytes,
    trains_head,
)
from jupyter_mntrain.recipe.parse import check
from jupyter_mntrain.recipe.schedules import KINDS
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.recipe.transfers import VERSION, boundary_transfers, told_transfers
from jupyter_mntrain.telemetry.formulas import layer_windows, stage_flops_per_token
from jupyter_mntrain.telemetry.progress import ProgressWriter, Tally, unwatched
from jupyter_mntrain.train.data.batches import Batch, Batches, sample_of
from jupyter_mntrain.train.data.corpus import Corpus, read_corpus
from jupyter_mntrain.train.data.preview import SHOWN, Preview
from jupyter_mntrain.train.data.sequences import JoinedRows, hold_out, rows_of
from jupyter_mntrain.train.data.summary import Sequences, summarize
from jupyter_mntrain.train.data.tokens import (
    Tokens,
    like_tokens,
    model_tokenizer,
    model_tokens,
    random_tokens,
    trained_tokens,
    untrained_tokenizer,
)
from jupyter_mntrain.train.model.added_tokens import add_tokens, fit_config
from jupyter_mntrain.train.model.attention import has_flash_attn, has_varlen
from jupyter_mntrain.train.model.decoder import (
    StageModule,
    model_directory,
    model_shape,
    read_config,
)
from jupyter_mntrain.train.model.stages import DTYPES, build_modules
from jupyter_mntrain.train.model.weights import files_of, fingerprint, hold_against_config
from jupyter_mntrain.train.optimizer.algorithms import refuse_missing_grad_dtype
from jupyter_mntrain.train.pipeline.evaluation import Prompt, read_prompts
from jupyter_mntrain.train.world import Report, World, agree, topology

WAITING = "waiting for the other ranks"
_SEE_TRACEBACK = "see that rank's traceback in the log"


@dataclass(frozen=True)
class Prepared:
    """What a rank has built, once all ranks agree that they train the same thing."""

    recipe: Recipe
    """The recipe, with the number of steps in its epochs."""
    config: Any
    grid: Grid
    layout: Layout
    modules: dict[int, StageModule]
    batches: Batches
    held_out: Batch | None
    """Sequences to evaluate on."""
    prompts: tuple[Prompt, ...]
    seen_tokens: tuple[float, ...]
    """Of each layer: average length, over tokens, of a token's document in its sequence, or of the
    window in which the layer sees it."""
    corpus: Corpus
    tokens: Tokens
    data: DataPreview
    weights: tuple[str, ...]
    """Lines about how the files' weights are used, from the node's first rank."""
    digests: dict[str, str]
    """Hashes of what must be the same on all ranks."""
    reports: Sequence[Report] = ()
    """Every rank's report, by rank."""

    def introduction(self, syncs: object) -> Iterator[str]:
        """Yield the first lines of the log: the ranks, the data and what is trained.

        Args:
            syncs: of replicas, in words; empty if they sum gradients in every step.
        """
        yield topology(self.reports)
        if self.grid.width > 1:
            yield f"data parallel: {self.grid}{syncs}"
            hosts = [report.host for report in self.reports]
            if note := self.grid.spread_replicas(hosts):
                yield str(note)
            if shared := self.grid.spread_shards(hosts):
                yield self._crossing(shared, hosts)
        yield from (f"transfers: {line}" for line in self._transfers())
        yield from (f"data: {line}" for line in self.data.lines())
        yield from (f"weights: {line}" for line in self.weights)
        yield from shown_adapters(self.recipe, self.config.to_dict())

    def _transfers(self) -> Iterator[str]:
        """Describe what the first pipeline sends in fewer bits."""
        recipe, layout = self.recipe, self.layout
        if recipe.transfer == "none":
            return
        nodes = [self.reports[rank].host for rank in self.grid.pipeline_of(0)]
        found = boundary_transfers(recipe.transfer, layout.stage_ranks, nodes)
        if not {*found} - {"none"}:
            yield f"{recipe.transfer} applies nowhere: all stages of a pipeline are on one node"
        yield from told_transfers(
            found,
            tokens=recipe.microbatch_size * recipe.data.sequence_length,
            hidden=self.config.hidden_size,
            width=WIDTHS[recipe.dtype],
        )

    def _crossing(self, shared: Sequence[int], hosts: Sequence[str]) -> str:
        """Describe what ranks on different nodes exchange for weights that they shard together."""
        config, places = self.config.to_dict(), range(self.layout.world_size)
        size = max(shard_bytes(self.recipe, config, self.layout, one) for one in places)
        nodes = " and ".join(dict.fromkeys(hosts[rank] for rank in shared))
        return (
            f"sharded weights: ranks {', '.join(map(str, shared))} share theirs over the network, "
            f"on {nodes}; a rank sends {shown_bytes(size)} in every step"
        )

    def flops_per_token(self, place: int) -> float:
        """Return the model FLOPs per token of the stages at this place in a pipeline."""
        layers = self.layout.layers_of(place)
        return stage_flops_per_token(
            model_shape(self.config),
            fmean(self.seen_tokens[layer] for layer in layers) if layers else 0.0,
            layers=len(layers),
            has_head=place == self.layout.last_rank,
            adapter_values=adapter_values(self.recipe, self.config.to_dict()),
            trains_head=trains_head(self.recipe, self.config.to_dict()),
        )


def prepare(
    recipe: Recipe,
    world: World,
    progress: ProgressWriter = unwatched,
    *,
    reads: bool = True,
) -> Prepared:
    """Read the data, build this rank's stages, and compare with the other ranks. Collective.

    Args:
        progress: receives the progress of each part.
        reads: read the data and the model's weights; else they are random.

    Raises:
        RecipeError: the same on every rank, naming the node that has the problem.
    """
    try:
        ready = _build(recipe, world, progress, reads=reads)
    except RecipeError as error:
        agree(world, error)
        raise
    except OSError as error:
        agree(world, RecipeError(str(error), fix="check the file it names"))
        raise
    except Exception as error:
        # The other ranks would only learn that this one no longer answers.
        what = RecipeError(f"{type(error).__name__}: {first_line(error)}", fix=_SEE_TRACEBACK)
        with suppress(RecipeError):
            agree(world, what)
        raise
    waiting = Tally(progress, WAITING)
    reports = agree(world, digests=ready.digests)
    waiting.end()
    return replace(ready, reports=reports)


class EvaluationText(NamedTuple):
    """Text to evaluate on in place of a held-out share; the digest is of its files."""

    tokens: Tokens
    digest: str


class _Data(NamedTuple):
    """The recipe's data once read, and the recipe with the number of steps in its epochs."""

    recipe: Recipe
    config: Any
    corpus: Corpus
    tokens: Tokens
    evaluated: EvaluationText | None
    added: tuple[int, ...]
    sources: list[Sequences]
    held_out: Batch | None
    batches: Batches

    def preview(self, most: int = SHOWN) -> DataPreview:
        """Return a preview of at most ``most`` sequences."""
        shown = Preview(self.tokens.tokenizer)
        count = sum(len(one.rows) for one in self.sources)
        return DataPreview(
            summary=(
                f"{self.corpus.description}, sha256 {self.corpus.digest[:12]}",
                *summarize(self.recipe, self.sources, self.tokens.counts),
            ),
            count=count,
            sequences=tuple(map(shown.shown, self.batches.first(min(count, most)))),
        )


def preview(recipe: Recipe, progress: ProgressWriter = unwatched) -> DataPreview:
    """Read the data and preview the first sequences, without a model.

    Raises:
        RecipeError: the recipe does not fit the data or the model's tokenizer.
    """
    return _read_data(recipe, progress, reads=True).preview()


def _read_data(recipe: Recipe, progress: ProgressWriter, *, reads: bool) -> _Data:
    config, corpus, tokens, evaluated = _read(recipe, progress) if reads else _make_up(recipe)
    added = fit_config(config, tokens.tokenizer, tokens.template, recipe.tokens.add)
    _refuse_unknown_ids(config, tokens, evaluated)
    sources, held_out = _sequences(recipe, tokens, evaluated)
    batches = Batches(
        *(one.rows for one in sources),
        batch_size=recipe.train.batch_size,
        seed=recipe.data.seed,
        weights=[one.weight for one in recipe.data.sources],
    )
    recipe = with_steps(recipe, sum(len(one.rows) for one in sources))
    return _Data(recipe, config, corpus, tokens, evaluated, added, sources, held_out, batches)


def _build(recipe: Recipe, world: World, progress: ProgressWriter, *, reads: bool) -> Prepared:
    """Build this rank's part without communicating with the others."""
    refuse_missing_grad_dtype(recipe.optimizer)
    data = _read_data(recipe, progress, reads=reads)
    config, tokens, evaluated = data.config, data.tokens, data.evaluated
    check(recipe, world.size, layers=config.num_hidden_layers, is_tied=config.tie_word_embeddings)
    _refuse_attention(recipe.model.attention)
    refuse_unfit(recipe, config)
    recipe = data.recipe
    prompts = read_prompts(recipe, tokens, config.vocab_size)
    grid = make_grid(recipe, world.size)
    layout = lay_out(recipe, world.size, config.num_hidden_layers)
    place = grid.place_of(world.rank)
    shown = DataPreview((data.corpus.description,))
    if reads:
        # Those of 131,072 tokens take two seconds, and only one rank shows them.
        shown = data.preview(SHOWN if world.is_head else 0)
    rows = JoinedRows([one.rows for one in data.sources])
    weights: list[str] = []
    if reads and recipe.model.path is not None and world.local_rank == 0:
        directory = model_directory(recipe.model)
        weights = hold_against_config(directory, config, DTYPES[recipe.dtype])
    return Prepared(
        recipe=recipe,
        config=config,
        grid=grid,
        layout=layout,
        modules=build_modules(
            *(recipe, config, layout, place, world.device, progress),
            reads_weights=reads,
            added=data.added,
        ),
        batches=data.batches,
        held_out=data.held_out,
        prompts=prompts,
        seen_tokens=tuple(map(rows.seen_tokens, layer_windows(config))),
        corpus=data.corpus,
        tokens=tokens,
        data=shown,
        weights=tuple(weights),
        digests={
            "recipe": _digest(msgspec.json.encode(recipe)),
            "model": _digest(config.to_json_string().encode()),
            "corpus": data.corpus.digest,
            "tokenizer": tokens.digest,
            **({"evaluation text": evaluated.digest} if evaluated else {}),
            "batches": data.batches.fingerprint(),
            **({"format of transfers": VERSION} if recipe.transfer != "none" else {}),
            **_weights_digests(recipe),
            **_base_digest(recipe),
        },
    )


def _sequences(
    recipe: Recipe, tokens: Tokens, evaluated: EvaluationText | None
) -> tuple[list[Sequences], Batch | None]:
    """Return the sequences of each source, and those to evaluate on."""
    section, evaluation = recipe.data, recipe.evaluation
    parts = tokens.sources()
    held: list[Tokens] = []
    if evaluated is not None:
        held = [evaluated.tokens]
    elif evaluation.interval_steps:
        split = [hold_out(part, section, share=evaluation.share) for part in parts]
        parts, held = [kept for kept, _ in split], [other for _, other in split]
    found = [Sequences(part, rows_of(part, section)) for part in parts]
    if not held:
        return found, None
    tested = JoinedRows([rows_of(one, section) for one in held])
    return found, sample_of(tested, evaluation.sequences)


def _refuse_attention(attention: str) -> None:
    """Check the attention kernel, which would otherwise fail in the first backward pass."""
    shown = f'model.attention = "{attention}"'
    if attention == "flash_attention_2" and not has_flash_attn():
        fix = 'install flash-attn on every node with a GPU, or use "auto"'
        raise RecipeError(f"{shown}: flash-attn is not available for this GPU", fix=fix)
    if attention == "varlen" and not has_varlen():
        fix = 'install a torch with flash attention on every node with a GPU, or use "auto"'
        raise RecipeError(f"{shown}: this torch has no such kernel", fix=fix)


def refuse_unfit(recipe: Recipe, config: Any) -> None:
    """Refuse settings that do not work with models of this family.

    Raises:
        RecipeError: the schedule splits backward passes that torch cannot split, or sequences are
            longer than the positions that were learned.
    """
    fields = normal(config.to_dict())
    family = family_of(fields)
    if KINDS[recipe.schedule].splits_backward and not family.splits_backward:
        cause = f'pipeline.schedule = "{recipe.schedule}": torch cannot split the backward pass of '
        raise RecipeError(f"{cause}{config.model_type}", fix='use schedule = "eager-1f1b"')
    if family.positions is None:
        return
    length, most = recipe.data.sequence_length, fields["max_position_embeddings"]
    if length > most:
        cause = f"data.sequence_length = {length}: the model has learned {most} positions"
        raise RecipeError(f"{cause}, by its {CONFIG}", fix=f"use at most {most}")


def _read(
    recipe: Recipe, progress: ProgressWriter
) -> tuple[Any, Corpus, Tokens, EvaluationText | None]:
    section, added = recipe.data, recipe.tokens.add
    # The model's config first: it is quick to check, and reading the corpus takes a second.
    config = None if recipe.model.path is None else read_config(recipe.model)
    corpus = read_corpus(section, progress)
    if config is None or section.tokenizer == "train":
        tokens = trained_tokens(corpus, section, added=added, progress=progress)
        config = config or read_config(recipe.model, tokens.vocabulary_size)
    else:
        end = next(iter(listed_ends(config.eos_token_id)), None)
        directory = model_directory(recipe.model)
        tokens = model_tokens(corpus, section, directory, end, added=added, progress=progress)
    evaluated = None
    if section.evaluation_path is not None:
        other = section.of_path(section.evaluation_path)
        text = read_corpus(other, progress)
        evaluated = EvaluationText(like_tokens(text, other, tokens, progress=progress), text.digest)
    return config, corpus, tokens, evaluated


def _refuse_unknown_ids(config: Any, tokens: Tokens, evaluated: EvaluationText | None) -> None:
    for one in (tokens, *((evaluated.tokens,) if evaluated else ())):
        largest = int(np.max(one.ids))
        if largest >= config.vocab_size:
            cause = f"the tokenizer yields id {largest}, but the model has {config.vocab_size}"
            fix = "use tokenizer and config.json of the same model, or a smaller vocabulary"
            raise RecipeError(f"{cause} tokens", fix=fix)


def _make_up(recipe: Recipe) -> tuple[Any, Corpus, Tokens, None]:
    """Return the model's config and tokenizer, and random tokens for a step."""
    if recipe.model.path is None:
        size = recipe.data.vocabulary_size + len(recipe.tokens.add)
        config = read_config(recipe.model, size)
    else:
        config = read_config(recipe.model)
    has_own = recipe.model.path is not None and recipe.data.tokenizer == "auto"
    tokenizer = model_tokenizer(model_directory(recipe.model)) if has_own else untrained_tokenizer()
    add_tokens(tokenizer, recipe.tokens.add)
    tokens = random_tokens(recipe.data, recipe.train.batch_size, config.vocab_size, tokenizer)
    return config, Corpus("random tokens", tokens.digest, (), recipe.data), tokens, None


def _weights_digests(recipe: Recipe) -> dict[str, str]:
    """Hash the weight files on this node; each rank reads its part of its node's copy."""
    if recipe.model.path is None:
        return {}
    directory = model_directory(recipe.model)
    names = sorted(set(files_of(directory).values()))
    there = [one for one in names if (directory / one).is_file()]
    return {f"model's {one}": fingerprint(directory, [one]) for one in there}


def _base_digest(recipe: Recipe) -> dict[str, str]:
    """Hash the model that adapters are trained on, which no checkpoint contains."""
    if not recipe.trains_adapters:
        return {}
    if recipe.model.path is None:
        return {"base weights": _digest(f"seed {recipe.train.seed}".encode())}
    return {"base weights": fingerprint(model_directory(recipe.model))}


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
