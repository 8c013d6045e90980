"""Picture file: where a verb writes a picture that it was asked for."""

from __future__ import annotations

from pathlib import Path

from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.whereabouts import in_home
from jupyter_mntrain.verbs.context import Context


def picture_path(context: Context, text: str) -> Path:
    """The file that was named; nothing is written yet.

    Raises:
        SpecError: its directory does not exist, or it has the ending of another kind.
    """
    path = context.directory / in_home(text)
    if not path.parent.is_dir():
        raise SpecError(f"{path.parent}: no such directory", fix="create it, or choose another")
    if path.suffix.lower() not in ("", ".png"):
        cause = f"{path.name}: the picture is written as PNG, not as {path.suffix}"
        raise SpecError(cause, fix=f"name it {path.stem}.png")
    return path


def write_picture(path: Path, content: bytes) -> None:
    """Write it.

    Raises:
        SpecError: it cannot be written.
    """
    try:
        path.write_bytes(content)
    except OSError as error:
        cause = f"{path}: cannot be written: {error.strerror}"
        raise SpecError(cause, fix="choose another file") from None
