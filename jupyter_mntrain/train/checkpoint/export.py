"""Export: writes the trained model, or its adapters, as a Hugging Face directory."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, Final

import msgspec
import tomli_w
import torch
import torch.distributed as dist
import yaml
from safetensors.torch import load_file, save_file

from jupyter_mntrain.families import family_of
from jupyter_mntrain.families.directories import (
    CONFIG,
    GENERATION,
    TOKENIZER,
    listed_ends,
    read_generation,
)
from jupyter_mntrain.launch.checkpoints.directory import CheckpointDirectory
from jupyter_mntrain.launch.files.hub_names import hub_copy
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.environment import RUN_ATTEMPT_VARIABLE, RUN_VARIABLE
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.failure.system_errors import told_of
from jupyter_mntrain.model.quantities import by_size
from jupyter_mntrain.model.records.checkpoint import RunFigures
from jupyter_mntrain.model.whereabouts import in_home
from jupyter_mntrain.recipe.learning_rate import as_written
from jupyter_mntrain.recipe.sections import LinearShape, Recipe
from jupyter_mntrain.telemetry.progress import ProgressWriter, Tally, unwatched
from jupyter_mntrain.train.checkpoint.neighbors import refuse_to_fill, send_file, sync, take_file
from jupyter_mntrain.train.checkpoint.places import directory_of, unwritable
from jupyter_mntrain.train.checkpoint.resuming import FoundCheckpoint, load
from jupyter_mntrain.train.data.chat import CHATML_OF_TOKENS
from jupyter_mntrain.train.data.tokens import Tokens
from jupyter_mntrain.train.model.adapters import (
    BASE,
    FIRST,
    SECOND,
    is_adapter,
    linears_among,
    lora_config,
    merged,
    trained_whole,
)
from jupyter_mntrain.train.model.decoder import StageModule, model_directory, published_config
from jupyter_mntrain.train.model.stages import DTYPES, base_weights
from jupyter_mntrain.train.model.weights import INDEX_FILE, SINGLE_FILE
from jupyter_mntrain.train.world import World, agree, gathered

# Model contents: the weight files of an exported model, and their nodes.


CONTENTS = "mntrain.json"
"""File next to the model's own; libraries that load the model ignore it."""


class ModelFile(Record, frozen=True):
    """One file of weights.

    Args:
        sha256: of its content, hexadecimal.
        host: node whose rank wrote it; in local directories, the only one that has it.
    """

    name: str
    size_bytes: int
    sha256: str
    host: str


class ModelContents(Record, frozen=True):
    """The list of all weight files, by name.

    Args:
        step: finished steps.
        run: that wrote it, which may replace it; empty outside of a job.
    """

    step: int
    files: dict[str, ModelFile]
    run: str = ""


# Whole weights: those of a checkpoint's model, whether it holds them or adapters alongside others.


def load_whole(
    world: World,
    directory: CheckpointDirectory,
    found: FoundCheckpoint,
    stage: StageModule | None,
    names: Collection[str],
    recipe: Recipe,
    progress: ProgressWriter = unwatched,
) -> dict[str, torch.Tensor]:
    """Load weights by their names in the whole model, in host memory. Collective.

    Where adapters were trained, the recipe's own weights are read except for those that were
    trained whole, and the checkpoint's adapters merged into them.

    Args:
        stage: the whole model, on the meta device; not needed by a rank that wants no weights.
        names: of the weights that this rank wants.
        recipe: the checkpoint's.

    Returns:
        The weights that were found.

    Raises:
        RecipeError: a shard is damaged, or the recipe's weights cannot be read.
    """
    wanted = list(names)
    if recipe.trains_adapters and names and stage is not None:
        whole = trained_whole(recipe.adapters, stage.causal.config)
        layers = [name.removesuffix(BASE) for name in names if name.endswith(BASE)]
        wanted = [f"{layer}{ending}" for layer in layers for ending in (FIRST, SECOND)]
        wanted += [name for name in names if name in whole]
    loaded = load(world, directory, found, [f"model/{one}" for one in wanted], progress=progress)
    weights = {name.removeprefix("model/"): one for name, one in loaded.items()}
    if recipe.trains_adapters and names and stage is not None:
        config, section, family = stage.causal.config, recipe.adapters, stage.family
        frozen = [name for name in names if name not in weights]
        weights |= base_weights(recipe, config, stage, torch.device("cpu"), frozen)
        plain = [name for name in weights if not is_adapter(name)]
        weights = {name: merged(weights, name, section, family) for name in plain}
    if stage is not None:
        _refuse_other_shapes(stage, weights, directory)
    return weights


