"""Weights: initializes a stage's from a seed, or reads them from a model directory."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.quantities import by_size
from jupyter_mntrain.recipe.families import Family
from jupyter_mntrain.recipe.families.directories import CONFIG, unreadable
from jupyter_mntrain.telemetry.progress import Tally
from jupyter_mntrain.train.model.decoder import HEAD
from jupyter_mntrain.train.model.weight_files import (
    files_of,
    listing_of,
    opened,
)

PART_BYTES = 256 << 20
"""Most bytes read from a file before it is reopened, see :func:`_read`."""
DRAWN_VALUES = 1 << 18
"""Values of a tensor that are drawn at once: 1 MB, which stays in a core's cache."""
SUMMED_ROWS = 4096
"""Rows of an embedding that are converted at once, to be summed."""
DRAWN_TOGETHER = 16
"""torch draws normal values in groups of this size: pieces of whole groups give the same values."""


def seeded_weights(
    parameters: Mapping[str, torch.Tensor],
    *,
    seed: int,
    deviation: float,
    tied_to: str | None,
    device: torch.device,
    tally: Tally | None = None,
    threads: int | None = None,
) -> dict[str, torch.Tensor]:
    """Initialize weights independently of how the model is split.

    Each tensor is drawn on the CPU by its own generator, seeded by its name: any split over any
    devices starts from the same model. Matrices are normal with ``deviation``, biases zero, norms
    one, as transformers initializes these families.

    Args:
        tied_to: name of the embedding, if the output projection shares it.
        tally: counts the bytes.
        threads: draw several tensors at once; by default this rank's share of the cores. The
            values do not depend on it.
    """
    counting = threading.Lock()

    def count(size: int) -> None:
        if tally is not None:
            with counting:
                tally.add(size)

    def fresh(name: str) -> torch.Tensor:
        source = tied_to if tied_to and name == HEAD else name
        return _fresh(parameters[name], source, seed, deviation, device, count)

    # The largest first: one that begins last would keep all others waiting.
    order = sorted(parameters, key=lambda name: parameters[name].numel(), reverse=True)
    with ThreadPoolExecutor(threads or _cores(), "weights") as pool:
        made = dict(zip(order, pool.map(fresh, order), strict=True))
    return {name: made[name] for name in parameters}


