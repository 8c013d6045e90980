"""Copies a checkpoint to another directory, or exports one as a Hugging Face directory.

Runs on the nodes that have it, next to whatever else they do, on their CPUs.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import msgspec
import torch
import torch.distributed as dist
from safetensors.torch import save_file

from jupyter_mntrain.launch.checkpoints.directory import CheckpointDirectory, shard_name
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.quantities import by_size
from jupyter_mntrain.model.records.checkpoint import Manifest, RunFigures
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.telemetry.progress import ProgressWriter, Tally, unwatched
from jupyter_mntrain.train.checkpoint.durable import copy_description, copy_proved
from jupyter_mntrain.train.checkpoint.export import (
    CARD,
    CONTENTS,
    DESCRIPTION,
    ModelContents,
    ModelFile,
    load_whole,
    model_card,
)
from jupyter_mntrain.train.checkpoint.neighbors import refuse_to_fill, sync
from jupyter_mntrain.train.checkpoint.places import unwritable
from jupyter_mntrain.train.checkpoint.resuming import FoundCheckpoint
from jupyter_mntrain.train.model.decoder import whole_model
from jupyter_mntrain.train.model.weights import INDEX_FILE, SINGLE_FILE
from jupyter_mntrain.train.world import World, agree, gathered


def copy_checkpoint(
    world: World,
    source: CheckpointDirectory,
    found: FoundCheckpoint,
    target: CheckpointDirectory,
    progress: ProgressWriter,
) -> None:
    """Copy a checkpoint; its manifest is written last, after every shard was verified. Collective.

    Every node writes what it reads: ``target`` may be shared by all or local to each.

    Raises:
        RecipeError: a node cannot write it, or read it back as it was; nothing is published then.
    """
    manifest = found.manifest
    error = unwritable(target.path, "copy the checkpoint", "directory with --copy")
    agree(world, error or _other_in_the_way(target, manifest))
    mine = [shard for shard, reader in enumerate(found.readers) if reader == world.rank]
    size = sum(manifest.shard_bytes[shard] for shard in mine)
    tally = Tally(progress, "copying the checkpoint", size, "B")
    try:
        folder = target.begin(manifest.step)
        refuse_to_fill(folder, size)
        for shard in mine:
            name = shard_name(shard)
            size = manifest.shard_bytes[shard]
            copy_proved(source.of(manifest.step) / name, folder / name, size, tally.add)
    except OSError as trouble:
        error = RecipeError(f"the checkpoint was not copied: {trouble}", fix=_TRY_AGAIN)
    tally.end()
    try:
        agree(world, error)
    except RecipeError:
        target.discard(manifest.step)
        raise
    _publish(world, target, manifest)
    if world.is_head:
        copy_description(source.path, target.path)


def export_checkpoint(
    world: World,
    source: CheckpointDirectory,
    found: FoundCheckpoint,
    directory: Path,
    *,
    recipe: Recipe,
    run: str,
    progress: ProgressWriter,
) -> None:
    """Write the model of a checkpoint as a Hugging Face directory on the head node. Collective.

    Other ranks send what only they can read. No more than one file's weights are in memory.

    Args:
        recipe: that it was trained by.
        run: that saved it.

    Raises:
        RecipeError: the directory is in the way or not writable, or the checkpoint lacks a tensor.
    """
    folder = directory.with_name(f".{directory.name}.step-{found.manifest.step}")
    agree(world, _not_exportable(source.path, directory) if world.is_head else None)
    stage = whole_model(source.path / DESCRIPTION) if world.is_head else None
    weights = {} if stage is None else stage.weights()
    most = int(recipe.output.shard_gb * 1e9)
    groups = list(by_size(weights, lambda name: weights[name].nbytes, most))
    count = gathered(world, len(groups))[0]
    files: dict[str, ModelFile] = {}
    weight_map: dict[str, str] = {}
    error = None
    if world.is_head:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(source.path / DESCRIPTION, folder)
    tally = Tally(progress if world.is_head else unwatched, "writing the model", count, "files")
    for number in range(count):
        names = groups[number] if world.is_head else []
        loaded = load_whole(world, source, found, stage, names, recipe)
        if world.is_head and error is None:
            name = (
                f"model-{number + 1:05d}-of-{count:05d}.safetensors" if count > 1 else SINGLE_FILE
            )
            error = _write_file(folder / name, names, loaded)
            weight_map |= dict.fromkeys(names, name)
            if error is None:
                files[name] = _described(folder / name, world.host)
        tally.add(1)
    tally.end()
    if world.is_head and error is None:
        contents = ModelContents(step=found.manifest.step, files=files, run=run)
        _complete(folder, contents, weight_map)
        figures = found.manifest.figures or RunFigures(steps=found.manifest.step)
        card = model_card(recipe, directory.name, figures)
        (folder / CARD).write_text(card, encoding="utf-8")
        folder.rename(directory)
    try:
        agree(world, error)
    except RecipeError:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _other_in_the_way(target: CheckpointDirectory, manifest: Manifest) -> RecipeError | None:
    """Return an error if the target has another save of this step, perhaps the last of its run."""
    there = target.manifests().get(manifest.step)
    if there is None or there == manifest:
        return None
    return RecipeError(
        f"{target.path} has a checkpoint of step {manifest.step} of another save",
        fix="give another directory, or delete that one",
    )


def _publish(world: World, target: CheckpointDirectory, manifest: Manifest) -> None:
    """Publish on the head node first; for a shared directory that is enough. Collective."""
    error = None
    for turn in (True, False):
        if world.local_rank == 0 and world.is_head is turn:
            try:
                target.publish(manifest)
            except OSError as trouble:
                error = RecipeError(f"the copy was not finished: {trouble}", fix=_TRY_AGAIN)
        dist.barrier()
    agree(world, error)


def _not_exportable(source: Path, directory: Path) -> RecipeError | None:
    if not (source / DESCRIPTION / "config.json").is_file():
        cause = f"{source / DESCRIPTION} does not exist"
        return RecipeError(
            cause, fix="resume the job once: it writes its config and tokenizer there"
        )
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        cause = f"{directory} is not empty"
        return RecipeError(cause, fix="give another directory, or delete that one")
    return unwritable(directory.parent, "write the model", "directory with --export")


def _write_file(
    path: Path, names: list[str], loaded: dict[str, torch.Tensor]
) -> RecipeError | None:
    lacking = [name for name in names if name not in loaded]
    if lacking:
        return RecipeError(f"the checkpoint lacks {lacking[0]}", fix="export another one: --step")
    tensors = {name: loaded[name].contiguous() for name in names}
    try:
        refuse_to_fill(path.parent, sum(one.nbytes for one in tensors.values()))
        save_file(tensors, path, metadata={"format": "pt"})
        sync(path)
    except OSError as trouble:
        return RecipeError(f"the model was not written: {trouble}", fix=_TRY_AGAIN)
    return None


def _described(path: Path, host: str) -> ModelFile:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return ModelFile(path.name, path.stat().st_size, digest, host)


def _complete(folder: Path, contents: ModelContents, weight_map: dict[str, str]) -> None:
    if len(contents.files) > 1:
        size = sum(one.size_bytes for one in contents.files.values())
        index = {"metadata": {"total_size": size}, "weight_map": weight_map}
        (folder / INDEX_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(index)))
    (folder / CONTENTS).write_bytes(msgspec.json.format(msgspec.json.encode(contents)))


_TRY_AGAIN = "free some space or give another directory, then try again"