def _refuse_other_shapes(
    stage: StageModule, weights: Mapping[str, torch.Tensor], directory: CheckpointDirectory
) -> None:
    """Refuse a config that does not match the checkpoint's weights."""
    for name, like in stage.weights().items():
        if name in weights and weights[name].shape != like.shape:
            found, said = tuple(weights[name].shape), tuple(like.shape)
            cause = f"{name} of the checkpoint in {directory.path} is {found}, and the {CONFIG} "
            cause += f"next to it says {said}"
            raise RecipeError(cause, fix="resume the job: it writes the config again")


# Model card: README.md of an exported model, as the Hugging Face hub reads it. Pure.
#
# Sections of the recipe that say only where files lie are left out, and of paths all but the last
# part: a card is made to be published.


CARD: Final = "README.md"

_NOT_SHOWN: Final = ("checkpoint", "output", "report")
_PATHS: Final = frozenset({"path", "source", "evaluation_path", "chat_template"})
_HUB_FOLDER: Final = re.compile(r"models--(?P<owner>[\w.-]+?)--(?P<name>[\w.-]+)")
"""Folder of the hub's cache."""


def model_card(recipe: Recipe, name: str, figures: RunFigures) -> str:
    """Write a model card: front matter in YAML, then Markdown.

    Args:
        name: of the model's directory.
    """
    base = base_model(recipe)
    header: dict[str, Any] = {"library_name": "transformers", "pipeline_tag": "text-generation"}
    if base is not None and "/" in base:
        header["base_model"] = base
    header["tags"] = ["jupyter_mntrain"]
    front = yaml.safe_dump(header, sort_keys=False)
    others = "data" if base is None else "data and of the base model"
    begun = f"finetuned from `{base}`" if base is not None else "trained from random weights"
    return "\n".join(
        [
            f"---\n{front}# license: the owner's choice, as the hub names it\n---\n",
            f"# {name}\n",
            f"A causal language model, {begun} with jupyter_mntrain.\n",
            "## Data\n",
            *(f"- {line}" for line in _data(recipe, figures)),
            "\n## Figures\n",
            "| | |",
            "| --- | --- |",
            *(f"| {what} | {value} |" for what, value in _figures(recipe, figures)),
            "\n## Settings\n",
            f"What differs from the defaults:\n\n```toml\n{_settings(recipe)}```\n",
            "## License\n",
            f"Not chosen yet: set `license` above, as the licenses of the {others} allow.\n",
        ]
    )


def base_model(recipe: Recipe) -> str | None:
    """Return the model that training started from: its hub id if known, else its directory."""
    if recipe.model.path is None:
        return None
    if copy := hub_copy(recipe.model.path):
        return copy.repo
    path = PurePath(recipe.model.path)
    for part in path.parts:
        if found := _HUB_FOLDER.fullmatch(part):
            return f"{found['owner']}/{found['name']}"
    return path.name


def _data(recipe: Recipe, figures: RunFigures) -> Iterator[str]:
    weights = {one.path: one.weight for one in recipe.data.sources}
    for path in recipe.data.paths:
        weight = f", weight {weights[path]:g}" if path in weights else ""
        use = " (evaluation)" if path == recipe.data.evaluation_path else ""
        yield f"source: `{PurePath(path).name}`{weight}{use}"
    for line in figures.data:
        yield _without_folders(line, recipe.data.paths)
    tokens = figures.steps * recipe.tokens_per_step
    yield f"trained on {tokens:,} tokens, repeats and padding included"


def _without_folders(line: str, paths: Sequence[str]) -> str:
    for path in paths:
        line = line.replace(path, PurePath(path).name)
    return line