def _cores() -> int:
    """This rank's share of the cores that its node's ranks may run on."""
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return max(1, len(os.sched_getaffinity(0)) // ranks)


def load_weights(
    directory: Path,
    parameters: Mapping[str, torch.Tensor],
    family: Family,
    *,
    device: torch.device,
    added: Collection[int] = (),
    tally: Tally | None = None,
) -> dict[str, torch.Tensor]:
    """Read only the named tensors from a Hugging Face directory, opening only their files.

    Args:
        added: ids of tokens that are new; the files' rows for tokens may be fewer than asked for.
        tally: counts the bytes of the loaded tensors.

    Raises:
        RecipeError: there are no weights, or a tensor is missing or has another shape.
    """
    loaded: dict[str, torch.Tensor] = {}
    grows = _growing(family, added)
    for file, names in _wanted(directory, parameters, family).items():
        for name, tensor in _read(directory / file, names, parameters, grows):
            like = parameters[name]
            whole = _with_rows(tensor, len(like), added) if name in grows else tensor
            # Without a conversion it stays mapped to the file until it is written to.
            loaded[name] = whole.to(device=device, dtype=like.dtype)
            if tally is not None:
                tally.add(like.nbytes)
    return loaded


def refuse_missing_weights(
    directory: Path,
    parameters: Mapping[str, torch.Tensor],
    family: Family,
    added: Collection[int] = (),
) -> None:
    """Look for the named tensors in a Hugging Face directory, and read none.

    Raises:
        RecipeError: as for :func:`load_weights`.
    """
    grows = _growing(family, added)
    for file, names in _wanted(directory, parameters, family).items():
        with opened(directory / file) as found:
            for name, source in names.items():
                shape, like = found.shape(source), parameters[name]
                _refuse_other_shape(directory, source, shape, like, grows=name in grows)


def _wanted(
    directory: Path, parameters: Iterable[str], family: Family
) -> dict[str, dict[str, str]]:
    """The names of tensors in each file, by those of the parameters."""
    parameters = list(parameters)

    def sources(files: Mapping[str, str]) -> dict[str, str | None]:
        return {name: _source(name, files, family) for name in parameters}

    files = files_of(
        directory, lambda files: {files[one] for one in sources(files).values() if one is not None}
    )
    wanted: dict[str, dict[str, str]] = {}
    for name, source in sources(files).items():
        if source is None:
            cause = f"model.path = {directory}: the tensor {name} is missing in "
            cause += listing_of(directory)
            raise RecipeError(cause, fix=f"copy {CONFIG} and all weights of the model again")
        wanted.setdefault(files[source], {})[name] = source
    return wanted


def _source(name: str, files: Mapping[str, str], family: Family) -> str | None:
    """What a weight is called in the files; a tied model's hold the embedding only."""
    names = [*family.names_in_files(name)]
    if name == HEAD:
        names += family.names_in_files(family.embedding_weight)
    return next((one for one in names if one in files), None)


def _growing(family: Family, added: Collection[int]) -> frozenset[str]:
    """The weights that get rows for added tokens."""
    return frozenset({HEAD, family.embedding_weight} if added else ())


def _refuse_other_shape(
    directory: Path, source: str, shape: tuple[int, ...], like: torch.Tensor, *, grows: bool
) -> None:
    wanted = tuple(like.shape)
    fits = shape[1:] == wanted[1:] and shape[0] <= wanted[0] if grows else shape == wanted
    if not fits:
        shapes = f"{shape}, its config says {tuple(like.shape)}"
        cause = f"model.path = {directory}: {source} is {shapes}"
        raise RecipeError(cause, fix="use config.json and weights of the same model")


def _fresh(
    like: torch.Tensor,
    name: str,
    seed: int,
    deviation: float,
    device: torch.device,
    count: Callable[[int], None],
) -> torch.Tensor:
    if like.ndim == 1 or name.endswith(".bias"):
        value = 0.0 if name.endswith(".bias") else 1.0
        count(like.nbytes)
        return torch.full(like.shape, value, dtype=like.dtype, device=device)
    generator = generator_of(seed, name)
    made = torch.empty(like.shape, dtype=like.dtype, device=device)
    # In pieces: in float32, all of an embedding would take gigabytes of the host in each thread.
    for piece in _pieces(made.view(-1)):
        drawn = torch.randn(len(piece), generator=generator)
        piece.copy_(drawn.mul_(deviation))
        count(piece.nbytes)
    return made


def generator_of(seed: int, name: str) -> torch.Generator:
    """The generator on the CPU that draws a tensor, by its name."""
    digest = hashlib.sha256(f"{seed}\0{name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)


def _pieces(flat: torch.Tensor) -> Iterator[torch.Tensor]:
    """Consecutive views of a vector that are drawn as the whole would be.

    All but the last are whole groups; the last keeps at least one, since torch draws fewer values
    in another way, and draws the end of an incomplete group again.
    """
    begin, total = 0, len(flat)
    while begin < total:
        end = begin + DRAWN_VALUES
        if total - end < DRAWN_TOGETHER:
            end = total
        yield flat[begin:end]
        begin = end


def _read(
    path: Path,
    names: Mapping[str, str],
    parameters: Mapping[str, torch.Tensor],
    grows: Collection[str],
) -> Iterable[tuple[str, torch.Tensor]]:
    for part in by_size(names, lambda name: parameters[name].nbytes, PART_BYTES):
        # Reopened per part: pages that were read stay resident as long as the file is mapped.
        with opened(path) as file:
            for name in part:
                tensor, like = file.tensor(names[name]), parameters[name]
                shape = tuple(tensor.shape)
                _refuse_other_shape(path.parent, names[name], shape, like, grows=name in grows)
                if not tensor.is_floating_point():
                    raise unreadable(path, f"{names[name]} is of {tensor.dtype}, no numbers")
                if not tensor.isfinite().all():
                    cause = f"model.path = {path.parent}: {names[name]} in {path.name} has NaN"
                    fix = "copy the file again, or begin with weights from before they were lost"
                    raise RecipeError(f"{cause} or infinity", fix=fix)
                yield name, tensor


def _with_rows(tensor: torch.Tensor, rows: int, added: Collection[int]) -> torch.Tensor:
    """A matrix with a row per token, those that are new the mean of those that were used before.

    Summed in double precision: both copies of a tied embedding come out alike on two machines.
    """
    used = tensor[: min(added)]
    sums = [part.sum(0, dtype=torch.float64) for part in torch.split(used, SUMMED_ROWS)]
    mean = (torch.stack(sums).sum(0) / len(used)).to(tensor.dtype)
    made = mean.expand(rows, -1).clone()
    made[: len(tensor)] = tensor
    made[sorted(added)] = mean
    return made
