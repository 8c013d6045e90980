"""Weights: initializes them from a seed, or reads and checks those of a model directory."""

from __future__ import annotations

import copy
import hashlib
import os
import pickle
import re
import threading
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import torch
from safetensors import SafetensorError, safe_open

from jupyter_mntrain.families import Family, family_of
from jupyter_mntrain.families.directories import (
    CONFIG,
    FORMATS,
    WEIGHT_NAMES,
    lacking_weights,
    listed_files,
    unreadable,
)
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.quantities import by_size
from jupyter_mntrain.model.text.brief import some_of
from jupyter_mntrain.telemetry.progress import Tally
from jupyter_mntrain.train.model.decoder import HEAD, meta_stage

# Weight files of a Hugging Face directory: safetensors, or what ``torch.save`` wrote.


SAMPLES, SAMPLE_BYTES = 64, 4096
"""Number of samples of a weights file that is not read in full, and their size."""

INDEX_FILE, SINGLE_FILE = FORMATS[0]

_DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
"""safetensors' names of the dtypes of weights."""


class Opened(Protocol):
    """An opened weights file, or what was read of it."""

    def names(self) -> Iterable[str]: ...

    def tensor(self, name: str) -> torch.Tensor: ...

    def shape(self, name: str) -> tuple[int, ...]: ...

    def dtype(self, name: str) -> str:
        """Return the dtype by torch's name, like ``float32``, if weights may have it."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


class _Safetensors:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: Any = safe_open(path, framework="pt")

    def names(self) -> Iterable[str]:
        found: list[str] = self._file.keys()
        return found

    def tensor(self, name: str) -> torch.Tensor:
        with _naming(self._path, name):
            found: torch.Tensor = self._file.get_tensor(name)
        return found

    def shape(self, name: str) -> tuple[int, ...]:
        with _naming(self._path, name):
            return tuple(self._file.get_slice(name).get_shape())

    def dtype(self, name: str) -> str:
        found: str = self._file.get_slice(name).get_dtype()
        return _DTYPES.get(found, found)

    def __enter__(self) -> Self:
        self._file.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._file.__exit__(*error)


class _Pickled:
    """An unpickled file: only tensors are loaded, and of newer files only those in use."""

    def __init__(self, path: Path) -> None:
        # Files of torch before 1.6 are no zip archives, and cannot be mapped.
        mapped = zipfile.is_zipfile(path)
        self._path = path
        held = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
        if not isinstance(held, dict):
            raise ValueError("it does not hold weights by name")  # noqa: TRY004 - of a file
        self._tensors = {name: one for name, one in held.items() if isinstance(one, torch.Tensor)}

    def names(self) -> Iterable[str]:
        return list(self._tensors)

    def tensor(self, name: str) -> torch.Tensor:
        with _naming(self._path, name):
            return self._tensors[name]

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.tensor(name).shape)

    def dtype(self, name: str) -> str:
        return str(self._tensors[name].dtype).removeprefix("torch.")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._tensors = {}


@contextmanager
def _naming(path: Path, name: str) -> Iterator[None]:
    """Name the file and the missing tensor in errors, since the index may list it."""
    try:
        yield
    except (KeyError, SafetensorError):
        fix = "copy the index and all files that it lists again"
        raise unreadable(path, f"it has no {name}", fix=fix) from None


def opened(path: Path) -> Opened:
    """Open a file of weights.

    Raises:
        RecipeError: it is missing or broken, or holds more than weights.
    """
    try:
        return _Safetensors(path) if path.suffix == ".safetensors" else _Pickled(path)
    except pickle.UnpicklingError:
        fix = "copy the file again; or, where you trust it, load it with transformers and save it: "
        fix += "save_pretrained(DIR)"
        raise unreadable(path, "it is damaged, or holds more than weights", fix=fix) from None
    except Exception as error:  # noqa: BLE001 - torch raises anything where a pickle is damaged
        raise unreadable(path, error) from None


def refuse_lost_bytes(path: Path) -> None:
    """Check a file written by ``torch.save`` against its own checksums, which torch does not do.

    Raises:
        RecipeError: it is not what was saved.
    """
    if path.suffix == ".safetensors" or not path.is_file() or not zipfile.is_zipfile(path):
        return
    try:
        with zipfile.ZipFile(path) as file:
            lost = file.testzip()
    except Exception as error:  # noqa: BLE001 - zipfile raises anything where a part is damaged
        raise unreadable(path, error) from None
    if lost is not None:
        raise unreadable(path, f"{lost} is not what was saved")


def files_of(
    directory: Path, wanted: Callable[[Mapping[str, str]], Iterable[str]] = lambda _: ()
) -> dict[str, str]:
    """Map each tensor of a directory to its file.

    Of two formats, the first counts whose files are there: a download may leave one out, and its
    index not.

    Args:
        wanted: picks the files that will be opened; by default none is needed.

    Raises:
        RecipeError: the directory has no weights, or some of their files are missing.
    """
    for name in WEIGHT_NAMES:
        found = _tensors(directory / name)
        if found is not None and all((directory / one).is_file() for one in wanted(found)):
            return found
    raise lacking_weights(directory, str(directory)) or RecipeError(
        f"model.path = {directory}: its files changed", fix="try again"
    )


def listing_of(directory: Path) -> str:
    """Return the file of a directory that lists the weights."""
    return next(one for one in WEIGHT_NAMES if (directory / one).is_file())


def fingerprint(directory: Path, names: Iterable[str] | None = None) -> str:
    """Hash a directory's weights: names and sizes of their files, and some of their bytes.

    Few are read: of weights that were trained further, nearly all differ.

    Args:
        names: of the files; default: all.

    Raises:
        RecipeError: the directory has no weights.
    """
    digest = hashlib.sha256()
    if names is None:
        names = files_of(directory, lambda files: set(files.values())).values()
    for name in sorted(set(names)):
        path = directory / name
        size = path.stat().st_size
        digest.update(f"{name}\0{size}\0".encode())
        with path.open("rb") as file:
            for place in range(SAMPLES):
                file.seek(place * max(0, size - SAMPLE_BYTES) // (SAMPLES - 1))
                digest.update(file.read(SAMPLE_BYTES))
    return digest.hexdigest()


def _tensors(path: Path) -> dict[str, str] | None:
    """Return the file of each tensor, from an index or a single file; ``None`` if there is none."""
    if not path.is_file():
        return None
    if path.suffix == ".json":
        return listed_files(path)
    with opened(path) as file:
        return dict.fromkeys(file.names(), path.name)


# Weight check: holds a directory's files of weights against its config, for the whole model.
#
# Ranks read only what they compute with, and would each make something else of a contradiction.
# Here names, layers and dtypes are compared, by what files say at their beginning.


_COMPUTED = ("rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias", ".attention.bias")
"""Buffers that older versions of transformers saved, and models compute."""
_READ = {
    str(one).removeprefix("torch."): one
    for one in (torch.float64, torch.float32, torch.float16, torch.bfloat16)
}
"""The dtypes that weights may have, by name."""


def hold_against_config(directory: Path, config: Any, dtype: torch.dtype) -> list[str]:
    """Compare the weights in a directory's files with its config.

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
    """Yield the names of a whole model's weights, from a model with a single layer."""
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
    """Raise if embedding and output projection do not match the config."""
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
    """Yield a line about layers that the config leaves out; raise if the files have too few."""
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
    """Return the pattern of a layer's prefix in file names; its index is the first group."""
    decoder, _, layers = family.layers.partition(".")
    return re.compile(rf"(?:{re.escape(decoder)}\.)?{re.escape(layers)}\.(\d+)\.")