def _figures(recipe: Recipe, figures: RunFigures) -> Iterator[tuple[str, str]]:
    total, epochs = recipe.train.steps, recipe.train.epochs
    yield "steps", f"{figures.steps:,}" + ("" if total is None else f" of {total:,}")
    if epochs is not None:
        yield "epochs to make", f"{epochs:g}"
    yield "tokens per step", f"{recipe.tokens_per_step:,}"
    if figures.loss is not None:
        yield "loss of the last step", f"{figures.loss:.4f}"
    if losses := figures.evaluations:
        last, best = max(losses), min(losses, key=losses.__getitem__)
        yield f"evaluation loss, step {last:,}", f"{losses[last]:.4f}"
        yield f"best evaluation loss, step {best:,}", f"{losses[best]:.4f}"
    if figures.tokens_per_s is not None:
        yield "tokens per second", f"{figures.tokens_per_s:,.0f} on {figures.world_size:,} ranks"


def _settings(recipe: Recipe) -> str:
    changed = msgspec.to_builtins(as_written(recipe))  # without defaults
    shown = {
        section: {
            field: _shown(field, value) for field, value in fields.items() if value is not None
        }
        for section, fields in changed.items()
        if section not in _NOT_SHOWN
    }
    return tomli_w.dumps(shown)


def _shown(field: str, value: Any) -> Any:
    if isinstance(value, str) and field in _PATHS:
        return PurePath(value).name
    if isinstance(value, list | tuple):
        return [_shown(field, one) for one in value]
    if isinstance(value, dict):
        return {key: _shown(key, one) for key, one in value.items()}
    return value


# Adapter export: writes trained adapters, and what was trained whole next to them, as peft's two
# files, on the head's node.


FOLDER = "adapter"
"""In the model's directory: next to the merged weights, transformers would add the adapter
again."""
WEIGHTS = "adapter_model.safetensors"
_PREFIX = "base_model.model."
"""Prefix of names in peft's files: a PeftModel wraps a LoraModel, which wraps the model."""


def write_adapter(
    folder: Path,
    weights: Mapping[str, torch.Tensor],
    config: Any,
    recipe: Recipe,
    world: World,
) -> str | None:
    """Write the adapters of all ranks as one. Collective.

    Args:
        folder: the model's, on this node; may be shared with the others.
        weights: this rank's, by name, with its adapters; a tied one only once in the whole model.
        config: the model's.

    Returns:
        Why it failed on this rank, or ``None``.
    """
    directory = folder / FOLDER
    own = directory / _part(world.rank)
    whole = trained_whole(recipe.adapters, config)
    adapters = {name: one for name, one in weights.items() if is_adapter(name) or name in whole}
    # Those of a replica are written by the first one.
    problem = _write(own, adapters) if adapters else None
    have = gathered(world, problem is None and bool(adapters))
    senders = [rank for rank, has_some in enumerate(have) if has_some and rank]
    # Every rank uses the same order, so two ranks never wait for each other.
    for rank in senders:
        if world.rank == rank:
            send_file(own, 0)
        elif world.is_head:
            failed = take_file(lambda: directory, _part(rank), rank)
            problem = problem or (told_of(failed) if failed else None)
    if world.is_head and problem is None:
        linears = linears_among(weights, family_of(config.to_dict()))
        problem = _join(directory, [0, *senders], linears, config, recipe)
    gathered(world, None)  # the head has read what others wrote into a shared directory
    own.unlink(missing_ok=True)
    with suppress(OSError):  # not empty where it is the head's
        directory.rmdir()
    return problem


def _part(rank: int) -> str:
    return f"part-{rank}.safetensors"


def _write(path: Path, tensors: Mapping[str, torch.Tensor]) -> str | None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        refuse_to_fill(path.parent, 2 * sum(one.nbytes for one in tensors.values()))
        named = {f"{_PREFIX}{name}": one.detach().contiguous() for name, one in tensors.items()}
        save_file(named, path, metadata={"format": "pt"})
    except Exception as error:  # noqa: BLE001 - all ranks must learn of any error
        return str(error) or type(error).__name__
    return None


