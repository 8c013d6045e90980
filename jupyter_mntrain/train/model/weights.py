"""Weights: initializes a stage's from a seed, or reads them from a model directory."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import torch
from safetensors import SafetensorError, safe_open

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.telemetry.progress import Tally
from jupyter_mntrain.train.model.decoder import EMBEDDING, HEAD

T = TypeVar("T")

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
PART_BYTES = 256 << 20
"""Most bytes read from a file before it is reopened, see :func:`_read`."""
DRAWN_VALUES = 1 << 18
"""Values of a tensor that are drawn at once: 1 MB, which stays in a core's cache."""
DRAWN_TOGETHER = 16
"""torch draws normal values in groups of this size: pieces of whole groups give the same values."""


def seeded_weights(
    parameters: Mapping[str, torch.Tensor],
    *,
    seed: int,
    deviation: float,
    tied: bool,
    device: torch.device,
    tally: Tally | None = None,
    threads: int | None = None,
) -> dict[str, torch.Tensor]:
    """Initialize weights independently of how the model is split.

    Each tensor is drawn on the CPU by its own generator, seeded by its name: any split over any
    devices starts from the same model. Matrices are normal with ``deviation``, biases zero, norms
    one, as transformers initializes these families.

    Args:
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
        source = EMBEDDING if tied and name == HEAD else name
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
    *,
    device: torch.device,
    tally: Tally | None = None,
) -> dict[str, torch.Tensor]:
    """Read only the named tensors from a Hugging Face directory, opening only their files.

    Args:
        tally: counts the bytes of the loaded tensors.

    Raises:
        RecipeError: there are no safetensors files, or a tensor is missing or has another shape.
    """
    loaded: dict[str, torch.Tensor] = {}
    for file, names in _wanted(directory, parameters).items():
        for name, tensor in _read(directory / file, names, parameters, device):
            loaded[name] = tensor
            if tally is not None:
                tally.add(tensor.nbytes)
    return loaded


def refuse_missing_weights(directory: Path, parameters: Mapping[str, torch.Tensor]) -> None:
    """Look for the named tensors in a Hugging Face directory, and read none.

    Raises:
        RecipeError: as for :func:`load_weights`.
    """
    for file, names in _wanted(directory, parameters).items():
        with _opened(directory / file) as opened:
            for name, source in names.items():
                shape = tuple(opened.get_slice(source).get_shape())
                _refuse_other_shape(directory, source, shape, parameters[name])


def _wanted(directory: Path, parameters: Iterable[str]) -> dict[str, dict[str, str]]:
    """The names of tensors in each file, by those of the parameters."""
    files = _files(directory)
    wanted: dict[str, dict[str, str]] = {}
    for name in parameters:
        # A tied model's files hold the embedding only.
        source = EMBEDDING if name == HEAD and HEAD not in files else name
        if source not in files:
            cause = f"model.path = {directory}: the tensor {source} is missing"
            raise RecipeError(cause, fix="copy the whole model directory")
        wanted.setdefault(files[source], {})[name] = source
    return wanted


def _refuse_other_shape(
    directory: Path, source: str, shape: tuple[int, ...], like: torch.Tensor
) -> None:
    if shape != tuple(like.shape):
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
    digest = hashlib.sha256(f"{seed}\0{name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
    made = torch.empty(like.shape, dtype=like.dtype, device=device)
    # In pieces: in float32, all of an embedding would take gigabytes of the host in each thread.
    for piece in _pieces(made.view(-1)):
        drawn = torch.randn(len(piece), generator=generator)
        piece.copy_(drawn.mul_(deviation))
        count(piece.nbytes)
    return made


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


def _files(directory: Path) -> dict[str, str]:
    """Map each tensor to its file."""
    index = directory / INDEX_FILE
    if index.is_file():
        weight_map: dict[str, str] = json.loads(index.read_text())["weight_map"]
        return weight_map
    single = directory / SINGLE_FILE
    if single.is_file():
        with _opened(single) as file:
            return dict.fromkeys(file.keys(), SINGLE_FILE)
    cause = f"model.path = {directory}: contains neither {SINGLE_FILE} nor {INDEX_FILE}"
    raise RecipeError(cause, fix="use a directory with safetensors files")


def _read(
    path: Path,
    names: Mapping[str, str],
    parameters: Mapping[str, torch.Tensor],
    device: torch.device,
) -> Iterable[tuple[str, torch.Tensor]]:
    for part in by_size(names, lambda name: parameters[name].nbytes, PART_BYTES):
        # Reopened per part: pages that were read stay resident as long as the file is mapped.
        with _opened(path) as file:
            for name in part:
                tensor = file.get_tensor(names[name])
                like = parameters[name]
                _refuse_other_shape(path.parent, names[name], tuple(tensor.shape), like)
                # Without a conversion it stays mapped to the file until it is written to.
                yield name, tensor.to(device=device, dtype=like.dtype)


def by_size(items: Iterable[T], size_of: Callable[[T], int], most_bytes: int) -> Iterator[list[T]]:
    """Split items, in order, into groups of at most ``most_bytes`` (or one item)."""
    group: list[T] = []
    held = 0
    for item in items:
        size = size_of(item)
        if group and held + size > most_bytes:
            yield group
            group, held = [], 0
        group.append(item)
        held += size
    if group:
        yield group


def _opened(path: Path) -> safe_open:
    try:
        return safe_open(path, framework="pt")
    except (OSError, SafetensorError) as error:
        cause = f"model.path = {path.parent}: cannot read {path.name}: {error}"
        raise RecipeError(cause, fix="copy the file again") from None