def _rounded(directory: Path, files: Mapping[str, str], dtype: torch.dtype) -> Iterator[str]:
    """Yield what is lost by training in a dtype; raise if a tensor cannot be a weight.

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
    """Whether one dtype has values that the other cannot represent."""
    theirs, ours = torch.finfo(before), torch.finfo(after)
    return theirs.eps < ours.eps or theirs.max > ours.max


# Weights: initializes a stage's from a seed, or reads them from a model directory.


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
    """Return this rank's share of the cores that its node's ranks may use."""
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
    """Check that a Hugging Face directory has the named tensors, without reading them.

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
    """Return the tensor names to read from each file, by parameter names."""
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
    """Return the name of a weight in the files; those of a tied model have only the embedding."""
    names = [*family.names_in_files(name)]
    if name == HEAD:
        names += family.names_in_files(family.embedding_weight)
    return next((one for one in names if one in files), None)


def _growing(family: Family, added: Collection[int]) -> frozenset[str]:
    """Return the weights that get rows for added tokens."""
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
    """Return the CPU generator that draws a tensor, seeded by its name."""
    digest = hashlib.sha256(f"{seed}\0{name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)


def _pieces(flat: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield consecutive views of a vector, drawn so that together they equal the whole.

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
                    raise unreadable(
                        path, f"{names[name]} is of {tensor.dtype}, which is not a number type"
                    )
                if not tensor.isfinite().all():
                    cause = f"model.path = {path.parent}: {names[name]} in {path.name} has NaN"
                    fix = "copy the file again, or start from weights saved before that"
                    raise RecipeError(f"{cause} or infinity", fix=fix)
                yield name, tensor


def _with_rows(tensor: torch.Tensor, rows: int, added: Collection[int]) -> torch.Tensor:
    """Return a matrix with a row per token; new rows are the mean of those in use before.

    Summed in double precision: both copies of a tied embedding come out alike on two machines.
    """
    used = tensor[: min(added)]
    sums = [part.sum(0, dtype=torch.float64) for part in torch.split(used, SUMMED_ROWS)]
    mean = (torch.stack(sums).sum(0) / len(used)).to(tensor.dtype)
    made = mean.expand(rows, -1).clone()
    made[: len(tensor)] = tensor
    made[sorted(added)] = mean
    return made