def _join(
    directory: Path,
    ranks: Sequence[int],
    linears: Mapping[str, LinearShape],
    model: Any,
    recipe: Recipe,
) -> str | None:
    try:
        tensors: dict[str, torch.Tensor] = {}
        for rank in ranks:
            path = directory / _part(rank)
            tensors |= load_file(path)
            path.unlink()
        whole = trained_whole(recipe.adapters, model)
        held = [f"{_PREFIX}{name}" for name in whole]
        for name in held:  # peft expects a tied weight under both of its names
            if name not in tensors:
                tensors[name] = next(tensors[one] for one in held if one in tensors).clone()
        save_file(tensors, directory / WEIGHTS, metadata={"format": "pt"})
        sync(directory / WEIGHTS)
        config = lora_config(recipe.adapters, linears)
        config.base_model_name_or_path = recipe.model.path
        config.inference_mode = True
        config.fan_in_fan_out = family_of(model.to_dict()).transposed
        if whole:
            config.modules_to_save = [one.rpartition(".")[2] for one in whole.values()]
            config.ensure_weight_tying = bool(model.tie_word_embeddings)
        config.save_pretrained(directory)
    except Exception as error:  # noqa: BLE001 - all ranks must learn of any error
        return str(error) or type(error).__name__
    return None


# Model export: writes the trained model as a Hugging Face directory, each rank its own tensors.
#
# The directory may be shared by all nodes or local to each. If it is local, the head's gets all
# files from the others and checks their hashes; with ``output.gather = false``, every node keeps
# its own shards and all small files. :data:`CONTENTS` lists each file with its node and hash.


_NOT_COPIED = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".index.json")
"""Endings of weight files and their indexes, which are not copied with the small files."""

_LARGEST_COPIED_BYTES = 64 << 20

DESCRIPTION = "description"
"""Folder next to the checkpoints with config and tokenizer, so that one can generate from them."""


class Part(msgspec.Struct, frozen=True):
    """What one rank wrote, or why it failed."""

    files: tuple[ModelFile, ...] = ()
    weight_map: dict[str, str] = {}
    problem: str | None = None


