"""Wheel: packs the installed package, so that nodes get the same as the driver.

Nothing is built or downloaded, and the same files give the same bytes: a node that has them keeps
them.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import io
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from jupyter_mntrain import __version__
from jupyter_mntrain.model.files import write_atomically

NAME = "jupyter_mntrain"
PACKAGE = Path(__file__).parents[3]
_INFO = f"{NAME}-{__version__}.dist-info"
_DATA = f"{NAME}-{__version__}.data/data"
_EXTENSION = "share/jupyter/labextensions/jupyter-mntrain"
_WHEEL = "Wheel-Version: 1.0\nGenerator: mntrain\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip file can hold: the same for all files."""


class Wheel(NamedTuple):
    """A wheel on disk, and its SHA-256."""

    path: Path
    digest: str


def pack(directory: Path) -> Wheel:
    """Write the wheel of the running package into a directory."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{NAME}-{__version__}-py3-none-any.whl"
    content = _packed()
    write_atomically(path, content)
    return Wheel(path, hashlib.sha256(content).hexdigest())


@functools.cache
def _packed() -> bytes:
    record = []
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(_contents()):
            _add(archive, name, content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
            record.append(f"{name},sha256={digest.decode()},{len(content)}\n")
        _add(archive, f"{_INFO}/RECORD", "".join([*record, f"{_INFO}/RECORD,,\n"]).encode())
    return held.getvalue()


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(name, _EPOCH)
    entry.external_attr = 0o644 << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(entry, content)


def _contents() -> Iterator[tuple[str, bytes]]:
    """Yield the name in the wheel and the content of every file."""
    extension = PACKAGE / "labextension"
    for path in PACKAGE.rglob("*"):
        if not path.is_file() or "__pycache__" in path.parts or extension in path.parents:
            continue
        yield f"{NAME}/{path.relative_to(PACKAGE).as_posix()}", path.read_bytes()
    distribution = metadata.distribution("jupyter-mntrain")
    for name in ("METADATA", "entry_points.txt"):
        yield f"{_INFO}/{name}", (distribution.read_text(name) or "").encode()
    yield f"{_INFO}/WHEEL", _WHEEL.encode()
    for file in distribution.files or ():
        if file.parts[1:2] == ("licenses",):
            yield f"{_INFO}/licenses/{file.name}", file.read_binary()
    yield from _shared(distribution, extension)


def _shared(distribution: metadata.Distribution, extension: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the JupyterLab extension and the server's configuration, if they are installed."""
    built = {
        f"{_DATA}/{_EXTENSION}/{path.relative_to(extension).as_posix()}": path.read_bytes()
        for path in (extension.rglob("*") if extension.is_dir() else ())
        if path.is_file()
    }
    for file in distribution.files or ():
        outside = file.as_posix().lstrip("./")
        if outside.startswith(("share/", "etc/")) and (path := Path(str(file.locate()))).is_file():
            built.setdefault(f"{_DATA}/{outside}", path.read_bytes())
    yield from built.items()
