"""Weight check: holds a directory's files of weights against its config, for the whole model.

Ranks read only what they compute with, and would each make something else of a contradiction. Here
names, layers and dtypes are compared, by what files say at their beginning.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.text.brief import some_of
from jupyter_mntrain.recipe.families import Family, family_of
from jupyter_mntrain.recipe.families.directories import CONFIG
from jupyter_mntrain.train.model.decoder import HEAD, meta_stage
from jupyter_mntrain.train.model.weight_files import files_of, listing_of, opened, refuse_lost_bytes

_COMPUTED = ("rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias", ".attention.bias")
"""What older versions of transformers saved besides weights, and models compute."""
_READ = {
    str(one).removeprefix("torch."): one
    for one in (torch.float64, torch.float32, torch.float16, torch.bfloat16)
}
"""What weights may be, by name."""


def hold_against_config(directory: Path, config: Any, dtype: torch.dtype) -> list[str]:
    """Compare what a directory's files of weights hold with its config.

    Args:
        dtype: to train in.

    Returns:
        What becomes of the files' weights that nobody might expect, each in a line: layers and
        tensors that are left out, and rounding.

    Raises:
        RecipeError: the files have fewer layers; embedding and output projection are to be one and
            differ, or are to be two and there is one; weights are not of a floating dtype; or a
            file is not what was saved.
    """
    family = family_of(config.to_dict())
    files = files_of(directory)
    for one in sorted(set(files.values())):
        refuse_lost_bytes(directory / one)
    heads, embeddings = (
        [one for one in family.names_in_files(name) if one in files]
        for name in (HEAD, family.embedding_weight)
    )
    _refuse_other_ends(directory, files, heads, embeddings, is_tied=config.tie_word_embeddings)
    said = [*_layers_left_out(directory, files, family, config)]
    taken = {one for name in weight_names(config) for one in family.names_in_files(name)}
    taken |= {*heads}
    layer, layers = _layer_pattern(family), config.num_hidden_layers

    def is_left(name: str) -> bool:
        found = layer.match(name)
        is_more = found is not None and int(found[1]) >= layers  # which has been said
        return name not in taken and not is_more and not name.endswith(_COMPUTED)

    if left := sorted(filter(is_left, files)):
        said.append(f"{len(left)} tensors of {directory} are not in this model: {some_of(left)}")
    read = {name: file for name, file in files.items() if name in taken}
    return [*said, *_rounded(directory, read, dtype)]


def weight_names(config: Any) -> Iterator[str]:
    """Names of a whole model's weights. One layer is built: all others have the same."""
    alone = copy.deepcopy(config)
    alone.num_hidden_layers = 1
    if getattr(alone, "layer_types", None):
        alone.layer_types = alone.layer_types[:1]
    stage = meta_stage(alone, range(1), first=True, last=True, dtype=torch.float32, attention=None)
    first = f"{stage.family.layers}.0."
    for name in stage.weights():
        if not name.startswith(first):
            yield name
            continue
        for index in range(config.num_hidden_layers):
            yield f"{stage.family.layers}.{index}.{name.removeprefix(first)}"


def _refuse_other_ends(
    directory: Path,
    files: Mapping[str, str],
    heads: list[str],
    embeddings: list[str],
    *,
    is_tied: bool,
) -> None:
    """Raise if embedding and output projection are not what the config says."""
    says = f"model.path = {directory}: {CONFIG} says tie_word_embeddings = {str(is_tied).lower()}"
    if embeddings and not heads and not is_tied:
        fix = f"copy weights that have it, or set that to true if {embeddings[0]} serves as both"
        raise RecipeError(f"{says}, and {listing_of(directory)} has no {HEAD}", fix=fix)
    if heads and embeddings and is_tied:
        both = [(directory / files[one[0]], one[0]) for one in (heads, embeddings)]
        if all(path.is_file() for path, _ in both) and not _are_equal(*both):
            fix = "set that to false to train both, or take one of them out of the files"
            raise RecipeError(f"{says}, but {heads[0]} and {embeddings[0]} differ", fix=fix)


def _are_equal(*places: tuple[Path, str]) -> bool:
    """Whether two tensors of files are the same."""
    with opened(places[0][0]) as first, opened(places[1][0]) as second:
        return torch.equal(first.tensor(places[0][1]), second.tensor(places[1][1]))


def _layers_left_out(
    directory: Path, files: Mapping[str, str], family: Family, config: Any
) -> Iterator[str]:
    """What the files have more layers than the config; raises if they have fewer."""
    layer, layers = _layer_pattern(family), config.num_hidden_layers
    found = {int(match[1]) for match in map(layer.match, files) if match is not None}
    field = family.fields.get("num_hidden_layers", "num_hidden_layers")
    says = f"{CONFIG} says {field} = {layers}"
    if lacks := [one for one in range(layers) if one not in found]:
        where = f"model.path = {directory}: {listing_of(directory)}"
        cause = f"{where} has {len(found)} layers, {says}; layer {lacks[0]} is missing"
        fix = f"use {CONFIG} and weights of the same model, or copy the whole model directory"
        raise RecipeError(cause, fix=fix)
    if len(found) > layers:
        yield f"{directory} has {len(found)} layers, {says}: those from {layers} on are left out"


def _layer_pattern(family: Family) -> re.Pattern[str]:
    """What names in files begin with that are of a layer: its index is the first group."""
    decoder, _, layers = family.layers.partition(".")
    return re.compile(rf"(?:{re.escape(decoder)}\.)?{re.escape(layers)}\.(\d+)\.")


def _rounded(directory: Path, files: Mapping[str, str], dtype: torch.dtype) -> Iterator[str]:
    """What is lost by training in a dtype; raises if a tensor is no weight at all.

    Args:
        files: of each tensor that is read. Those of other nodes may not be here.
    """
    found: dict[str, str] = {}
    for file in sorted({*files.values()}):
        if (directory / file).is_file():
            with opened(directory / file) as one:
                found |= {name: one.dtype(name) for name in one.names() if name in files}
    for name, its in found.items():
        if its not in _READ:
            cause = f"model.path = {directory}: {name} in {files[name]} is {its}"
            fix = "use the model as it was before quantization, in float32 or bfloat16"
            raise RecipeError(cause, fix=fix)
    lost = [name for name, its in found.items() if _loses(_READ[its], dtype)]
    if not lost:
        return
    kinds = " and ".join(sorted({found[name] for name in lost}))
    some = f"{len(lost)} of {len(found)} tensors of {directory} are"
    which = some if len(lost) < len(found) else f"{directory} is"
    ours = next(name for name, one in _READ.items() if one == dtype)
    yield f"{which} {kinds}; trained in {ours}, which rounds the weights"


def _loses(before: torch.dtype, after: torch.dtype) -> bool:
    """Whether some values of one dtype are none of the other."""
    theirs, ours = torch.finfo(before), torch.finfo(after)
    return theirs.eps < ours.eps or theirs.max > ours.max