@dataclass
class ModelExport:
    """Writes the model once, at the end.

    Args:
        config: the model's transformers config.
        tokens: the training data, whose tokenizer is exported.
        say: prints a line to the job's log.
    """

    recipe: Recipe
    world: World
    config: Any
    tokens: Tokens
    say: Callable[[str], None]

    def __post_init__(self) -> None:
        self.directory = output_directory(self.recipe)
        self._attempt = os.environ.get(RUN_ATTEMPT_VARIABLE, "1")
        self._run = os.environ.get(RUN_VARIABLE, "")

    def refuse(self) -> None:
        """Check the output directory before the first step, not after hours of training.

        Raises:
            RecipeError: it is not empty, or cannot be created.
        """
        if self.directory is None or not self._is_named:
            return  # it is next to the checkpoints, which check for both
        error = None
        if self.world.local_rank == 0:
            error = unwritable(self.directory.parent, "write the model", "output.directory")
            if self._is_in_the_way(self.directory):
                error = RecipeError(
                    f"output.directory = {self.directory}: the directory is not empty",
                    fix="set another output.directory, or output.replace = true",
                )
        agree(self.world, error)

    def write(
        self,
        parameters: dict[str, torch.Tensor],
        figures: RunFigures,
        progress: ProgressWriter,
    ) -> Path | None:
        """Write the model. Collective.

        Args:
            parameters: this rank's, by name; a tied one only once in the whole model. Adapters are
                written, and merged into the other weights in place, if these are not in 4 bits.
            figures: for its model card.
            progress: receives the progress.

        Returns:
            The model's directory, or ``None`` if it was not written.

        Raises:
            RecipeError: the recipe names a directory and writing there failed; the last checkpoint
                stays. A failure in the default directory is only logged.
        """
        if self.directory is None:
            return None
        try:
            self._write(self.directory, parameters, figures, progress)
        except RecipeError as error:
            if self._is_named:
                raise
            if self.world.is_head:
                self.say(error.cause)
            return None
        return self.directory

    @property
    def _is_named(self) -> bool:
        return self.recipe.output.directory is not None

    def _write(
        self,
        directory: Path,
        parameters: dict[str, torch.Tensor],
        figures: RunFigures,
        progress: ProgressWriter,
    ) -> None:
        folder = directory.with_name(f".{directory.name}.attempt-{self._attempt}")
        if self.recipe.trains_adapters:
            problem = write_adapter(folder, parameters, self.config, self.recipe, self.world)
            problem = problem and f"{self.world.host}: {problem}"
            self._agree(Part(problem=problem), folder)
        parts = self._agree(self._write_shards(folder, parameters, progress), folder)
        files = {one.name: one for part in parts for one in part.files}
        contents = ModelContents(step=figures.steps, files=files, run=self._run)
        card = model_card(self.recipe, directory.name, figures)
        self._agree(self._complete(folder, parts, contents, card), folder)
        if self.recipe.output.gather:
            self._agree(self._gather(folder, parts, progress), folder)
        self._appear(folder, directory)
        if self.world.is_head:
            size = sum(one.size_bytes for one in contents.files.values())
            self.say(f"model: {size / 1e6:,.1f} MB in {directory}")

    def _is_in_the_way(self, directory: Path) -> bool:
        if self.recipe.output.replace or (self._run and _run_of(directory) == self._run):
            return False  # what the run wrote before it was given more steps
        return directory.exists() and (not directory.is_dir() or any(directory.iterdir()))

    def _write_shards(
        self, folder: Path, parameters: Mapping[str, torch.Tensor], progress: ProgressWriter
    ) -> Part:
        """Write this rank's shards. Collective, since files are numbered across ranks."""
        most, family = int(self.recipe.output.shard_gb * 1e9), family_of(self.config.to_dict())
        # Of one in 4 bits, torch counts the bytes of its values as they are computed with.
        sizes = {name: one.nbytes for name, one in parameters.items() if not is_adapter(name)}
        shards = list(by_size(sizes, sizes.__getitem__, most))
        counts = gathered(self.world, len(shards))
        first, total = sum(counts[: self.world.rank]) + 1, sum(counts)
        size = sum(sizes.values())
        tally = Tally(progress, "writing the model", size, "B")
        files: list[ModelFile] = []
        weight_map: dict[str, str] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            refuse_to_fill(folder, size)
            for number, names in enumerate(shards, first):
                name = (
                    f"model-{number:05d}-of-{total:05d}.safetensors" if total > 1 else SINGLE_FILE
                )
                tensors = {
                    one: merged(parameters, one, self.recipe.adapters, family).detach().contiguous()
                    for one in names
                }
                save_file(tensors, folder / name, metadata={"format": "pt"})
                sync(folder / name)
                files.append(_described(folder / name, self.world.host))
                weight_map |= dict.fromkeys(names, name)
                tally.add(sum(one.nbytes for one in tensors.values()))
        except Exception as error:  # noqa: BLE001 - all ranks must learn of any error
            return Part(problem=f"{self.world.host}: {error}")
        tally.end()
        return Part(tuple(files), weight_map)

    def _complete(
        self, folder: Path, parts: Sequence[Part], contents: ModelContents, card: str
    ) -> Part:
        """Write the small files, once per node."""
        if self.world.local_rank == 0:
            try:
                self._write_small_files(folder, parts, contents)
                (folder / CARD).write_text(card, encoding="utf-8")
            except Exception as error:  # noqa: BLE001 - all ranks must learn of any error
                return Part(problem=f"{self.world.host}: {error}")
        return Part()

    def _write_small_files(
        self, folder: Path, parts: Sequence[Part], contents: ModelContents
    ) -> None:
        weight_map = {name: file for part in parts for name, file in part.weight_map.items()}
        describe(self.recipe, self.config, self.tokens, folder)
        if len(contents.files) > 1:
            size = sum(one.size_bytes for one in contents.files.values())
            index = {"metadata": {"total_size": size}, "weight_map": weight_map}
            (folder / INDEX_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(index)))
        encoded = msgspec.json.format(msgspec.json.encode(contents))
        (folder / CONTENTS).write_bytes(encoded)

    def _gather(self, folder: Path, parts: Sequence[Part], progress: ProgressWriter) -> Part:
        """Collect all files on the head node. Collective."""
        problem: str | None = None
        others = [(rank, one) for rank, part in enumerate(parts) if rank for one in part.files]
        size = sum(one.size_bytes for _, one in others)
        tally = Tally(
            progress if self.world.is_head else unwatched, "gathering the model", size, "B"
        )
        # Every rank uses the same order, so two ranks never wait for each other.
        for rank, one in others:
            path = folder / one.name
            if self.world.rank == rank:
                send_file(path, 0)
            elif self.world.is_head:
                failed = take_file(lambda: folder, one.name, rank)
                problem = problem or (told_of(failed) if failed else _difference(path, one))
                tally.add(one.size_bytes)
        tally.end()
        return Part(problem=None if problem is None else f"{self.world.host}: {problem}")

    def _agree(self, mine: Part, folder: Path) -> list[Part]:
        """Gather all ranks' parts; if one failed, every rank raises the same error."""
        parts = gathered(self.world, mine)
        problem = next((part.problem for part in parts if part.problem), None)
        if problem is not None:
            shutil.rmtree(folder, ignore_errors=True)
            raise RecipeError(
                f"the model could not be written: {problem}",
                fix="free some space and resume the job: it goes on from the last checkpoint",
            )
        return parts

    def _appear(self, folder: Path, directory: Path) -> None:
        """Rename the finished folder, on the head node first: if it is shared, that is enough."""
        for turn in (True, False):
            is_turn = self.world.local_rank == 0 and self.world.is_head is turn
            if is_turn and folder.is_dir():
                if self.world.is_head or not self.recipe.output.gather:
                    shutil.rmtree(directory, ignore_errors=True)
                    folder.rename(directory)
                else:
                    # An incomplete copy here would be mistaken for the model.
                    shutil.rmtree(folder)
            dist.barrier()


