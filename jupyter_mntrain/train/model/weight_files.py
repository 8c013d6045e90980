"""Weight files of a Hugging Face directory: safetensors, or what ``torch.save`` wrote."""

from __future__ import annotations

import hashlib
import pickle
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import torch
from safetensors import SafetensorError, safe_open

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.families.directories import (
    FORMATS,
    WEIGHT_NAMES,
    lacking_weights,
    listed_files,
    unreadable,
)

SAMPLES, SAMPLE_BYTES = 64, 4096
"""Of a file of weights that is not read whole, and their size."""

INDEX_FILE, SINGLE_FILE = FORMATS[0]

_DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
"""What safetensors calls those of weights."""


class Opened(Protocol):
    """An opened file, or what of it is in memory."""

    def names(self) -> Iterable[str]: ...

    def tensor(self, name: str) -> torch.Tensor: ...

    def shape(self, name: str) -> tuple[int, ...]: ...

    def dtype(self, name: str) -> str:
        """As torch calls it, like ``float32``, where weights may have it."""

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
    """Nothing but tensors is unpickled; of newer files only what is used is read."""

    def __init__(self, path: Path) -> None:
        # Files of torch before 1.6 are no zip archives, and cannot be mapped.
        mapped = zipfile.is_zipfile(path)
        self._path = path
        held = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
        if not isinstance(held, dict):
            raise ValueError("it holds no weights by their names")  # noqa: TRY004 - of a file
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
    """Name the file and the tensor of it that cannot be read: an index may say that it is there."""
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
    """Hold a file that ``torch.save`` wrote against its own checksums, which torch does not read.

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
    """The file of a directory that says which weights there are."""
    return next(one for one in WEIGHT_NAMES if (directory / one).is_file())


def fingerprint(directory: Path, names: Iterable[str] | None = None) -> str:
    """Hash of a directory's weights, by names and sizes of their files and some of their bytes.

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
    """The file of each tensor, by an index or a single file; ``None`` if it is not there."""
    if not path.is_file():
        return None
    if path.suffix == ".json":
        return listed_files(path)
    with opened(path) as file:
        return dict.fromkeys(file.names(), path.name)
