"""Everything a rank can get wrong by itself, done before the first step and agreed by all."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.telemetry.progress import Progress, Tally, unwatched
from jupyter_mntrain.train.batches import Batches
from jupyter_mntrain.train.corpus import Corpus, read_corpus
from jupyter_mntrain.train.decoder import StageModule, model_directory, read_config
from jupyter_mntrain.train.layout import Layout, lay_out
from jupyter_mntrain.train.pipeline import build_modules
from jupyter_mntrain.train.recipe import check
from jupyter_mntrain.train.sections import Recipe
from jupyter_mntrain.train.tokens import Tokens, model_tokens, trained_tokens
from jupyter_mntrain.train.world import Report, World, agree

WAITING = "waiting for the other ranks"


@dataclass(frozen=True)
class Prepared:
    """What a rank holds once all ranks agree that they train the same thing."""

    config: Any
    layout: Layout
    modules: dict[int, StageModule]
    batches: Batches
    corpus: Corpus
    reports: list[Report]
    digests: dict[str, str]
    """Of what must be the same on all ranks."""


def prepare(recipe: Recipe, world: World, progress: Progress = unwatched) -> Prepared:
    """Read the data, build this rank's stages, and compare with the other ranks.

    Args:
        progress: hears how far each of that is.

    Raises:
        RecipeError: the same line on every rank, naming the node that has the problem.
    """
    try:
        config, corpus, tokens = _read(recipe, progress)
        check(recipe, world.size, layers=config.num_hidden_layers)
        batches = Batches(
            tokens.ids,
            batch_size=recipe.train.batch_size,
            sequence_length=recipe.data.sequence_length,
            seed=recipe.data.seed,
        )
        layout = lay_out(recipe, world.size, config.num_hidden_layers)
        modules = build_modules(recipe, config, layout, world.rank, world.device, progress)
    except RecipeError as error:
        agree(world, Report(host=world.host, problem=error.cause, fix=error.fix))
        raise
    except OSError as error:
        agree(world, Report(host=world.host, problem=str(error), fix="see the file named"))
        raise
    digests = {
        "recipe": _digest(msgspec.json.encode(recipe)),
        "model": _digest(config.to_json_string().encode()),
        "corpus": corpus.digest,
        "tokenizer": tokens.tokenizer_digest,
        "batches": batches.fingerprint(),
    }
    waiting = Tally(progress, WAITING)
    reports = agree(world, Report(host=world.host, digests=digests))
    waiting.end()
    return Prepared(config, layout, modules, batches, corpus, reports, digests)


def _read(recipe: Recipe, progress: Progress) -> tuple[Any, Corpus, Tokens]:
    # The model first: it is quickly wrong, and reading the corpus takes a second.
    config = None if recipe.model.path is None else read_config(recipe.model)
    corpus = read_corpus(recipe.data, progress)
    if config is None:
        tokens = trained_tokens(corpus, recipe.data.vocabulary_size, progress=progress)
        return read_config(recipe.model, tokens.vocabulary_size), corpus, tokens
    if recipe.data.tokenizer == "train":
        tokens = trained_tokens(corpus, recipe.data.vocabulary_size, progress=progress)
    else:
        end = config.eos_token_id
        end = end[0] if isinstance(end, list) else end
        tokens = model_tokens(corpus, model_directory(recipe.model), end, progress=progress)
    largest = int(np.max(tokens.ids))
    if largest >= config.vocab_size:
        cause = f"the tokenizer yields id {largest}, but the model has {config.vocab_size} tokens"
        raise RecipeError(cause, fix="use the model's own tokenizer.json or a smaller vocabulary")
    return config, corpus, tokens


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