def describe(recipe: Recipe, config: Any, tokens: Tokens, folder: Path) -> None:
    """Write everything but the weights: config, tokenizer, chat template."""
    folder.mkdir(parents=True, exist_ok=True)
    published_config(config, DTYPES[recipe.dtype]).save_pretrained(folder)
    tokenizer = tokens.tokenizer
    if recipe.model.path is not None and recipe.data.tokenizer == "auto":
        _copy_small_files(model_directory(recipe.model), folder)
    has_own_end = tokens.template == CHATML_OF_TOKENS  # its marker, which becomes the tokenizer's
    is_made = not (folder / TOKENIZER).is_file()  # trained, or converted
    if is_made or recipe.tokens.add or has_own_end:
        tokenizer.save_pretrained(folder)
    if tokens.template is not None:
        _set_ends(folder, config.eos_token_id)
    if tokens.template is not None and tokens.template != tokenizer.chat_template:
        (folder / "chat_template.jinja").write_text(tokens.template, encoding="utf-8")


def output_directory(recipe: Recipe) -> Path | None:
    """Return the directory that the model is written to at the end; ``None`` for none."""
    if not recipe.output.at_end:
        return None
    if recipe.output.directory is not None:
        return in_home(recipe.output.directory)
    beside = directory_of(recipe, os.environ)
    return None if beside is None else beside / "model"


def _run_of(directory: Path) -> str | None:
    """Return the run that wrote a model; ``None`` if this trainer did not write it."""
    try:
        return msgspec.json.decode((directory / CONTENTS).read_bytes(), type=ModelContents).run
    except (OSError, msgspec.MsgspecError):
        return None


def _described(path: Path, host: str) -> ModelFile:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return ModelFile(path.name, path.stat().st_size, digest, host)


def _difference(path: Path, told: ModelFile) -> str | None:
    """Compare a received file with what its rank wrote; return what is wrong, or ``None``."""
    found = _described(path, told.host)
    return None if found == told else f"{told.name} of {told.host} was damaged in transit"


def _set_ends(folder: Path, ends: int | list[int] | None) -> None:
    """Let the original model's generation settings stop at the new end-of-text tokens, too."""
    settings = read_generation(folder)
    before = listed_ends(settings.get("eos_token_id"))
    found = list(dict.fromkeys([*listed_ends(ends), *before]))
    if settings and {*found} != {*before}:
        settings["eos_token_id"] = found
        (folder / GENERATION).write_bytes(msgspec.json.format(msgspec.json.encode(settings)))


def _copy_small_files(source: Path, folder: Path) -> None:
    """Copy tokenizer, chat template, generation settings, license and similar files."""
    for path in source.iterdir():
        is_weights = path.name.endswith(_NOT_COPIED)
        is_ours = path.name in {"config.json", CONTENTS, CARD}
        if is_weights or is_ours or path.name.startswith(".") or not path.is_file():
            continue
        if path.stat().st_size <= _LARGEST_COPIED_BYTES:
            shutil.copyfile(path, folder / path.name)
